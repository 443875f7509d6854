/* infer_rig.h - the scheduler with scripted shards over real gRPC, and clients that know their
 * expected answers. */
#ifndef TEST_INFER_RIG_H
#define TEST_INFER_RIG_H
#include "common/clock.h"
#include "router/generate/infer.h"
#include "router/metrics.h"
#include "tests/fake_shard.h"
#include "tests/temp_folder.h"
#include "tests/unit/test.h"
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNUSED __attribute__((unused)) /* a test uses what it needs */

enum { MAX_OUT = 256, WAIT_MS = 20000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int n_flushed;

struct client {
    struct gen_request r;
    uint32_t prompt[2048];
    char text[2048];
    uint32_t out[MAX_OUT], n_out, n_last; /* n_last: last events; must become 1 */
    bool ended, whole;
    enum err_kind kind;
    char msg[480];
    int64_t first_ns, last_ns;
};

UNUSED static void on_event(struct gen_request *r, const struct gen_event *ev)
{
    struct client *c = r->owner;
    pthread_mutex_lock(&lock);
    assert_int_equal(c->n_last, 0); /* nothing after the last event */
    if (ev->type == GEN_TOKEN) {
        char want[16];
        snprintf(want, sizeof(want), "t%u ", ev->token.id);
        assert_string_equal(ev->token.text, want);
        if (c->n_out == 0)
            c->first_ns = clock_ns();
        if (c->n_out < MAX_OUT)
            c->out[c->n_out++] = ev->token.id;
        c->ended = ev->end != NULL;
        c->whole =
            ev->end && strcmp(ev->end->text, "whole") == 0 && ev->end->generated_tokens == c->n_out;
    } else if (ev->type == GEN_ERROR) {
        c->kind = ev->err->kind;
        snprintf(c->msg, sizeof(c->msg), "%s", ev->err->msg);
    }
    if (c->ended || c->kind) {
        c->n_last++;
        c->last_ns = clock_ns();
    }
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&lock);
}

UNUSED static void on_flush(void *arg)
{
    pthread_mutex_lock(&lock);
    ++*(int *)arg;
    pthread_mutex_unlock(&lock);
}

UNUSED static struct client *client_new(uint32_t seed, uint32_t n_prompt, uint32_t max_new)
{
    struct client *c = calloc(1, sizeof(*c));
    arena_init(&c->r.arena, 1 << 20);
    for (uint32_t i = 0; i < n_prompt; i++) {
        c->text[i] = (char)('a' + (seed + i * i) % 26);
        c->prompt[i] = (unsigned char)c->text[i];
    }
    c->r.params = (struct gen_params){.temperature = 1,
                                      .top_p = 1,
                                      .typical_p = 1,
                                      .repetition_penalty = 1,
                                      .max_new_tokens = max_new};
    c->r.ids = c->prompt;
    c->r.n_ids = n_prompt;
    c->r.inputs = c->text;
    c->r.sink = (struct gen_sink){on_event, on_flush, &n_flushed};
    c->r.owner = c;
    return c;
}

UNUSED static void client_free(struct client *c)
{
    arena_reset(&c->r.arena);
    free(c);
}

UNUSED static bool wait_for(bool (*is)(const void *arg), const void *arg)
{
    int64_t end = clock_ms() + WAIT_MS;
    for (;;) {
        pthread_mutex_lock(&lock);
        bool ok = is(arg);
        pthread_mutex_unlock(&lock);
        if (ok || clock_ms() > end)
            return ok;
        usleep(500);
    }
}

UNUSED static bool is_over(const void *c) { return ((const struct client *)c)->n_last > 0; }
UNUSED static bool has_token(const void *c) { return ((const struct client *)c)->n_out > 0; }

UNUSED static void expect_answer(struct client *c)
{
    uint32_t want[MAX_OUT];
    assert_true(wait_for(is_over, c));
    if (c->kind)
        print_error("%s\n", c->msg);
    assert_int_equal(c->kind, ERR_NONE);
    assert_true(c->whole);
    assert_int_equal(c->n_out, c->r.params.max_new_tokens);
    fake_expect(c->prompt, c->r.n_ids, want, c->n_out);
    assert_memory_equal(c->out, want, c->n_out * sizeof(want[0]));
}

UNUSED static void expect_error(struct client *c, enum err_kind kind, const char *part)
{
    assert_true(wait_for(is_over, c));
    assert_int_equal(c->kind, kind);
    if (!strstr(c->msg, part))
        print_error("got: %s\n", c->msg);
    assert_non_null(strstr(c->msg, part));
}

/* ------------------------------------------------ a router's lower half with its shards */
struct rig {
    struct fake_shard *shard[2];
    uint32_t n;
    struct infer *infer;
    struct metrics *metrics;
    char why[512];
    atomic_bool lost;
};
TEMP_FOLDER(dir, "infer-test")

UNUSED static void on_lost(void *arg, const char *why)
{
    struct rig *g = arg;
    snprintf(g->why, sizeof(g->why), "%s", why);
    atomic_store(&g->lost, true);
}

/* Each shard is told the addresses of all before the first one starts. */
UNUSED static void start_shards(struct rig *g)
{
    for (uint32_t i = 0; i < g->n; i++)
        for (uint32_t k = 0; k < g->n; k++)
            g->shard[i]->urls[k] = g->shard[k]->path;
    for (uint32_t i = 0; i < g->n; i++)
        fake_start(g->shard[i]);
}

/* Replaces the shards by new ones at the same addresses, without any state of the old ones. */
UNUSED static void restart_shards(struct rig *g, const struct fake_shard *like)
{
    for (uint32_t i = 0; i < g->n; i++) {
        struct fake_shard *old = g->shard[i], *f = g->shard[i] = calloc(1, sizeof(*f));
        fake_stop(old);
        assert_int_equal(old->n_bad, 0);
        *f = *like;
        memcpy(f->path, old->path, sizeof(f->path));
        f->rank = i;
        f->world = g->n;
        free(old);
    }
    start_shards(g);
}

UNUSED static struct rig *rig_new(const struct fake_shard *like, const struct infer_config *c,
                                  uint32_t n)
{
    static int serial;
    struct rig *g = calloc(1, sizeof(*g));
    struct err e = ERR_INIT;
    serial++;
    for (g->n = 0; g->n < n; g->n++) {
        struct fake_shard *f = g->shard[g->n] = calloc(1, sizeof(*f));
        *f = *like;
        snprintf(f->path, sizeof(f->path), "%s/s%d-%u", dir, serial, g->n);
        f->rank = g->n;
        f->world = n;
    }
    start_shards(g);
    struct infer_config conf = *c;
    conf.shard_target = g->shard[0]->path;
    conf.connect_timeout_ms = WAIT_MS;
    conf.check = true;
    conf.metrics = g->metrics = metrics_new(router_metrics, N_ROUTER_METRICS);
    g->infer = infer_start(&conf, &e);
    if (!g->infer)
        print_error("%s\n", e.msg);
    assert_non_null(g->infer);
    infer_on_lost(g->infer, on_lost, g);
    return g;
}

/* Calls of a shard so far; n_log of them. Static: one reader. */
static uint32_t n_log;
UNUSED static const struct fake_log *log_of(struct rig *g, uint32_t rank)
{
    static struct fake_log copy[FAKE_MAX_LOG];
    pthread_mutex_lock(&g->shard[rank]->lock);
    n_log = g->shard[rank]->n_log;
    memcpy(copy, g->shard[rank]->log, n_log * sizeof(copy[0]));
    pthread_mutex_unlock(&g->shard[rank]->lock);
    return copy;
}

UNUSED static struct fake_log last_prefill(struct rig *g)
{
    const struct fake_log *log = log_of(g, 0);
    struct fake_log last = {0};
    for (uint32_t i = 0; i < n_log; i++)
        if (log[i].rpc == FAKE_PREFILL)
            last = log[i];
    return last;
}

UNUSED static bool is_idle(const void *arg)
{
    struct infer_stats s = infer_stats(((const struct rig *)arg)->infer);
    return s.queued == 0 && s.running == 0;
}

UNUSED static bool is_lost(const void *g) { return atomic_load(&((const struct rig *)g)->lost); }
UNUSED static bool is_healthy(const void *g)
{
    return infer_healthy(((const struct rig *)g)->infer);
}
UNUSED static bool is_sick(const void *g) { return !is_healthy(g); }
UNUSED static bool hangs(const void *arg) { return ((const struct rig *)arg)->shard[0]->hangs; }

/* Afterwards every block must be free, and no step may have read a foreign one. */
UNUSED static void rig_free(struct rig *g)
{
    assert_true(wait_for(is_idle, g));
    assert_int_equal(infer_stats(g->infer).blocks_used, 0);
    assert_int_equal(infer_stats(g->infer).swap_used, 0);
    assert_int_equal(infer_stats(g->infer).cells_used, 0);
    infer_stop(g->infer);
    for (uint32_t i = 0; i < g->n; i++) {
        fake_stop(g->shard[i]);
        assert_int_equal(g->shard[i]->n_bad, 0);
        free(g->shard[i]);
    }
    metrics_free(g->metrics);
    free(g);
}

/* The number after `line` in /metrics; 0: there is no such line. */
UNUSED static double counter(const struct rig *g, const char *line)
{
    struct buf b = BUF_INIT;
    metrics_print(g->metrics, &b);
    const char *at = strstr(b.p, line);
    double v = at ? strtod(at + strlen(line), NULL) : 0;
    buf_free(&b);
    return v;
}
#endif
