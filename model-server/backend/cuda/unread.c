/* unread.c - liveness of rows in fp32 within a step.
 *
 * Rows for a product are stored in 16 bits by the operation that makes them (fuse_narrow()).
 * Whether anyone else reads them is known when something else is written in their place: until
 * then, every operation that is recorded is searched for an address within them. If there is none,
 * they are not stored in fp32. Rows that are still in place when the step ends may be read later,
 * and are stored.
 *
 * So an operation must pass the addresses of what it reads in its arguments, not in tables. */
#include "model-server/backend/cuda/cuda.h"
#include <string.h>

static uint32_t *alone_of(struct device *d, const struct unread *u)
{
    return (uint32_t *)(void *)(d->rec.bytes + u->alone);
}

static void forget(struct device *d, uint32_t i, bool stored)
{
    struct recorder *r = &d->rec;
    if (stored)
        *alone_of(d, &r->unread[i]) = false;
    r->unread[i] = r->unread[--r->n_unread];
}

void unread_mark(struct device *d, const void *rows, size_t bytes, uint32_t *alone)
{
    struct recorder *r = &d->rec;
    const uintptr_t begin = (uintptr_t)rows;
    if (r->n_unread == MAX_UNREAD)
        forget(d, 0, true);
    *alone = true;
    r->unread[r->n_unread++] =
        (struct unread){begin, begin + bytes, (uint32_t)((char *)alone - r->bytes)};
}

/* Addresses in the arguments that lie within the rows. */
static uint32_t references(const struct unread *u, const void *args, uint32_t size)
{
    uint32_t n = 0;
    for (uint32_t at = 0; at + sizeof(uintptr_t) <= size; at += sizeof(uintptr_t)) {
        uintptr_t word;
        memcpy(&word, (const char *)args + at, sizeof(word));
        n += word >= u->begin && word < u->end;
    }
    return n;
}

/* Rows that an operation writes, without having read what was there. */
struct span_of_bytes {
    uintptr_t begin, end; /* equal: not known */
};
static struct span_of_bytes rows_at(const float *y, uint32_t rows, size_t n)
{
    return (struct span_of_bytes){(uintptr_t)y, (uintptr_t)(y + rows * n)};
}
static struct span_of_bytes written(launch_fn *fn, const void *args)
{
    if (fn == norm_launch) {
        const struct norm_args *a = args;
        const bool writes = !a->plain && a->x != a->y;
        return writes ? rows_at(a->y, a->rows, a->n) : (struct span_of_bytes){0};
    }
    if (is_attention(fn)) {
        const struct attn_args *a = args;
        return rows_at(a->o, a->tokens, (size_t)a->n_heads * a->head_dim);
    }
    const struct linear_args *a = args; /* other products' arguments begin with it */
    const bool product = fn == linear_wgmma_launch || fn == linear_tile_launch ||
                         fn == linear_stream_launch || fn == linear_any_launch ||
                         fn == linear_chain_launch;
    return product && !a->table ? rows_at(a->y, a->rows, a->w.rows) : (struct span_of_bytes){0};
}

void unread_look(struct device *d, launch_fn *fn, const void *args, uint32_t size)
{
    if (!d->rec.n_unread)
        return;
    const struct span_of_bytes to = written(fn, args);
    for (uint32_t i = d->rec.n_unread; i-- > 0;) {
        const struct unread *u = &d->rec.unread[i];
        const bool over = to.begin <= u->begin && to.end >= u->end;
        const bool within = to.begin >= u->begin && to.begin < u->end;
        const uint32_t read = references(u, args, size) - (within && to.begin != to.end);
        if (read || over || within)
            forget(d, i, read || !over);
    }
}

void unread_over(struct device *d, const void *rows)
{
    for (uint32_t i = d->rec.n_unread; i-- > 0;)
        if (d->rec.unread[i].begin == (uintptr_t)rows)
            forget(d, i, false);
}

void unread_end(struct device *d)
{
    while (d->rec.n_unread)
        forget(d, 0, true);
}
