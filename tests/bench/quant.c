/* quant.c - products of quantised weights against the limits of the machine: bandwidth for few rows
 * of x, the rate of 8-bit multiply-adds for many. Limits are measured before and after; the table
 * says how many times the rows a second of one row a batch gets.
 *
 *   quant [threads] [format]     default: all allowed cores, all formats */
#include "model-server/backend/cpu/cpu.h"
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

static struct weight *matrix(uint32_t rows, uint32_t cols, enum quant q, double *load)
{
    struct err e = ERR_INIT;
    uint16_t *some = malloc((size_t)cols * 64 * sizeof(*some)); /* bf16, the rows over and over */
    for (size_t i = 0; i < (size_t)cols * 64; i++)
        some[i] = (uint16_t)(0x3c00 + i * 40503 % 512);
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

static void bench(enum quant q)
{
    static const uint32_t few[] = {1, 2, 4, 8, 12, 16, 24, 32};
    enum { N = 65536, K = 4096 };
    double load, one = 0;
    struct weight *w = matrix(N, K, q, &load);
    printf("%s: %d x %d loaded from bf16 in %.2f s, %.2f GB/s\n", q ? quant_name(q) : "bfloat16", N,
           K, load, 2.0 * N * K / load / 1e9);
    for (size_t i = 0; i < sizeof(few) / sizeof(*few); i++) {
        double s = seconds_linear(few[i], w, 5);
        one = i ? one : s;
        printf("  %4u rows %8.2f ms %6.1f GB/s %7.0f GOP/s   x%.2f the rows of one\n", few[i],
               s * 1e3, (double)w->bytes / s / 1e9, 2.0 * N * K * few[i] / s / 1e9,
               few[i] * one / s);
    }
    ops->weight_free(dev, w);
    w = matrix(8192, 2048, q, &load);
    double s = seconds_linear(512, w, 5);
    printf("   512 rows %8.2f ms, 8192 x 2048: %.0f GOP/s\n", s * 1e3,
           2.0 * 8192 * 2048 * 512 / s / 1e9);
    ops->weight_free(dev, w);
    w = matrix(2048, 8192, q, &load);
    s = seconds_linear(512, w, 5);
    printf("   512 rows %8.2f ms, 2048 x 8192: %.0f GOP/s\n", s * 1e3,
           2.0 * 8192 * 2048 * 512 / s / 1e9);
    ops->weight_free(dev, w);
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
        if (argc < 3 || !strcmp(argv[2], quant_name(q)))
            bench(q);
    limits();
    ops->close(dev);
    return 0;
}
