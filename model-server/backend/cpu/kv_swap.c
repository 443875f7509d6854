/* kv_swap.c - copies KV blocks to host memory and back: a block is contiguous there, its heads
 * one after the other in the order of the cache. */
#include "model-server/backend/cpu/cpu.h"
#include <string.h>

void *cpu_host_alloc(struct device *d, size_t bytes, struct err *e)
{
    (void)d;
    void *p = cpu_map(bytes);
    if (!p)
        err_set(e, ERR_SYSTEM, "no memory for a swap region of %zu bytes", bytes);
    return p;
}

void cpu_host_free(struct device *d, void *p, size_t bytes)
{
    (void)d;
    if (p)
        cpu_unmap(p, bytes);
}

struct move {
    const struct kv_cache *kv;
    const uint32_t *blocks, *slots;
    char *host;
    bool out;
};

static void move_blocks(void *arg, int thread, size_t begin, size_t end)
{
    const struct move *m = arg;
    const struct kv_cache *kv = m->kv;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        char *piece = m->host + m->slots[i] * kv->block_bytes;
        for (uint32_t s = 0; s < kv->n_streams; s++) {
            const size_t bytes = kv->streams[s].block_bytes;
            char *block = kv->streams[s].data + m->blocks[i] * bytes;
            memcpy(m->out ? piece : block, m->out ? block : piece, bytes);
            piece += bytes;
        }
    }
}

static int move(struct device *d, const struct move *m, uint32_t n, struct err *e)
{
    for (uint32_t i = 0; i < n; i++)
        if (m->blocks[i] >= m->kv->desc.n_blocks)
            return err_set(e, ERR_VALIDATION, "KV block %u: there are %u", m->blocks[i],
                           m->kv->desc.n_blocks);
    pool_run(d->pool, move_blocks, (void *)(uintptr_t)m, n, 1);
    return 0;
}

int cpu_kv_read(struct device *d, struct kv_cache *kv, const uint32_t *blocks, void *host,
                const uint32_t *slots, uint32_t n, struct err *e)
{
    return move(d, &(struct move){kv, blocks, slots, host, true}, n, e);
}

int cpu_kv_write(struct device *d, struct kv_cache *kv, const uint32_t *blocks, const void *host,
                 const uint32_t *slots, uint32_t n, struct err *e)
{
    return move(d, &(struct move){kv, blocks, slots, (char *)(uintptr_t)host, false}, n, e);
}
