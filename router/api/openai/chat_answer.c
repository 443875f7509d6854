/* Answers to chat requests. */
#include "router/api/openai/chat_completion.h"
#include "router/call/accounting.h"
#include <string.h>

static void string(struct buf *out, const char *s) { buf_json_str(out, s, strlen(s)); }

static void head(struct buf *out, const struct call *c, const char *object)
{
    const struct openai *o = c->state;
    buf_fmt(out, "{\"object\":\"%s\",\"id\":\"%s\",\"created\":%lld,\"model\":", object, o->id,
            (long long)c->created_unix);
    string(out, o->model);
    buf_str(out, ",\"system_fingerprint\":");
    string(out, c->edge->fingerprint);
    buf_str(out, ",\"choices\":[");
}

/* ---------------------------------------------------------------- chunks */

static const char *finish_reason(const struct openai *o, const struct generation *g)
{
    return o->parts ? chat_parts_finish(o, g) : openai_finish(o, g);
}

/* The members of a delta. False: empty. */
static bool delta(struct openai *o, struct generation *g, const struct gen_event *ev,
                  struct buf *out)
{
    struct buf *text = &o->seq[g->index].text;
    if (o->parts) {
        chat_parts_take(o, g, ev);
        return chat_parts_delta(o, g, out);
    }
    buf_reset(text);
    openai_text(o, g, ev, text);
    buf_str(out, "\"role\":\"assistant\",\"content\":");
    buf_json_str(out, text->p ? text->p : "", text->len);
    return true;
}

static void stream_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    struct openai *o = c->state;
    struct buf *out = &c->out;
    size_t before = out->len;
    buf_str(out, "data: ");
    head(out, c, "chat.completion.chunk");
    buf_fmt(out, "{\"index\":%u,\"delta\":{", g->index);
    bool has_delta = delta(o, g, ev, out), end = ev->end || g->enough;
    if (!has_delta && !end && !o->logprobs && !o->continuous_usage) {
        out->len = before; /* held back: it may be the beginning of a call */
        return;
    }
    buf_str(out, "},\"logprobs\":");
    if (o->logprobs) {
        buf_str(out, "{\"content\":[");
        openai_logprob(out, o, ev);
        buf_str(out, "]}");
    } else {
        buf_str(out, "null");
    }
    openai_token_ids(out, o, g);
    if (end)
        buf_fmt(out, ",\"finish_reason\":\"%s\"}],\"usage\":", finish_reason(o, g));
    else
        buf_str(out, ",\"finish_reason\":null}],\"usage\":");
    if (o->continuous_usage)
        openai_usage(out, c);
    else
        buf_str(out, "null");
    if (!o->sent_prompt) {
        openai_prompt_ids(out, o, g);
        openai_verbose(out, o, g);
    }
    o->sent_prompt = true;
    openai_told_timings(out, o, g);
    buf_str(out, "}\n\n");
}

static void stream_progress(struct call *c, struct generation *g, const struct gen_event *ev)
{
    buf_str(&c->out, "data: ");
    head(&c->out, c, "chat.completion.chunk");
    buf_fmt(&c->out,
            "{\"index\":%u,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
            "\"finish_reason\":null}],\"usage\":null",
            g->index);
    openai_progress(&c->out, c->state, g, ev);
    buf_str(&c->out, "}\n\n");
}

static void stream_finish(struct call *c)
{
    const struct openai *o = c->state;
    if (o->include_usage) {
        buf_str(&c->out, "data: ");
        head(&c->out, c, "chat.completion.chunk");
        buf_str(&c->out, "],\"usage\":");
        openai_usage(&c->out, c);
        openai_told_timings(&c->out, o, &c->gen[0]);
        buf_str(&c->out, "}\n\n");
    }
    buf_str(&c->out, "data: [DONE]\n\n");
}

/* ---------------------------------------------------------------- one answer */

static void collect_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    struct openai *o = c->state;
    struct openai_sequence *s = &o->seq[g->index];
    if (o->parts)
        chat_parts_take(o, g, ev);
    else
        openai_text(o, g, ev, &s->text);
    if (!o->logprobs)
        return;
    if (s->logprobs.len)
        buf_ch(&s->logprobs, ',');
    openai_logprob(&s->logprobs, o, ev);
}

static void choice(struct buf *out, struct openai *o, const struct generation *g)
{
    const struct openai_sequence *s = &o->seq[g->index];
    buf_fmt(out, "%s{\"index\":%u,\"message\":{", g->index ? "," : "", g->index);
    if (o->parts) {
        chat_parts_message(o, g, out);
    } else {
        buf_str(out, "\"role\":\"assistant\",\"content\":");
        buf_json_str(out, s->text.p ? s->text.p : "", s->text.len);
    }
    buf_str(out, "},\"logprobs\":");
    if (o->logprobs) {
        buf_str(out, "{\"content\":[");
        buf_add(out, s->logprobs.p ? s->logprobs.p : "", s->logprobs.len);
        buf_str(out, "]}");
    } else {
        buf_str(out, "null");
    }
    openai_token_ids(out, o, g);
    buf_fmt(out, ",\"finish_reason\":\"%s\"}", finish_reason(o, g));
    out->oom |= s->text.oom || s->logprobs.oom;
}

static void finish(struct call *c)
{
    head(&c->out, c, "chat.completion");
    for (uint32_t i = 0; i < c->n_gen; i++)
        choice(&c->out, c->state, &c->gen[i]);
    buf_str(&c->out, "],\"usage\":");
    openai_usage(&c->out, c);
    openai_prompt_ids(&c->out, c->state, &c->gen[0]);
    openai_prompt_logprobs(&c->out, c->state, &c->gen[0]);
    openai_transfer(&c->out, c);
    openai_verbose(&c->out, c->state, &c->gen[0]);
    openai_told_timings(&c->out, c->state, &c->gen[0]);
    buf_ch(&c->out, '}');
    account_headers(c, 0, c->n_gen, true);
}

static void take_prefill(struct call *c, struct generation *g, const struct gen_event *ev)
{
    openai_prompt_logprobs_take(c->state, g, ev);
}

static const struct format chat_object = {take_prefill, collect_token, finish};
static const struct format chat_stream = {.token = stream_token,
                                          .finish = stream_finish,
                                          .error = openai_error_event,
                                          .progress = stream_progress};

int chat_generate(struct call *c, const struct chat_request *r, struct err *e)
{
    struct openai *o = r->openai;
    bool apart = r->reply.format || r->reply.may_think || r->reply.thinking || r->reply.channels ||
                 r->tools.custom.forced;
    if (openai_generate(c, o, o->stream ? &chat_stream : &chat_object, e) != 0)
        return -1;
    return apart ? chat_parts_new(c, r, e) : 0;
}
