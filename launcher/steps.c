/* The steps of a launch: how each begins, what a lost child means, what happens at its deadline.
 * See supervise.h. */
#include "common/clock.h"
#include "common/log/log.h"
#include "common/process/exit_code.h"
#include "common/process/startup.h"
#include "launcher/plan/machine.h"
#include "launcher/process/sweep.h"
#include "launcher/supervise_impl.h"
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum { SHORT_GRACE_MS = 10000 };

/* Ranks on this machine: [plan->first, plan->first + n). */
static struct child *shard(struct supervisor *s, uint32_t rank)
{
    return &s->children[CHILD_RANKS + 2 * (rank - s->plan->first)];
}
static struct child *probe(struct supervisor *s, uint32_t rank) { return shard(s, rank) + 1; }
static bool is_rank(const struct supervisor *s, uint32_t rank)
{
    return rank < s->plan->first + s->n;
}

bool step_all_gone(const struct supervisor *s)
{
    for (uint32_t i = 0; i < s->n_children; i++)
        if (s->children[i].alive)
            return false;
    return true;
}

void step_go(struct supervisor *s, enum stop_step step)
{
    LOG(LOG_DEBUG, "step", LOGS("from", step_rows[s->step].name), LOGS("to", step_rows[step].name));
    s->step = step;
    s->since = clock_ms();
    s->deadline = 0;
    s->notice = step_rows[step].notice ? s->since + NOTICE_MS : 0;
    step_rows[step].enter(s);
}

void step_stop(struct supervisor *s)
{
    if (s->step < STOP_ROUTER)
        step_go(s, s->children[CHILD_ROUTER].alive ? STOP_ROUTER : STOP_SHARDS);
}

/* The first failure is the cause; later ones are its consequences. */
static void step_fail(struct supervisor *s, const char *what, const char *child_name,
                      const struct child *c)
{
    char cause[400], why[sizeof(s->err->msg)];
    if (c)
        child_cause(c, cause, sizeof(cause));
    snprintf(why, sizeof(why), "%.72s%s%s", child_name, c ? " " : "", c ? cause : "");
    step_fail_code(s, what, why, c ? exit_code_of_child(c->status) : 0);
}

void step_fail_code(struct supervisor *s, const char *what, const char *why, int code)
{
    if (s->failed || s->signals)
        return;
    s->failed = true;
    s->code = code;
    err_set(s->err, ERR_SYSTEM, "%s: %s", what, why);
    step_stop(s);
}

static void fail_err(struct supervisor *s, const char *what)
{
    if (s->failed)
        return;
    s->failed = true;
    err_wrap(s->err, "%s", what);
    step_stop(s);
}

static const char *label(struct supervisor *s, const char *what, uint32_t rank)
{
    char text[32];
    int n = snprintf(text, sizeof(text), "%s-%" PRIu32, what, rank);
    const char *p = arena_strdup(s->plan->arena, text, (size_t)n);
    return p ? p : what;
}

/* ---------------------------------------------------------------- DOWNLOAD */
/* One source after the other; a folder needs no check, because loading checks it. */
static void download_enter(struct supervisor *s)
{
    struct command cmd;
    while (s->n_checked < s->plan->n_sources && machine_is_dir(s->plan->sources[s->n_checked].id))
        s->n_checked++;
    if (s->n_checked == s->plan->n_sources) {
        step_go(s, LOADING);
        return;
    }
    log_msg(LOG_INFO, "Starting check and download process for %s",
            s->plan->sources[s->n_checked].id);
    child_free(&s->children[CHILD_DOWNLOAD]); /* of the previous source */
    if (plan_download(s->plan, s->n_checked, &cmd, s->err) ||
        child_start(&s->children[CHILD_DOWNLOAD], "download", &cmd, s->err))
        fail_err(s, "Download error");
}

static void download_lost(struct supervisor *s, enum child_role role, uint32_t rank,
                          struct child *c)
{
    const char *flag = s->plan->sources[s->n_checked].flag;
    char what[64];
    (void)role, (void)rank;
    if (WIFEXITED(c->status) && WEXITSTATUS(c->status) == 0) {
        log_msg(LOG_INFO, "Successfully downloaded weights for %s",
                s->plan->sources[s->n_checked++].id);
        step_go(s, DOWNLOAD);
    } else {
        snprintf(what, sizeof(what), "Download error%s%s", flag ? " of " : "", flag ? flag : "");
        step_fail(s, what, "model-server download-weights", c);
    }
}

/* ---------------------------------------------------------------- RESTARTING */
/* The router finds the shards by itself: it may have warmed them up, and have requests, before the
 * launcher has seen their probes end. */
static bool have_served(struct supervisor *s)
{
    s->served = s->served || (s->n && startup_look(s->progress.board, s->plan->first, s->n).phase ==
                                          STARTUP_READY);
    return s->served;
}

/* Only under a router that waits, here or on machine 0, and not too often. Shards that never served
 * may fail the same way again and report why, so they are not restarted; except once after SIGKILL,
 * which the kernel may send because of another process' memory. */
static bool may_restart(struct supervisor *s, const struct child *c)
{
    const bool killed = WIFSIGNALED(c->status) && WTERMSIG(c->status) == SIGKILL;
    return (have_served(s) || (killed && !s->restarts.n)) &&
           (s->plan->first || s->children[CHILD_ROUTER].alive) &&
           restarts_left(&s->restarts, s->plan, clock_ms());
}

static void load_when_gone(struct supervisor *s)
{
    for (uint32_t r = s->plan->first; is_rank(s, r); r++)
        if (shard(s, r)->alive || probe(s, r)->alive)
            return;
    if (s->deadline) /* of the pause */
        return;
    for (uint32_t r = s->plan->first; is_rank(s, r); r++) {
        child_free(shard(s, r)); /* of the previous run */
        child_free(probe(s, r));
    }
    sweep_shards(s->plan);
    machine_socket_folder(s->plan->uds_path);
    step_go(s, LOADING);
}

/* The other ranks have no state to save, and may hang in a collective. */
static void restarting_enter(struct supervisor *s)
{
    LOG(LOG_WARN, "Restarting the shards", LOGI("restart", s->restarts.n),
        LOGI("most_in_an_hour", s->plan->cfg->max_shard_restarts),
        LOGI("in_ms", s->restarts.pause_ms));
    s->deadline = s->restarts.pause_ms ? s->since + s->restarts.pause_ms : 0;
    for (uint32_t r = s->plan->first; is_rank(s, r); r++) {
        child_signal(shard(s, r), SIGKILL);
        child_signal(probe(s, r), SIGKILL);
    }
    load_when_gone(s);
}

static void router_lost(struct supervisor *s, const struct child *c)
{
    log_msg(LOG_ERROR, "Webserver Crashed");
    step_fail(s, "Webserver failed", "router", c);
}

static void restarting_lost(struct supervisor *s, enum child_role role, uint32_t rank,
                            struct child *c)
{
    (void)rank;
    if (role == ROLE_ROUTER)
        router_lost(s, c);
    else
        load_when_gone(s);
}

/* A rank has ended; `what`: the error if it is not restarted. */
static void rank_lost(struct supervisor *s, const char *what, uint32_t rank, const struct child *c)
{
    char child_name[32], cause[480];
    snprintf(child_name, sizeof(child_name), "rank %" PRIu32, rank);
    if (!may_restart(s, c)) {
        step_fail(s, what, child_name, c);
        return;
    }
    child_cause(c, cause, sizeof(cause));
    log_msg(LOG_ERROR, "%s: %s %s", what, child_name, cause);
    restarts_count(&s->restarts, s->step == LOADING, c->status);
    step_go(s, RESTARTING);
}

/* ---------------------------------------------------------------- LOADING */
/* The probe waits inside its Health call; see health.h. */
static int start_probe(struct supervisor *s, uint32_t rank)
{
    struct command cmd;
    if (plan_probe(s->plan, rank, &cmd, s->err))
        return -1;
    return child_start(probe(s, rank), label(s, "probe", rank), &cmd, s->err);
}

/* First: its port answers probes while the shards load, and it connects to them by itself. */
static int start_router(struct supervisor *s)
{
    struct command cmd;
    if (s->plan->first || s->children[CHILD_ROUTER].alive)
        return 0;
    log_msg(LOG_INFO, "Starting Webserver");
    if (plan_router(s->plan, &cmd, s->err) == 0 &&
        child_start(&s->children[CHILD_ROUTER], "router", &cmd, s->err) == 0) {
        s->children[CHILD_ROUTER].vital = true;
        return 0;
    }
    fail_err(s, "Webserver cannot start");
    return -1;
}

static void loading_enter(struct supervisor *s)
{
    struct command cmd;
    s->n_ready = s->n_probes = 0;
    if (start_router(s))
        return;
    if (s->groups.n > s->groups.n_models) /* replicas have deadlines of their own */
        groups_start_replicas(&s->groups);
    else if (s->plan->cfg->startup_timeout)
        s->deadline = s->since + 1000 * (int64_t)s->plan->cfg->startup_timeout;
    for (uint32_t r = s->plan->first; is_rank(s, r); r++) {
        LOG(LOG_INFO, "Starting shard", LOGI("rank", r));
        if ((s->served ? plan_shard_again : plan_shard)(s->plan, r, &cmd, s->err) ||
            child_start(shard(s, r), label(s, "shard", r), &cmd, s->err) || start_probe(s, r)) {
            fail_err(s, "Shard cannot start");
            return;
        }
    }
}

/* True of a shard that has ended in order, and only because those of machine 0 have. */
static bool service_over(struct supervisor *s, const struct child *c)
{
    if (!s->plan->first || !WIFEXITED(c->status) || WEXITSTATUS(c->status))
        return false;
    log_msg(LOG_INFO, "machine 0 has ended");
    step_stop(s);
    return true;
}

static void loading_lost(struct supervisor *s, enum child_role role, uint32_t rank, struct child *c)
{
    char child_name[32];
    if (role == ROLE_SHARD && service_over(s, c))
        return;
    if (role == ROLE_SHARD) {
        log_msg(LOG_ERROR, "Shard %" PRIu32 " failed to start", rank);
        rank_lost(s, "Shard cannot start", rank, c);
    } else if (role == ROLE_PROBE && child_probe_again(c, &s->n_probes)) {
        child_free(c);
        if (start_probe(s, rank))
            fail_err(s, "Shard cannot start");
    } else if (role == ROLE_PROBE && (!WIFEXITED(c->status) || WEXITSTATUS(c->status) != 0)) {
        snprintf(child_name, sizeof(child_name), "health probe of rank %" PRIu32, rank);
        step_fail(s, "Shard cannot start", child_name, c);
    } else if (role == ROLE_PROBE) {
        LOG(LOG_INFO, "Shard ready", LOGI("rank", rank),
            LOGD("seconds", (double)(clock_ms() - s->since) / 1e3));
        if (++s->n_ready == s->n)
            step_go(s, SERVING);
    } else if (role == ROLE_ROUTER) {
        router_lost(s, c);
    }
}

static void loading_notice(struct supervisor *s)
{
    for (uint32_t r = s->plan->first; is_rank(s, r); r++)
        if (probe(s, r)->alive) {
            char words[96];
            const struct startup_view v = startup_look(s->progress.board, r, 1);
            startup_words(&v, words, sizeof(words));
            LOG(LOG_INFO, "Waiting for shard to be ready...", LOGI("rank", r), LOGS("at", words));
        }
    refused_try();
}

static void loading_late(struct supervisor *s)
{
    for (uint32_t r = s->plan->first; is_rank(s, r); r++)
        if (probe(s, r)->alive) {
            char child_name[96];
            snprintf(child_name, sizeof(child_name),
                     "rank %" PRIu32 " did not answer within %" PRIu32 " s (--startup-timeout)", r,
                     s->plan->cfg->startup_timeout);
            step_fail(s, "Shard cannot start", child_name, NULL);
            return;
        }
}

/* ---------------------------------------------------------------- SERVING */
static void serving_enter(struct supervisor *s)
{
    progress_end(&s->progress);
    if (s->plan->first) {
        s->served = true;
        LOG(LOG_INFO, "Serving the router of machine 0", LOGI("first_rank", s->plan->first),
            LOGI("ranks", s->n));
        return;
    }
    LOG(LOG_INFO, "All shards ready", LOGI("ranks", s->n),
        LOGI("replicas", groups_ready_replicas(&s->groups)));
    if (!s->draft.started)
        draft_start(&s->draft);
    s->served = true;
}

static void serving_lost(struct supervisor *s, enum child_role role, uint32_t rank, struct child *c)
{
    if (role == ROLE_SHARD && service_over(s, c))
        return;
    if (role == ROLE_SHARD) {
        log_msg(LOG_ERROR, "Shard %" PRIu32 " crashed", rank);
        rank_lost(s, "Shard failed", rank, c);
    } else if (role == ROLE_ROUTER) {
        router_lost(s, c);
    }
}

/* ---------------------------------------------------------------- STOP_ROUTER, STOP_SHARDS, OVER
 */
static int64_t grace_ms(const struct supervisor *s)
{
    return 1000 * (int64_t)s->plan->cfg->graceful_termination_timeout;
}

static int64_t last_ms(const struct supervisor *s)
{
    return grace_ms(s) / 4 < LAST_MS ? grace_ms(s) / 4 : LAST_MS;
}

static void stop_router_enter(struct supervisor *s)
{
    log_msg(LOG_INFO, "Terminating webserver");
    groups_end(&s->groups);
    child_signal(&s->children[CHILD_ROUTER], SIGTERM);
    s->stop_by = s->since + grace_ms(s);
    s->deadline = s->stop_by - last_ms(s);
}

/* The router blocks SIGTERM before it opens its port: one killed by our SIGTERM had no requests. */
static bool had_requests(int status) { return !WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM; }

/* However it was stopped, unfinished requests are lost. */
static void stop_router_lost(struct supervisor *s, enum child_role role, uint32_t rank,
                             struct child *c)
{
    char cause[480];
    (void)rank;
    if (role != ROLE_ROUTER)
        return;
    if (!s->failed && had_requests(c->status) &&
        (!WIFEXITED(c->status) || WEXITSTATUS(c->status) != 0)) {
        s->failed = true;
        s->code = exit_code_of_child(c->status);
        child_cause(c, cause, sizeof(cause));
        err_set(s->err, ERR_SYSTEM, "Webserver failed while it shut down: router %s", cause);
    }
    step_go(s, STOP_SHARDS);
}

/* First its requests are ended, then the router itself. */
static void stop_router_late(struct supervisor *s)
{
    log_msg(LOG_WARN, "webserver did not end within --graceful-termination-timeout: %s",
            s->ended_requests ? "killing it" : "ending its requests");
    child_signal(&s->children[CHILD_ROUTER], s->ended_requests ? SIGKILL : SIGTERM);
    if (!s->ended_requests)
        s->deadline = s->stop_by - last_ms(s) / 2;
    s->ended_requests = true;
}

static void stop_shards_enter(struct supervisor *s)
{
    log_msg(LOG_INFO, "Shutting down shards");
    draft_stop(&s->draft);
    groups_end(&s->groups);
    for (uint32_t i = 0; i < s->n_children; i++)
        child_signal(&s->children[i], SIGTERM);
    s->deadline = s->stop_by ? s->stop_by : s->since + grace_ms(s);
    /* a download, or shards without a router, have nothing to finish */
    if ((s->children[CHILD_DOWNLOAD].alive || s->failed) && s->deadline > s->since + SHORT_GRACE_MS)
        s->deadline = s->since + SHORT_GRACE_MS;
    if (step_all_gone(s))
        step_go(s, OVER);
}

static void stop_shards_lost(struct supervisor *s, enum child_role role, uint32_t rank,
                             struct child *c)
{
    (void)role, (void)rank, (void)c;
    if (step_all_gone(s))
        step_go(s, OVER);
}

void step_kill_all(struct supervisor *s)
{
    for (uint32_t i = 0; i < s->n_children; i++)
        child_signal(&s->children[i], SIGKILL);
}

static void over_enter(struct supervisor *s) { sweep_shards(s->plan); }

const struct step_row step_rows[] = {
    [DOWNLOAD] = {"download", download_enter, download_lost, NULL, NULL},
    [RESTARTING] = {"restarting", restarting_enter, restarting_lost, NULL, load_when_gone},
    [LOADING] = {"loading", loading_enter, loading_lost, loading_notice, loading_late},
    [SERVING] = {"serving", serving_enter, serving_lost, NULL, NULL},
    [STOP_ROUTER] = {"stop router", stop_router_enter, stop_router_lost, NULL, stop_router_late},
    [STOP_SHARDS] = {"stop shards", stop_shards_enter, stop_shards_lost, NULL, step_kill_all},
    [OVER] = {"over", over_enter, NULL, NULL, NULL},
};
