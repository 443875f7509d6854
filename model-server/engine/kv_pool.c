#include "model-server/engine/kv_pool.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* Without a limit from the operator, the pool holds this many long requests at once: larger
 * batches would not use more, and other processes may need the memory. */
enum { OF_USE_REQUESTS = 64, OF_USE_TOKENS = 8192 };
enum { TYPICAL_WINDOWS = 8, WINDOWS_EACH = 2 };
/* more would only slow down the router's block accounting */
static const uint64_t most_tokens = 4 << 20;

static uint64_t tokens_of_use(uint32_t longest)
{
    uint64_t each = longest && longest < OF_USE_TOKENS ? longest : OF_USE_TOKENS;
    uint64_t n = each * OF_USE_REQUESTS;
    return n > longest ? n : longest;
}

/* Two cells are reserved for requests that bring none. */
static uint32_t cells_of_use(const struct kv_memory *m, double usable)
{
    const uint32_t requests = m->requests > OF_USE_REQUESTS ? m->requests : OF_USE_REQUESTS;
    const double fit = usable / 2 / (double)m->cell_bytes, want = 3.0 * requests + 2;
    return fit >= 4 ? (uint32_t)(fit < want ? fit : want) : 0;
}

/* ---------------------------------------------------------------- windows */

static uint64_t typical(uint32_t window, uint32_t longest)
{
    uint64_t most = (uint64_t)TYPICAL_WINDOWS * window;
    most = most > OF_USE_TOKENS ? most : OF_USE_TOKENS;
    return longest && longest < most ? longest : most;
}

bool kv_windows_pay(uint32_t window, uint32_t longest)
{
    return (uint64_t)WINDOWS_EACH * window < typical(window, longest);
}

static uint64_t blocks_of(const struct kv_memory *m, uint64_t tokens)
{
    return (tokens + m->block_size - 1) / m->block_size;
}

/* Blocks for the window and the chunk of one prompt, and one more on each side; block 0 is never
 * assigned. */
static uint64_t step_windows(const struct kv_memory *m)
{
    return blocks_of(m, (uint64_t)m->window + m->prefill) + 4;
}

uint64_t kv_request_bytes(const struct kv_memory *m, uint32_t tokens)
{
    const uint64_t all = tokens ? blocks_of(m, tokens) : 1;
    const uint64_t most = m->window ? step_windows(m) : 0;
    return all * m->block_bytes + (all < most ? all : most) * m->window_bytes;
}

/* Blocks of the sliding-window cache: per block of the main cache, and a fixed part. */
struct window_share {
    double each, fixed;
};
static struct window_share share_of(const struct kv_memory *m, double usable)
{
    if (!m->window)
        return (struct window_share){0};
    const double most = usable / 2 / (double)m->window_bytes, step = (double)step_windows(m);
    return (struct window_share){(double)WINDOWS_EACH * m->window /
                                     (double)typical(m->window, m->longest),
                                 step < most ? step : most};
}

struct kv_plan kv_plan(const struct kv_memory *m)
{
    struct kv_plan p = {.why = "free memory"};
    double usable;
    assert(m->block_bytes && m->block_size && m->world > 0);
    assert(!m->window || m->window_bytes);
    if (m->shared) /* the pool will be populated: half is left for the rest of the machine */
        usable = (double)m->free * (m->limit > 0 ? 0.95 : 0.5) * m->fraction / m->world;
    else /* as in TGI: the service may use 90% of the fraction */
        usable = (double)m->free - (1 - 0.9 * m->fraction) * (double)m->total;
    double limit =
        m->limit > 1 ? m->limit : m->limit * (double)m->free / (m->shared ? m->world : 1);
    if (m->limit > 0 && limit < usable) {
        usable = limit;
        p.why = "--kv-cache-memory";
    }
    if (m->cell_bytes && usable > 0) {
        p.n_cells = cells_of_use(m, usable);
        usable = p.n_cells ? usable - (double)p.n_cells * (double)m->cell_bytes : 0;
    }
    usable = usable > 0 ? usable : 0;
    const struct window_share w = share_of(m, usable);
    const double left = usable - w.fixed * (double)m->window_bytes;
    uint64_t n = (uint64_t)(left / ((double)m->block_bytes + w.each * (double)m->window_bytes));
    uint64_t most = m->limit > 0 ? most_tokens : tokens_of_use(m->longest);
    if (n > most / m->block_size + 1) { /* block 0 is never assigned */
        n = most / m->block_size + 1;
        p.why = "as many as can be used";
    }
    assert(n <= UINT32_MAX);
    p.n_blocks = (uint32_t)n;
    p.n_windows = (uint32_t)(w.fixed + w.each * (double)n);
    p.bytes = n * m->block_bytes + p.n_windows * m->window_bytes;
    return p;
}

int kv_too_little(const struct kv_short *s, struct err *e)
{
    static const double gib = 1 << 30;
    char largest[48] = "";
    if (s->largest)
        snprintf(largest, sizeof(largest), ", at most %u tokens fit", s->largest);
    return err_set(e, ERR_SYSTEM,
                   "Not enough memory for a KV cache: %llu bytes are left for the cache "
                   "(--kv-cache-memory), a request of %llu tokens takes %llu bytes "
                   "(--max-total-tokens)%s; of %.2f GiB, weights take %.2f (--quantize, "
                   "--num-shard), workspaces %.2f (--max-batch-prefill-tokens); see also "
                   "--kv-cache-dtype int8, --cuda-memory-fraction",
                   (unsigned long long)s->left, (unsigned long long)s->longest,
                   (unsigned long long)s->longest_bytes, largest, (double)s->total / gib,
                   (double)s->weights / gib, (double)s->workspaces / gib);
}

int kv_agree(struct comm *c, uint32_t *n_blocks, struct err *e)
{
    if (c->world == 1)
        return 0;
    assert(*n_blocks <= 1 << 24);
    float mine = (float)*n_blocks; /* exact */
    float *all = calloc((size_t)c->world, sizeof(*all));
    if (!all)
        return err_nomem(e);
    int rc = c->ops->all_gather(c, &mine, all, 1, e);
    for (int i = 0; rc == 0 && i < c->world; i++)
        if (all[i] < (float)*n_blocks)
            *n_blocks = (uint32_t)all[i];
    free(all);
    return rc;
}
