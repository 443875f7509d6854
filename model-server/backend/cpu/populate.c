/* populate.c - memory that was promised, taken before it is needed.
 *
 * Touching the KV cache costs a page fault per page and, under a hypervisor, another one there:
 * seconds for a large cache. Blocks are given out from the first on, so the front of every stream
 * is taken before the cache is handed out, by all threads: the first requests find it there. A
 * thread of the lowest priority takes the rest in the order of the blocks, one huge page at a time;
 * whoever needs one earlier faults it in as usual. */
#include "common/log.h"
#include "model-server/backend/cpu/cpu.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { STEP = 2 << 20, PAGE = 4096, LOWEST = 19 };
/* What is taken ahead: as much as a full prefill and its answers use, within bounds. Every stream
 * has a page of its own at its front, so that many streams may come to more. */
enum { FRONT_TOKENS = 4096, FRONT_MOST = 1 << 30 };

struct populate {
    pthread_t thread;
    const struct kv_cache *kv;
    size_t from; /* of each stream: what lies before is there */
    atomic_bool stop;
};

static size_t stream_bytes(const struct kv_cache *kv)
{
    return kv->desc.n_blocks * kv->block_bytes;
}

/* Adding nothing is a write that loses nobody's: others may be at work in the same page. */
static void touch(char *p, size_t n)
{
    for (size_t i = 0; i < n; i += PAGE)
        __atomic_fetch_or(p + i, 0, __ATOMIC_RELAXED);
}

/* 0, or the errno of memory that there is not. */
static int take(char *p, size_t n)
{
    const size_t before = (uintptr_t)p & (PAGE - 1);
    p -= before;
    n += before;
#ifdef MADV_POPULATE_WRITE /* Linux 5.14 */
    int rc;
    do
        rc = madvise(p, n, MADV_POPULATE_WRITE);
    while (rc && (errno == EINTR || errno == EAGAIN));
    if (rc == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
#endif
    touch(p, n);
    return 0;
}

/* ---------------------------------------------------------------- what the first requests use */

size_t cpu_kv_front(const struct kv_cache *kv)
{
    const size_t block = kv->block_bytes, all = stream_bytes(kv);
    const size_t most = FRONT_MOST / kv_n_streams(kv) / block * block;
    size_t front = (FRONT_TOKENS / kv->desc.block_size + 1) * block;
    front = front < most ? front : most;
    front = front > 2 * block ? front : 2 * block; /* block 0 is nobody's */
    return front < all ? front : all;
}

struct front {
    const struct kv_cache *kv;
    size_t bytes;
    atomic_int why;
};

static void take_fronts(void *arg, int thread, size_t begin, size_t end)
{
    struct front *f = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        int why = take(f->kv->data + i * stream_bytes(f->kv), f->bytes);
        if (why)
            atomic_store(&f->why, why);
    }
}

int cpu_populate_front(struct device *d, const struct kv_cache *kv, struct err *e)
{
    struct front f = {.kv = kv, .bytes = cpu_kv_front(kv)};
    pool_run(d->pool, take_fronts, &f, kv_n_streams(kv), 1);
    const int why = atomic_load(&f.why);
    if (!why)
        return 0;
    errno = why;
    return err_sys(e,
                   "the first blocks of a KV cache of %zu bytes do not fit into memory "
                   "(--kv-cache-memory takes less)",
                   kv->bytes);
}

/* ---------------------------------------------------------------- the rest, in the background */

static void *run(void *arg)
{
    struct populate *f = arg;
    const size_t all = stream_bytes(f->kv), n_streams = kv_n_streams(f->kv);
    const struct sched_param none = {0};
    if (pthread_setschedparam(pthread_self(), SCHED_IDLE, &none)) /* when no step wants the core */
        setpriority(PRIO_PROCESS, 0, LOWEST);                     /* on Linux of this thread */
    for (size_t at = f->from; at < all; at += STEP)
        for (size_t i = 0; i < n_streams; i++) {
            if (atomic_load_explicit(&f->stop, memory_order_relaxed))
                return NULL;
            const size_t n = all - at < STEP ? all - at : STEP;
            const int why = take(f->kv->data + i * all + at, n);
            if (!why)
                continue;
            LOG(LOG_WARN, "the KV cache does not fit into memory (--kv-cache-memory takes less)",
                LOGI("bytes", f->kv->bytes), LOGI("taken", at * n_streams), LOGI("errno", why));
            return NULL;
        }
    return NULL;
}

struct populate *cpu_populate(const struct kv_cache *kv)
{
    struct populate *f = calloc(1, sizeof(*f));
    if (!f)
        return NULL;
    f->kv = kv;
    f->from = cpu_kv_front(kv);
    if (f->from < stream_bytes(kv) && pthread_create(&f->thread, NULL, run, f) == 0)
        return f;
    free(f);
    return NULL;
}

void cpu_populate_end(struct populate *f)
{
    if (!f)
        return;
    atomic_store_explicit(&f->stop, true, memory_order_relaxed);
    pthread_join(f->thread, NULL);
    free(f);
}
