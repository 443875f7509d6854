/* Ollama's answers: one object, or a line for each piece and one for the end. */
#include "common/clock.h"
#include "router/api/ollama/ollama.h"
#include "router/call/accounting.h"
#include <string.h>

static void string(struct buf *out, const char *s) { buf_json_str(out, s, strlen(s)); }

static void head(struct buf *out, const struct call *c, const struct ollama *o)
{
    buf_str(out, "{\"model\":");
    string(out, o->model);
    buf_str(out, ",\"created_at\":");
    buf_json_time(out, c->created_unix);
}

static void call_members(struct buf *out, const struct reply_call *call)
{
    struct buf arguments = BUF_INIT;
    chat_call_object(call, &arguments);
    buf_fmt(out, "{\"id\":\"%s\",\"function\":{\"name\":", call->id);
    string(out, call->name);
    buf_str(out, ",\"arguments\":");
    buf_str(out, arguments.p ? arguments.p : "{}");
    buf_str(out, "}}");
    out->oom |= arguments.oom;
    buf_free(&arguments);
}

static void member(struct buf *out, const char *name, const char *s, size_t n)
{
    buf_fmt(out, ",\"%s\":", name);
    buf_json_str(out, s ? s : "", n);
}

/* What is said: of /api/chat in `message`, of /api/generate beside the others. */
static void said(struct buf *out, bool chat, const char *content, size_t n)
{
    buf_str(out, chat ? ",\"message\":{\"role\":\"assistant\"" : "");
    member(out, chat ? "content" : "response", content, n);
}

/* Tokens of calls and markers have no line of their own: theirs are in the next one. */
static void logprobs(struct buf *out, struct ollama *o)
{
    if (!o->logprobs.len)
        return;
    buf_str(out, ",\"logprobs\":[");
    buf_add(out, o->logprobs.p, o->logprobs.len);
    buf_ch(out, ']');
    out->oom |= o->logprobs.oom;
    buf_reset(&o->logprobs);
}

static void take(struct openai *s, struct generation *g, const struct gen_event *ev)
{
    struct buf *items = &s->ollama->logprobs;
    if (s->logprobs) {
        buf_str(items, items->len ? "," : "");
        openai_logprob(items, s, ev);
    }
    chat_parts_take(s, g, ev);
}

/* ---------------------------------------------------------------- the end */

static uint64_t between(int64_t from, int64_t to)
{
    return from && to > from ? (uint64_t)(to - from) : 0;
}

static void end_members(struct buf *out, const struct call *c, const struct generation *g)
{
    const struct gen_times *t = &g->r.times;
    const struct openai *o = c->state;
    const int64_t ended = g->enough ? clock_ns() : t->ended;
    buf_fmt(out,
            ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%llu,\"load_duration\":0,"
            "\"prompt_eval_count\":%u,\"prompt_eval_duration\":%llu,\"eval_count\":%u,"
            "\"eval_duration\":%llu}",
            openai_finish(o, g), (unsigned long long)between(t->received, ended), g->r.n_input,
            (unsigned long long)between(t->batched, t->first), g->answer.n_tokens,
            (unsigned long long)between(t->first, ended));
}

void ollama_loaded(struct call *c, const struct ollama *o)
{
    struct buf *out = &c->out;
    head(out, c, o);
    said(out, o->chat, "", 0);
    buf_str(out, o->chat ? "}" : "");
    buf_str(out, ",\"done\":true,\"done_reason\":\"load\"}");
}

/* ---------------------------------------------------------------- lines */

/* Texts as they grow, calls once they are whole. */
static void send_line(struct call *c, const struct reply_event *ev)
{
    if (ev->what != (ev->kind == REPLY_CALL ? REPLY_CLOSED : REPLY_GREW))
        return;
    struct ollama *o = ((struct openai *)c->state)->ollama;
    struct buf *out = &c->out;
    const bool content = ev->kind == REPLY_CONTENT;
    head(out, c, o);
    said(out, o->chat, content ? ev->text : "", content ? ev->n : 0);
    if (ev->kind == REPLY_REASONING)
        member(out, "thinking", ev->text, ev->n);
    if (ev->kind == REPLY_CALL) {
        buf_str(out, ",\"tool_calls\":[");
        call_members(out, ev->call);
        buf_ch(out, ']');
    }
    buf_str(out, o->chat ? "}" : "");
    logprobs(out, o);
    buf_str(out, ",\"done\":false}\n");
}

static void stream_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    take(c->state, g, ev);
    chat_parts_each(c, false, send_line);
}

static void stream_finish(struct call *c)
{
    struct ollama *o = ((struct openai *)c->state)->ollama;
    chat_parts_each(c, true, send_line);
    head(&c->out, c, o);
    said(&c->out, o->chat, "", 0);
    buf_str(&c->out, o->chat ? "}" : "");
    logprobs(&c->out, o);
    end_members(&c->out, c, &c->gen[0]);
    buf_ch(&c->out, '\n');
}

/* ---------------------------------------------------------------- one answer */

static void collect_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    take(c->state, g, ev);
}

static void finish(struct call *c)
{
    const struct openai *s = c->state;
    const struct reply *r = chat_parts_reply(s, &c->gen[0]);
    struct buf *out = &c->out;
    head(out, c, s->ollama);
    said(out, s->ollama->chat, r->content.p, r->content.len);
    if (r->reasoning.len)
        member(out, "thinking", r->reasoning.p, r->reasoning.len);
    for (uint32_t i = 0; i < r->n_calls; i++) {
        buf_str(out, i ? "," : ",\"tool_calls\":[");
        call_members(out, &r->calls[i]);
    }
    buf_str(out, r->n_calls ? "]" : "");
    buf_str(out, s->ollama->chat ? "}" : "");
    logprobs(out, s->ollama);
    end_members(out, c, &c->gen[0]);
    out->oom |= r->oom;
    account_headers(c, 0, c->n_gen, true);
}

static const struct format as_object = {.token = collect_token, .finish = finish};
static const struct format as_lines = {
    .token = stream_token, .finish = stream_finish, .stream_type = "application/x-ndjson"};

static void free_logprobs(void *arg) { buf_free(arg); }

int ollama_answer(struct call *c, const struct chat_request *r, struct ollama *o, struct err *e)
{
    struct openai *s = r->openai;
    s->ollama = o;
    if (arena_defer(&c->arena, free_logprobs, &o->logprobs) != 0)
        return err_nomem(e);
    for (uint32_t i = 0; i < s->n_asks; i++)
        if (s->asks[i].constraint_name)
            s->asks[i].constraint_name = "format";
    if (openai_generate(c, s, o->stream ? &as_lines : &as_object, e) != 0)
        return -1;
    return chat_parts_new(c, r, e);
}
