/* device.c - the device: threads, kernels, memory; and the table of operations. */
#include "model-server/backend/cpu/cpu.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* The part after the last whole huge page uses small pages, unless little is wasted: a matrix of
 * 2^k bytes also has scales, and would use most of another huge page. */
static size_t map_length(size_t bytes)
{
    size_t huge = round_up(bytes, HUGE_PAGE);
    return huge - bytes <= bytes / 64 ? huge : round_up(bytes, PAGE);
}

/* Without huge pages a weight matrix costs a TLB miss every 4 KiB. Pages are touched, and so
 * placed on a NUMA node, by the thread that first writes them. */
void *cpu_map(size_t bytes)
{
    bytes = map_length(bytes);
    char *p =
        mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    size_t skip = -(uintptr_t)p & (HUGE_PAGE - 1); /* to the next boundary */
    if (skip)
        munmap(p, skip);
    if (skip < HUGE_PAGE)
        munmap(p + skip + bytes, HUGE_PAGE - skip);
    madvise(p + skip, bytes, MADV_HUGEPAGE);
    return p + skip;
}

void cpu_unmap(void *p, size_t bytes)
{
    if (p)
        munmap(p, map_length(bytes));
}

void *cpu_scratch(struct device *d, enum scratch which, size_t bytes)
{
    if (d->scratch[which].bytes >= bytes)
        return d->scratch[which].p;
    bytes = round_up(bytes, HUGE_PAGE); /* mapped, so usable */
    cpu_unmap(d->scratch[which].p, d->scratch[which].bytes);
    d->scratch[which].p = cpu_map(bytes);
    d->scratch[which].bytes = d->scratch[which].p ? bytes : 0;
    if (!d->scratch[which].p)
        err_nomem(&d->fault);
    return d->scratch[which].p;
}

static void cpu_close(struct device *d)
{
    if (!d)
        return;
    pool_free(d->pool);
    for (int i = 0; i < SCRATCH_N; i++)
        cpu_unmap(d->scratch[i].p, d->scratch[i].bytes);
    free(d->thread_scratch);
    free(d);
}

static const char *products_of_bf16(const struct device *d)
{
    return d->squares == SQUARE_PARTS ? ", exact products on AMX"
           : d->half || d->squares    ? ", bfloat16 products"
                                      : "";
}

static const char *products_of_f16(const struct device *d)
{
    return d->half_f16 ? ", float16 products" : "";
}

/* Products that round, and those of matrix units, have the order of their instructions; the others'
 * is the same on all CPUs (docs/decisions/invariance.md), also that of attention in integers. */
static void cpu_arithmetic(const struct device *d, enum kv_dtype type, bool rounds, char *out,
                           size_t size)
{
    const struct kv_products kv = cpu_kv_products(d, type, rounds);
    const struct kv_products exact = cpu_kv_products(d, type, false);
    const bool halves = !kv.quads && (kv.squares != exact.squares || kv.pairs != exact.pairs);
    const char *bf16 = products_of_bf16(d), *f16 = products_of_f16(d);
    const bool own = halves || *bf16 || *f16;
    const char *attention = kv.quads ? "attention in integers"
                            : halves ? "attention in bfloat16"
                                     : "";
    snprintf(out, size, "%s%s%s%s%s", own ? cpu_feature_names(d->features) : "", bf16, f16,
             own && *attention ? ", " : "", attention);
}

static struct device *cpu_open(const struct device_options *o, struct err *e)
{
    struct device *d = calloc(1, sizeof(*d));
    if (!d)
        return err_nomem(e), NULL;
    d->features = cpu_detect() & (unsigned)o->features;
    const char *mask =
        getenv("CPU_FEATURES"); /* NOLINT(concurrency-mt-unsafe): it is never written */
    if (mask)
        d->features &= (unsigned)strtoul(mask, NULL, 0);
    kernels_init(&d->kern, d->features);
    choose_products(d, o->arith);
    if (!(d->pool = pool_new(o->threads, e))) {
        cpu_close(d);
        return NULL;
    }
    int n = pool_threads(d->pool);
    d->thread_scratch = aligned_alloc(64, (size_t)n * THREAD_MEMORY);
    if (!d->thread_scratch) {
        err_nomem(e);
        cpu_close(d);
        return NULL;
    }
    snprintf(d->describe, sizeof(d->describe), "CPU, %d thread%s, %s%s%s", n, n > 1 ? "s" : "",
             cpu_feature_names(d->features), products_of_bf16(d), products_of_f16(d));
    return d;
}

static const char *cpu_describe(struct device *d) { return d->describe; }

static int cpu_memory_op(struct device *d, uint64_t *free_bytes, uint64_t *total_bytes,
                         struct err *e)
{
    (void)d;
    return cpu_memory(free_bytes, total_bytes, e);
}

/* Aligned, zeroed memory. Large blocks are fresh pages that are not touched before they are used:
 * the scratch memory of the largest step is hundreds of MB, and most steps are small. The word
 * before the result is calloc()'s pointer. */
void *cpu_alloc(struct device *d, size_t bytes, struct err *e)
{
    (void)d;
    size_t padded;
    char *raw = NULL;
    if (!__builtin_add_overflow(bytes, 64 + sizeof(char *), &padded))
        raw = calloc(1, padded);
    if (!raw)
        return err_nomem(e), NULL;
    char *p = raw + sizeof(char *) + (-((uintptr_t)raw + sizeof(char *)) & 63);
    memcpy(p - sizeof(char *), &raw, sizeof(raw));
    if (bytes >= HUGE_PAGE)
        madvise((void *)(((uintptr_t)p + 4095) & ~(uintptr_t)4095), (bytes - 4096) & ~(size_t)4095,
                MADV_HUGEPAGE);
    return p;
}

static void cpu_free(struct device *d, void *p)
{
    char *raw = NULL;
    (void)d;
    if (p)
        memcpy(&raw, (char *)p - sizeof(raw), sizeof(raw));
    free(raw);
}

static int cpu_copy(struct device *d, void *dst, const void *src, size_t bytes, struct err *e)
{
    (void)d, (void)e;
    if (bytes)
        memcpy(dst, src, bytes);
    return 0;
}

static int cpu_step_begin(struct device *d, const struct ragged *b, struct err *e)
{
    (void)e;
    assert(!d->batch);
    d->batch = b;
    return 0;
}

static int cpu_step_end(struct device *d, struct err *e)
{
    d->batch = NULL;
    if (d->fault.kind == ERR_NONE)
        return 0;
    *e = d->fault;
    d->fault = (struct err)ERR_INIT;
    return -1;
}

static int cpu_host_threads(struct device *d) { return pool_threads(d->pool); }

static void cpu_host_run(struct device *d,
                         void (*fn)(void *arg, int thread, size_t begin, size_t end), void *arg,
                         size_t n)
{
    pool_run(d->pool, fn, arg, n, 1);
}

/* Rows that an operation wrote are then in the last cache when the next one reads them. */
enum { STEP_BYTES_MOST = 12 << 20 };

const struct backend_ops backend_cpu = {
    .name = "cpu",
    .step_bytes = STEP_BYTES_MOST,
    .wide_values = true,
    .rounds_activations = true,
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .arithmetic = cpu_arithmetic,
    .memory = cpu_memory_op,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .tile_rows = cpu_tile_rows,
    .head_size = cpu_head_size,
    .weight_layout = cpu_weight_layout,
    .weight_image = cpu_weight_image,
    .weight_mapped = cpu_weight_mapped,
    .step_begin = cpu_step_begin,
    .step_end = cpu_step_end,
    .host_threads = cpu_host_threads,
    .host_run = cpu_host_run,
    .observe = cpu_observe,
    .mlp = cpu_mlp,
// clang-format off
#define X(op) .op = cpu_##op,
    BACKEND_OPS(X)
#undef X
    // clang-format on
};
