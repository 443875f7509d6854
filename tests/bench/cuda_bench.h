/* cuda_bench.h - what benches of the CUDA backend share: the device that BACKEND_CUDA opens, random
 * inputs, medians. For programs of one file. A failure ends the program. */
#ifndef TESTS_BENCH_CUDA_BENCH_H
#define TESTS_BENCH_CUDA_BENCH_H
#include "common/clock.h"
#include "model-server/backend/numbers.h"
#include "model-server/backend/plugin.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct backend_ops *ops;
static struct device *dev;

static inline int fail(const struct err *e)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, e->msg);
    exit(1);
}

/* False: BACKEND_CUDA names no plugin, which is said. */
static inline bool bench_open(void)
{
    struct err e = ERR_INIT;
    const char *path = getenv("BACKEND_CUDA");
    if (!path) {
        printf("skipped: BACKEND_CUDA names no plugin\n");
        return false;
    }
    const struct backend_plugin *plugin = backend_plugin_load(path, &e);
    if (!plugin || plugin->available(&e))
        fail(&e);
    ops = plugin->ops;
    if (!(dev = ops->open(&(struct device_options){.features = ~0ull}, &e)))
        fail(&e);
    return true;
}

static inline void *host_memory(size_t bytes)
{
    struct err e = ERR_INIT;
    void *p = malloc(bytes);
    if (!p)
        err_nomem(&e), fail(&e);
    return p;
}

/* `host` NULL: zeros. */
static inline void *device_memory(const void *host, size_t bytes)
{
    struct err e = ERR_INIT;
    void *p = ops->alloc(dev, bytes, &e);
    if (!p || (host && ops->upload(dev, p, host, bytes, &e)))
        fail(&e);
    return p;
}

static inline uint32_t next_random(uint32_t *seed)
{
    return *seed = *seed * 1664525u + 1013904223u;
}

/* In (-1, 1): zeros would draw less power, and be faster. */
static inline float *random_floats(size_t n, uint32_t seed)
{
    float *p = host_memory(n * sizeof(*p));
    for (size_t i = 0; i < n; i++)
        p[i] = (float)(int32_t)next_random(&seed) * 0x1p-31f;
    return p;
}

/* e4m3 with scales of blocks, as DeepSeek's, Qwen's and MiniMax's checkpoints have them. */
static const struct format fp8_blocks = {"fp8_blocks", ELEMENT_E4M3, SCALE_F32, 8, 0, 128, 0};

static inline struct mat_codes random_e4m3(const struct format *f, uint32_t rows, uint32_t cols,
                                           uint16_t scale, uint32_t seed)
{
    enum { NOT_A_NUMBER = 0x7f };
    const size_t n = (size_t)rows * cols, blocks = (size_t)rows * format_blocks(f, cols);
    struct mat_codes c = {
        .format = *f, .codes = host_memory(n), .scales = host_memory(blocks * sizeof(*c.scales))};
    for (size_t i = 0; i < n; i++) {
        c.codes[i] = (uint8_t)(next_random(&seed) >> 24);
        c.codes[i] ^= (c.codes[i] & NOT_A_NUMBER) == NOT_A_NUMBER;
    }
    for (size_t i = 0; i < blocks; i++)
        c.scales[i] = f32_of_f16(scale);
    return c;
}

/* Random codes of a matrix, all with the same scale, a float16. */
static inline struct mat_codes random_codes(const struct format *f, uint32_t rows, uint32_t cols,
                                            uint16_t scale, uint32_t seed)
{
    const size_t n = (size_t)rows * cols;
    if (f->element == ELEMENT_E4M3)
        return random_e4m3(f, rows, cols, scale, seed);
    struct mat_codes c = {.format = *f,
                          .codes = host_memory(n),
                          .scale = host_memory(n / f->block * sizeof(*c.scale)),
                          .offset = host_memory(n / f->block * sizeof(*c.offset)),
                          .by = host_memory(n / f->group),
                          .less = host_memory(n / f->group),
                          .factor = host_memory(rows * sizeof(*c.factor))};
    for (size_t i = 0; i < n; i++)
        c.codes[i] = (uint8_t)(next_random(&seed) >> (32 - f->bits));
    for (size_t i = 0; i < n / f->block; i++)
        c.scale[i] = c.offset[i] = scale;
    memset(c.by, 1, n / f->group), memset(c.less, 1, n / f->group);
    for (uint32_t i = 0; i < rows; i++)
        c.factor[i] = 1;
    return c;
}

static inline void free_codes(struct mat_codes *c)
{
    free(c->codes), free(c->scale), free(c->offset), free(c->by), free(c->less), free(c->factor);
    free(c->scales);
}

static inline int ascending(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}
#endif
