/* Answers to Responses requests: one object, or the API's typed events. A piece of the reply is an
 * output item. */
#include "router/api/responses/compact.h"
#include "router/api/responses/stored.h"
#include "router/call/accounting.h"
#include <stdio.h>
#include <string.h>

static void string(struct buf *out, const char *s) { buf_json_str(out, s, strlen(s)); }

static struct responses *own(const struct call *c)
{
    return ((struct openai *)c->state)->responses;
}

/* ---------------------------------------------------------------- items */

enum item_kind { ITEM_REASONING, ITEM_MESSAGE, ITEM_FUNCTION, ITEM_CUSTOM };

/* A custom tool's call is a call of the function that represents it, or the whole content if that
 * was constrained to its input. */
static enum item_kind kind_of(const struct openai *o, const struct reply_event *ev)
{
    if (ev->kind == REPLY_REASONING)
        return ITEM_REASONING;
    if (ev->kind == REPLY_CONTENT)
        return o->responses->forced ? ITEM_CUSTOM : ITEM_MESSAGE;
    return responses_is_custom(o->responses, ev->call->name) ? ITEM_CUSTOM : ITEM_FUNCTION;
}

/* The only part of a message or of reasoning, in items and events. */
struct part_kind {
    const char *type;          /* of the part */
    const char *index;         /* the member of events that counts parts */
    const char *added, *done;  /* events of the part */
    const char *delta, *whole; /* events of its text */
};

static const struct part_kind text_part = {"output_text",
                                           "content_index",
                                           "response.content_part.added",
                                           "response.content_part.done",
                                           "response.output_text.delta",
                                           "response.output_text.done"};
static const struct part_kind reasoning_part = {"reasoning_text",
                                                "content_index",
                                                "response.content_part.added",
                                                "response.content_part.done",
                                                "response.reasoning_text.delta",
                                                "response.reasoning_text.done"};
static const struct part_kind summary_part = {"summary_text",
                                              "summary_index",
                                              "response.reasoning_summary_part.added",
                                              "response.reasoning_summary_part.done",
                                              "response.reasoning_summary_text.delta",
                                              "response.reasoning_summary_text.done"};

/* NULL: an item without parts. */
static const struct part_kind *part_of(const struct openai *o, enum item_kind kind)
{
    if (kind == ITEM_MESSAGE)
        return &text_part;
    if (kind != ITEM_REASONING)
        return NULL;
    return o->responses->summary ? &summary_part : &reasoning_part;
}

static void item_id(struct buf *out, const struct openai *o, const struct reply_event *ev)
{
    static const char *const prefixes[] = {[ITEM_REASONING] = "rs",
                                           [ITEM_MESSAGE] = "msg",
                                           [ITEM_FUNCTION] = "fc",
                                           [ITEM_CUSTOM] = "ctc"};
    buf_fmt(out, "\"%s_%s_%u\"", prefixes[kind_of(o, ev)], strchr(o->id, '_') + 1, ev->index);
}

/* The input of a custom tool's call, quoted. */
static void input(struct buf *out, const struct reply_event *ev)
{
    struct custom_reader reader = {0};
    struct buf text = BUF_INIT;
    if (ev->call)
        custom_read_end(&reader, ev->text, ev->n, &text);
    else
        buf_add(&text, ev->text, ev->n);
    buf_json_str(out, text.p ? text.p : "", text.len);
    out->oom |= text.oom;
    buf_free(&text);
}

static void custom_item(struct buf *out, const struct openai *o, const struct reply_event *ev,
                        bool begun)
{
    buf_str(out, "\"type\":\"custom_tool_call\",\"call_id\":");
    if (ev->call)
        string(out, ev->call->id);
    else /* nine letters and digits, like other ids */
        buf_fmt(out, "\"%.9s\"", strchr(o->id, '_') + 1);
    buf_str(out, ",\"name\":");
    string(out, ev->call ? ev->call->name : o->responses->forced);
    buf_str(out, ",\"input\":");
    if (begun)
        input(out, ev);
    else
        buf_str(out, "\"\"");
    buf_ch(out, '}');
}

/* ,"logprobs":[...] for this part of the content. */
static void logprobs(struct buf *out, const struct openai *o, const char *text, size_t n)
{
    const struct reply *r = o->responses->reply;
    buf_str(out, ",\"logprobs\":");
    text_tokens_print(&o->responses->tokens, n ? (size_t)(text - r->content.p) : 0, n, out);
}

/* {"type":"output_text", ...} */
static void part(struct buf *out, const struct openai *o, const struct part_kind *kind,
                 const char *text, size_t n)
{
    buf_fmt(out, "{\"type\":\"%s\"", kind->type);
    if (kind == &text_part) {
        buf_str(out, ",\"annotations\":[]");
        logprobs(out, o, text, n);
    }
    buf_str(out, ",\"text\":");
    buf_json_str(out, text, n);
    buf_ch(out, '}');
}

/* `status`: in_progress (empty so far), completed, incomplete. */
static void item(struct buf *out, const struct openai *o, const struct reply_event *ev,
                 const char *status)
{
    bool begun = strcmp(status, "in_progress") != 0;
    buf_str(out, "{\"id\":");
    item_id(out, o, ev);
    buf_fmt(out, ",\"status\":\"%s\",", status);
    if (kind_of(o, ev) == ITEM_CUSTOM) {
        custom_item(out, o, ev, begun);
        return;
    }
    if (ev->kind == REPLY_CALL) {
        const char *name;
        const char *space = responses_namespace(o->responses, ev->call->name, &name);
        buf_fmt(out, "\"type\":\"function_call\",\"call_id\":\"%s\",", ev->call->id);
        if (space) {
            buf_str(out, "\"namespace\":");
            string(out, space);
            buf_ch(out, ',');
        }
        buf_str(out, "\"name\":");
        string(out, name);
        buf_str(out, ",\"arguments\":");
        buf_json_str(out, ev->text, begun ? ev->n : 0);
        buf_ch(out, '}');
        return;
    }
    const struct part_kind *kind = part_of(o, kind_of(o, ev));
    buf_str(out, kind == &text_part ? "\"type\":\"message\",\"role\":\"assistant\",\"content\":["
                 : kind == &reasoning_part ? "\"type\":\"reasoning\",\"summary\":[],\"content\":["
                                           : "\"type\":\"reasoning\",\"summary\":[");
    if (begun)
        part(out, o, kind, ev->text, ev->n);
    buf_str(out, "]}");
}

static const struct reply_event no_text = {.kind = REPLY_CONTENT, .text = ""};

/* The last piece can be incomplete, and a call whose arguments broke off. */
static const char *item_status(const struct openai *o, const struct generation *g,
                               const struct reply_event *ev)
{
    const struct reply *r = chat_parts_reply(o, g);
    if (ev->call && !ev->call->whole)
        return "incomplete";
    bool cut = !strcmp(openai_finish(o, g), "length") && !chat_parts_called(o, g);
    return cut && ev->index + 1 >= r->n_pieces ? "incomplete" : "completed";
}

static void output(struct buf *out, const struct openai *o, const struct generation *g)
{
    const struct reply *r = chat_parts_reply(o, g);
    if (o->responses->warm)
        return;
    struct reply_cursor at = {0};
    struct reply_event ev;
    while (reply_next(r, &at, true, &ev)) {
        if (ev.what != REPLY_CLOSED)
            continue;
        buf_str(out, ev.index ? "," : "");
        item(out, o, &ev, item_status(o, g, &ev));
    }
    if (!r->n_pieces) /* empty answer: one empty message */
        item(out, o, &no_text, item_status(o, g, &no_text));
    out->oom |= r->oom;
}

void responses_output(struct buf *out, const struct call *c)
{
    buf_ch(out, '[');
    output(out, c->state, &c->gen[0]);
    buf_ch(out, ']');
}

/* ---------------------------------------------------------------- the response */

static void usage(struct buf *out, const struct openai *o, const struct generation *g)
{
    uint32_t n = o->responses->warm ? 0 : g->answer.n_tokens;
    buf_fmt(out,
            "{\"input_tokens\":%u,\"input_tokens_details\":{\"cached_tokens\":%u,"
            "\"cache_write_tokens\":0},\"output_tokens\":%u,"
            "\"output_tokens_details\":{\"reasoning_tokens\":%u},\"total_tokens\":%llu}",
            g->r.n_input, g->r.n_cached, n, chat_parts_thought(o, g),
            (unsigned long long)g->r.n_input + n);
}

void responses_usage(struct buf *out, const struct call *c) { usage(out, c->state, &c->gen[0]); }

/* The status of a response that has ended. */
static const char *status_of(const struct call *c)
{
    const struct generation *g = &c->gen[0];
    const bool cut =
        !strcmp(openai_finish(c->state, g), "length") && !chat_parts_called(c->state, g);
    return cut && !own(c)->warm ? "incomplete" : "completed";
}

void responses_object(struct buf *out, const struct call *c, const char *status,
                      const struct err *why)
{
    const struct openai *o = c->state;
    const struct generation *g = &c->gen[0];
    const bool cut = !strcmp(status, "incomplete"), ended = cut || !strcmp(status, "completed");
    buf_fmt(out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\"",
            o->id, (long long)c->created_unix, status);
    buf_str(out, ",\"error\":");
    if (why) {
        buf_str(out, "{\"code\":\"server_error\",\"message\":");
        string(out, why->msg);
        buf_ch(out, '}');
    } else {
        buf_str(out, "null");
    }
    buf_fmt(out, ",\"incomplete_details\":%s,\"model\":",
            cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
    string(out, o->model);
    buf_str(out, own(c)->echo);
    buf_str(out, ",\"output\":[");
    if (ended)
        output(out, o, g);
    buf_str(out, "],\"usage\":");
    if (ended) {
        usage(out, o, g);
        openai_told_timings(out, o, g);
    } else {
        buf_str(out, "null");
    }
    buf_ch(out, '}');
}

/* ---------------------------------------------------------------- events */

/* Begins an event, up to its own members. */
static void event(struct call *c, const char *type)
{
    buf_fmt(&c->out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%llu", type, type,
            (unsigned long long)own(c)->events++);
    if (own(c)->lane) {
        buf_str(&c->out, ",\"stream_id\":");
        string(&c->out, own(c)->lane);
    }
}

static void event_end(struct call *c)
{
    if (c->n_gen)
        openai_told_timings(&c->out, c->state, &c->gen[0]);
    buf_str(&c->out, "}\n\n");
}

static void of_response(struct call *c, const char *type, bool ended)
{
    event(c, type);
    buf_str(&c->out, ",\"response\":");
    responses_object(&c->out, c, ended ? status_of(c) : "in_progress", NULL);
    event_end(c);
}

static void of_item(struct call *c, const char *type, const struct reply_event *ev,
                    const char *status)
{
    event(c, type);
    buf_fmt(&c->out, ",\"output_index\":%u,\"item\":", ev->index);
    item(&c->out, c->state, ev, status);
    event_end(c);
}

/* Begins an event about a part of an item, up to its last member. */
static void inside(struct call *c, const char *type, const struct reply_event *ev)
{
    event(c, type);
    buf_fmt(&c->out, ",\"output_index\":%u,\"item_id\":", ev->index);
    item_id(&c->out, c->state, ev);
    const struct part_kind *kind = part_of(c->state, kind_of(c->state, ev));
    if (kind)
        buf_fmt(&c->out, ",\"%s\":0", kind->index);
}

/* The part as it begins (empty) or ends. */
static void of_part(struct call *c, const struct part_kind *kind, const struct reply_event *ev,
                    bool done)
{
    inside(c, done ? kind->done : kind->added, ev);
    buf_str(&c->out, ",\"part\":");
    part(&c->out, c->state, kind, ev->text, done ? ev->n : 0);
    event_end(c);
}

/* The text of an item's part: what is new of it (`delta`), or all of it. */
static void of_text(struct call *c, const struct part_kind *kind, const struct reply_event *ev,
                    bool delta)
{
    inside(c, delta ? kind->delta : kind->whole, ev);
    if (kind == &text_part)
        logprobs(&c->out, c->state, ev->text, ev->n);
    buf_str(&c->out, delta ? ",\"delta\":" : ",\"text\":");
    buf_json_str(&c->out, ev->text, ev->n);
    event_end(c);
}

static void of_arguments(struct call *c, const struct reply_event *ev, bool delta)
{
    inside(c,
           delta ? "response.function_call_arguments.delta"
                 : "response.function_call_arguments.done",
           ev);
    if (!delta) {
        buf_str(&c->out, ",\"name\":");
        string(&c->out, ev->call->name);
    }
    buf_str(&c->out, delta ? ",\"delta\":" : ",\"arguments\":");
    buf_json_str(&c->out, ev->text, ev->n);
    event_end(c);
}

static void input_delta(struct call *c, const struct reply_event *ev, const char *text, size_t n)
{
    if (n == 0)
        return;
    inside(c, "response.custom_tool_call_input.delta", ev);
    buf_str(&c->out, ",\"delta\":");
    buf_json_str(&c->out, text, n);
    event_end(c);
}

/* The input of a custom tool: the content, or a part of a function's arguments. */
static void of_input(struct call *c, const struct reply_event *ev)
{
    struct responses *p = own(c);
    const bool done = ev->what == REPLY_CLOSED;
    const size_t sent = p->custom_input.len;
    if (ev->call) {
        const struct buf *a = &ev->call->arguments;
        (done ? custom_read_end : custom_read)(&p->reader, a->p ? a->p : "", a->len,
                                               &p->custom_input);
        c->out.oom |= p->custom_input.oom;
        if (p->custom_input.len > sent)
            input_delta(c, ev, p->custom_input.p + sent, p->custom_input.len - sent);
    } else if (!done) {
        input_delta(c, ev, ev->text, ev->n);
    }
    if (done) {
        inside(c, "response.custom_tool_call_input.done", ev);
        buf_str(&c->out, ",\"input\":");
        input(&c->out, ev);
        event_end(c);
    }
}

static void send_event(struct call *c, const struct reply_event *ev)
{
    const struct openai *o = c->state;
    const enum item_kind kind = kind_of(o, ev);
    const struct part_kind *with = part_of(o, kind);
    const bool opened = ev->what == REPLY_OPENED, closed = ev->what == REPLY_CLOSED;
    if (opened) {
        own(c)->reader = (struct custom_reader){0};
        buf_reset(&own(c)->custom_input);
        of_item(c, "response.output_item.added", ev, "in_progress");
    }
    if (with && opened)
        of_part(c, with, ev, false);
    if (with && !opened)
        of_text(c, with, ev, !closed);
    if (with && closed)
        of_part(c, with, ev, true);
    if (kind == ITEM_CUSTOM && !opened)
        of_input(c, ev);
    if (kind == ITEM_FUNCTION && !opened)
        of_arguments(c, ev, !closed);
    if (closed)
        of_item(c, "response.output_item.done", ev, item_status(o, &c->gen[0], ev));
}

static void take(struct call *c, struct generation *g, const struct gen_event *ev)
{
    struct responses *p = own(c);
    if (p->logprobs)
        text_tokens_add(&p->tokens, c->state, p->reply, ev);
    chat_parts_take(c->state, g, ev);
}

static void stream_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    if (g->answer.n_tokens == 1) {
        of_response(c, "response.created", false);
        of_response(c, "response.in_progress", false);
    }
    if (own(c)->warm)
        return;
    take(c, g, ev);
    chat_parts_each(c, false, send_event);
}

static void keep_ended(struct call *c)
{
    if (own(c)->store)
        stored_keep(c, status_of(c), NULL);
    if (own(c)->conversation)
        stored_extend(c);
    if (c->shared)
        socket_keep(c);
    if (c->detached)
        stored_end(c);
}

/* Background: later requests read it from the store. */
static void keep_failed(struct call *c, const struct err *e)
{
    stored_keep(c, "failed", e);
    stored_end(c);
}

static void finish_items(struct call *c)
{
    struct reply_event none = no_text;
    chat_parts_each(c, true, send_event);
    if (!chat_parts_reply(c->state, &c->gen[0])->n_pieces) {
        none.what = REPLY_OPENED;
        send_event(c, &none);
        none.what = REPLY_CLOSED;
        send_event(c, &none);
    }
}

static void stream_finish(struct call *c)
{
    if (!own(c)->warm)
        finish_items(c);
    const bool cut = !strcmp(status_of(c), "incomplete");
    of_response(c, cut ? "response.incomplete" : "response.completed", true);
    keep_ended(c);
}

/* SDKs raise events with `error`; the other members are the API's own. */
static void stream_error(struct call *c, const struct err *e)
{
    event(c, "error");
    buf_str(&c->out, ",\"message\":");
    string(&c->out, e->msg);
    buf_str(&c->out, ",\"param\":null,\"code\":null");
    if (c->shared) /* without it Codex waits for more: its connection stays open */
        buf_fmt(&c->out, ",\"status\":%d", error_status(c->errors, e->kind));
    buf_str(&c->out, ",\"error\":");
    error_object(&c->out, e);
    event_end(c);
}

/* ---------------------------------------------------------------- one answer */

static void collect_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    take(c, g, ev);
}

static void finish(struct call *c)
{
    keep_ended(c);
    if (c->detached)
        return;
    responses_object(&c->out, c, status_of(c), NULL);
    account_headers(c, 0, c->n_gen, true);
}

static void finish_compaction(struct call *c)
{
    compact_write(c);
    account_headers(c, 0, c->n_gen, true);
}

static const struct format as_compaction = {.token = collect_token, .finish = finish_compaction};
static const struct format as_object = {
    .token = collect_token, .finish = finish, .gone = keep_failed};
static const struct format as_stream = {NULL, stream_token, stream_finish, stream_error,
                                        keep_failed};

static void free_tokens(void *arg)
{
    struct responses *p = arg;
    text_tokens_free(&p->tokens);
    buf_free(&p->custom_input);
}

int responses_generate(struct call *c, const struct chat_request *r, struct responses *p,
                       struct err *e)
{
    struct openai *o = r->openai;
    o->responses = p;
    if (arena_defer(&c->arena, free_tokens, p) != 0)
        return err_nomem(e);
    if (openai_generate(c, o,
                        p->compact  ? &as_compaction
                        : o->stream ? &as_stream
                                    : &as_object,
                        e) != 0)
        return -1;
    if (chat_parts_new(c, r, e) != 0)
        return -1;
    p->reply = chat_parts_reply(o, &c->gen[0]);
    if (p->logprobs)
        chat_parts_watch(o, &c->gen[0], text_tokens_watch, &p->tokens);
    return 0;
}
