/* kernels.c - the CPU backend against the limits of the machine it runs on.
 *
 * Two probes come first: bandwidth of reading memory (all threads, several streams) and rate of
 * fused multiply-adds (all threads, registers only). Everything after is a fraction of one of them,
 * and beside the plain C kernels where those can be waited for. Each figure is the best of several
 * runs (the machine may be shared); rates of several threads are of the whole device.
 *
 *   kernels [threads]     default: all allowed cores */
#include "model-server/backend/cpu/cpu.h"
#include "tests/bench/probes.h"
#include "tests/bench/timing.h"
#include <string.h>

static const struct backend_ops *const ops = &backend_cpu;
static struct device *fast, *plain;
static double bandwidth, flops; /* what the machine can do: bytes and operations a second */

/* ---------------------------------------------------------------- products */

static struct weight *matrix(struct device *d, uint32_t rows, uint32_t cols, enum dtype t)
{
    struct err e = ERR_INIT;
    static float some[1 << 20]; /* the same numbers over and over: strides of 0 */
    for (size_t i = 0; i < 1 << 20; i++)
        some[i] = (float)(i % 97) * 0.01f - 0.5f;
    struct mat_part part = {some, DT_F32, rows, cols, 0, 1};
    struct weight *w = ops->weight_load(d, &(struct mat_desc){&part, 1, t}, &e);
    if (!w)
        die(&e);
    return w;
}

static double seconds_linear(struct device *d, uint32_t rows, const struct weight *w, int runs)
{
    float *x = numbers(fast, (size_t)rows * w->cols), *y = numbers(fast, (size_t)rows * w->rows);
    ops->linear(d, y, x, rows, w, NULL);
    double s = BEST(runs, ops->linear(d, y, x, rows, w, NULL));
    ops->free(fast, x), ops->free(fast, y);
    return s;
}

static void bench_linear(void)
{
    static const uint32_t rows[] = {1, 2, 4, 8, 16, 32, 128, 512};
    enum { N = 32768, K = 4096 }; /* 256 MiB of bf16: beyond every cache */
    printf("\nlinear, %d x %d, rows of x; GB/s of weights, GFLOP/s, and the better fraction of the "
           "two "
           "limits\n",
           N, K);
    for (enum dtype t = 0; t < DT_N; t++) {
        struct weight *w = matrix(fast, N, K, t);
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
            double s = seconds_linear(fast, rows[i], w, rows[i] > 100 ? 2 : 5);
            double bytes = (double)w->bytes / s, ops_s = 2.0 * N * K * rows[i] / s;
            bool memory = bytes / bandwidth > ops_s / flops;
            printf("  %-9s %4u rows %9.2f ms %7.1f GB/s %7.1f GFLOP/s   %.2f of %s\n",
                   dtype_name(t), rows[i], s * 1e3, bytes / 1e9, ops_s / 1e9,
                   memory ? bytes / bandwidth : ops_s / flops, memory ? "bandwidth" : "FMA peak");
        }
        ops->weight_free(fast, w);
        w = matrix(plain, N / 64, K, t);
        double s = seconds_linear(plain, 1, w, 2);
        printf("  %-9s plain C, 1 row of 1/64: %.1f GB/s\n", dtype_name(t),
               (double)w->bytes / s / 1e9);
        ops->weight_free(plain, w);
    }
}

/* ---------------------------------------------------------------- rows */

static void rows_row(const char *name, double elements, double f, double p)
{
    printf("  %-22s %8.2f us %8.2f Gelements/s   x%.1f of plain C\n", name, f * 1e6,
           elements / f / 1e9, p / f);
}

static void bench_rows(void)
{
    enum { ROWS = 512, N = 2048, FFN = 8192 };
    struct norm rms = {NORM_RMS, numbers(fast, N), NULL, 1e-5f},
                layer = {NORM_LAYER, rms.w, rms.w, 1e-5f};
    float *x = numbers(fast, ROWS * FFN * 2), *y = numbers(fast, ROWS * FFN * 2);
    printf("\nrows, %d x %d (activations: %d x %d)\n", ROWS, N, ROWS, FFN);
#define ROW(name, elements, OP, ...)                                                               \
    rows_row(name, (double)(elements), BEST(5, ops->OP(fast, __VA_ARGS__)),                        \
             BEST(1, ops->OP(plain, __VA_ARGS__)))
    ROW("norm, RMS", ROWS * N, norm, y, x, ROWS, N, &rms);
    ROW("norm, layer", ROWS * N, norm, y, x, ROWS, N, &layer);
    ROW("add and norm, RMS", ROWS * N, add_norm, y, x, y + ROWS * N, 1.0f, ROWS, N, &rms);
    ROW("silu * up", ROWS * FFN, act_mul, y, x, ROWS, FFN, ACT_SILU);
    ROW("gelu (erf) * up", ROWS * FFN, act_mul, y, x, ROWS, FFN, ACT_GELU);
    ROW("gelu (tanh) * up", ROWS * FFN, act_mul, y, x, ROWS, FFN, ACT_GELU_TANH);
    ROW("norm of one row", N, norm, y, x, 1, N, &rms);
    ROW("silu * up of one row", FFN, act_mul, y, x, 1, FFN, ACT_SILU);
#undef ROW
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    struct device_options o = {.threads = argc > 1 ? atoi(argv[1]) : 0, .features = ~0ull};
    if (!(fast = ops->open(&o, &e)))
        die(&e);
    o.features = 0;
    if (!(plain = ops->open(&o, &e)))
        die(&e);
    timing_alone = pool_threads(fast->pool) == 1;
    printf("%s\n", ops->describe(fast));
    bandwidth = BEST(5, probe_read(fast->pool, fast->features));
    bandwidth = probe_bytes(fast->pool) / bandwidth;
    flops = BEST(5, probe_fma(fast->pool, fast->features));
    flops = probe_ops(fast->pool, fast->features) / flops;
    printf("limits: %.1f GB/s read, %.1f GFLOP/s fp32 FMA\n", bandwidth / 1e9, flops / 1e9);
    bench_linear();
    bench_rows();
    ops->close(fast);
    ops->close(plain);
    return 0;
}
