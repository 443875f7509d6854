/* Answers to Messages requests: one object, or Anthropic's named events. A piece of the reply is a
 * content block. */
#include "router/api/anthropic/messages.h"
#include "router/call/accounting.h"
#include <string.h>

static void string(struct buf *out, const char *s) { buf_json_str(out, s, strlen(s)); }

/* The stop reason, and the client's stop sequence that matched. */
static void stop_reason(struct buf *out, const struct openai *o, const struct generation *g)
{
    const struct stop_trim *t = &o->seq[0].trim;
    const char *word = chat_parts_called(o, g)             ? "tool_use"
                       : t->matched                        ? "stop_sequence"
                       : g->answer.finish == FINISH_LENGTH ? "max_tokens"
                                                           : "end_turn";
    buf_fmt(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", word);
    if (t->matched && t->found)
        string(out, t->found);
    else
        buf_str(out, "null");
}

/* Cached tokens are not counted as input tokens. */
static void usage(struct buf *out, const struct generation *g, uint32_t output)
{
    uint32_t cached = g->r.n_cached < g->r.n_input ? g->r.n_cached : g->r.n_input;
    buf_fmt(out,
            "\"usage\":{\"input_tokens\":%u,\"cache_creation_input_tokens\":0,"
            "\"cache_read_input_tokens\":%u,\"output_tokens\":%u}",
            g->r.n_input - cached, cached, output);
}

static void head(struct buf *out, const struct openai *o)
{
    buf_fmt(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", o->id);
    string(out, o->model);
}

static void tool_use(struct buf *out, const struct reply_call *call)
{
    buf_fmt(out, "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", call->id);
    string(out, call->name);
    buf_str(out, ",\"input\":");
}

/* ---------------------------------------------------------------- events */

static void begin(struct call *c, const struct generation *g)
{
    struct buf *out = &c->out;
    buf_str(out, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":");
    head(out, c->state);
    buf_str(out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
    usage(out, g, 1);
    buf_str(out, "}}\n\n");
}

static void block_start(struct buf *out, uint32_t index, enum reply_kind kind,
                        const struct reply_call *call)
{
    buf_fmt(out,
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":%u,"
            "\"content_block\":",
            index);
    if (kind == REPLY_CALL) {
        tool_use(out, call);
        buf_str(out, "{}}");
    } else {
        buf_str(out, kind == REPLY_CONTENT
                         ? "{\"type\":\"text\",\"text\":\"\"}"
                         : "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    }
    buf_str(out, "}\n\n");
    if (index == 0)
        buf_str(out, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
}

static void block_stop(struct buf *out, uint32_t index)
{
    buf_fmt(out,
            "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":%u}\n\n",
            index);
}

static void block_delta(struct buf *out, const struct reply_event *ev)
{
    static const char *const words[][2] = {[REPLY_REASONING] = {"thinking_delta", "thinking"},
                                           [REPLY_CONTENT] = {"text_delta", "text"},
                                           [REPLY_CALL] = {"input_json_delta", "partial_json"}};
    buf_fmt(out,
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":%u,"
            "\"delta\":{\"type\":\"%s\",\"%s\":",
            ev->index, words[ev->kind][0], words[ev->kind][1]);
    buf_json_str(out, ev->text, ev->n);
    buf_str(out, "}}\n\n");
}

static void send_event(struct call *c, const struct reply_event *ev)
{
    if (ev->what == REPLY_OPENED)
        block_start(&c->out, ev->index, ev->kind, ev->call);
    else if (ev->what == REPLY_GREW)
        block_delta(&c->out, ev);
    else
        block_stop(&c->out, ev->index);
}

static void stream_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    if (g->answer.n_tokens == 1)
        begin(c, g);
    chat_parts_take(c->state, g, ev);
    chat_parts_each(c, false, send_event);
}

static void stream_finish(struct call *c)
{
    const struct generation *g = &c->gen[0];
    struct buf *out = &c->out;
    chat_parts_each(c, true, send_event);
    if (!chat_parts_reply(c->state, g)->n_pieces) { /* empty answer: one empty block */
        block_start(out, 0, REPLY_CONTENT, NULL);
        block_stop(out, 0);
    }
    buf_str(out, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{");
    stop_reason(out, c->state, g);
    buf_str(out, "},");
    usage(out, g, g->answer.n_tokens);
    buf_str(out, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

/* ---------------------------------------------------------------- one answer */

static void collect_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    chat_parts_take(c->state, g, ev);
}

static void block(struct buf *out, const struct reply_event *ev)
{
    if (ev->kind == REPLY_CALL) {
        struct buf input = BUF_INIT;
        chat_call_object(ev->call, &input);
        tool_use(out, ev->call);
        buf_str(out, input.p ? input.p : "{}");
        out->oom |= input.oom;
        buf_free(&input);
    } else {
        buf_str(out, ev->kind == REPLY_CONTENT
                         ? "{\"type\":\"text\",\"text\":"
                         : "{\"type\":\"thinking\",\"signature\":\"\",\"thinking\":");
        buf_json_str(out, ev->text, ev->n);
    }
    buf_ch(out, '}');
}

static void finish(struct call *c)
{
    const struct openai *o = c->state;
    const struct generation *g = &c->gen[0];
    const struct reply *r = chat_parts_reply(o, g);
    struct reply_cursor at = {0};
    struct reply_event ev;
    struct buf *out = &c->out;
    head(out, o);
    buf_str(out, ",\"content\":[");
    while (reply_next(r, &at, true, &ev)) {
        if (ev.what != REPLY_CLOSED)
            continue;
        buf_str(out, ev.index ? "," : "");
        block(out, &ev);
    }
    buf_str(out, r->n_pieces ? "]," : "{\"type\":\"text\",\"text\":\"\"}],");
    stop_reason(out, o, g);
    buf_ch(out, ',');
    usage(out, g, g->answer.n_tokens);
    buf_ch(out, '}');
    out->oom |= r->oom;
    account_headers(c, 0, c->n_gen, true);
}

static const struct format as_object = {.token = collect_token, .finish = finish};
static const struct format as_stream = {.token = stream_token, .finish = stream_finish};

int messages_generate(struct call *c, const struct chat_request *r, struct err *e)
{
    struct openai *o = r->openai;
    if (openai_generate(c, o, o->stream ? &as_stream : &as_object, e) != 0)
        return -1;
    return chat_parts_new(c, r, e);
}
