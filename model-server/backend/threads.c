/* threads.c - one generation counter starts a loop, one countdown ends it; both are futexes. */
#include "model-server/backend/threads.h"
#include "common/clock.h"
#include "common/thread/spin.h"
#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_THREADS = 1024 };
/* of a thread's range: other threads can take pieces from a thread that lost its core */
enum { PIECES = 8 };

/* A thread's range of the current loop: pieces are taken from `next` on. */
struct pool_lane {
    _Alignas(64) atomic_size_t next;
    size_t end, piece;
};

struct worker {
    struct pool *pool;
    int id;
    struct spin spin; /* its waits for work */
    pthread_t thread;
};

struct pool {
    int n;
    atomic_uint loops;
    /* the loop at hand: written before `generation` moves, read after */
    range_fn *fn;
    void *arg;
    struct pool_lane *lanes; /* [n] */
    bool quit;
    struct spin spin;                    /* the caller's waits for the workers */
    _Alignas(64) atomic_uint generation; /* a new value: there is work */
    _Alignas(64) atomic_uint running;    /* workers that have not finished */
    _Alignas(64) atomic_uint sleepers;   /* workers that need a wake-up call */
    struct worker workers[];             /* n - 1: the caller is thread 0 */
};

static void futex_wait(atomic_uint *word, unsigned value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static void cut(struct pool *p, size_t items, size_t grain)
{
    size_t chunks = (items + grain - 1) / grain, n = (size_t)p->n;
    for (size_t t = 0; t < n; t++) {
        size_t begin = chunks * t / n, end = chunks * (t + 1) / n;
        size_t piece = (end - begin + PIECES - 1) / PIECES;
        atomic_store_explicit(&p->lanes[t].next, begin * grain, memory_order_relaxed);
        p->lanes[t].end = end * grain < items ? end * grain : items;
        p->lanes[t].piece = (piece ? piece : 1) * grain;
    }
}

/* Its own range first, then pieces of other ranges. */
static void run_pieces(struct pool *p, int id)
{
    for (int i = 0; i < p->n; i++) {
        struct pool_lane *l = &p->lanes[(id + i) % p->n];
        size_t at;
        while ((at = atomic_fetch_add_explicit(&l->next, l->piece, memory_order_relaxed)) < l->end)
            p->fn(p->arg, id, at, at + l->piece < l->end ? at + l->piece : l->end);
    }
}

/* The generation after `seen`. */
static unsigned await_work(struct pool *p, struct spin *spin, unsigned seen)
{
    unsigned g = seen;
    for (uint32_t i = 0; i < spin->now; i++) {
        g = atomic_load_explicit(&p->generation, memory_order_acquire);
        if (g != seen) {
            spin_gained(spin, i);
            return g;
        }
        spin_pause();
    }
    const int64_t begin = clock_ns();
    atomic_fetch_add(&p->sleepers, 1); /* sequentially consistent: pairs with pool_start() */
    while ((g = atomic_load(&p->generation)) == seen)
        futex_wait(&p->generation, seen);
    atomic_fetch_sub(&p->sleepers, 1);
    spin_slept(spin, clock_ns() - begin);
    return g;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    unsigned seen = 0;
    for (;;) {
        seen = await_work(p, &w->spin, seen);
        if (p->quit)
            return NULL;
        run_pieces(p, w->id);
        if (atomic_fetch_sub_explicit(&p->running, 1, memory_order_acq_rel) == 1)
            futex_wake(&p->running, 1);
    }
}

static void pool_start(struct pool *p)
{
    atomic_store_explicit(&p->running, (unsigned)p->n - 1, memory_order_relaxed);
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->sleepers))
        futex_wake(&p->generation, INT_MAX);
}

static void pool_finish(struct pool *p)
{
    for (uint32_t i = 0; i < p->spin.now; i++) {
        if (!atomic_load_explicit(&p->running, memory_order_acquire)) {
            spin_gained(&p->spin, i);
            return;
        }
        spin_pause();
    }
    const int64_t begin = clock_ns();
    unsigned left;
    while ((left = atomic_load_explicit(&p->running, memory_order_acquire)))
        futex_wait(&p->running, left);
    spin_slept(&p->spin, clock_ns() - begin);
}

void pool_run(struct pool *p, range_fn *fn, void *arg, size_t n, size_t grain)
{
    assert(grain > 0);
    /* only this thread writes it */
    const unsigned loops = atomic_load_explicit(&p->loops, memory_order_relaxed);
    atomic_store_explicit(&p->loops, loops + 1, memory_order_relaxed);
    if (p->n == 1 || n <= grain) {
        if (n)
            fn(arg, 0, 0, n);
        return;
    }
    p->fn = fn, p->arg = arg;
    cut(p, n, grain);
    pool_start(p);
    run_pieces(p, 0);
    pool_finish(p);
}

/* Cores of the cgroup's quota, rounded up; INT_MAX without a quota. */
static int quota_cores(void)
{
    long long quota = -1, period = 0;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (f) {
        if (fscanf(f, "%lld %lld", &quota, &period) != 2)
            quota = -1;
        fclose(f);
    } else if ((f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "re"))) {
        FILE *g = fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "re");
        if (fscanf(f, "%lld", &quota) != 1 || !g || fscanf(g, "%lld", &period) != 1)
            quota = -1;
        fclose(f);
        if (g)
            fclose(g);
    }
    if (quota <= 0 || period <= 0 || quota / period >= MAX_THREADS)
        return INT_MAX;
    return (int)((quota + period - 1) / period);
}

static int allowed_cores(void)
{
    cpu_set_t set;
    int n = 0, quota = quota_cores();
    if (!sched_getaffinity(0, sizeof(set), &set))
        n = CPU_COUNT(&set);
    if (n <= 0)
        n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    n = n > quota ? quota : n;
    return n < 1 ? 1 : n;
}

struct pool *pool_new(int threads, struct err *e)
{
    if (threads < 0 || threads > MAX_THREADS) {
        err_set(e, ERR_VALIDATION, "%d CPU threads: between 1 and %d, or 0 for all cores", threads,
                MAX_THREADS);
        return NULL;
    }
    int n = threads ? threads : allowed_cores();
    size_t size = sizeof(struct pool) + sizeof(struct worker) * (size_t)(n - 1);
    struct pool *p = aligned_alloc(64, (size + 63) & ~(size_t)63);
    if (!p)
        return err_nomem(e), NULL;
    memset(p, 0, size);
    p->n = 1;
    p->spin = spin_new(true);
    p->lanes = aligned_alloc(64, sizeof(*p->lanes) * (size_t)n);
    if (!p->lanes) {
        free(p);
        return err_nomem(e), NULL;
    }
    for (int i = 1; i < n; i++, p->n++) {
        struct worker *w = &p->workers[i - 1];
        *w = (struct worker){.pool = p, .id = i, .spin = p->spin};
        int rc = pthread_create(&w->thread, NULL, worker_main, w);
        if (rc) {
            pool_free(p);
            err_set(e, ERR_SYSTEM, "start CPU thread %d of %d: error %d", i + 1, n, rc);
            return NULL;
        }
    }
    return p;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    p->quit = true;
    pool_start(p);
    for (int i = 1; i < p->n; i++)
        pthread_join(p->workers[i - 1].thread, NULL);
    free(p->lanes);
    free(p);
}

int pool_threads(const struct pool *p) { return p->n; }

unsigned pool_loops(const struct pool *p)
{
    return atomic_load_explicit(&p->loops, memory_order_relaxed);
}
