#include "router/serve.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/process/process.h"
#include "common/process/startup.h"
#include "common/thread/watchdog.h"
#include "router/api/lmtp/lmtp.h"
#include "router/http/tls.h"
#include "router/models/models.h"
#include "router/serve_impl.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* ECHO_MS: a signal to a process group arrives twice, once through the launcher, and counts as
 * one. */
enum {
    LAST_WORDS_MS = 500,
    LAST_FLUSH_MS = 5000,
    HURRIED_FLUSH_MS = 200,
    FLUSH_MS = 300000,
    LOOK_MS = 10,
    ECHO_MS = 500,
    CLOSE_S = 10 /* for freeing memory */
};

static void opened(struct router_service *s)
{
    pthread_join(s->starter, NULL);
    s->starting = false;
    startup_begin(s->edge.startup, STARTUP_ROUTER, STARTUP_READY);
    edge_open(&s->edge, s->fleet);
    const struct infer_limits *l = &s->edge.limits;
    LOG(LOG_INFO, "Connected",
        LOGD("seconds", startup_seconds(s->edge.startup, STARTUP_ROUTER, STARTUP_READY)),
        LOGI("shards", l->n_shards), LOGS("dtype", l->dtype), LOGS("quantize", l->quantize),
        LOGS("device", l->device), LOGI("max_input_tokens", l->max_input_tokens),
        LOGI("max_total_tokens", l->max_total_tokens),
        LOGI("max_batch_prefill_tokens", l->max_batch_prefill_tokens),
        LOGI("max_batch_total_tokens", l->max_batch_total_tokens));
}

static const char shutting_down[] = "the server is shutting down";

/* Stops accepting requests; running ones may finish. */
static void drain(struct router_service *s)
{
    if (atomic_exchange(&s->edge.draining, true))
        return;
    models_close(s->edge.models);
    models_drain(s->edge.models);
    if (s->fleet)
        fleet_drain(s->fleet, shutting_down);
}

/* 0: continue. -1: stop, `e` says why. If the first model's shards are lost for good while requests
 * to other models run, those finish before the router stops. */
static int on_event(struct router_service *s, struct err *e)
{
    uint64_t count;
    if (read(s->event_fd, &count, sizeof(count)) < 0)
        return 0;
    switch (atomic_load(&s->event)) {
    case STARTED:
        opened(s);
        return 0;
    case START_FAILED:
        *e = s->start_error;
        return -1;
    default:
        break;
    }
    if (atomic_load(&s->edge.draining)) /* its streams have ended and are counted */
        return 0;
    err_set(e, ERR_GENERATION, "%s", s->why_lost);
    if (!s->edge.models)
        return -1;
    log_msg(LOG_ERROR, "%s; starting graceful shutdown", s->why_lost);
    s->lost = true;
    drain(s);
    return 0;
}

static void renew(struct router_service *s)
{
    struct err e = ERR_INIT;
    if (tls_reload(s->tls, &e) != 0)
        log_msg(LOG_ERROR, "the certificate was not renewed: %s", e.msg);
}

static _Noreturn void leave(int code)
{
    log_flush();
    _exit(code);
}

static bool is_echo(const struct router_service *s)
{
    return s->asked && clock_ms() - s->asked < ECHO_MS;
}

/* Waits until the clients have acknowledged all data. False: timeout after `ms`. After a second
 * signal it waits only for data that is in flight at that moment. */
static bool flush(struct router_service *s, int64_t ms)
{
    struct signalfd_siginfo info;
    int64_t until = clock_ms() + ms;
    bool hurried = false;
    while (s->looping && !http_flushed(s->edge.http)) {
        if (clock_ms() >= until && hurried)
            leave(1);
        if (clock_ms() >= until)
            return false;
        if (poll(&(struct pollfd){s->signal_fd, POLLIN, 0}, 1, LOOK_MS) == 1 &&
            read(s->signal_fd, &info, sizeof(info)) == sizeof(info) && info.ssi_signo != SIGHUP &&
            !is_echo(s) && !hurried) {
            hurried = true;
            until = clock_ms() + HURRIED_FLUSH_MS;
        }
    }
    return true;
}

/* After the second signal every request ends with an error. */
static int end_requests(struct router_service *s, struct err *e)
{
    s->asked = clock_ms();
    if (s->fleet)
        fleet_fail(s->fleet, shutting_down);
    models_fail(s->edge.models, shutting_down);
    return err_set(e, ERR_GENERATION, "a second signal ended %u requests",
                   atomic_load(&s->edge.live));
}

/* After draining. 1: requests failed meanwhile, and `e` says how. */
static int result(const struct router_service *s, uint32_t failed_before, struct err *e)
{
    uint32_t n = atomic_load(&s->edge.failed) - failed_before;
    if (!s->lost && n)
        err_set(e, ERR_GENERATION, "%u requests failed while the server shut down", n);
    return s->lost || n;
}

/* As result(); -1: not drained, `e` says why. */
static int wait(struct router_service *s, struct err *e)
{
    uint32_t failed = 0;
    for (;;) {
        struct pollfd fds[] = {{s->signal_fd, POLLIN, 0}, {s->event_fd, POLLIN, 0}};
        struct signalfd_siginfo info;
        bool draining = atomic_load(&s->edge.draining);
        if (poll(fds, 2, draining ? 10 : -1) < 0 && errno != EINTR)
            return err_sys(e, "poll");
        if (fds[1].revents && on_event(s, e) != 0)
            return -1;
        bool got = fds[0].revents && read(s->signal_fd, &info, sizeof(info)) == sizeof(info);
        if (got && info.ssi_signo == SIGHUP) {
            renew(s);
        } else if (got) {
            if (s->starting) /* nothing runs yet */
                leave(0);
            if (is_echo(s))
                continue;
            if (s->asked && atomic_load(&s->edge.live) == 0)
                return result(s, failed, e);
            if (s->asked)
                return end_requests(s, e);
            s->asked = clock_ms();
            log_msg(LOG_INFO, "signal received, starting graceful shutdown");
            failed = atomic_load(&s->edge.failed);
            drain(s);
        }
        if (atomic_load(&s->edge.draining) && atomic_load(&s->edge.live) == 0)
            return result(s, failed, e);
    }
}

static void stop(struct router_service *s, bool well)
{
    struct edge *g = &s->edge;
    watchdog_stop(g->watchdog);
    lmtp_stop(g->lmtp);
    if (!flush(s, FLUSH_MS))
        log_msg(LOG_WARN, "some clients did not read their last bytes within %d s",
                FLUSH_MS / 1000);
    if (s->looping) {
        http_stop(g->http);
        pthread_join(s->loop, NULL);
    }
    workers_stop(g->workers);
    log_flush();
    process_close_within(CLOSE_S, well);
    if (s->fleet)
        fleet_stop(s->fleet);
    models_stop(g->models);
    service_free(s);
}

/* The shards are lost or never started. Waiting requests still get an answer; threads blocked on
 * the shards are not joined. */
static _Noreturn void give_up(struct router_service *s, const struct err *e)
{
    int64_t until = clock_ms() + LAST_WORDS_MS;
    log_msg(LOG_ERROR, "%s", e->msg);
    log_stderr("router: %s\n", e->msg);
    atomic_store(&s->edge.draining, true);
    while (atomic_load(&s->edge.live) && clock_ms() < until)
        poll(NULL, 0, LOOK_MS);
    flush(s, LAST_FLUSH_MS);
    leave(1);
}

int serve(const struct router_config *c, struct err *e)
{
    struct router_service s = {.c = c, .signal_fd = -1, .event_fd = -1};
    int rc = service_start(&s, e);
    int end = rc == 0 ? wait(&s, e) : 0;
    if (end < 0)
        give_up(&s, e);
    stop(&s, end == 0 && rc == 0);
    return end ? -1 : rc;
}
