/* One message, and what is done about it. */
#include "router/lmtp/lmtp_in.h"
#include <stdio.h>
#include <string.h>

enum { ARENA_MIN = 64 << 10, ARENA_PER_BYTE = 16 };

/* The model under its own names, or under those that --lmtp-model-alias allows. */
static bool is_served(const struct edge *g, const char *model)
{
    const struct flag_list *aliases = &g->config->lmtp_model_alias;
    if (!model || !strcmp(model, g->model_id) || !strcmp(model, g->config->tokenizer_name))
        return true;
    for (uint32_t i = 0; i < aliases->n; i++)
        if (!strcmp(aliases->v[i], model) || !strcmp(aliases->v[i], "*"))
            return true;
    return false;
}

static void unknown_model(struct lmtp_message *m)
{
    if (m->err.kind == ERR_NONE)
        err_set(&m->err, ERR_NOT_FOUND, "model '%.200s' is not served here", m->model);
}

static void add_text(struct buf *out, const char *key, const char *text)
{
    buf_fmt(out, ",\"%s\":", key);
    buf_json_str(out, text, strlen(text));
}

static void answer_info(struct peer *p, const struct lmtp_message *m)
{
    struct edge *g = p->lmtp->edge;
    struct validator v = edge_validator(g);
    struct buf b = BUF_INIT;
    buf_fmt(&b, "{\"stream_id\":%s,\"model_info\":{\"model\":", m->id.text);
    buf_json_str(&b, g->model_id, strlen(g->model_id));
    add_text(&b, "model_type", "native");
    add_text(&b, "server", "router/" VERSION);
    buf_fmt(&b, ",\"vocab_size\":%u,\"tokenizer_hash\":\"%016llx\"", v.vocab_size,
            (unsigned long long)p->lmtp->vocab_hash);
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

static void cancel(struct peer *p, const struct lmtp_message *m)
{
    struct stream *s = stream_find(p, &m->victim);
    if (!s) {
        char text[32 + LMTP_ID_MAX];
        snprintf(text, sizeof(text), "no active stream with id %s", m->victim.text);
        peer_message(p, m->id.text, "message", text);
        return;
    }
    item_error(peer_items(p), s->id.text, "lmtp.cancelled");
    peer_said(p);
    stream_cancel(s);
    peer_message(p, m->id.text, "message", "cancel requested");
}

static void dispatch(struct peer *p, struct lmtp_message *m, struct arena *a)
{
    if (m->type != LMTP_CANCEL && !is_served(p->lmtp->edge, m->model))
        unknown_model(m);
    if (m->id.text[0] && (m->type == LMTP_GENERATE || m->type == LMTP_SCORE))
        stream_start(p, m, a);
    else if (m->err.kind != ERR_NONE)
        peer_message(p, m->id.text, "error", m->err.msg);
    else if (m->type == LMTP_INFO)
        answer_info(p, m);
    else
        cancel(p, m);
}

void lmtp_serve(struct peer *p, const char *text, size_t n)
{
    struct lmtp_message m;
    struct arena a;
    arena_init(&a, ARENA_MIN + ARENA_PER_BYTE * n);
    lmtp_parse(text, n, &a, &m);
    dispatch(p, &m, &a);
    arena_reset(&a);
}
