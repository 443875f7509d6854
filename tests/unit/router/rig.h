/* rig.h - the whole HTTP edge over a fake model: a byte tokenizer, a scheduler that answers from
 * a thread, a real port, and a client on raw sockets. */
#ifndef TEST_RIG_H
#define TEST_RIG_H
#include "common/clock.h"
#include "common/log/log.h"
#include "router/api/lmtp/lmtp.h"
#include "router/call/call.h"
#include "router/embed/embedder.h"
#include "router/http/traffic.h"
#include "router/metrics.h"
#include "tests/unit/test.h"
#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define UNUSED __attribute__((unused)) /* a test uses what it needs */

/* ---------------------------------------------------------------- tokenizer: a byte is a token */
enum { BOS = 256, VOCAB = 257 };
void tok_scratch_free(struct tok_scratch *s) { (void)s; }
void tok_ids_free(struct tok_ids *ids)
{
    free(ids->id);
    free(ids->at);
}
uint32_t tokenizer_vocab_size(const struct tokenizer *t) { return (void)t, VOCAB; }
const char *tokenizer_token(const struct tokenizer *t, uint32_t id)
{
    return (void)t, id == BOS ? "<s>" : "";
}
int64_t tokenizer_id(const struct tokenizer *t, const char *token)
{
    return (void)t, strcmp(token, "<s>") ? -1 : BOS;
}
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id) { return (void)t, id == BOS; }
const char *tokenizer_special(const struct tokenizer *t, const char *name)
{
    (void)t;
    return strcmp(name, "bos_token") ? NULL : "<s>";
}
int tokenizer_encode(const struct tokenizer *t, const char *s, size_t n, unsigned flags,
                     struct tok_scratch **scratch, struct tok_ids *out, struct err *e)
{
    (void)t, (void)scratch, (void)e;
    uint32_t bos = flags & TOK_ADD_SPECIAL ? 1 : 0;
    out->id = calloc(n + 1, sizeof(*out->id));
    out->at = flags & TOK_OFFSETS ? calloc(n + 1, sizeof(*out->at)) : NULL;
    if (bos)
        out->id[0] = BOS;
    for (size_t i = 0; i < n; i++) {
        out->id[bos + i] = (unsigned char)s[i];
        if (out->at)
            out->at[bos + i] = (struct tok_offset){(uint32_t)i, (uint32_t)i + 1};
    }
    out->n = (uint32_t)n + bos;
    return 0;
}
void tokenizer_join(const struct tokenizer *t, const struct tok_text *tokens, size_t n,
                    struct buf *out)
{
    (void)t;
    for (size_t i = 0; i < n; i++)
        buf_add(out, tokens[i].p, tokens[i].n);
}
bool tokenizer_marks_inner(const struct tokenizer *t) { return (void)t, false; }
void tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool skip_special,
                      struct buf *out)
{
    (void)t;
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 256)
            buf_ch(out, (char)ids[i]);
        else if (!skip_special)
            buf_str(out, "<s>");
}

/* ---------------------------------------------------------------- scheduler
 * Token k of an answer is the letter 'a' + k % 26 with logprob -(index of request + 1) / 2; a
 * prompt that begins with FAIL fails, one with EOS ends after three tokens, one with BIG has 64 kB
 * tokens, one with "SAY text|" is answered with the text, a byte a token. To get its
 * place is the second, then the next, and then served. */
struct fleet {
    pthread_mutex_t lock;
    pthread_t thread;
    struct gen_request *r[256];
    uint32_t done[256];
    bool cancelled[256];
    int n;
    bool stop;
    int step_us;
    unsigned queued_steps;
    atomic_uint live, cancels, submitted;
    struct infer_limits limits;
};

static void fake_error(struct gen_request *r, enum err_kind k, const char *what)
{
    struct err e;
    err_set(&e, k, "%s", what);
    r->times.ended = clock_ns();
    r->sink.event(r, &(struct gen_event){.type = GEN_ERROR, .err = &e});
}

/* True if a prompt, given as text or as bytes, begins with these letters. */
static bool begins(const struct gen_request *r, const char *with)
{
    size_t n = strlen(with);
    if (r->inputs)
        return !strncmp(r->inputs, with, n);
    for (size_t i = 0; i < n; i++)
        if (i >= r->n_ids || r->ids[i] != (unsigned char)with[i])
            return false;
    return true;
}

/* One token; true when it was the last. */
static bool fake_step(struct gen_request *r, uint32_t *done)
{
    char big[65536];
    char letter[2] = {(char)('a' + *done % 26), 0};
    memset(big, 'x', sizeof(big));
    if (begins(r, "FAIL") && *done == 2)
        return fake_error(r, ERR_GENERATION, "Request failed during generation: Server error: x"),
               true;
    bool eos = (begins(r, "EOS") || (r->inputs && strstr(r->inputs, "EOS"))) && *done == 2;
    const char *said = r->inputs ? strstr(r->inputs, "SAY ") : NULL;
    if (said) {
        size_t n = strcspn(said + 4, "|");
        eos = *done == n;
        letter[0] = said[4 + *done];
    }
    if (*done == 0) {
        r->times.batched = clock_ns();
        struct gen_token *p = calloc(r->n_ids + 1, sizeof(*p));
        for (uint32_t i = 0; i < r->n_ids; i++)
            p[i] = (struct gen_token){r->ids[i], i ? -0.25f : NAN, false, "p", 1};
        if (r->params.prefill_logprobs)
            r->sink.event(
                r, &(struct gen_event){.type = GEN_PREFILL, .prefill = p, .n_prefill = r->n_ids});
        free(p);
    }
    struct gen_token top[20] = {{1, -0.1f, false, "A", 1}, {2, -2.5f, false, "B", 1}};
    for (uint32_t i = 2; i < 20; i++)
        top[i] = (struct gen_token){i + 1, -3, false, "C", 1};
    struct gen_event ev = {.type = GEN_TOKEN,
                           .token = {100 + *done, -0.5f, eos, eos ? "</s>" : letter, eos ? 4 : 1},
                           .top = top,
                           .n_top = r->params.top_n_tokens};
    if (r->inputs && !strncmp(r->inputs, "BIG", 3))
        ev.token.text = big, ev.token.text_len = sizeof(big);
    char text[4096] = "";
    struct gen_end end = {eos ? FINISH_EOS : FINISH_LENGTH, ++*done, text, 0};
    bool last = eos || *done == r->params.max_new_tokens;
    if (last) {
        uint32_t n = eos ? *done - 1 : *done;
        for (uint32_t i = 0; i < n && i < sizeof(text) - 1; i++)
            text[end.text_len++] = (char)('a' + i % 26);
        ev.end = &end;
        r->times.ended = clock_ns();
    }
    r->sink.event(r, &ev);
    return last;
}

static void *fake_run(void *arg)
{
    struct fleet *f = arg;
    pthread_mutex_lock(&f->lock);
    while (!f->stop) {
        void *flush_arg = NULL;
        void (*flush)(void *) = NULL;
        for (int i = 0; i < f->n; i++) {
            struct gen_request *r = f->r[i];
            flush = r->sink.flush, flush_arg = r->sink.arg;
            bool last = true;
            if (r->place && !f->cancelled[i] && r->wants_place) {
                f->queued_steps++; /* it waits: one position nearer every 150 ms */
                if (f->queued_steps % (150000 / f->step_us) == 0)
                    r->place--;
                continue;
            }
            if (f->cancelled[i])
                fake_error(r, ERR_INCOMPLETE, "cancelled");
            else
                last = fake_step(r, &f->done[i]);
            if (last) {
                f->n--;
                f->r[i] = f->r[f->n], f->done[i] = f->done[f->n],
                f->cancelled[i] = f->cancelled[f->n];
                i--;
                f->live--;
            }
        }
        if (flush)
            flush(flush_arg);
        pthread_mutex_unlock(&f->lock);
        usleep((unsigned)f->step_us);
        pthread_mutex_lock(&f->lock);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

const struct infer_limits *fleet_limits(const struct fleet *f) { return &f->limits; }
struct adapter_shelf *fleet_adapters(struct fleet *f) { return (void)f, NULL; }
void fleet_change(struct fleet *f, struct adapter_change *c)
{
    (void)f;
    err_set(&c->err, ERR_UNHEALTHY, "there are no shards");
    c->done(c);
}
void fleet_embed(struct fleet *f, struct embed_job *j)
{
    (void)f;
    err_set(&j->err, ERR_TASK, "The model does not support Embeddings API");
    j->done(j);
}
int fleet_audit(struct fleet *f, int64_t ms, struct buf *out, struct err *e)
{
    (void)f, (void)ms, (void)e;
    buf_str(out, "{}");
    return 0;
}
struct infer_stats fleet_stats(struct fleet *f) { return (void)f, (struct infer_stats){0}; }
void fleet_each(struct fleet *f, void (*fn)(void *arg, const struct replica_view *v), void *arg)
{
    (void)f, (void)fn, (void)arg;
}
void fleet_each_adapter(struct fleet *f,
                        void (*fn)(void *arg, const char *name, const struct adapter_use *u),
                        void *arg)
{
    (void)f, (void)fn, (void)arg;
}
bool fleet_healthy(struct fleet *f) { return f != NULL; }
void fleet_drain(struct fleet *f, const char *why) { (void)f, (void)why; }
void fleet_fail(struct fleet *f, const char *why) { (void)f, (void)why; }
void fleet_submit(struct fleet *f, struct gen_request *r)
{
    pthread_mutex_lock(&f->lock);
    r->times.queued = clock_ns();
    r->place = r->wants_place ? 2 : 0;
    f->r[f->n] = r, f->done[f->n] = 0, f->cancelled[f->n] = false;
    f->n++;
    f->live++;
    f->submitted++;
    pthread_mutex_unlock(&f->lock);
}
void fleet_cancel(struct fleet *f, struct gen_request *r)
{
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < f->n; i++)
        if (f->r[i] == r)
            f->cancelled[i] = true;
    f->cancels++;
    pthread_mutex_unlock(&f->lock);
}

/* ---------------------------------------------------------------- the edge under test */
struct rig {
    struct router_config config;
    struct edge edge;
    struct fleet fleet;
    pthread_t loop;
};

static void *rig_loop(void *h)
{
    http_run(h);
    return NULL;
}

UNUSED static void rig_start(struct rig *r, const struct http_config *h, int step_us)
{
    struct err e;
    if (!r->config.max_concurrent_requests)
        r->config.max_concurrent_requests = 128;
    r->config.max_best_of = 2, r->config.max_stop_sequences = 4, r->config.max_top_n_tokens = 5;
    r->config.validation_workers = 2, r->config.max_client_batch_size = 4;
    r->config.tokenizer_name = "test/model";
    if (!r->config.lmtp_max_message)
        r->config.lmtp_max_message = 4 << 20;
    r->fleet.step_us = step_us;
    r->fleet.limits = (struct infer_limits){.max_input_tokens = 3000,
                                            .max_total_tokens = 4000,
                                            .vocab_size = VOCAB,
                                            .takes_input_ids = true,
                                            .takes_bias = true};
    pthread_mutex_init(&r->fleet.lock, NULL);
    pthread_create(&r->fleet.thread, NULL, fake_run, &r->fleet);
    r->edge.config = &r->config;
    r->edge.metrics = metrics_new(router_metrics, N_ROUTER_METRICS);
    r->edge.traffic = traffic_new();
    r->edge.model_id = "test/model";
    r->edge.compute_type = "cpu";
    strcpy(r->edge.fingerprint, "0.0-native");
    admission_init(&r->edge.admission, r->config.max_concurrent_requests);
    r->edge.workers = workers_new(2, &e);
    r->edge.lmtp = lmtp_new(&r->edge, &e);
    assert_non_null(r->edge.lmtp);
    assert_int_equal(lmtp_start(r->edge.lmtp, &e), 0);
    struct http_config c = h ? *h : (struct http_config){0};
    c.hostname = c.hostname ? c.hostname : "127.0.0.1";
    c.max_body = c.max_body ? c.max_body : 200000;
    c.events = call_events;
    c.events.socket = lmtp_adopt;
    c.arg = &r->edge;
    r->edge.http = http_new(&c, &e);
    assert_non_null(r->edge.http);
    edge_open(&r->edge, &r->fleet);
    pthread_create(&r->loop, NULL, rig_loop, r->edge.http);
}

/* Waits until no call is alive; then all permits must be back. */
UNUSED static void rig_settle(struct rig *r)
{
    for (int i = 0; i < 6000 && (r->edge.live || r->fleet.live); i++)
        usleep(10000);
    assert_int_equal(r->fleet.live, 0);
    assert_int_equal(r->edge.live, 0);
    assert_int_equal(admission_held(&r->edge.admission), 0);
}

UNUSED static void wait_for(atomic_uint *v, unsigned at_least)
{
    for (int i = 0; i < 12000 && *v < at_least; i++)
        usleep(5000);
    assert_true(*v >= at_least);
}

UNUSED static void rig_stop(struct rig *r)
{
    lmtp_stop(r->edge.lmtp);
    http_stop(r->edge.http);
    pthread_join(r->loop, NULL);
    workers_free(r->edge.workers);
    pthread_mutex_lock(&r->fleet.lock);
    r->fleet.stop = true;
    pthread_mutex_unlock(&r->fleet.lock);
    pthread_join(r->fleet.thread, NULL);
    lmtp_free(r->edge.lmtp);
    http_free(r->edge.http);
    metrics_free(r->edge.metrics);
    traffic_free(r->edge.traffic);
}

/* ---------------------------------------------------------------- a client */
UNUSED static int dial(const struct rig *r)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(http_port(r->edge.http))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval patience = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

UNUSED static void say(int fd, const char *s, size_t n)
{
    for (ssize_t w; n; s += w, n -= (size_t)w)
        if ((w = send(fd, s, n, MSG_NOSIGNAL)) <= 0)
            return;
}

/* All bytes until the server closes (or ten seconds of silence). */
UNUSED static char *receive(int fd, struct buf *b)
{
    char tmp[65536];
    buf_reset(b);
    for (ssize_t n; (n = recv(fd, tmp, sizeof(tmp), 0)) > 0;)
        buf_add(b, tmp, (size_t)n);
    buf_reserve(b, 0);
    return b->p;
}

UNUSED __attribute__((format(printf, 1, 2))) static char *text(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&s, fmt, ap) < 0)
        abort();
    va_end(ap);
    return s;
}

UNUSED static char *post_text(const char *path, const char *body)
{
    return text(
        "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
        "Content-Length: %zu\r\n\r\n%s",
        path, strlen(body), body);
}

/* A request with Connection: close, and the whole reply. */
UNUSED static char *ask_raw(const struct rig *r, const char *request, struct buf *b)
{
    int fd = dial(r);
    say(fd, request, strlen(request));
    char *p = receive(fd, b);
    close(fd);
    return p;
}

UNUSED static char *post(const struct rig *r, const char *path, const char *body, struct buf *b)
{
    char *request = post_text(path, body);
    char *p = ask_raw(r, request, b);
    free(request);
    return p;
}

UNUSED static int status_of(const char *reply) { return strlen(reply) > 12 ? atoi(reply + 9) : 0; }
UNUSED static const char *body_of(const char *reply)
{
    const char *p = strstr(reply, "\r\n\r\n");
    return p ? p + 4 : "";
}
/* The bytes of a chunked body, in place. */
UNUSED static char *unchunk(char *reply)
{
    char *in = (char *)body_of(reply), *out = in, *start = in;
    for (size_t n; (n = strtoul(in, &in, 16)) > 0; in += n + 2) {
        in += 2;
        memmove(out, in, n);
        out += n;
    }
    *out = 0;
    return start;
}
UNUSED static void must_have(const char *s, const char *part)
{
    if (!strstr(s, part))
        fail_msg("`%s` is not in:\n%.2000s", part, s);
}
UNUSED static double metric(const struct rig *r, const char *line)
{
    struct buf b = BUF_INIT;
    metrics_print(r->edge.metrics, &b);
    char *p = strstr(b.p, line);
    double v = p ? strtod(p + strlen(line), NULL) : -1;
    buf_free(&b);
    return v;
}
#endif
