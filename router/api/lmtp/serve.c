/* Executes one message. */
#include "common/clock.h"
#include "router/api/lmtp/lmtp_in.h"
#include <stdio.h>
#include <string.h>

static void add_text(struct buf *out, const char *key, const char *text)
{
    buf_fmt(out, ",\"%s\":", key);
    buf_json_str(out, text, strlen(text));
}

static void describe(struct peer *p, struct edge *g, const struct lmtp_message *m)
{
    struct validator v = edge_validator(g);
    struct buf b = BUF_INIT;
    buf_fmt(&b, "{\"stream_id\":%s,\"model_info\":{\"model\":", m->id.text);
    buf_json_str(&b, g->model_id, strlen(g->model_id));
    add_text(&b, "model_type", "native");
    add_text(&b, "server", "router/" VERSION);
    buf_fmt(&b, ",\"vocab_size\":%u,\"tokenizer_hash\":\"%016llx\"", v.vocab_size,
            (unsigned long long)g->vocab_hash);
    const char *eos = tokenizer_special(g->tokenizer, "eos_token");
    int64_t eos_id = eos ? tokenizer_id(g->tokenizer, eos) : -1;
    if (eos_id >= 0)
        buf_fmt(&b, ",\"eos_token_id\":%lld", (long long)eos_id);
    buf_fmt(&b, ",\"max_input_tokens\":%u,\"max_total_tokens\":%u,\"max_top_logprobs\":%d",
            v.max_input_tokens, v.max_total_tokens, LMTP_TOP_MAX);
    add_text(&b, "dtype", g->limits.dtype);
    add_text(&b, "device", g->limits.device);
    buf_str(&b, "}}");
    peer_raw_message(p, &b);
    buf_free(&b);
}

/* Only messages that need an answer from a model load it. */
static void answer_info(struct peer *p, const struct lmtp_message *m)
{
    struct edge *home = p->lmtp->edge, *g = models_peek(home, m->model);
    struct buf b = BUF_INIT;
    if (g) {
        describe(p, g, m);
        models_release(g);
    } else if (models_known(home->models, m->model)) {
        buf_fmt(&b, "{\"stream_id\":%s,\"model_info\":{\"model\":", m->id.text);
        buf_json_str(&b, m->model, strlen(m->model));
        buf_str(&b, ",\"model_type\":\"native\",\"loaded\":false}}");
        peer_raw_message(p, &b);
        buf_free(&b);
    } else {
        struct err e = ERR_INIT;
        err_set(&e, ERR_NO_MODEL, "model '%.200s' is not served here", m->model);
        stream_refuse(p, m, &e);
    }
}

static void cancel(struct peer *p, const struct lmtp_message *m)
{
    struct stream *s = stream_find(p, &m->target);
    struct preparation *q = prepare_find(p, &m->target);
    if (!s && !q) {
        char text[32 + LMTP_ID_MAX];
        snprintf(text, sizeof(text), "no active stream with id %s", m->target.text);
        peer_message(p, m->id.text, "message", text);
        return;
    }
    if (s)
        stream_fail(s, "lmtp.cancelled");
    else
        prepare_fail(q, "lmtp.cancelled");
    peer_message(p, m->id.text, "message", "cancel requested");
}

/* BUFFER: names tokens, or deletes a name. */
static void serve_buffer(struct peer *p, const struct edge *g, struct lmtp_message *m,
                         struct arena *a)
{
    struct err e = ERR_INIT;
    struct buf b = BUF_INIT;
    struct validator v = edge_validator(g);
    const struct token_buffer *t = m->buffer ? buffers_find(&p->buffers, m->buffer) : NULL;
    const char *name = m->drop ? m->drop : m->save;
    uint32_t n = 0;
    a->limit += t ? t->n * sizeof(*t->ids) : 0;
    const uint32_t *ids = m->drop ? NULL : stream_ids(m, &p->buffers, a, &n, &e);
    for (uint32_t i = 0; ids && i < n && e.kind == ERR_NONE; i++)
        if (ids[i] >= v.vocab_size)
            err_set(&e, ERR_VALIDATION, "token id %u is outside the vocabulary of %u", ids[i],
                    v.vocab_size);
    if (m->drop && !buffers_drop(&p->buffers, m->drop))
        err_set(&e, ERR_VALIDATION, "unknown buffer `%s`", m->drop);
    if (e.kind == ERR_NONE && ids && buffers_reserve(&p->buffers, m->save, n, &e) == 0)
        buffers_fill(&p->buffers, m->save, n, ids, n, NULL, 0);
    if (e.kind != ERR_NONE) {
        peer_message(p, m->id.text, "error", e.msg);
        return;
    }
    buf_fmt(&b, "{\"stream_id\":%s", m->id.text);
    add_text(&b, m->drop ? "dropped" : "buffer", name);
    if (ids)
        buf_fmt(&b, ",\"n_tokens\":%u", n);
    buf_ch(&b, '}');
    peer_raw_message(p, &b);
    buf_free(&b);
}

void lmtp_dispatch(struct peer *p, struct edge *g, struct lmtp_message *m, struct arena *a)
{
    bool stream = m->type == LMTP_GENERATE || m->type == LMTP_SCORE;
    if (m->id.text[0] && stream) {
        stream_start(p, g, m, a);
        arena_reset(a);
        return;
    }
    if (m->err.kind != ERR_NONE)
        stream_refuse(p, m, &m->err);
    else if (m->type == LMTP_INFO)
        answer_info(p, m);
    else if (m->type == LMTP_BUFFER)
        serve_buffer(p, g, m, a);
    else if (m->type == LMTP_RESUME)
        record_resume(p, m);
    else
        cancel(p, m);
    models_release(g);
    arena_reset(a);
}

void lmtp_settled(struct peer *p, struct edge *g, struct lmtp_message *m, struct arena *a)
{
    if (m->err.kind == ERR_NONE && (m->text || m->scored_text))
        prepare_text(p, g, m, a);
    else
        lmtp_dispatch(p, g, m, a);
}

void lmtp_serve(struct peer *p, const char *text, size_t n)
{
    struct edge *home = p->lmtp->edge;
    struct lmtp_message m;
    struct arena a;
    if (p->preparing) {
        prepare_defer(p, text, n);
        return;
    }
    arena_init(&a, LMTP_ARENA(n));
    lmtp_parse(text, n, &a, &m);
    m.deadline_ms = m.timeout_ms ? clock_ms() + m.timeout_ms : INT64_MAX;
    bool needs = m.type == LMTP_GENERATE || m.type == LMTP_SCORE || m.type == LMTP_BUFFER;
    if (needs && m.err.kind == ERR_NONE && !models_first(home, m.model))
        prepare_model(p, &m, &a);
    else
        lmtp_settled(p, home, &m, &a);
}
