/* answer_parts.c - answers split into reasoning, content and function calls. */
#include "common/json/json.h"
#include "router/api/openai/chat_completion.h"
#include <stdio.h>
#include <string.h>

struct chat_part {
    struct reply reply;
    struct buf text; /* text of one token, without stop sequences */
    bool hide_reasoning, old;
    struct custom_tools custom;
    uint32_t thought;  /* reasoning tokens */
    reply_watch watch; /* NULL: none */
    void *watch_of;
    struct reply_cursor cursor;
    /* bytes already sent in deltas */
    size_t reasoning, content, arguments;
    uint32_t calls; /* complete calls sent; the current one is the next */
    bool opened;    /* its name was sent */
    /* if the current call is one of a custom tool: its input, of which `arguments` bytes are sent
     */
    struct custom_reader reader;
    struct buf input;
    char id[12]; /* of the call whose input is the content */
    bool ended;
};

static void free_parts(void *arg)
{
    struct call *c = arg;
    struct openai *o = c->state;
    for (uint32_t i = 0; i < c->n_gen; i++) {
        reply_free(&o->parts[i].reply);
        buf_free(&o->parts[i].text);
        buf_free(&o->parts[i].input);
    }
}

int chat_parts_new(struct call *c, const struct chat_request *r, struct err *e)
{
    struct openai *o = c->state;
    o->parts = ARENA_NEW(&c->arena, struct chat_part, c->n_gen);
    if (!o->parts || arena_defer(&c->arena, free_parts, c) != 0)
        return err_nomem(e);
    for (uint32_t i = 0; i < c->n_gen; i++) {
        reply_init(&o->parts[i].reply, &r->reply);
        o->parts[i].hide_reasoning = r->hide_reasoning;
        o->parts[i].old = r->old;
        o->parts[i].custom = r->tools.custom;
        snprintf(o->parts[i].id, sizeof(o->parts[i].id), "%.6s%03u",
                 o->id + strcspn(o->id, "-_") + 1, i % 1000);
    }
    return 0;
}

void chat_parts_watch(struct openai *o, const struct generation *g, reply_watch watch, void *of)
{
    o->parts[g->index].watch = watch;
    o->parts[g->index].watch_of = of;
}

/* The parser decides per byte, and the watcher is called after each. */
static void push(struct chat_part *p, const char *s, size_t n)
{
    size_t step = p->watch ? 1 : n;
    for (size_t i = 0; i < n; i += step) {
        reply_push(&p->reply, s + i, step);
        if (p->watch)
            p->watch(p->watch_of, &p->reply, step);
    }
}

void chat_parts_take(struct openai *o, struct generation *g, const struct gen_event *ev)
{
    struct chat_part *p = &o->parts[g->index];
    const struct gen_token *t = &ev->token;
    buf_reset(&p->text);
    const bool thinks = reply_thinks(&p->reply);
    p->thought += thinks;
    o->thought += thinks;
    openai_text(o, g, ev, &p->text);
    if (p->text.len)
        push(p, p->text.p, p->text.len);
    if (t->special && !o->special_text && reply_is_marker(&p->reply, t->text, t->text_len))
        push(p, t->text, t->text_len);
    g->enough = reply_enough(&p->reply);
    p->ended |= ev->end || g->enough;
    if (ev->end) {
        reply_end(&p->reply);
        if (p->watch)
            p->watch(p->watch_of, &p->reply, 0);
    }
    p->reply.oom |= p->text.oom || p->reply.content.oom || p->reply.reasoning.oom;
}

bool chat_parts_called(const struct openai *o, const struct generation *g)
{
    return (g->enough || g->answer.finish != FINISH_LENGTH) &&
           reply_called(&o->parts[g->index].reply);
}

const struct reply *chat_parts_reply(const struct openai *o, const struct generation *g)
{
    return &o->parts[g->index].reply;
}

struct reply_cursor *chat_parts_cursor(struct openai *o, const struct generation *g)
{
    return &o->parts[g->index].cursor;
}

void chat_parts_each(struct call *c, bool ended,
                     void (*each)(struct call *c, const struct reply_event *ev))
{
    const struct reply *r = chat_parts_reply(c->state, &c->gen[0]);
    struct reply_event ev;
    while (reply_next(r, chat_parts_cursor(c->state, &c->gen[0]), ended, &ev))
        each(c, &ev);
    c->out.oom |= r->oom;
}

void chat_call_object(const struct reply_call *call, struct buf *out)
{
    struct err ignored;
    cJSON *j =
        call->arguments.p ? json_parse(call->arguments.p, call->arguments.len, &ignored) : NULL;
    if (cJSON_IsObject(j))
        buf_add(out, call->arguments.p, call->arguments.len);
    else
        buf_str(out, "{}");
    cJSON_Delete(j);
}

uint32_t chat_parts_thought(const struct openai *o, const struct generation *g)
{
    return o->parts[g->index].thought;
}

static void member(struct buf *out, const char *name, const struct buf *text, size_t from)
{
    buf_fmt(out, ",\"%s\":", name);
    buf_json_str(out, text->p ? text->p + from : "", text->len - from);
}

static void reasoning_members(struct buf *out, const struct buf *text, size_t from)
{
    member(out, "reasoning_content", text, from); /* DeepSeek's name, used by most servers */
    member(out, "reasoning", text, from);         /* OpenRouter's, and vLLM's newer one */
}

/* ---------------------------------------------------------------- chunks */

static void call_delta(struct buf *out, struct chat_part *p, const struct reply_call *call)
{
    if (p->old)
        buf_str(out, p->opened ? "{" : "{\"name\":");
    else
        buf_fmt(out, "{\"index\":%u,", p->calls);
    if (p->old && !p->opened) {
        buf_json_str(out, call->name, strlen(call->name));
        buf_ch(out, ',');
    } else if (p->old) {
        ;
    } else if (!p->opened) {
        buf_fmt(out, "\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", call->id);
        buf_json_str(out, call->name, strlen(call->name));
        buf_ch(out, ',');
    } else {
        buf_str(out, "\"function\":{");
    }
    buf_str(out, "\"arguments\":");
    buf_json_str(out, call->arguments.p ? call->arguments.p + p->arguments : "",
                 call->arguments.len - p->arguments);
    buf_str(out, p->old ? "}" : "}}");
    p->opened = true;
}

/* A delta of a custom tool's call, with the input from `from` on. */
static void custom_delta(struct buf *out, struct chat_part *p, const char *id, const char *name,
                         const struct buf *input, size_t from)
{
    buf_fmt(out, "{\"index\":%u,", p->calls);
    if (!p->opened) {
        buf_fmt(out, "\"id\":\"%s\",\"type\":\"custom\",\"custom\":{\"name\":", id);
        buf_json_str(out, name, strlen(name));
        buf_ch(out, ',');
    } else {
        buf_str(out, "\"custom\":{");
    }
    buf_str(out, "\"input\":");
    buf_json_str(out, input->p ? input->p + from : "", input->len - from);
    buf_str(out, "}}");
    p->opened = true;
}

/* The text of the current call: its arguments, or the input of a custom tool. */
static const struct buf *text_of_call(struct chat_part *p)
{
    const struct reply_call *call = &p->reply.calls[p->calls];
    const struct buf *a = &call->arguments;
    if (p->old || !custom_named(&p->custom, call->name))
        return a;
    (call->whole || p->ended ? custom_read_end : custom_read)(&p->reader, a->p ? a->p : "", a->len,
                                                              &p->input);
    return &p->input;
}

static bool has_text(struct chat_part *p)
{
    return p->calls < p->reply.n_calls && (!p->opened || text_of_call(p)->len > p->arguments);
}

static void any_call_delta(struct buf *out, struct chat_part *p)
{
    const struct reply_call *call = &p->reply.calls[p->calls];
    const struct buf *text = text_of_call(p);
    if (text == &call->arguments)
        call_delta(out, p, call);
    else
        custom_delta(out, p, call->id, call->name, text, p->arguments);
    p->arguments = text->len;
}

static void next_call(struct chat_part *p)
{
    p->calls++;
    p->opened = false;
    p->arguments = 0;
    p->reader = (struct custom_reader){0};
    buf_reset(&p->input);
}

static bool call_deltas(struct buf *out, struct chat_part *p)
{
    bool any = false;
    while (p->calls < p->reply.n_calls) {
        if (has_text(p)) {
            buf_str(out, p->old ? ",\"function_call\":" : any ? "," : ",\"tool_calls\":[");
            any_call_delta(out, p);
            any = true;
        }
        if (p->calls + 1 == p->reply.n_calls && !p->reply.calls[p->calls].whole)
            break;
        next_call(p);
    }
    buf_str(out, any && !p->old ? "]" : "");
    return any;
}

/* As OpenAI and llama.cpp do, a stream that begins with a call, or may do so, begins with a content
 * of null: an empty text would be a text part for clients that distinguish them. */
static bool opens_calls(const struct chat_part *p, bool calls)
{
    const struct reply *r = &p->reply;
    const bool first = calls && p->calls == 0 && !p->opened;
    return p->content == 0 && (first || (r->config.format && !r->n_calls && reply_held(r) > 0));
}

/* As chat_parts_delta(), where the content is the input of a custom tool. */
static bool input_delta(struct chat_part *p, struct buf *out)
{
    const struct reply *r = &p->reply;
    const bool any = r->content.len > p->content || (p->ended && !p->opened);
    const bool reasoning = r->reasoning.len > p->reasoning && !p->hide_reasoning;
    buf_str(out, "\"role\":\"assistant\"");
    buf_str(out, p->opened ? "" : ",\"content\":null");
    if (reasoning)
        reasoning_members(out, &r->reasoning, p->reasoning);
    if (any) {
        buf_str(out, ",\"tool_calls\":[");
        custom_delta(out, p, p->id, p->custom.forced, &r->content, p->content);
        buf_ch(out, ']');
    }
    p->content = r->content.len;
    p->reasoning = r->reasoning.len;
    out->oom |= r->oom;
    return any || reasoning;
}

bool chat_parts_delta(struct openai *o, const struct generation *g, struct buf *out)
{
    struct chat_part *p = &o->parts[g->index];
    const struct reply *r = &p->reply;
    if (p->custom.forced)
        return input_delta(p, out);
    bool content = r->content.len > p->content;
    bool reasoning = r->reasoning.len > p->reasoning && !p->hide_reasoning;
    bool calls = p->calls < r->n_calls && (has_text(p) || p->calls + 1 < r->n_calls);
    buf_str(out, "\"role\":\"assistant\"");
    if (content)
        member(out, "content", &r->content, p->content);
    else if (opens_calls(p, calls))
        buf_str(out, ",\"content\":null");
    else if (!(reasoning || calls || r->n_calls))
        buf_str(out, ",\"content\":\"\"");
    if (reasoning)
        reasoning_members(out, &r->reasoning, p->reasoning);
    calls = call_deltas(out, p);
    p->content = r->content.len;
    p->reasoning = r->reasoning.len;
    out->oom |= r->oom;
    return content || reasoning || calls;
}

/* ---------------------------------------------------------------- one answer */

static void custom_call(struct buf *out, const char *id, const char *name, const struct buf *input)
{
    buf_fmt(out, "{\"id\":\"%s\",\"type\":\"custom\",\"custom\":{\"name\":", id);
    buf_json_str(out, name, strlen(name));
    member(out, "input", input, 0);
    buf_str(out, "}}");
}

static void message_call(struct buf *out, const struct chat_part *p, const struct reply_call *call)
{
    struct custom_reader reader = {0};
    struct buf input = BUF_INIT;
    if (custom_named(&p->custom, call->name)) {
        custom_read_end(&reader, call->arguments.p ? call->arguments.p : "", call->arguments.len,
                        &input);
        custom_call(out, call->id, call->name, &input);
        out->oom |= input.oom;
        buf_free(&input);
        return;
    }
    buf_fmt(out, "{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", call->id);
    buf_json_str(out, call->name, strlen(call->name));
    member(out, "arguments", &call->arguments, 0);
    buf_str(out, "}}");
}

void chat_parts_message(const struct openai *o, const struct generation *g, struct buf *out)
{
    const struct chat_part *p = &o->parts[g->index];
    const struct reply *r = &p->reply;
    buf_str(out, "\"role\":\"assistant\"");
    if ((r->n_calls && !r->content.len) || p->custom.forced)
        buf_str(out, ",\"content\":null");
    else
        member(out, "content", &r->content, 0);
    if (r->reasoning.len && !p->hide_reasoning)
        reasoning_members(out, &r->reasoning, 0);
    for (uint32_t i = 0; i < r->n_calls && p->old; i++) { /* at most one */
        buf_str(out, ",\"function_call\":{\"name\":");
        buf_json_str(out, r->calls[i].name, strlen(r->calls[i].name));
        member(out, "arguments", &r->calls[i].arguments, 0);
        buf_ch(out, '}');
    }
    for (uint32_t i = 0; i < r->n_calls && !p->old; i++) {
        buf_str(out, i ? "," : ",\"tool_calls\":[");
        message_call(out, p, &r->calls[i]);
    }
    buf_str(out, r->n_calls && !p->old ? "]" : "");
    if (p->custom.forced) {
        buf_str(out, ",\"tool_calls\":[");
        custom_call(out, p->id, p->custom.forced, &r->content);
        buf_ch(out, ']');
    }
    out->oom |= r->oom;
}

const char *chat_parts_finish(const struct openai *o, const struct generation *g)
{
    const struct chat_part *p = &o->parts[g->index];
    const bool called =
        p->custom.forced ? g->answer.finish != FINISH_LENGTH : chat_parts_called(o, g);
    return !called ? openai_finish(o, g) : p->old ? "function_call" : "tool_calls";
}
