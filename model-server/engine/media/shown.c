#include "model-server/engine/media/shown.h"
#include <assert.h>
#include <stdlib.h>

uint32_t shown_blocks_of(uint32_t rows)
{
    return (rows + MODEL_CROSS_BLOCK - 1) / MODEL_CROSS_BLOCK;
}

/* ---------------------------------------------------------------- least recently used */

static void unlink_run(struct shown *p, struct shown_run *r)
{
    *(r->newer ? &r->newer->older : &p->newest) = r->older;
    *(r->older ? &r->older->newer : &p->oldest) = r->newer;
    r->newer = r->older = NULL;
}

static void link_newest(struct shown *p, struct shown_run *r)
{
    r->older = p->newest;
    *(p->newest ? &p->newest->newer : &p->oldest) = r;
    p->newest = r;
}

static void free_run(struct shown *p, struct shown_run *r)
{
    assert(!r->refs);
    for (uint32_t i = 0; i < r->n_blocks; i++)
        p->free[p->n_free++] = r->blocks[i];
    unlink_run(p, r);
    free(r->blocks);
    free(r);
}

int shown_resize(struct shown *p, uint32_t n_blocks, enum kv_dtype dtype, struct err *e)
{
    while (p->oldest)
        free_run(p, p->oldest);
    free(p->free);
    p->n_blocks = p->n_free = 0;
    p->free = malloc((n_blocks + (size_t)1) * sizeof(*p->free));
    if (!p->free)
        return err_nomem(e);
    if (model_cross_resize(p->model, n_blocks, dtype, e))
        return -1;
    while (p->n_free < n_blocks) {
        p->free[p->n_free] = n_blocks - 1 - p->n_free;
        p->n_free++;
    }
    p->n_blocks = n_blocks;
    return 0;
}

struct shown_run *shown_find(const struct shown *p, uint64_t key)
{
    struct shown_run *r = p->newest;
    while (r && r->key != key)
        r = r->older;
    return r;
}

/* ---------------------------------------------------------------- admission */

static bool is_among(uint64_t key, const uint64_t *keys, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && keys[i] != key)
        i++;
    return i < n;
}

/* True if the missing runs fit without evicting any of `keys`. */
static bool fits(const struct shown *p, const uint64_t *keys, const uint32_t *rows, uint32_t n)
{
    uint64_t need = 0, room = p->n_free;
    for (uint32_t i = 0; i < n; i++)
        if (!is_among(keys[i], keys, i) && !shown_find(p, keys[i]))
            need += shown_blocks_of(rows[i]);
    for (const struct shown_run *r = p->oldest; r; r = r->newer)
        room += !r->refs && !is_among(r->key, keys, n) ? r->n_blocks : 0;
    return need <= room;
}

static void evict(struct shown *p, uint32_t blocks, const uint64_t *keys, uint32_t n)
{
    for (struct shown_run *r = p->oldest, *newer; r && p->n_free < blocks; r = newer) {
        newer = r->newer;
        if (!r->refs && !is_among(r->key, keys, n))
            free_run(p, r);
    }
    assert(p->n_free >= blocks);
}

static struct shown_run *add(struct shown *p, uint64_t key, uint32_t rows)
{
    struct shown_run *r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    *r = (struct shown_run){.key = key, .rows = rows, .n_blocks = shown_blocks_of(rows)};
    if (!(r->blocks = malloc(r->n_blocks * sizeof(*r->blocks)))) {
        free(r);
        return NULL;
    }
    for (uint32_t i = 0; i < r->n_blocks; i++)
        r->blocks[i] = p->free[--p->n_free];
    link_newest(p, r);
    return r;
}

int shown_take(struct shown *p, const uint64_t *keys, const uint32_t *rows, uint32_t n,
               struct shown_run **out, struct err *e)
{
    if (!fits(p, keys, rows, n))
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        struct shown_run *r = shown_find(p, keys[i]);
        if (!r) {
            evict(p, shown_blocks_of(rows[i]), keys, n);
            r = add(p, keys[i], rows[i]);
        }
        if (!r) {
            while (i-- > 0)
                shown_drop(p, out[i]);
            return err_nomem(e);
        }
        assert(r->rows == rows[i]);
        r->refs++;
        unlink_run(p, r);
        link_newest(p, r);
        out[i] = r;
    }
    return 1;
}

void shown_drop(struct shown *p, struct shown_run *r)
{
    assert(r->refs);
    if (--r->refs == 0 && !shown_ready(r))
        free_run(p, r);
}

int shown_store(struct shown *p, struct shown_run *r, const float *rows, uint32_t n, struct err *e)
{
    assert(n <= r->rows - r->stored);
    if (model_cross_store(p->model, rows, r->blocks, r->stored, n, e))
        return -1;
    r->stored += n;
    return 0;
}
