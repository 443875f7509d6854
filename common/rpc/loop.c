#include "common/rpc/loop.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/rpc/timers.h"
#include "common/thread/cond.h"
#include "common/thread/watchdog.h"
#include <assert.h>
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

/* gRPC passes the op between threads under locks that TSan does not see. These annotations let TSan
 * check the code built on ops. */
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define HANDOVER(op) __tsan_release(op)
#define TAKEOVER(op) __tsan_acquire(op)
#else
#define HANDOVER(op) ((void)(op))
#define TAKEOVER(op) ((void)(op))
#endif

/* The end of gRPC, on a thread of its own. The last of both owners frees it. */
struct ending {
    pthread_mutex_t lock;
    pthread_cond_t over;
    bool done, left; /* left: the caller no longer waits */
};

static void ending_free(struct ending *g)
{
    pthread_cond_destroy(&g->over);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static void *release(void *arg)
{
    struct ending *g = arg;
    grpc_shutdown_blocking();
    pthread_mutex_lock(&g->lock);
    g->done = true;
    const bool left = g->left;
    pthread_cond_signal(&g->over);
    pthread_mutex_unlock(&g->lock);
    if (left)
        ending_free(g);
    return NULL;
}

/* Not by pthread_clockjoin_np(): gcc 12's TSan takes a thread that it joined for a running one, and
 * ends the process when the next thread gets its number. */
static bool wait_for_end(struct ending *g)
{
    const struct timespec until = clock_deadline((int64_t)RPC_RELEASE_S * 1000);
    pthread_mutex_lock(&g->lock);
    while (!g->done && pthread_cond_timedwait(&g->over, &g->lock, &until) == 0)
        ;
    const bool done = g->done;
    g->left = !done;
    pthread_mutex_unlock(&g->lock);
    return done;
}

void rpc_release(void)
{
    pthread_t t;
    struct ending *g = calloc(1, sizeof(*g));
    if (g) {
        pthread_mutex_init(&g->lock, NULL);
        cond_init(&g->over);
    }
    if (!g || pthread_create(&t, NULL, release, g) != 0) {
        grpc_shutdown_blocking();
        if (g)
            ending_free(g);
    } else if (wait_for_end(g)) {
        pthread_join(t, NULL);
        ending_free(g);
    } else {
        LOG(LOG_WARN, "gRPC's threads did not end", LOGI("seconds", RPC_RELEASE_S));
        pthread_detach(t);
    }
}

struct rpc_loop {
    grpc_completion_queue *cq;
    grpc_channel *nowhere; /* never connected */
    grpc_call *bell;       /* never started; see ring() */
    struct rpc_timers timers;
    atomic_int pending;
    _Atomic int64_t busy_ns;
    const struct cluster *cluster;
    const char *session;
};

/* The C core exports no way to enqueue a tag, but an empty batch is complete at once, on any
 * thread. */
static void ring(void *arg, struct rpc_op *op)
{
    const struct rpc_loop *l = arg;
    const grpc_call_error rc = grpc_call_start_batch(l->bell, NULL, 0, op, NULL);
    assert(rc == GRPC_CALL_OK);
    (void)rc;
}

struct rpc_loop *rpc_loop_new(void)
{
    struct rpc_loop *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    l->cq = grpc_completion_queue_create_for_next(NULL);
    l->nowhere = grpc_channel_create("unix:/dev/null", plain, NULL);
    l->bell = grpc_channel_create_call(l->nowhere, NULL, GRPC_PROPAGATE_DEFAULTS, l->cq,
                                       grpc_slice_from_static_string("/bell"), NULL,
                                       gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    grpc_channel_credentials_release(plain);
    rpc_timers_init(&l->timers, ring, l);
    return l;
}

void rpc_loop_run(struct rpc_loop *l)
{
    for (;;) {
        grpc_event ev =
            grpc_completion_queue_next(l->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (ev.type == GRPC_QUEUE_SHUTDOWN)
            return;
        struct rpc_op *op = ev.tag;
        TAKEOVER(op);
        atomic_fetch_sub(&l->pending, 1);
        watch_busy(&l->busy_ns);
        op->done(op, ev.success);
        watch_idle(&l->busy_ns);
    }
}

const _Atomic int64_t *rpc_loop_busy(const struct rpc_loop *l) { return &l->busy_ns; }

static void on_log(gpr_log_func_args *a)
{
    enum log_level level = a->severity == GPR_LOG_SEVERITY_ERROR  ? LOG_ERROR
                           : a->severity == GPR_LOG_SEVERITY_INFO ? LOG_INFO
                                                                  : LOG_DEBUG;
    log_msg(level, "gRPC: %s", a->message);
}

void rpc_loop_log(void) { gpr_set_log_function(on_log); }

void rpc_loop_stop(struct rpc_loop *l)
{
    assert(atomic_load(&l->pending) == 0);
    grpc_completion_queue_shutdown(l->cq);
}

void rpc_loop_free(struct rpc_loop *l)
{
    rpc_timers_fini(&l->timers);
    grpc_call_unref(l->bell);
    grpc_channel_destroy(l->nowhere);
    grpc_completion_queue_destroy(l->cq);
    free(l);
}

void rpc_loop_set_cluster(struct rpc_loop *l, const struct cluster *c) { l->cluster = c; }

void rpc_loop_set_session(struct rpc_loop *l, const char *id) { l->session = id; }

const char *rpc_loop_session(const struct rpc_loop *l) { return l->session; }

const struct cluster *rpc_loop_cluster(const struct rpc_loop *l) { return l->cluster; }

int rpc_start(struct rpc_loop *l, grpc_call *c, const grpc_op *ops, size_t n, struct rpc_op *op)
{
    HANDOVER(op);
    atomic_fetch_add(&l->pending, 1);
    if (grpc_call_start_batch(c, ops, n, op, NULL) == GRPC_CALL_OK)
        return 0;
    atomic_fetch_sub(&l->pending, 1); /* failed: done will not be called */
    return -1;
}

void rpc_post(struct rpc_loop *l, struct rpc_op *op)
{
    rpc_expect(l, op);
    ring(l, op);
}

/* Where no thread can be made, gRPC's own timers serve: the watch of a channel without a server
 * ends at its deadline, and puts the tag on the queue. */
void rpc_after(struct rpc_loop *l, int64_t ms, struct rpc_op *op)
{
    rpc_expect(l, op);
    if (rpc_timers_add(&l->timers, ms, op) == 0)
        return;
    const gpr_timespec when =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(ms, GPR_TIMESPAN));
    grpc_channel_watch_connectivity_state(l->nowhere, GRPC_CHANNEL_IDLE, when, l->cq, op);
}

grpc_completion_queue *rpc_loop_queue(struct rpc_loop *l) { return l->cq; }

void rpc_expect(struct rpc_loop *l, struct rpc_op *op)
{
    HANDOVER(op);
    atomic_fetch_add(&l->pending, 1);
}
