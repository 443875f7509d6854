/* Turns a message into a request to the scheduler, and its events into items. */
#include "common/clock.h"
#include "router/api/lmtp/lmtp_in.h"
#include "router/call/accounting.h"
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

/* Stores the tokens so far in the buffer, however the stream ended. */
static void save(struct stream *s)
{
    uint32_t n = s->out && !s->score ? s->n_tokens : 0;
    if (s->save)
        buffers_fill(&s->peer->buffers, s->save, s->reserved, s->r.ids, s->r.n_ids, s->out, n);
    s->save = NULL;
}

static void detach(struct stream *s)
{
    if (!s->peer)
        return;
    save(s);
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
    record_ended(s);
    free(s->out);
    arena_reset(&s->r.arena);
    admission_give(&s->edge->admission, s->key_id, 1);
    models_release(s->edge);
    s->lmtp->n_ended++;
    free(s);
}

void stream_refuse(struct peer *p, const struct lmtp_message *m, const struct err *e)
{
    if (!m->id.text[0] ||
        (m->type != LMTP_GENERATE && m->type != LMTP_SCORE && m->type != LMTP_RESUME)) {
        peer_message(p, m->id.text, "error", e->msg);
        return;
    }
    account_refused(p->lmtp->edge,
                    &(struct account_stream){.id = m->id.text, .path = "/lmtp", .method = "LMTP"},
                    e);
    stream_spans_refused(p->lmtp->edge, m, e);
    item_error(peer_items(p), m->id.text, e->msg);
    peer_changed(p);
}

/* ---------------------------------------------------------------- scheduler thread */

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

/* The step is complete: all its notes become visible at once, to be sent in one frame. */
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

/* ---------------------------------------------------------------- requests */

/* Takes ownership of the hold on `g`. */
static struct stream *stream_new(struct peer *p, struct edge *g, const struct lmtp_message *m,
                                 struct arena *a, struct err *e)
{
    if (!admission_take(&g->admission, p->key_id, 1)) {
        admission_refuse(p->key_id, e);
        models_release(g);
        return NULL;
    }
    struct stream *s = calloc(1, sizeof(*s));
    if (!s) {
        admission_give(&g->admission, p->key_id, 1);
        models_release(g);
        err_nomem(e);
        return NULL;
    }
    s->lmtp = p->lmtp;
    s->edge = g;
    s->id = m->id;
    s->r.arena = *a;
    *a = (struct arena){0};
    s->r.owner = s;
    s->r.tenant = p->tenant;
    s->key_id = p->key_id;
    s->r.sink = (struct gen_sink){event, flush, p->lmtp};
    s->r.times.received = clock_ns();
    s->deadline_ms = m->deadline_ms;
    stream_spans_begin(s, m);
    atomic_fetch_add(&p->lmtp->edge->live, 1);
    if ((!m->session || record_new(s, m->session, e) == 0) && stream_ask(s, m, &p->buffers, e) == 0)
        return s;
    if (s->record)
        record_drop(s->record);
    stream_free(s);
    return NULL;
}

void stream_start(struct peer *p, struct edge *g, const struct lmtp_message *m, struct arena *a)
{
    struct err e = m->err;
    const char *closed = edge_closed(g);
    struct stream *s = NULL;
    if (e.kind == ERR_NONE && closed)
        err_set(&e, ERR_UNHEALTHY, "%s", closed);
    if (e.kind == ERR_NONE && (stream_find(p, &m->id) || prepare_find(p, &m->id)))
        err_set(&e, ERR_VALIDATION, "this `stream_id` is in use");
    if (e.kind == ERR_NONE)
        s = stream_new(p, g, m, a, &e);
    else
        models_release(g);
    if (!s) {
        stream_refuse(p, m, &e);
        return;
    }
    attach(p, s);
    watch_from(p->lmtp, s->status ? clock_ms() + LMTP_STATUS_MS : s->deadline_ms);
    fleet_submit(atomic_load(&g->fleet), &s->r);
}

void stream_listen(struct peer *p, struct stream *s)
{
    detach(s);
    attach(p, s);
}

/* ---------------------------------------------------------------- items */

/* An item is sent to the listener and added to the record. */
static struct buf *begin_item(struct stream *s, size_t *at)
{
    struct buf *out = s->peer ? peer_items(s->peer) : &s->lmtp->scratch;
    if (!s->peer)
        buf_reset(out);
    *at = out->len;
    return out;
}

static void end_item(struct stream *s, struct buf *out, size_t at)
{
    if (s->record && !out->oom)
        record_item(s->record, out->p + at, out->len - at);
    if (s->peer)
        peer_changed(s->peer);
}

static void send_error(struct stream *s, const char *text)
{
    size_t at;
    struct buf *out = begin_item(s, &at);
    item_error(out, s->id.text, text);
    end_item(s, out, at);
}

static void put_text(const struct stream *s, const struct gen_token *from, struct lmtp_token *t)
{
    t->text = !s->return_text ? NULL : from->special || !from->text ? "" : from->text;
    t->n_text = t->text && *t->text ? from->text_len : 0;
}

static void remember(struct stream *s, uint32_t token)
{
    if (s->save && !s->out && s->n_tokens == 0)
        s->out = malloc(s->r.params.max_new_tokens * sizeof(*s->out));
    if (s->out && s->n_tokens < s->r.params.max_new_tokens)
        s->out[s->n_tokens] = token;
}

static void send_token(struct stream *s, const struct gen_event *ev)
{
    struct lmtp_token t = {.id = s->id.text,
                           .token = ev->token.id,
                           .logprob = ev->token.logprob,
                           .alternatives = true,
                           .top = ev->top,
                           .n_top = ev->n_top};
    size_t at;
    if (ev->end)
        t.finish = ev->end->finish == FINISH_LENGTH ? "length" : "stop";
    put_text(s, &ev->token, &t);
    remember(s, t.token);
    s->n_tokens++;
    struct buf *out = begin_item(s, &at);
    item_token(out, &t);
    end_item(s, out, at);
}

/* One item per scored token. With an empty prompt the first token has no context: its
 * log-probability is 0 by convention. */
static void send_scores(struct stream *s, const struct gen_event *ev)
{
    for (uint32_t i = s->n_prompt; i < ev->n_prefill; i++) {
        size_t at;
        struct lmtp_token t = {.id = s->id.text,
                               .token = ev->prefill[i].id,
                               .logprob = i == 0 ? 0 : ev->prefill[i].logprob,
                               .finish = i + 1 == ev->n_prefill ? "stop" : NULL};
        struct buf *out = begin_item(s, &at);
        put_text(s, &ev->prefill[i], &t);
        item_token(out, &t);
        if (s->peer)
            s->peer->allowance += out->len - at;
        end_item(s, out, at);
    }
    s->n_tokens = ev->n_prefill - s->n_prompt;
    detach(s); /* scored: the token that the model generates is not needed */
    record_ended(s);
}

/* ---------------------------------------------------------------- ends */

void stream_cancel(struct stream *s)
{
    detach(s);
    record_ended(s);
    s->cancelled = true;
    fleet_cancel(atomic_load(&s->edge->fleet), &s->r);
}

void stream_fail(struct stream *s, const char *why)
{
    send_error(s, why);
    stream_cancel(s);
}

void stream_end_all(struct peer *p, const char *why)
{
    for (struct stream *s; (s = p->streams);) {
        if (why) {
            stream_fail(s, why);
        } else if (s->record) {
            detach(s);
            record_detached(s);
        } else {
            stream_cancel(s);
        }
    }
}

static void account(struct stream *s, const struct gen_event *ev)
{
    const struct edge *g = s->edge;
    struct account_stream b = {s->id.text, "/lmtp", "LMTP", NULL, &s->r, s->n_tokens};
    if (s->cancelled) {
        account_left(g, &b);
    } else if (ev->type == GEN_ERROR) {
        account_refused(g, &b, ev->err);
    } else {
        b.generated = ev->end->generated_tokens;
        account_generation(g, &b, ev->end->finish);
    }
}

void stream_note(struct note *n)
{
    struct stream *s = n->request->owner;
    const struct gen_event *ev = &n->event;
    bool last = ev->type == GEN_ERROR || ev->end, listens = s->peer || s->record;
    if (last)
        account(s, ev);
    if (listens && ev->type == GEN_ERROR)
        send_error(s, ev->err->msg);
    else if (listens && ev->type == GEN_PREFILL && s->score)
        send_scores(s, ev);
    else if (listens && ev->type == GEN_TOKEN && s->score)
        send_error(s, "the model-server sends no log-probabilities of prompts");
    else if (listens && ev->type == GEN_TOKEN)
        send_token(s, ev);
    bool own = n == &s->last;
    if (last) {
        stream_spans_end(s, ev);
        stream_free(s);
    }
    if (!own)
        free(n);
}
