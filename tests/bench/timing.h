/* timing.h - what the benchmarks of the CPU backend share: a clock, the best of several runs,
 * random input. */
#ifndef TESTS_BENCH_TIMING_H
#define TESTS_BENCH_TIMING_H
#include "model-server/backend/backend.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* One thread takes its own clock, which stands still while others have the core. Set once, after
 * the device is open. */
static bool timing_alone;

static inline double seconds(void)
{
    struct timespec t;
    clock_gettime(timing_alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Seconds of the fastest of `runs`. */
#define BEST(runs, ...)                                                                            \
    __extension__({                                                                                \
        double best_ = 1e30;                                                                       \
        for (int run_ = 0; run_ < (runs); run_++) {                                                \
            double s_ = seconds();                                                                 \
            __VA_ARGS__;                                                                           \
            s_ = seconds() - s_;                                                                   \
            best_ = s_ < best_ ? s_ : best_;                                                       \
        }                                                                                          \
        best_;                                                                                     \
    })

static inline void die(const struct err *e)
{
    fprintf(stderr, "%s\n", e->msg);
    exit(1);
}

/* n numbers in [-0.5, 0.5), the same ones every time, in the device's memory. */
static inline float *numbers(struct device *dev, size_t n)
{
    struct err e = ERR_INIT;
    float *p = backend_cpu.alloc(dev, n * sizeof(*p), &e);
    if (!p)
        die(&e);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)((i * 2654435761u >> 8) & 0xffff) / 65536.0f - 0.5f;
    return p;
}
#endif
