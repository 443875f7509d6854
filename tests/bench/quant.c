/* quant.c - products of quantised weights against the limits of the machine: bandwidth for few rows
 * of x, the rate of 8-bit multiply-adds for many. Limits are measured before and after; the table
 * says how many times the rows a second of one row a batch gets.
 *
 *   quant [threads] [format]     default: all allowed cores, all schemes and packed formats */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/numbers.h"
#include "tests/bench/normal.h"
#include "tests/bench/probes.h"
#include "tests/bench/timing.h"
#include <string.h>

static const struct backend_ops *const ops = &backend_cpu;
static struct device *dev;

static void limits(void)
{
    double read = BEST(4, probe_read(dev->pool, dev->features));
    double fma = BEST(3, probe_fma(dev->pool, dev->features));
    double dot = BEST(3, probe_dot(dev->pool, dev->features));
    printf("limits: %.1f GB/s read, %.0f GFLOP/s fp32 FMA", probe_bytes(dev->pool) / read / 1e9,
           probe_ops(dev->pool, dev->features) / fma / 1e9);
    if (probe_dot(dev->pool, dev->features))
        printf(", %.0f GOP/s vpdpbusd", 4 * probe_ops(dev->pool, dev->features) / dot / 1e9);
    printf("\n");
}

/* Random codes of a format, the rows over and over. */
static struct weight *coded(uint32_t rows, uint32_t cols, const struct format *f, double *load)
{
    enum { ROWS = 64 };
    struct err e = ERR_INIT;
    const size_t n = (size_t)ROWS * cols;
    struct mat_codes c = {.format = *f};
    struct mat_part parts[1024];
    c.codes = malloc(n), c.by = malloc(n), c.less = malloc(n);
    c.scale = malloc(n * 2), c.offset = malloc(n * 2), c.factor = malloc(ROWS * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        c.codes[i] = (uint8_t)(i * 40503 / 7 % (1u << f->bits));
        c.by[i] = c.less[i] = (int8_t)(i * 40503 / 7 % 32);
        c.scale[i] = c.offset[i] = 0x2400; /* 1/64 */
    }
    for (int i = 0; i < ROWS; i++)
        c.factor[i] = 1;
    for (uint32_t i = 0; i < rows / ROWS; i++)
        parts[i] =
            (struct mat_part){.rows = ROWS, .cols = cols, .source = SOURCE_CODES, .codes = &c};
    *load = seconds();
    struct weight *w = ops->weight_load(
        dev, &(struct mat_desc){parts, (int)(rows / ROWS), DT_BF16, .arith = ARITH_INT8}, &e);
    *load = seconds() - *load;
    if (!w)
        die(&e);
    free(c.codes), free(c.by), free(c.less), free(c.scale), free(c.offset), free(c.factor);
    return w;
}

static struct weight *matrix(uint32_t rows, uint32_t cols, enum quant q, double *load)
{
    struct err e = ERR_INIT;
    uint16_t *some = malloc((size_t)cols * 64 * sizeof(*some)); /* bf16, the rows over and over */
    uint64_t seed = 1;
    for (size_t i = 0; i < (size_t)cols * 64; i++)
        some[i] = bf16_of_f32(normal(&seed) / 32);
    struct mat_part parts[1024];
    for (uint32_t i = 0; i < rows / 64; i++)
        parts[i] = (struct mat_part){some, DT_BF16, 64, cols, cols, 1};
    *load = seconds();
    struct weight *w =
        ops->weight_load(dev, &(struct mat_desc){parts, (int)(rows / 64), DT_BF16, q}, &e);
    *load = seconds() - *load;
    if (!w)
        die(&e);
    free(some);
    return w;
}

static double seconds_linear(uint32_t rows, const struct weight *w, int runs)
{
    float *x = numbers(dev, (size_t)rows * w->cols), *y = numbers(dev, (size_t)rows * w->rows);
    ops->linear(dev, y, x, rows, w, NULL);
    double s = BEST(runs, ops->linear(dev, y, x, rows, w, NULL));
    ops->free(dev, x), ops->free(dev, y);
    return s;
}

/* Of a format, or of a scheme. */
struct kind {
    const char *name;
    enum quant quant;
    const struct format *format;
};

static struct weight *load_matrix(uint32_t rows, uint32_t cols, const struct kind *k, double *load)
{
    return k->format ? coded(rows, cols, k->format, load) : matrix(rows, cols, k->quant, load);
}

static void bench(const struct kind *kind)
{
    static const uint32_t few[] = {1, 2, 4, 8, 12, 16, 24, 32};
    enum { N = 65536, K = 4096 };
    double load, one = 0;
    struct weight *w = load_matrix(N, K, kind, &load);
    printf("%s: %d x %d loaded in %.2f s\n", kind->name, N, K, load);
    for (size_t i = 0; i < sizeof(few) / sizeof(*few); i++) {
        double s = seconds_linear(few[i], w, 5);
        one = i ? one : s;
        printf("  %4u rows %8.2f ms %6.1f GB/s %7.0f GOP/s   x%.2f the rows of one\n", few[i],
               s * 1e3, (double)w->bytes / s / 1e9, 2.0 * N * K * few[i] / s / 1e9,
               few[i] * one / s);
    }
    ops->weight_free(dev, w);
    w = load_matrix(8192, 2048, kind, &load);
    double s = seconds_linear(512, w, 5);
    printf("   512 rows %8.2f ms, 8192 x 2048: %.0f GOP/s\n", s * 1e3,
           2.0 * 8192 * 2048 * 512 / s / 1e9);
    ops->weight_free(dev, w);
    w = load_matrix(2048, 8192, kind, &load);
    s = seconds_linear(512, w, 5);
    printf("   512 rows %8.2f ms, 2048 x 8192: %.0f GOP/s\n", s * 1e3,
           2.0 * 8192 * 2048 * 512 / s / 1e9);
    ops->weight_free(dev, w);
}

static void bench_named(const char *name, enum quant q, const struct format *f, const char *only)
{
    if (!only || strcmp(only, name) == 0)
        bench(&(struct kind){name, q, f});
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    struct device_options o = {.threads = argc > 1 ? atoi(argv[1]) : 0, .features = ~0ull};
    if (!(dev = ops->open(&o, &e)))
        die(&e);
    printf("%s\n", ops->describe(dev));
    limits();
    for (enum quant q = QUANT_NONE; q < QUANT_N; q++)
        bench_named(q ? quant_name(q) : "bfloat16", q, NULL, argc < 3 ? NULL : argv[2]);
    for (int i = FORMAT_Q4_0; i < FORMAT_N; i++)
        bench_named(formats[i].name, QUANT_NONE, &formats[i], argc < 3 ? NULL : argv[2]);
    limits();
    ops->close(dev);
    return 0;
}
