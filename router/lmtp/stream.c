/* From a message to a request of the scheduler, and from its events to items. */
#include "common/clock.h"
#include "common/log.h"
#include "router/call_books.h"
#include "router/lmtp/lmtp_in.h"
#include "router/metrics.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct stream *stream_find(const struct peer *p, const struct lmtp_id *id)
{
    struct stream *s = p->streams;
    while (s && strcmp(s->id.text, id->text) != 0)
        s = s->next;
    return s;
}

static void attach(struct peer *p, struct stream *s)
{
    s->peer = p;
    s->prev = NULL;
    if ((s->next = p->streams))
        s->next->prev = s;
    p->streams = s;
}

static void detach(struct stream *s)
{
    if (!s->peer)
        return;
    if (s->prev)
        s->prev->next = s->next;
    else
        s->peer->streams = s->next;
    if (s->next)
        s->next->prev = s->prev;
    s->peer = NULL;
}

static void stream_free(struct stream *s)
{
    detach(s);
    arena_reset(&s->r.arena);
    atomic_fetch_add(&s->lmtp->edge->permits, 1);
    s->lmtp->n_ended++;
    free(s);
}

static void say_error(struct peer *p, const char *id, const char *text)
{
    item_error(peer_items(p), id, text);
    peer_said(p);
}

/* ---------------------------------------------------------------- scheduler's thread */

static void put(struct notes *l, struct mail *m)
{
    m->next = NULL;
    *l->end = m;
    l->end = &m->next;
}

static void event(struct gen_request *r, const struct gen_event *ev)
{
    struct stream *s = r->owner;
    struct lmtp *l = s->lmtp;
    bool last = ev->type == GEN_ERROR || ev->end;
    struct note *n = s->lost ? NULL : note_copy(r, ev);
    if (!n) {
        s->lost = true;
        if (!last)
            return;
        err_nomem(&s->last_err);
        n = &s->last;
        *n = (struct note){.request = r, .event = {.type = GEN_ERROR, .err = &s->last_err}};
    }
    pthread_mutex_lock(&l->lock);
    put(&l->staged, &n->mail);
    pthread_mutex_unlock(&l->lock);
}

/* The step is through: all of it becomes visible at once, so that it travels in one frame. */
void stream_publish(struct lmtp *l)
{
    pthread_mutex_lock(&l->lock);
    if (l->staged.first) {
        *l->ready.end = l->staged.first;
        l->ready.end = l->staged.end;
        l->staged = (struct notes){.end = &l->staged.first};
    }
    pthread_mutex_unlock(&l->lock);
}

static void flush(void *arg)
{
    stream_publish(arg);
    lmtp_wake(arg);
}

/* ---------------------------------------------------------------- asking */

static struct ask ask_of(const struct lmtp_message *m, const uint32_t *ids, uint32_t n_ids)
{
    struct ask q = {.ids = ids, .n_ids = n_ids, .max_new_tokens = {true, 1}};
    if (m->type == LMTP_SCORE) {
        q.decoder_input_details = true;
        return q;
    }
    q.max_new_tokens.v = m->max_tokens;
    q.repetition_penalty = m->repetition_penalty;
    q.openai_presence_penalty = m->presence_penalty;
    q.openai_frequency_penalty = m->frequency_penalty;
    q.bias_ids = m->bias_ids;
    q.bias = m->bias;
    q.n_bias = m->n_bias;
    /* The best token of a greedy stream is the one it takes. */
    if (m->top_logprobs > 1 || m->temperature > 0)
        q.top_n_tokens = (struct opt_u64){true, m->top_logprobs};
    if (m->temperature <= 0)
        return q;
    q.do_sample = true;
    q.temperature = (struct opt_f32){true, m->temperature};
    q.seed = m->seed;
    if (m->top_k)
        q.top_k = (struct opt_i64){true, m->top_k};
    if (m->top_p.set && m->top_p.v < 1)
        q.top_p = m->top_p;
    if (m->typical_p.set && m->typical_p.v < 1)
        q.typical_p = m->typical_p;
    if (m->min_p.set && m->min_p.v < 1)
        q.min_p = m->min_p;
    return q;
}

/* SCORE: prompt and scored tokens as one prompt, computed once. */
static const uint32_t *joined(const struct lmtp_message *m, struct arena *a, uint32_t *n)
{
    uint32_t *all = ARENA_NEW(a, uint32_t, (size_t)m->n_prompt + m->n_scored);
    *n = m->n_prompt + m->n_scored;
    if (!all)
        return NULL;
    if (m->n_prompt)
        memcpy(all, m->prompt, m->n_prompt * sizeof(*all));
    memcpy(all + m->n_prompt, m->scored, m->n_scored * sizeof(*all));
    return all;
}

static int fill(struct stream *s, const struct lmtp_message *m, struct err *e)
{
    struct edge *g = s->lmtp->edge;
    struct validator v = edge_validator(g);
    uint32_t n = m->n_prompt;
    const uint32_t *ids = m->type == LMTP_SCORE ? joined(m, &s->r.arena, &n) : m->prompt;
    if (!ids)
        return err_nomem(e);
    struct ask q = ask_of(m, ids, n);
    v.max_top_n_tokens = LMTP_TOP_MAX;
    if (q.top_n_tokens.v > v.max_top_n_tokens)
        return err_set(e, ERR_VALIDATION, "`top_logprobs` must be at most %d", LMTP_TOP_MAX);
    if (validate(&v, &q, NULL, &s->r.arena, &s->r, e) != 0)
        return -1;
    s->r.params.raw_logprobs = true;
    s->n_prompt = m->n_prompt;
    s->score = m->type == LMTP_SCORE;
    s->r.params.logprobs_from = s->score ? m->n_prompt : 0;
    return 0;
}

static bool take_permit(struct edge *g)
{
    unsigned have = atomic_load(&g->permits);
    do {
        if (have == 0)
            return false;
    } while (!atomic_compare_exchange_weak(&g->permits, &have, have - 1));
    return true;
}

static struct stream *stream_new(struct peer *p, const struct lmtp_message *m, struct arena *a,
                                 struct err *e)
{
    struct edge *g = p->lmtp->edge;
    if (!take_permit(g)) {
        err_set(e, ERR_OVERLOADED, "Model is overloaded");
        return NULL;
    }
    struct stream *s = calloc(1, sizeof(*s));
    if (!s) {
        atomic_fetch_add(&g->permits, 1);
        err_nomem(e);
        return NULL;
    }
    s->lmtp = p->lmtp;
    s->id = m->id;
    s->r.arena = *a;
    *a = (struct arena){0};
    s->r.owner = s;
    s->r.tenant = p->tenant;
    s->r.sink = (struct gen_sink){event, flush, p->lmtp};
    s->r.times.received = clock_ns();
    atomic_fetch_add(&g->live, 1);
    if (fill(s, m, e) == 0)
        return s;
    stream_free(s);
    return NULL;
}

void stream_start(struct peer *p, const struct lmtp_message *m, struct arena *a)
{
    struct edge *g = p->lmtp->edge;
    struct err e = m->err;
    const char *closed = edge_closed(g);
    struct stream *s = NULL;
    if (e.kind == ERR_NONE && closed)
        err_set(&e, ERR_UNHEALTHY, "%s", closed);
    if (e.kind == ERR_NONE && stream_find(p, &m->id))
        err_set(&e, ERR_VALIDATION, "this `stream_id` is in use");
    if (e.kind == ERR_NONE)
        s = stream_new(p, m, a, &e);
    if (!s) {
        books_refused(g->metrics, "/lmtp", m->id.text, &e);
        say_error(p, m->id.text, e.msg);
        return;
    }
    attach(p, s);
    infer_submit(atomic_load(&g->infer), &s->r);
}

/* ---------------------------------------------------------------- ending */

void stream_cancel(struct stream *s)
{
    detach(s);
    s->cancelled = true;
    metrics_add(s->lmtp->edge->metrics, M_REQUEST_COUNT, NULL, 1);
    metrics_add(s->lmtp->edge->metrics, M_REQUEST_FAILURE, "dropped", 1);
    LOG(LOG_INFO, "Dropped: the client has left", LOGS("path", "/lmtp"),
        LOGI("tokens", s->n_tokens));
    infer_cancel(atomic_load(&s->lmtp->edge->infer), &s->r);
}

void stream_end_all(struct peer *p, const char *why)
{
    while (p->streams) {
        struct stream *s = p->streams;
        if (why)
            item_error(peer_items(p), s->id.text, why);
        stream_cancel(s);
    }
    if (why)
        peer_said(p);
}

/* ---------------------------------------------------------------- answering */

static void say_token(struct stream *s, const struct gen_event *ev)
{
    struct lmtp_token t = {.id = s->id.text,
                           .token = ev->token.id,
                           .logprob = ev->token.logprob,
                           .alternatives = true,
                           .top = ev->top,
                           .n_top = ev->n_top};
    if (ev->end)
        t.finish = ev->end->finish == FINISH_LENGTH ? "length" : "stop";
    s->n_tokens++;
    item_token(peer_items(s->peer), &t);
    peer_said(s->peer);
}

/* One item for each scored token. Where the prompt is empty, nothing stands before the first: its
 * log-probability is 0 by convention. */
static void say_scores(struct stream *s, const struct gen_event *ev)
{
    struct peer *p = s->peer;
    for (uint32_t i = s->n_prompt; i < ev->n_prefill; i++) {
        struct buf *out = peer_items(p);
        size_t before = out->len;
        item_token(out, &(struct lmtp_token){.id = s->id.text,
                                             .token = ev->prefill[i].id,
                                             .logprob = i == 0 ? 0 : ev->prefill[i].logprob,
                                             .finish = i + 1 == ev->n_prefill ? "stop" : NULL});
        p->allowance += out->len - before;
        peer_said(p);
    }
    s->n_tokens = ev->n_prefill - s->n_prompt;
    detach(s); /* answered: the token that the model adds is nobody's */
}

static void account(struct stream *s, const struct gen_event *ev)
{
    struct metrics *m = s->lmtp->edge->metrics;
    if (s->cancelled) /* counted when the client left */
        return;
    if (ev->type == GEN_ERROR)
        books_refused(m, "/lmtp", s->id.text, ev->err);
    else
        books_generation(m, "/lmtp", s->id.text, &s->r, ev->end->generated_tokens, ev->end->finish);
}

void stream_note(struct note *n)
{
    struct stream *s = n->request->owner;
    const struct gen_event *ev = &n->event;
    bool last = ev->type == GEN_ERROR || ev->end;
    if (last)
        account(s, ev);
    if (s->peer && ev->type == GEN_ERROR)
        say_error(s->peer, s->id.text, ev->err->msg);
    else if (s->peer && ev->type == GEN_PREFILL && s->score)
        say_scores(s, ev);
    else if (s->peer && ev->type == GEN_TOKEN && s->score)
        say_error(s->peer, s->id.text, "the model-server sends no log-probabilities of prompts");
    else if (s->peer && ev->type == GEN_TOKEN)
        say_token(s, ev);
    bool own = n == &s->last;
    if (last)
        stream_free(s);
    if (!own)
        free(n);
}
