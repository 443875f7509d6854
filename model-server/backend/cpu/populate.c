/* populate.c - populates the pages of the KV cache before they are needed.
 *
 * Touching the cache costs a page fault per page, and under a hypervisor a second one: seconds
 * for a large cache. Blocks are assigned from the first on. So all threads populate the start of
 * every stream before the cache is used, for the first requests. These are small pages: a model
 * has hundreds of streams, and a huge page for each would be several times what is needed. A
 * thread in the background populates the rest in the order of the blocks, one huge page at a time,
 * mostly while no step runs. Last it joins the small pages into huge ones. A thread that needs a
 * block earlier causes ordinary page faults. */
#include "common/log/log.h"
#include "common/thread/pacer.h"
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/threads.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum { STEP = 2 << 20, PAGE = 4096 };
#ifndef MADV_COLLAPSE /* Linux 6.1; an older one refuses it */
#define MADV_COLLAPSE 25
#endif
enum { REST = 99, IDLE = 1 }; /* shares beside steps and between requests */
/* Populated in advance: the size of a full prefill and its answers, within bounds. Every stream
 * starts on its own page, so with many streams it may be more. */
enum { FRONT_TOKENS = 4096, FRONT_MOST = 1 << 30 };

struct populate {
    pthread_t thread;
    struct pacer pacer;
    const struct kv_cache *kv;
    const struct pool *pool;
    uint32_t from; /* of each stream: blocks before it are populated */
};

static size_t stream_bytes(const struct kv_cache *kv, size_t stream)
{
    return kv->desc.n_blocks * kv->streams[stream].block_bytes;
}

/* Adding zero is a write that loses no other write: other threads may use the same page. */
static void touch(char *p, size_t n)
{
    for (size_t i = 0; i < n; i += PAGE)
        __atomic_fetch_or(p + i, 0, __ATOMIC_RELAXED);
}

/* 0, or the errno of missing memory. */
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

uint32_t cpu_kv_front(const struct kv_cache *kv)
{
    const size_t most = FRONT_MOST / (kv->block_bytes ? kv->block_bytes : 1);
    size_t front = FRONT_TOKENS / kv->desc.block_size + (size_t)1;
    front = front < most ? front : most;
    front = front > 2 ? front : 2; /* block 0 is never assigned */
    return front < kv->desc.n_blocks ? (uint32_t)front : kv->desc.n_blocks;
}

struct front {
    const struct kv_cache *kv;
    uint32_t blocks;
    atomic_int why;
};

static void take_fronts(void *arg, int thread, size_t begin, size_t end)
{
    struct front *f = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        const struct kv_stream *s = &f->kv->streams[i];
        int why = take(s->data, f->blocks * s->block_bytes);
        if (why)
            atomic_store(&f->why, why);
    }
}

int cpu_populate_front(struct device *d, const struct kv_cache *kv, struct err *e)
{
    struct front f = {.kv = kv, .blocks = cpu_kv_front(kv)};
    const int disabled = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    pool_run(d->pool, take_fronts, &f, kv->n_streams, 1);
    if (disabled == 0)
        prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
    const int why = atomic_load(&f.why);
    if (!why)
        return 0;
    errno = why;
    return err_sys(e,
                   "the first blocks of a KV cache of %zu bytes do not fit into memory: lower "
                   "--kv-cache-memory",
                   kv->bytes);
}

/* ---------------------------------------------------------------- the rest, in the background */

/* Waits until the thread may take or join another piece. False at the end of the cache. */
static bool next_piece(struct populate *f, unsigned *loops)
{
    const unsigned before = *loops;
    *loops = pool_loops(f->pool);
    return pacer_rest(&f->pacer, *loops != before ? REST : IDLE);
}

/* Joins the small pages of the fronts into huge ones, where the kernel does that. */
static void join_fronts(struct populate *f, unsigned *loops)
{
    const struct kv_cache *kv = f->kv;
    char *const end = kv->data + (kv->bytes & ~(size_t)(STEP - 1)); /* `data` is on such a border */
    char *next = kv->data;
    for (uint32_t i = 0; i < kv->n_streams; i++) {
        const struct kv_stream *s = &kv->streams[i];
        char *p = kv->data + ((size_t)(s->data - kv->data) & ~(size_t)(STEP - 1));
        for (p = p < next ? next : p; p < s->data + f->from * s->block_bytes && p < end; p += STEP)
            if (!next_piece(f, loops) || madvise(p, STEP, MADV_COLLAPSE))
                return;
        next = p;
    }
}

static void *run(void *arg)
{
    struct populate *f = arg;
    const struct kv_cache *kv = f->kv;
    size_t left = 0; /* of the longest stream */
    for (uint32_t i = 0; i < kv->n_streams; i++) {
        const size_t n = (kv->desc.n_blocks - f->from) * kv->streams[i].block_bytes;
        left = n > left ? n : left;
    }
    unsigned loops = pool_loops(f->pool);
    for (size_t at = 0; at < left; at += STEP)
        for (uint32_t i = 0; i < kv->n_streams; i++) {
            if (!next_piece(f, &loops))
                return NULL;
            const struct kv_stream *s = &kv->streams[i];
            const size_t all = stream_bytes(kv, i), from = f->from * s->block_bytes + at;
            if (from >= all)
                continue;
            const int why = take(s->data + from, all - from < STEP ? all - from : STEP);
            if (!why)
                continue;
            LOG(LOG_WARN, "the KV cache does not fit into memory: lower --kv-cache-memory",
                LOGI("bytes", kv->bytes), LOGI("taken", from * kv->n_streams), LOGI("errno", why));
            return NULL;
        }
    join_fronts(f, &loops);
    return NULL;
}

struct populate *cpu_populate(const struct device *d, const struct kv_cache *kv)
{
    struct populate *f = calloc(1, sizeof(*f));
    if (!f)
        return NULL;
    f->kv = kv;
    f->pool = d->pool;
    f->from = cpu_kv_front(kv);
    pacer_init(&f->pacer);
    if (f->from < kv->desc.n_blocks && pthread_create(&f->thread, NULL, run, f) == 0)
        return f;
    pacer_destroy(&f->pacer);
    free(f);
    return NULL;
}

void cpu_populate_end(struct populate *f)
{
    if (!f)
        return;
    pacer_stop(&f->pacer);
    pthread_join(f->thread, NULL);
    pacer_destroy(&f->pacer);
    free(f);
}
