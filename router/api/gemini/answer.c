/* Answers: one object, or a stream of such objects, as events or as the items of a JSON list. */
#include "router/api/gemini/gemini.h"
#include "router/call/accounting.h"
#include <string.h>

static void string(struct buf *out, const char *s) { buf_json_str(out, s, strlen(s)); }

/* ---------------------------------------------------------------- log-probabilities */

/* The tokens that were not sent yet. */
struct logprobs {
    struct buf *chosen, *tops; /* items of the two lists */
};
static struct logprobs logprobs_of(struct openai *o, const struct generation *g)
{
    return (struct logprobs){&o->seq[g->index].lists[0], &o->seq[g->index].lists[1]};
}

static void logprob(struct buf *out, const struct gen_token *t)
{
    buf_str(out, "{\"token\":");
    buf_json_str(out, t->text, t->text_len);
    buf_fmt(out, ",\"tokenId\":%u,\"logProbability\":", t->id);
    buf_json_f32(out, t->logprob);
    buf_ch(out, '}');
}

static void take_logprob(struct openai *o, const struct generation *g, const struct gen_event *ev)
{
    const struct logprobs l = logprobs_of(o, g);
    buf_str(l.chosen, l.chosen->len ? "," : "");
    logprob(l.chosen, &ev->token);
    buf_str(l.tops, l.tops->len ? ",{\"candidates\":[" : "{\"candidates\":[");
    for (uint32_t i = 0; i < openai_tops(o, ev->n_top); i++) {
        buf_str(l.tops, i ? "," : "");
        logprob(l.tops, &ev->top[i]);
    }
    buf_str(l.tops, "]}");
}

static void put_logprobs(struct buf *out, struct openai *o, const struct generation *g)
{
    const struct logprobs l = logprobs_of(o, g);
    buf_str(out, ",\"logprobsResult\":{\"topCandidates\":[");
    buf_add(out, l.tops->p ? l.tops->p : "", l.tops->len);
    buf_str(out, "],\"chosenCandidates\":[");
    buf_add(out, l.chosen->p ? l.chosen->p : "", l.chosen->len);
    buf_str(out, "]}");
    out->oom |= l.chosen->oom || l.tops->oom;
    buf_reset(l.chosen);
    buf_reset(l.tops);
}

/* ---------------------------------------------------------------- parts */

static void take(struct call *c, struct generation *g, const struct gen_event *ev)
{
    struct openai *o = c->state;
    chat_parts_take(o, g, ev);
    if (o->logprobs)
        take_logprob(o, g, ev);
}

static void call_part(struct buf *out, const struct reply_call *call)
{
    struct buf args = BUF_INIT;
    chat_call_object(call, &args);
    buf_fmt(out, "{\"functionCall\":{\"id\":\"%s\",\"name\":", call->id);
    string(out, call->name);
    buf_str(out, ",\"args\":");
    buf_str(out, args.p ? args.p : "{}");
    buf_str(out, "}}");
    out->oom |= args.oom;
    buf_free(&args);
}

static void text_part(struct buf *out, const struct reply_event *ev)
{
    buf_str(out, ev->kind == REPLY_REASONING ? "{\"thought\":true,\"text\":" : "{\"text\":");
    buf_json_str(out, ev->text, ev->n);
    buf_ch(out, '}');
}

/* Appends ,"parts":[..] of what is new: calls once they are whole, and so texts of an answer that
 * is no stream. False: nothing is new. */
static bool put_parts(struct buf *out, struct openai *o, const struct generation *g, bool ended)
{
    const struct reply *r = chat_parts_reply(o, g);
    const enum reply_what text = o->stream ? REPLY_GREW : REPLY_CLOSED;
    struct reply_event ev;
    bool any = false;
    while (reply_next(r, chat_parts_cursor(o, g), ended, &ev)) {
        const bool call = ev.kind == REPLY_CALL;
        if (ev.what != (call ? REPLY_CLOSED : text) || (!call && !ev.n) ||
            (ev.kind == REPLY_REASONING && !o->gemini->thoughts))
            continue;
        buf_str(out, any ? "," : ",\"parts\":[");
        if (call)
            call_part(out, ev.call);
        else
            text_part(out, &ev);
        any = true;
    }
    buf_str(out, any ? "]" : "");
    out->oom |= r->oom;
    return any;
}

/* False: it has neither parts nor an end. */
static bool candidate(struct buf *out, struct openai *o, const struct generation *g, bool ended)
{
    buf_str(out, "{\"content\":{\"role\":\"model\"");
    const bool any = put_parts(out, o, g, ended);
    if (ended && !any) /* clients print the text of every object */
        buf_str(out, ",\"parts\":[{\"text\":\"\"}]");
    buf_fmt(out, "},\"index\":%u", g->index);
    const bool cut = !chat_parts_called(o, g) && !strcmp(openai_finish(o, g), "length");
    if (ended)
        buf_fmt(out, ",\"finishReason\":\"%s\"", cut ? "MAX_TOKENS" : "STOP");
    if (o->logprobs && (any || ended))
        put_logprobs(out, o, g);
    buf_ch(out, '}');
    return any || ended;
}

/* Reasoning is counted apart. */
static void put_usage(struct buf *out, const struct call *c)
{
    const struct openai *o = c->state;
    const struct generation *first = &c->gen[0];
    const uint64_t prompt = first->r.n_input;
    uint64_t made = 0;
    for (uint32_t i = 0; i < c->n_gen; i++)
        made += c->gen[i].answer.n_tokens;
    buf_fmt(out,
            ",\"usageMetadata\":{\"promptTokenCount\":%llu,\"candidatesTokenCount\":%llu,"
            "\"totalTokenCount\":%llu,\"cachedContentTokenCount\":%u",
            (unsigned long long)prompt, (unsigned long long)(made - o->thought),
            (unsigned long long)(prompt + made),
            first->r.n_cached < prompt ? first->r.n_cached : (uint32_t)prompt);
    if (o->thought)
        buf_fmt(out, ",\"thoughtsTokenCount\":%llu", (unsigned long long)o->thought);
    buf_ch(out, '}');
}

/* The rest of an object after its candidates. */
static void end_object(struct buf *out, const struct call *c)
{
    const struct openai *o = c->state;
    buf_ch(out, ']');
    put_usage(out, c);
    buf_str(out, ",\"modelVersion\":");
    string(out, o->model);
    buf_fmt(out, ",\"responseId\":\"%s\"}", o->id);
}

/* ---------------------------------------------------------------- streams */

static void begin_item(struct call *c)
{
    struct gemini *g = ((struct openai *)c->state)->gemini;
    buf_str(&c->out, !g->list ? "data: " : g->begun ? ",\n" : "[");
    g->begun = true;
}

static void end_item(struct call *c)
{
    buf_str(&c->out, ((struct openai *)c->state)->gemini->list ? "" : "\n\n");
}

static void stream_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    struct openai *o = c->state;
    struct buf *out = &c->out;
    const size_t before = out->len;
    const bool begun = o->gemini->begun;
    take(c, g, ev);
    begin_item(c);
    buf_str(out, "{\"candidates\":[");
    if (!candidate(out, o, g, ev->end || g->enough)) { /* it may be the beginning of a call */
        out->len = before;
        o->gemini->begun = begun;
        return;
    }
    end_object(out, c);
    end_item(c);
}

static void end_list(struct call *c)
{
    buf_str(&c->out, ((struct openai *)c->state)->gemini->list ? "]" : "");
}

static void stream_error(struct call *c, const struct err *e)
{
    begin_item(c);
    error_body(&c->out, c->errors, e, "", 0);
    end_item(c);
    end_list(c);
}

/* ---------------------------------------------------------------- one answer */

static void finish(struct call *c)
{
    struct buf *out = &c->out;
    buf_str(out, "{\"candidates\":[");
    for (uint32_t i = 0; i < c->n_gen; i++) {
        buf_str(out, i ? "," : "");
        candidate(out, c->state, &c->gen[i], true);
    }
    end_object(out, c);
    account_headers(c, 0, c->n_gen, true);
}

static const struct format as_object = {.token = take, .finish = finish};
static const struct format as_events = {
    .token = stream_token, .finish = end_list, .error = stream_error};
static const struct format as_list = {.token = stream_token,
                                      .finish = end_list,
                                      .error = stream_error,
                                      .stream_type = "application/json"};

int gemini_generate(struct call *c, const struct chat_request *r, struct err *e)
{
    struct openai *o = r->openai;
    const struct format *stream = o->gemini->list ? &as_list : &as_events;
    if (openai_generate(c, o, o->stream ? stream : &as_object, e) != 0)
        return -1;
    return chat_parts_new(c, r, e);
}
