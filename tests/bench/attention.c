/* attention.c - attention over the KV cache of the CPU backend, and what writes the cache, against
 * the limits of the machine it runs on: see kernels.c. K and V are read from memory where the rows
 * say so (a cache of many layers, walked one after the other), from the processor's caches
 * otherwise.
 *
 *   attention [threads] [type of the cache] [row] [rounds]
 *
 * Default: all allowed cores, types and rows, in fp32. With `rounds` q and the weights may be
 * rounded to bfloat16, or with int4 to 8 bits. */
#include "model-server/backend/cpu/cpu.h"
#include "tests/bench/probes.h"
#include "tests/bench/timing.h"
#include <string.h>

static const struct backend_ops *const ops = &backend_cpu;
static struct device *dev;
static bool rounds;             /* kv_desc.rounds */
static double bandwidth, flops; /* what the machine can do: bytes and operations a second */

/* `seqs` sequences at `depth`, `n` new tokens each, in one of `layers` layers. */
struct shape {
    uint32_t heads, kv_heads, dim, seqs, depth, n, layers;
    bool scattered;
};

struct rig {
    struct kv_cache *kv;
    uint32_t *blocks, *slots;
    struct span *spans;
    float *qkv, *o, *rope;
    struct ragged batch;
    struct attn attn;
    struct rope_kv rope_kv;
};

enum { BLOCK = 16 };

static void *memory(size_t bytes)
{
    struct err e = ERR_INIT;
    void *p = ops->alloc(dev, bytes, &e);
    if (!p)
        die(&e);
    return p;
}

static void rig_open(struct rig *r, const struct shape *s, enum kv_dtype t)
{
    struct err e = ERR_INIT;
    uint32_t per_seq = (s->depth + BLOCK - 1) / BLOCK, tokens = s->seqs * s->n;
    uint32_t width = (s->heads + 2 * s->kv_heads) * s->dim;
    struct kv_desc kd = {s->layers, s->seqs * per_seq, BLOCK, t, {s->kv_heads, s->dim, s->dim}};
    kd.rounds = rounds;
    if (!(r->kv = ops->kv_new(dev, &kd, &e)))
        die(&e);
    memset(r->kv->data, 0x3c, r->kv->bytes);
    r->blocks = memory(kd.n_blocks * sizeof(*r->blocks));
    r->slots = memory(tokens * sizeof(*r->slots));
    r->spans = memory(s->seqs * sizeof(*r->spans));
    for (uint32_t i = 0; i < kd.n_blocks; i++)
        r->blocks[i] = s->scattered ? (uint32_t)((uint64_t)i * 7919 % kd.n_blocks) : i;
    for (uint32_t i = 0; i < s->seqs; i++)
        r->spans[i] = (struct span){i * s->n, s->n, s->depth, r->blocks + (size_t)i * per_seq};
    for (uint32_t i = 0; i < tokens; i++) {
        uint32_t at = s->depth - s->n + i % s->n;
        r->slots[i] = r->spans[i / s->n].blocks[at / BLOCK] * BLOCK + at % BLOCK;
    }
    r->qkv = numbers(dev, (size_t)tokens * width);
    r->o = memory((size_t)tokens * s->heads * s->dim * 4);
    r->rope = memory((size_t)tokens * s->dim * 4);
    r->batch = (struct ragged){
        .n_tokens = tokens, .n_spans = s->seqs, .spans = r->spans, .slots = r->slots};
    r->attn = (struct attn){s->heads, s->kv_heads, s->dim, 0.125f};
    r->rope_kv =
        (struct rope_kv){s->heads, s->kv_heads, s->dim, s->dim, false, r->rope, NULL, NULL, 0};
}

static void rig_close(struct rig *r)
{
    ops->kv_free(dev, r->kv);
    ops->free(dev, r->blocks), ops->free(dev, r->slots), ops->free(dev, r->spans);
    ops->free(dev, r->qkv), ops->free(dev, r->o), ops->free(dev, r->rope);
}

static void attend(struct rig *r, const struct shape *s)
{
    uint32_t width = (s->heads + 2 * s->kv_heads) * s->dim;
    for (uint32_t l = 0; l < s->layers; l++)
        ops->attention(dev, r->o, r->qkv, width, r->kv, l, &r->attn);
}

static void row(const struct shape *s, enum kv_dtype t)
{
    struct rig r;
    struct err e = ERR_INIT;
    rig_open(&r, s, t);
    ops->step_begin(dev, &r.batch, &e);
    double write = BEST(5, ops->rope_kv(dev, r.qkv, r.kv, 0, &r.rope_kv));
    double read = BEST(s->n > 1 ? 3 : 7, attend(&r, s)) / s->layers;
    ops->step_end(dev, &e);
    double keys = s->n * (s->depth - (s->n - 1) / 2.0) * s->seqs; /* seen by all tokens together */
    double rate = keys * s->heads * s->dim * 4 / read;
    double bytes = (double)s->seqs * s->depth * (double)r.kv->block_bytes / BLOCK / s->layers;
    printf("  %-9s %2u/%u x %3u  %2u x %4u new at %5u%s%s %9.3f ms %6.1f GB/s (%.2f) %6.1f GFLOP/s "
           "(%.2f)  store %.3f ms\n",
           kv_dtype_name(t), s->heads, s->kv_heads, s->dim, s->seqs, s->n, s->depth,
           s->layers > 1 ? ", from memory" : "", s->scattered ? ", scattered" : "", read * 1e3,
           bytes / read / 1e9, bytes / read / bandwidth, rate / 1e9, rate / flops, write * 1e3);
    rig_close(&r);
}

static const struct shape shapes[] = {
    /* Llama-3.2-1B */
    {32, 8, 64, 1, 2048, 1, 1, false},
    {32, 8, 64, 1, 2048, 1, 32, false},
    {32, 8, 64, 16, 1024, 1, 4, false},
    {32, 8, 64, 16, 1024, 1, 4, true},
    {32, 8, 64, 1, 32768, 1, 2, false},
    {32, 8, 64, 1, 512, 512, 1, false},
    {32, 8, 64, 1, 2048, 2048, 1, false},
    /* a query head for each K/V head; seven for each; wide heads */
    {16, 16, 64, 1, 2048, 1, 16, false},
    {14, 2, 64, 1, 4096, 1, 32, false},
    {32, 8, 128, 1, 2048, 1, 8, false},
    {16, 16, 64, 1, 1024, 1024, 1, false},
    {14, 2, 64, 1, 1024, 1024, 1, false},
    {32, 8, 128, 1, 1024, 1024, 1, false},
};

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    struct device_options o = {.threads = argc > 1 ? atoi(argv[1]) : 0, .features = ~0ull};
    if (!(dev = ops->open(&o, &e)))
        die(&e);
    rounds = argc > 4 && !strcmp(argv[4], "rounds");
    timing_alone = pool_threads(dev->pool) == 1;
    bandwidth = probe_bytes(dev->pool) / BEST(3, probe_read(dev->pool, dev->features));
    flops = probe_ops(dev->pool, dev->features) / BEST(3, probe_fma(dev->pool, dev->features));
    printf("%s\nlimits: %.1f GB/s read, %.1f GFLOP/s fp32 FMA\n", ops->describe(dev),
           bandwidth / 1e9, flops / 1e9);
    printf("query heads/KV heads x dimensions, tokens at a depth: time of a layer, K and V read, "
           "operations; storing K and V\n");
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        for (enum kv_dtype t = KV_F32; t < KV_N; t++)
            if ((argc < 3 || !strcmp(argv[2], kv_dtype_name(t))) &&
                (argc < 4 || (size_t)atoi(argv[3]) == i))
                row(&shapes[i], t);
    bandwidth = probe_bytes(dev->pool) / BEST(3, probe_read(dev->pool, dev->features));
    printf("read limit again: %.1f GB/s\n", bandwidth / 1e9);
    ops->close(dev);
    return 0;
}
