/* entries.c - keys that stand for several positions of a sequence (DeepSeek V4), and rotations of
 * parts of heads. Entries are rows of a block, which attention_top.c copies beside the keys of a
 * window. */
#include "model-server/backend/cpu/cpu.h"
#include <string.h>

/* ---------------------------------------------------------------- turn */

struct turn_job {
    const struct device *d;
    float *x;
    const struct turn *p;
};

static void turn_tokens(void *arg, int thread, size_t begin, size_t end)
{
    const struct turn_job *j = arg;
    const struct turn *p = j->p;
    const uint32_t half = p->rot_dim / 2;
    _Alignas(64) float back[MAX_HEAD_DIM];
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        const float *row = p->rope + t * p->rot_dim;
        for (uint32_t i = 0; p->back && i < half; i++)
            back[i] = row[i], back[half + i] = -row[half + i];
        for (uint32_t h = 0; h < p->n_heads; h++)
            j->d->kern.rotate(j->x + (t * p->n_heads + h) * p->dim + p->at, p->back ? back : row,
                              p->rot_dim, p->interleaved);
    }
}

void cpu_turn(struct device *d, float *x, const struct turn *p)
{
    struct turn_job j = {d, x, p};
    pool_run(d->pool, turn_tokens, &j, d->batch->n_tokens, 4);
}

/* ---------------------------------------------------------------- keep */

struct keep_job {
    const struct device *d;
    const struct kv_cache *kv;
    const float *x;
    uint32_t layer, every; /* every: of entries; 0: keys of tokens */
};

/* The row of an entry whose last position is number `offset` of a block. */
static char *entry_at(const struct kv_cache *kv, uint32_t layer, uint32_t block, uint32_t offset,
                      uint32_t every)
{
    const struct kv_stream *s = kv_entry_stream(kv, layer);
    return s->data + block * s->block_bytes + entry_row(offset, every) * s->page_bytes;
}

static void keep_entry(const struct keep_job *j, uint32_t slot, const float *x)
{
    const struct kv_stream *s = kv_entry_stream(j->kv, j->layer);
    const uint32_t size = j->kv->desc.block_size;
    char *to = entry_at(j->kv, j->layer, slot / size, slot % size, j->every);
    union kv_narrow small;
    float scale;
    const void *from = kv_narrow(&j->d->kern, j->kv->desc.dtype, &small, x, s->dim, &scale);
    memcpy(to, from, kv_narrow_bytes(j->kv->desc.dtype, s->dim));
    memcpy(to + s->page_bytes - sizeof(scale), &scale, sizeof(scale));
}

static void keep_tokens(void *arg, int thread, size_t begin, size_t end)
{
    const struct keep_job *j = arg;
    const struct ragged *b = j->d->batch;
    const uint32_t *slots = kv_slots(&j->kv->desc, b);
    const struct kv_stream *k = kv_stream(j->kv, j->layer, false, 0);
    const struct kv_stream *v = kv_stream(j->kv, j->layer, true, 0);
    const enum kv_dtype type = j->kv->desc.dtype;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        const float *x = j->x + t * k->dim;
        if (j->every) {
            if ((b->pos[t] + 1) % j->every == 0)
                keep_entry(j, slots[t], x);
            continue;
        }
        kv_store(&j->d->kern, type, k, false, slots[t], x);
        kv_store(&j->d->kern, type, v, true, slots[t], x);
    }
}

void cpu_keep(struct device *d, struct kv_cache *cache, uint32_t layer, const float *x,
              bool entries)
{
    struct keep_job j = {d, cache, x, layer, entries ? cache->every[layer] : 0};
    pool_run(d->pool, keep_tokens, &j, d->batch->n_tokens, 4);
}

/* ---------------------------------------------------------------- attention */

void cpu_copy_entry(const struct kv_cache *kv, uint32_t layer, const uint32_t *blocks,
                    uint32_t entry, uint32_t every, char *page, bool v, uint32_t at)
{
    const struct kv_stream *s = kv_entry_stream(kv, layer);
    const uint32_t last = (entry + 1) * every - 1, size = kv->desc.block_size;
    const char *row = entry_at(kv, layer, blocks[last / size], last % size, every);
    float scale;
    memcpy(&scale, row + s->page_bytes - sizeof(scale), sizeof(scale));
    kv_put(page, kv->desc.dtype, v, at, s->dim, row, scale);
}
