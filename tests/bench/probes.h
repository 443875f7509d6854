/* probes.h - the limits that the benchmarks compare with, measured on the same threads. */
#ifndef TESTS_BENCH_PROBES_H
#define TESTS_BENCH_PROBES_H
#include "model-server/backend/cpu/cpu.h"
#include <stdlib.h>
#include <string.h>

enum { PROBE_MIB = 512, PROBE_CHAINS = 12, PROBE_STEPS = 4 << 20 };

/* ---------------------------------------------------------------- reading memory */

struct probe_memory {
    const char *p;
    uint64_t sum[256][8];
};

/* Each thread reads its share as four streams, 128 bytes of each in turn, prefetched 1 KiB ahead.
 */
#define PROBE_READ(name, vec, attribute)                                                           \
    attribute static void name(void *arg, int thread, size_t begin, size_t end)                    \
    {                                                                                              \
        struct probe_memory *m = arg;                                                              \
        size_t quarter = (end - begin) / 4 << 20;                                                  \
        vec a = {0}, b = {0}, c = {0}, d = {0};                                                    \
        for (const char *p = m->p + (begin << 20), *last = p + quarter; p < last; p += 128) {      \
            _Pragma("GCC unroll 8") for (size_t s = 0; s < 4 * quarter; s += quarter)              \
            {                                                                                      \
                __builtin_prefetch(p + s + 1024);                                                  \
                __builtin_prefetch(p + s + 1088);                                                  \
            }                                                                                      \
            _Pragma("GCC unroll 8") for (size_t i = 0; i < 128; i += sizeof(vec))                  \
            {                                                                                      \
                a |= *(const vec *)(p + i);                                                        \
                b |= *(const vec *)(p + quarter + i);                                              \
                c |= *(const vec *)(p + 2 * quarter + i);                                          \
                d |= *(const vec *)(p + 3 * quarter + i);                                          \
            }                                                                                      \
        }                                                                                          \
        a |= b | c | d;                                                                            \
        memcpy(m->sum[thread], &a, sizeof(a));                                                     \
    }
typedef uint64_t probe_line __attribute__((vector_size(64), may_alias));
typedef uint64_t probe_half __attribute__((vector_size(32), may_alias));
typedef uint64_t probe_quarter __attribute__((vector_size(16), may_alias));
#if defined(__x86_64__)
PROBE_READ(probe_read_512, probe_line, __attribute__((target("avx512f"))))
PROBE_READ(probe_read_256, probe_half, __attribute__((target("avx2"))))
#endif
PROBE_READ(probe_read_128, probe_quarter, )

static inline double probe_bytes(struct pool *pool)
{
    (void)pool;
    return (double)PROBE_MIB * (1 << 20);
}

static inline void probe_read(struct pool *pool, unsigned features)
{
    range_fn *fn = probe_read_128;
#if defined(__x86_64__)
    fn = features & CPU_AVX512 ? probe_read_512 : features & CPU_AVX2 ? probe_read_256 : fn;
#endif
    (void)features;
    static struct probe_memory m;
    if (!m.p) {
        char *p = cpu_map((size_t)PROBE_MIB << 20);
        if (!p)
            abort();
        memset(p, 1, (size_t)PROBE_MIB << 20);
        m.p = p;
    }
    pool_run(pool, fn, &m, PROBE_MIB, 4);
}

/* ---------------------------------------------------------------- multiplying and adding */

/* One instruction over and over, PROBE_CHAINS sums at a time, so that only its rate counts. */
#define PROBE_RATE(name, op, bytes, attribute)                                                     \
    attribute static void name(void *arg, int thread, size_t begin, size_t end)                    \
    {                                                                                              \
        typedef float vec __attribute__((vector_size(bytes)));                                     \
        vec acc[PROBE_CHAINS], w = {0}, x = {0};                                                   \
        __asm__ volatile("" : "+x"(w), "+x"(x));                                                   \
        _Pragma("GCC unroll 16") for (int i = 0; i < PROBE_CHAINS; i++) acc[i] = w;                \
        for (long k = 0; k < PROBE_STEPS; k++) {                                                   \
            _Pragma("GCC unroll 16") for (int i = 0; i < PROBE_CHAINS; i++) __asm__(               \
                op " %1, %2, %0" : "+x"(acc[i]) : "x"(w), "x"(x));                                 \
        }                                                                                          \
        _Pragma("GCC unroll 16") for (int i = 1; i < PROBE_CHAINS; i++) acc[0] += acc[i];          \
        ((float *)arg)[thread] = acc[0][0];                                                        \
        (void)begin, (void)end;                                                                    \
    }

#if defined(__x86_64__)
PROBE_RATE(probe_fma_512, "vfmadd231ps", 64, __attribute__((target("avx512f"))))
PROBE_RATE(probe_fma_256, "vfmadd231ps", 32, __attribute__((target("avx2,fma"))))
#endif

/* The same of vpdpbusd: 4 multiply-adds of 8 bits in each 32. */
#if defined(__x86_64__)
__attribute__((target("avx512f,avx512vnni"))) static void probe_dot_512(void *arg, int thread,
                                                                        size_t begin, size_t end)
{
    probe_line acc[PROBE_CHAINS], w = {0}, x = {0};
    __asm__ volatile("" : "+x"(w), "+x"(x));
    _Pragma("GCC unroll 16") for (int i = 0; i < PROBE_CHAINS; i++) acc[i] = w;
    for (long k = 0; k < PROBE_STEPS; k++) {
        _Pragma("GCC unroll 16") for (int i = 0; i < PROBE_CHAINS; i++) __asm__(
            "vpdpbusd %1, %2, %0" : "+x"(acc[i]) : "x"(w), "x"(x));
    }
    _Pragma("GCC unroll 16") for (int i = 1; i < PROBE_CHAINS; i++) acc[0] += acc[i];
    ((float *)arg)[thread] = (float)acc[0][0];
    (void)begin, (void)end;
}
#endif

/* False where the CPU has no such instruction. */
static inline bool probe_dot(struct pool *pool, unsigned features)
{
    static float sink[1024];
#if defined(__x86_64__)
    if (features & CPU_AVX512_VNNI) {
        pool_run(pool, probe_dot_512, sink, (size_t)pool_threads(pool), 1);
        return true;
    }
#endif
    (void)pool, (void)features, (void)sink;
    return false;
}

static inline double probe_ops(struct pool *pool, unsigned features)
{
    double lanes = features & CPU_AVX512 ? 16 : 8;
    return 2.0 * lanes * PROBE_CHAINS * PROBE_STEPS * pool_threads(pool);
}

static inline void probe_rate(struct pool *pool, range_fn *fn)
{
    static float sink[1024];
    pool_run(pool, fn, sink, (size_t)pool_threads(pool), 1);
}

static inline void probe_fma(struct pool *pool, unsigned features)
{
#if defined(__x86_64__)
    probe_rate(pool, features & CPU_AVX512 ? probe_fma_512 : probe_fma_256);
#else
    (void)pool, (void)features;
#endif
}
#endif
