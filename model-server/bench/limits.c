#include "model-server/bench/limits.h"
#include "common/clock.h"
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { STREAMS = 4, AHEAD = 1024 };

struct reader {
    const char *from;
    size_t bytes;
    uint64_t sum; /* so that the loads are not optimised away */
};

typedef uint64_t lanes __attribute__((vector_size(64)));

/* Several streams with software prefetch: the form that reaches the most on the machines measured.
 */
static void *read_all(void *arg)
{
    struct reader *r = arg;
    size_t part = r->bytes / STREAMS / 64 * 64;
    lanes acc[STREAMS] = {0};
    for (size_t i = 0; i < part; i += 64)
        for (int s = 0; s < STREAMS; s++) {
            const char *p = r->from + (size_t)s * part + i;
            __builtin_prefetch(p + AHEAD);
            acc[s] ^= *(const lanes *)p;
        }
    for (int s = 0; s < STREAMS; s++)
        for (int k = 0; k < 8; k++)
            r->sum ^= acc[s][k];
    return NULL;
}

static double one_round(const char *mem, size_t bytes, int threads)
{
    struct reader r[256];
    pthread_t t[256];
    size_t part = bytes / (size_t)threads / 4096 * 4096;
    int64_t start = clock_ns();
    for (int i = 0; i < threads; i++) {
        r[i] = (struct reader){mem + (size_t)i * part, part, 0};
        if (pthread_create(&t[i], NULL, read_all, &r[i]) != 0) {
            while (i-- > 0)
                pthread_join(t[i], NULL);
            return -1;
        }
    }
    for (int i = 0; i < threads; i++)
        pthread_join(t[i], NULL);
    return (double)part * threads / ((double)(clock_ns() - start) * 1e-9);
}

double limit_read_bandwidth(int threads, size_t bytes, int rounds, struct err *e)
{
    if (threads < 1 || threads > 256)
        return err_set(e, ERR_VALIDATION, "%d threads: 1 to 256 can be measured", threads);
    char *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mem == MAP_FAILED)
        return err_sys(e, "%zu bytes for the bandwidth measurement", bytes);
    madvise(mem, bytes, MADV_HUGEPAGE);
    memset(mem, 1, bytes);
    double best = -1;
    for (int i = 0; i < rounds; i++) {
        double got = one_round(mem, bytes, threads);
        best = got > best ? got : best;
    }
    munmap(mem, bytes);
    return best > 0 ? best : err_set(e, ERR_SYSTEM, "cannot start %d threads", threads);
}
