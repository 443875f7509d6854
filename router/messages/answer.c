/* The answers to a Messages request: one object, or Anthropic's named events. */
#include "router/call_books.h"
#include "router/messages/messages.h"
#include <string.h>

static void string(struct buf *out, const char *s) { buf_json_str(out, s, strlen(s)); }

/* Why it ended, and by which of the client's sequences. */
static void stop_reason(struct buf *out, const struct openai *o, const struct generation *g)
{
    const struct stop_trim *t = &o->seq[0].trim;
    const char *word = t->matched                          ? "stop_sequence"
                       : g->answer.finish == FINISH_LENGTH ? "max_tokens"
                                                           : "end_turn";
    buf_fmt(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", word);
    if (t->matched && t->found)
        string(out, t->found);
    else
        buf_str(out, "null");
}

/* What came from the cache is not among the input tokens. */
static void usage(struct buf *out, const struct generation *g, uint32_t output)
{
    uint32_t cached = g->r.n_cached < g->r.n_ids ? g->r.n_cached : g->r.n_ids;
    buf_fmt(out,
            "\"usage\":{\"input_tokens\":%u,\"cache_creation_input_tokens\":0,"
            "\"cache_read_input_tokens\":%u,\"output_tokens\":%u}",
            g->r.n_ids - cached, cached, output);
}

static void head(struct buf *out, const struct openai *o)
{
    buf_fmt(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", o->id);
    string(out, o->model);
}

/* ---------------------------------------------------------------- events */

static void begin(struct call *c, const struct generation *g)
{
    struct buf *out = &c->out;
    buf_str(out, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":");
    head(out, c->state);
    buf_str(out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
    usage(out, g, 1);
    buf_str(out, "}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\","
                 "\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"
                 "event: ping\ndata: {\"type\":\"ping\"}\n\n");
}

static void stream_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    struct openai *o = c->state;
    struct buf *out = &c->out, *text = &o->seq[0].text;
    if (g->answer.n_tokens == 1)
        begin(c, g);
    buf_reset(text);
    openai_text(o, g, ev, text);
    if (!text->len)
        return;
    buf_str(out, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,"
                 "\"delta\":{\"type\":\"text_delta\",\"text\":");
    buf_json_str(out, text->p, text->len);
    buf_str(out, "}}\n\n");
    out->oom |= text->oom;
}

static void stream_finish(struct call *c)
{
    const struct generation *g = &c->gen[0];
    struct buf *out = &c->out;
    buf_str(out,
            "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{");
    stop_reason(out, c->state, g);
    buf_str(out, "},");
    usage(out, g, g->answer.n_tokens);
    buf_str(out, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

static void stream_error(struct call *c, const struct err *e)
{
    error_event(&c->out, c->errors, e, c->x ? exchange_id(c->x) : "");
}

/* ---------------------------------------------------------------- one answer */

static void collect_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    struct openai *o = c->state;
    openai_text(o, g, ev, &o->seq[0].text);
}

static void finish(struct call *c)
{
    const struct openai *o = c->state;
    const struct generation *g = &c->gen[0];
    const struct buf *text = &o->seq[0].text;
    struct buf *out = &c->out;
    head(out, o);
    buf_str(out, ",\"content\":[{\"type\":\"text\",\"text\":");
    buf_json_str(out, text->p ? text->p : "", text->len);
    buf_str(out, "}],");
    stop_reason(out, o, g);
    buf_ch(out, ',');
    usage(out, g, g->answer.n_tokens);
    buf_ch(out, '}');
    out->oom |= text->oom;
    books_headers(c, 0, c->n_gen, true);
}

const struct format messages_object = {NULL, collect_token, finish, stream_error};
const struct format messages_stream = {NULL, stream_token, stream_finish, stream_error};
