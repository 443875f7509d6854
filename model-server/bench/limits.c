#include "model-server/bench/limits.h"
#include "common/clock.h"
#include "model-server/backend/host/cpu_features.h"
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { STREAMS = 4, AHEAD = 1024, MAX_THREADS = 256 };
enum { CHAINS = 12, STEPS = 2 << 20 }; /* chains enough for the latency of every CPU */

struct limit_part {
    const char *from;
    size_t bytes;
    uint64_t sink; /* so that the work is not optimised away */
};

/* ---------------------------------------------------------------- what a thread does */

typedef uint64_t lanes __attribute__((vector_size(64), may_alias));

/* Several streams with software prefetch: the form that reaches the most on the machines measured.
 */
#define READ_ALL(name, attribute)                                                                  \
    attribute static void *name(void *arg)                                                         \
    {                                                                                              \
        struct limit_part *r = arg;                                                                \
        size_t part = r->bytes / STREAMS / 64 * 64;                                                \
        lanes acc[STREAMS] = {0};                                                                  \
        for (size_t i = 0; i < part; i += 64)                                                      \
            _Pragma("GCC unroll 4") for (int s = 0; s < STREAMS; s++)                              \
            {                                                                                      \
                const char *p = r->from + (size_t)s * part + i;                                    \
                __builtin_prefetch(p + AHEAD);                                                     \
                acc[s] |= *(const lanes *)p;                                                       \
            }                                                                                      \
        for (int s = 0; s < STREAMS; s++)                                                          \
            for (int k = 0; k < 8; k++)                                                            \
                r->sink ^= acc[s][k];                                                              \
        return NULL;                                                                               \
    }

#define FMA(name, bytes, attribute)                                                                \
    attribute static void *name(void *arg)                                                         \
    {                                                                                              \
        typedef float vec __attribute__((vector_size(bytes)));                                     \
        vec acc[CHAINS], w = {0}, x = {0};                                                         \
        __asm__ volatile("" : "+x"(w), "+x"(x));                                                   \
        _Pragma("GCC unroll 16") for (int i = 0; i < CHAINS; i++) acc[i] = w;                      \
        for (long k = 0; k < STEPS; k++) {                                                         \
            _Pragma("GCC unroll 16") for (int i = 0; i < CHAINS; i++) __asm__(                     \
                "vfmadd231ps %1, %2, %0" : "+x"(acc[i]) : "x"(w), "x"(x));                         \
        }                                                                                          \
        _Pragma("GCC unroll 16") for (int i = 1; i < CHAINS; i++) acc[0] += acc[i];                \
        ((struct limit_part *)arg)->sink = (uint64_t)acc[0][0];                                    \
        return NULL;                                                                               \
    }

READ_ALL(read_plain, )
#if defined(__x86_64__)
READ_ALL(read_512, __attribute__((target("avx512f"))))
READ_ALL(read_256, __attribute__((target("avx2"))))
FMA(fma_512, 64, __attribute__((target("avx512f"))))
FMA(fma_256, 32, __attribute__((target("avx2,fma"))))
#endif

static void *(*reader(void))(void *)
{
#if defined(__x86_64__)
    const unsigned features = cpu_detect();
    if (features & CPU_AVX512)
        return read_512;
    if (features & CPU_AVX2)
        return read_256;
#endif
    return read_plain;
}

static void *(*multiplier(int *width))(void *)
{
#if defined(__x86_64__)
    const unsigned features = cpu_detect();
    *width = 16;
    if (features & CPU_AVX512)
        return fma_512;
    *width = 8;
    if (features & CPU_AVX2)
        return fma_256;
#endif
    *width = 0;
    return NULL;
}

/* ---------------------------------------------------------------- all of them at once */

/* Seconds until all are through; < 0: a thread could not be started. */
static double one_round(void *(*run)(void *), const char *mem, size_t each, int threads)
{
    struct limit_part p[MAX_THREADS];
    pthread_t t[MAX_THREADS];
    int64_t start = clock_ns();
    for (int i = 0; i < threads; i++) {
        p[i] = (struct limit_part){.from = mem ? mem + (size_t)i * each : NULL, .bytes = each};
        if (pthread_create(&t[i], NULL, run, &p[i]) != 0) {
            while (i-- > 0)
                pthread_join(t[i], NULL);
            return -1;
        }
    }
    for (int i = 0; i < threads; i++)
        pthread_join(t[i], NULL);
    return (double)(clock_ns() - start) * 1e-9;
}

static double best_of(int rounds, void *(*run)(void *), const char *mem, size_t each, int threads,
                      struct err *e)
{
    double best = -1;
    if (threads < 1 || threads > MAX_THREADS)
        return err_set(e, ERR_VALIDATION, "%d threads: 1 to %d can be measured", threads,
                       MAX_THREADS);
    for (int i = 0; i < rounds; i++) {
        double got = one_round(run, mem, each, threads);
        best = got > 0 && (best < 0 || got < best) ? got : best;
    }
    return best > 0 ? best : err_set(e, ERR_SYSTEM, "cannot start %d threads", threads);
}

double limit_read_bandwidth(int threads, size_t bytes, int rounds, struct err *e)
{
    size_t each = bytes / (size_t)(threads > 0 ? threads : 1) / 4096 * 4096;
    char *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mem == MAP_FAILED)
        return err_sys(e, "%zu bytes for the bandwidth measurement", bytes);
    madvise(mem, bytes, MADV_HUGEPAGE);
    memset(mem, 1, bytes);
    double s = best_of(rounds, reader(), mem, each, threads, e);
    munmap(mem, bytes);
    size_t read = each / STREAMS / 64 * 64 * STREAMS;
    return s < 0 ? s : (double)read * threads / s;
}

double limit_fp32(int threads, int rounds, struct err *e)
{
    int width;
    void *(*run)(void *) = multiplier(&width);
    if (!run)
        return 0;
    double s = best_of(rounds, run, NULL, 0, threads, e);
    return s < 0 ? s : 2.0 * width * CHAINS * STEPS * threads / s;
}
