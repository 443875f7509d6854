#include "router/scheduler/windows.h"
#include <assert.h>
#include <stdlib.h>

enum { NONE = 0 }; /* block 0 is never handed out: it terminates lists, too */

struct item {
    uint32_t prev, next; /* LRU list, coldest first; free list (next only) */
    uint32_t block;      /* the KV block it belongs to */
    uint32_t holds, filled;
};

struct windows {
    struct item *v;
    uint32_t *of; /* [n_blocks] */
    uint32_t n, n_blocks;
    uint32_t free_head, head, tail; /* head: coldest */
    struct windows_stats st;
};

struct windows *windows_new(uint32_t n, uint32_t n_blocks)
{
    struct windows *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    assert(n > 1);
    w->v = calloc(n, sizeof(*w->v));
    w->of = calloc((size_t)n_blocks + 1, sizeof(*w->of));
    if (!w->v || !w->of) {
        windows_free(w);
        return NULL;
    }
    w->n = n;
    w->n_blocks = n_blocks;
    for (uint32_t i = n; i-- > 1;) { /* low numbers are handed out first */
        w->v[i].next = w->free_head;
        w->free_head = i;
    }
    w->st.total = w->st.free = n - 1;
    return w;
}

void windows_free(struct windows *w)
{
    if (!w)
        return;
    free(w->v);
    free(w->of);
    free(w);
}

/* ------------------------------------------------------------------ the lists */
static void list_put(struct windows *w, uint32_t i, bool warm)
{
    struct item *x = &w->v[i];
    x->prev = warm ? w->tail : NONE;
    x->next = warm ? NONE : w->head;
    *(x->prev ? &w->v[x->prev].next : &w->head) = i;
    *(x->next ? &w->v[x->next].prev : &w->tail) = i;
    w->st.cached++;
}

static void list_drop(struct windows *w, uint32_t i)
{
    const struct item *x = &w->v[i];
    *(x->prev ? &w->v[x->prev].next : &w->head) = x->next;
    *(x->next ? &w->v[x->next].prev : &w->tail) = x->prev;
    w->st.cached--;
}

static void make_free(struct windows *w, uint32_t i)
{
    w->of[w->v[i].block] = NONE;
    w->v[i] = (struct item){.next = w->free_head};
    w->free_head = i;
    w->st.free++;
}

/* ------------------------------------------------------------------ public functions */
uint32_t windows_of(const struct windows *w, uint32_t block)
{
    assert(block < w->n_blocks);
    return w->of[block];
}

uint32_t windows_filled(const struct windows *w, uint32_t block)
{
    return w->v[windows_of(w, block)].filled;
}

void windows_fill(struct windows *w, uint32_t block, uint32_t tokens)
{
    const uint32_t i = windows_of(w, block);
    assert(i && w->v[i].holds > 0);
    if (w->v[i].filled < tokens)
        w->v[i].filled = tokens;
}

bool windows_cached(const struct windows *w, uint32_t block)
{
    const uint32_t i = windows_of(w, block);
    return i && w->v[i].holds == 0;
}

uint32_t windows_holds(const struct windows *w, uint32_t block)
{
    return w->v[windows_of(w, block)].holds;
}

uint32_t windows_room(const struct windows *w) { return w->st.free + w->st.cached; }

uint32_t windows_take(struct windows *w, uint32_t block)
{
    assert(windows_room(w) > 0 && !windows_of(w, block));
    if (!w->free_head) {
        const uint32_t coldest = w->head;
        list_drop(w, coldest);
        make_free(w, coldest);
        w->st.evictions++;
    }
    const uint32_t i = w->free_head;
    w->free_head = w->v[i].next;
    w->st.free--;
    w->st.used++;
    w->v[i] = (struct item){.block = block, .holds = 1};
    w->of[block] = i;
    return i;
}

uint32_t windows_hold(struct windows *w, uint32_t block)
{
    const uint32_t i = windows_of(w, block);
    assert(i);
    if (w->v[i].holds++ == 0) {
        list_drop(w, i);
        w->st.used++;
    }
    return i;
}

void windows_release(struct windows *w, uint32_t block, enum windows_end end)
{
    const uint32_t i = windows_of(w, block);
    assert(i && w->v[i].holds > 0);
    if (--w->v[i].holds > 0)
        return;
    w->st.used--;
    if (end == WINDOWS_FREE)
        make_free(w, i);
    else
        list_put(w, i, end == WINDOWS_WARM);
}

void windows_move(struct windows *w, uint32_t from, uint32_t to)
{
    const uint32_t i = windows_of(w, from);
    assert(i && !windows_of(w, to));
    w->of[from] = NONE;
    w->of[to] = i;
    w->v[i].block = to;
}

void windows_drop(struct windows *w, uint32_t block)
{
    if (!windows_cached(w, block))
        return;
    const uint32_t i = windows_of(w, block);
    list_drop(w, i);
    make_free(w, i);
}

struct windows_stats windows_stats(const struct windows *w) { return w->st; }

void windows_check(const struct windows *w)
{
    uint32_t n_free = 0, n_cached = 0, n_of = 0, n_used = 0, unheld = 0;
    for (uint32_t i = w->free_head; i; i = w->v[i].next, n_free++)
        assert(w->v[i].holds == 0);
    for (uint32_t i = w->head; i; i = w->v[i].next, n_cached++) {
        assert(w->v[i].holds == 0 && w->of[w->v[i].block] == i);
        assert(w->v[i].next ? w->v[w->v[i].next].prev == i : w->tail == i);
    }
    for (uint32_t b = 0; b < w->n_blocks; b++) {
        const uint32_t i = w->of[b];
        n_of += i != NONE;
        n_used += i && w->v[i].holds > 0;
        unheld += i && w->v[i].holds == 0;
        assert(!i || w->v[i].block == b);
    }
    assert(n_free == w->st.free && n_cached == w->st.cached && n_used == w->st.used);
    assert(unheld == n_cached && n_of == n_used + n_cached);
    assert(n_free + n_cached + n_used == w->st.total && w->st.total == w->n - 1);
}
