/* Answers to chat requests: one object, or Cohere's named events. */
#include "router/api/cohere/cohere.h"
#include "router/call/accounting.h"
#include <string.h>

static void string(struct buf *out, const char *s) { buf_json_str(out, s, strlen(s)); }

static const char *finish_reason(const struct openai *o, const struct generation *g)
{
    return chat_parts_called(o, g)             ? "TOOL_CALL"
           : o->seq[0].trim.matched            ? "STOP_SEQUENCE"
           : g->answer.finish == FINISH_LENGTH ? "MAX_TOKENS"
                                               : "COMPLETE";
}

static void usage(struct buf *out, const struct generation *g)
{
    const unsigned in = g->r.n_input, made = g->answer.n_tokens;
    const unsigned cached = g->r.n_cached < in ? g->r.n_cached : in;
    buf_fmt(out,
            "\"usage\":{\"billed_units\":{\"input_tokens\":%u,\"output_tokens\":%u},\"tokens\":{"
            "\"input_tokens\":%u,\"output_tokens\":%u},\"cached_tokens\":%u}",
            in, made, in, made, cached);
}

/* A call without the end of its `function` object. */
static void call_head(struct buf *out, const struct reply_call *call)
{
    buf_fmt(out, "{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", call->id);
    string(out, call->name);
    buf_str(out, ",\"arguments\":");
}

/* ---------------------------------------------------------------- log-probabilities */

/* {"text", "token_ids", "logprobs"} of one token. */
static void logprob(struct buf *out, const struct gen_token *t)
{
    buf_str(out, "{\"text\":");
    buf_json_str(out, t->text, t->text_len);
    buf_fmt(out, ",\"token_ids\":[%u],\"logprobs\":[", t->id);
    buf_json_f32(out, t->logprob);
    buf_str(out, "]}");
}

/* The tokens since the last content event: an event may have several, or none. */
struct logprobs {
    struct buf *text, *ids, *values;
};
static struct logprobs logprobs_of(struct openai *o)
{
    return (struct logprobs){&o->seq[0].lists[0], &o->seq[0].lists[1], &o->seq[0].lists[2]};
}

static void take_logprob(struct openai *o, const struct gen_token *t)
{
    const struct logprobs l = logprobs_of(o);
    buf_add(l.text, t->text, t->text_len);
    buf_fmt(l.ids, "%s%u", l.ids->len ? "," : "", t->id);
    buf_str(l.values, l.values->len ? "," : "");
    buf_json_f32(l.values, t->logprob);
}

static void put_logprobs(struct buf *out, struct openai *o)
{
    const struct logprobs l = logprobs_of(o);
    buf_str(out, ",\"logprobs\":{\"text\":");
    buf_json_str(out, l.text->p ? l.text->p : "", l.text->len);
    buf_str(out, ",\"token_ids\":[");
    buf_add(out, l.ids->p ? l.ids->p : "", l.ids->len);
    buf_str(out, "],\"logprobs\":[");
    buf_add(out, l.values->p ? l.values->p : "", l.values->len);
    buf_str(out, "]}");
    out->oom |= l.text->oom || l.ids->oom || l.values->oom;
    buf_reset(l.text);
    buf_reset(l.ids);
    buf_reset(l.values);
}

/* ---------------------------------------------------------------- events */

static void event(struct buf *out, const char *type)
{
    buf_fmt(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

/* Contents and calls are counted apart. */
static uint32_t content_index(const struct reply *r, uint32_t piece)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < piece; i++)
        n += r->pieces[i].kind != REPLY_CALL;
    return n;
}

static void call_event(struct buf *out, const struct reply *r, const struct reply_event *ev)
{
    static const char *const types[] = {[REPLY_OPENED] = "tool-call-start",
                                        [REPLY_GREW] = "tool-call-delta",
                                        [REPLY_CLOSED] = "tool-call-end"};
    event(out, types[ev->what]);
    buf_fmt(out, ",\"index\":%u", (unsigned)(ev->call - r->calls));
    if (ev->what != REPLY_CLOSED)
        buf_str(out, ",\"delta\":{\"message\":{\"tool_calls\":");
    if (ev->what == REPLY_OPENED) {
        call_head(out, ev->call);
        buf_str(out, "\"\"}}}}");
    } else if (ev->what == REPLY_GREW) {
        buf_str(out, "{\"function\":{\"arguments\":");
        buf_json_str(out, ev->text, ev->n);
        buf_str(out, "}}}}");
    }
    buf_str(out, "}\n\n");
}

static void content_event(struct buf *out, struct openai *o, uint32_t index,
                          const struct reply_event *ev)
{
    static const char *const types[] = {[REPLY_OPENED] = "content-start",
                                        [REPLY_GREW] = "content-delta",
                                        [REPLY_CLOSED] = "content-end"};
    const char *kind = ev->kind == REPLY_REASONING ? "thinking" : "text";
    event(out, types[ev->what]);
    buf_fmt(out, ",\"index\":%u", index);
    if (ev->what == REPLY_OPENED) {
        buf_fmt(out, ",\"delta\":{\"message\":{\"content\":{\"type\":\"%s\",\"%s\":\"\"}}}", kind,
                kind);
    } else if (ev->what == REPLY_GREW) {
        buf_fmt(out, ",\"delta\":{\"message\":{\"content\":{\"%s\":", kind);
        buf_json_str(out, ev->text, ev->n);
        buf_str(out, "}}}");
        if (o->logprobs)
            put_logprobs(out, o);
    }
    buf_str(out, "}\n\n");
}

static void send_event(struct call *c, const struct reply_event *ev)
{
    const struct reply *r = chat_parts_reply(c->state, &c->gen[0]);
    if (ev->kind == REPLY_CALL)
        call_event(&c->out, r, ev);
    else
        content_event(&c->out, c->state, content_index(r, ev->index), ev);
}

static void begin(struct buf *out, const struct openai *o)
{
    event(out, "message-start");
    buf_fmt(out,
            ",\"id\":\"%s\",\"delta\":{\"message\":{\"role\":\"assistant\",\"content\":[],"
            "\"tool_plan\":\"\",\"tool_calls\":[],\"citations\":[]}}}\n\n",
            o->id);
}

static void stream_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    struct openai *o = c->state;
    if (g->answer.n_tokens == 1)
        begin(&c->out, o);
    if (o->logprobs)
        take_logprob(o, &ev->token);
    chat_parts_take(o, g, ev);
    chat_parts_each(c, false, send_event);
}

static void stream_finish(struct call *c)
{
    const struct generation *g = &c->gen[0];
    struct buf *out = &c->out;
    chat_parts_each(c, true, send_event);
    event(out, "message-end");
    buf_fmt(out, ",\"delta\":{\"finish_reason\":\"%s\",", finish_reason(c->state, g));
    usage(out, g);
    buf_str(out, "}}\n\ndata: [DONE]\n\n");
}

/* ---------------------------------------------------------------- one answer */

static void collect_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    struct openai *o = c->state;
    struct buf *list = &o->seq[0].logprobs;
    chat_parts_take(o, g, ev);
    if (!o->logprobs)
        return;
    buf_str(list, list->len ? "," : "");
    logprob(list, &ev->token);
}

static void contents(struct buf *out, const struct reply *r)
{
    struct reply_cursor at = {0};
    struct reply_event ev;
    bool any = false;
    buf_str(out, ",\"content\":[");
    while (reply_next(r, &at, true, &ev)) {
        if (ev.what != REPLY_CLOSED || ev.kind == REPLY_CALL)
            continue;
        const char *kind = ev.kind == REPLY_REASONING ? "thinking" : "text";
        buf_fmt(out, "%s{\"type\":\"%s\",\"%s\":", any ? "," : "", kind, kind);
        buf_json_str(out, ev.text, ev.n);
        buf_ch(out, '}');
        any = true;
    }
    buf_str(out, any || r->n_calls ? "]" : "{\"type\":\"text\",\"text\":\"\"}]");
}

static void calls(struct buf *out, const struct reply *r)
{
    for (uint32_t i = 0; i < r->n_calls; i++) {
        const struct buf *arguments = &r->calls[i].arguments;
        buf_str(out, i ? "," : ",\"tool_calls\":[");
        call_head(out, &r->calls[i]);
        buf_json_str(out, arguments->p ? arguments->p : "", arguments->len);
        buf_str(out, "}}");
    }
    buf_str(out, r->n_calls ? "]" : "");
}

static void finish(struct call *c)
{
    const struct openai *o = c->state;
    const struct generation *g = &c->gen[0];
    const struct reply *r = chat_parts_reply(o, g);
    const struct buf *logprobs = &o->seq[0].logprobs;
    struct buf *out = &c->out;
    buf_fmt(out, "{\"id\":\"%s\",\"finish_reason\":\"%s\",\"message\":{\"role\":\"assistant\"",
            o->id, finish_reason(o, g));
    contents(out, r);
    calls(out, r);
    buf_str(out, "},");
    usage(out, g);
    if (o->logprobs) {
        buf_str(out, ",\"logprobs\":[");
        buf_add(out, logprobs->p ? logprobs->p : "", logprobs->len);
        buf_ch(out, ']');
    }
    buf_ch(out, '}');
    out->oom |= r->oom || logprobs->oom;
    account_headers(c, 0, c->n_gen, true);
}

static const struct format as_object = {.token = collect_token, .finish = finish};
static const struct format as_stream = {.token = stream_token, .finish = stream_finish};

int cohere_chat_generate(struct call *c, const struct chat_request *r, struct err *e)
{
    struct openai *o = r->openai;
    if (openai_generate(c, o, o->stream ? &as_stream : &as_object, e) != 0)
        return -1;
    return chat_parts_new(c, r, e);
}
