#include "router/scheduler/cells.h"
#include <assert.h>
#include <stdlib.h>

#define NO_BLOCK UINT32_MAX
enum cell_state { CELL_FREE, CELL_OWNED, CELL_SNAPSHOT };

struct cell {
    enum cell_state state;
    uint32_t prev, next; /* LRU list: snapshots that are not held; free list (next only) */
    /* of a snapshot */
    uint32_t block; /* NO_BLOCK: dropped while it was held */
    uint32_t holds;
    bool pending, rolling;
};

struct cells {
    struct cell *v;
    uint32_t *of; /* [n_blocks] the snapshot of a block, or NO_CELL */
    uint32_t n, n_blocks;
    uint32_t free_head;
    uint32_t lru_head, lru_tail; /* head: coldest */
    uint32_t n_lru, n_pending, n_rolling;
    struct cells_stats st;
};

struct cells *cells_new(uint32_t n_cells, uint32_t n_blocks)
{
    struct cells *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->v = calloc((size_t)n_cells + 1, sizeof(*c->v));
    c->of = malloc(((size_t)n_blocks + 1) * sizeof(*c->of));
    if (!c->v || !c->of) {
        cells_free(c);
        return NULL;
    }
    c->n = n_cells;
    c->n_blocks = n_blocks;
    for (uint32_t i = 0; i < n_blocks; i++)
        c->of[i] = NO_CELL;
    c->free_head = c->lru_head = c->lru_tail = NO_CELL;
    for (uint32_t i = n_cells; i-- > 0;) { /* low numbers are handed out first */
        c->v[i].next = c->free_head;
        c->free_head = i;
    }
    c->st.total = c->st.free = n_cells;
    return c;
}

void cells_free(struct cells *c)
{
    if (!c)
        return;
    free(c->v);
    free(c->of);
    free(c);
}

/* ------------------------------------------------------------------ the lists */
static void lru_push(struct cells *c, uint32_t i)
{
    struct cell *x = &c->v[i];
    x->prev = c->lru_tail;
    x->next = NO_CELL;
    if (c->lru_tail != NO_CELL)
        c->v[c->lru_tail].next = i;
    else
        c->lru_head = i;
    c->lru_tail = i;
    c->n_lru++;
}

static void lru_drop(struct cells *c, uint32_t i)
{
    const struct cell *x = &c->v[i];
    *(x->prev != NO_CELL ? &c->v[x->prev].next : &c->lru_head) = x->next;
    *(x->next != NO_CELL ? &c->v[x->next].prev : &c->lru_tail) = x->prev;
    c->n_lru--;
}

static void free_push(struct cells *c, uint32_t i)
{
    c->v[i] = (struct cell){.state = CELL_FREE, .next = c->free_head};
    c->free_head = i;
    c->st.free++;
}

/* The snapshot can no longer be hit; holders keep it. */
static void detach(struct cells *c, uint32_t i)
{
    struct cell *x = &c->v[i];
    if (x->block != NO_BLOCK)
        c->of[x->block] = NO_CELL;
    c->n_pending -= x->pending;
    c->n_rolling -= x->rolling;
    x->block = NO_BLOCK;
    x->pending = x->rolling = false;
    if (x->holds > 0)
        return;
    lru_drop(c, i);
    c->st.snapshots--;
    free_push(c, i);
}

/* The caller has checked that one is available. */
static uint32_t take_one(struct cells *c)
{
    if (c->free_head == NO_CELL) {
        assert(c->lru_head != NO_CELL);
        c->st.evictions++;
        detach(c, c->lru_head);
    }
    uint32_t i = c->free_head;
    c->free_head = c->v[i].next;
    c->st.free--;
    return i;
}

/* ------------------------------------------------------------------ sequences */
bool cells_room(const struct cells *c, uint32_t held)
{
    uint32_t stays = held != NO_CELL && c->v[held].holds == 0;
    return c->st.free + c->n_lru >= CELLS_EACH + stays;
}

bool cells_take(struct cells *c, uint32_t out[CELLS_EACH])
{
    if (!cells_room(c, NO_CELL))
        return false;
    for (uint32_t k = 0; k < CELLS_EACH; k++) {
        out[k] = take_one(c);
        c->v[out[k]] = (struct cell){.state = CELL_OWNED};
    }
    c->st.owned += CELLS_EACH;
    return true;
}

void cells_give(struct cells *c, const uint32_t own[CELLS_EACH])
{
    for (uint32_t k = CELLS_EACH; k-- > 0;) {
        assert(own[k] < c->n && c->v[own[k]].state == CELL_OWNED);
        free_push(c, own[k]);
    }
    c->st.owned -= CELLS_EACH;
}

/* ------------------------------------------------------------------ snapshots */
uint32_t cells_save(struct cells *c, uint32_t block, bool rolling)
{
    assert(block < c->n_blocks && c->of[block] == NO_CELL);
    if (c->st.free + c->n_lru == 0 || (rolling && c->n_rolling >= (c->n - c->st.owned) / 2))
        return NO_CELL;
    uint32_t i = take_one(c);
    c->v[i] =
        (struct cell){.state = CELL_SNAPSHOT, .block = block, .pending = true, .rolling = rolling};
    c->of[block] = i;
    c->n_pending++;
    c->n_rolling += rolling;
    c->st.snapshots++;
    lru_push(c, i);
    return i;
}

void cells_adopt(struct cells *c, const uint32_t own[CELLS_EACH], uint32_t block)
{
    assert(block < c->n_blocks && c->of[block] == NO_CELL);
    cells_give(c, own);
    assert(c->free_head == own[0]); /* the cell freed last */
    const uint32_t i = take_one(c);
    c->v[i] = (struct cell){.state = CELL_SNAPSHOT, .block = block};
    c->of[block] = i;
    c->st.snapshots++;
    lru_push(c, i);
}

bool cells_pending(const struct cells *c, uint32_t cell)
{
    return c->v[cell].state == CELL_SNAPSHOT && c->v[cell].pending;
}

void cells_saved(struct cells *c)
{
    for (uint32_t i = 0; c->n_pending > 0; i++)
        if (cells_pending(c, i)) {
            c->v[i].pending = false;
            c->n_pending--;
        }
}

void cells_unsaved(struct cells *c)
{
    for (uint32_t i = 0; c->n_pending > 0; i++)
        if (cells_pending(c, i))
            detach(c, i);
}

void cells_settle(struct cells *c, uint32_t block)
{
    uint32_t i = c->of[block];
    if (i == NO_CELL)
        return;
    c->n_rolling -= c->v[i].rolling;
    c->v[i].rolling = false;
}

uint32_t cells_of(const struct cells *c, uint32_t block) { return c->of[block]; }

void cells_hold(struct cells *c, uint32_t cell)
{
    struct cell *x = &c->v[cell];
    assert(x->state == CELL_SNAPSHOT && !x->pending && x->block != NO_BLOCK);
    if (x->holds++ == 0)
        lru_drop(c, cell);
}

void cells_release(struct cells *c, uint32_t cell)
{
    struct cell *x = &c->v[cell];
    assert(x->state == CELL_SNAPSHOT && x->holds > 0);
    if (--x->holds > 0)
        return;
    lru_push(c, cell);
    if (x->block == NO_BLOCK)
        detach(c, cell);
}

void cells_drop(struct cells *c, uint32_t block)
{
    if (c->of[block] != NO_CELL)
        detach(c, c->of[block]);
}

void cells_forget(struct cells *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (c->v[i].state == CELL_SNAPSHOT && c->v[i].block != NO_BLOCK)
            detach(c, i);
}

struct cells_stats cells_stats(const struct cells *c) { return c->st; }

/* ------------------------------------------------------------------ invariants */
void cells_check(const struct cells *c)
{
    uint32_t n_free = 0, n_lru = 0, n_owned = 0, n_snapshots = 0, n_pending = 0, n_rolling = 0,
             n_of = 0, n_unheld = 0;
    for (uint32_t i = c->free_head; i != NO_CELL; i = c->v[i].next, n_free++)
        assert(c->v[i].state == CELL_FREE);
    for (uint32_t i = c->lru_head; i != NO_CELL; i = c->v[i].next, n_lru++)
        assert(c->v[i].state == CELL_SNAPSHOT && c->v[i].holds == 0 && c->v[i].block != NO_BLOCK);
    for (uint32_t i = 0; i < c->n; i++) {
        const struct cell *x = &c->v[i];
        n_owned += x->state == CELL_OWNED;
        n_pending += x->pending;
        n_rolling += x->rolling;
        assert(x->state == CELL_SNAPSHOT || (!x->pending && !x->rolling && !x->holds));
        if (x->state != CELL_SNAPSHOT)
            continue;
        n_snapshots++;
        n_of += x->block != NO_BLOCK;
        assert(x->block == NO_BLOCK ? x->holds > 0 : c->of[x->block] == i);
        assert(!x->pending || x->holds == 0);
        n_unheld += x->holds == 0;
    }
    for (uint32_t b = 0; b < c->n_blocks; b++)
        n_of -= c->of[b] != NO_CELL;
    assert(n_of == 0 && n_lru == n_unheld && n_lru == c->n_lru && n_pending == c->n_pending &&
           n_rolling == c->n_rolling);
    assert(n_free == c->st.free && n_owned == c->st.owned && n_snapshots == c->st.snapshots);
    assert(n_free + n_owned + n_snapshots == c->n && c->st.total == c->n);
}
