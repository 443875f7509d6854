/* Names and sizes that sglang-router requests from each new worker. */
#include "router/call/call.h"
#include <string.h>

static void quoted(struct buf *out, const char *key, const char *s)
{
    buf_fmt(out, "\"%s\":", key);
    buf_json_str(out, s, strlen(s));
}

static void reply(struct call *c)
{
    const struct infer_limits *l = edge_limits(c->edge);
    const char *id = c->edge->model_id;
    struct buf *out = &c->out;
    buf_ch(out, '{');
    quoted(out, "model_path", id);
    buf_ch(out, ',');
    quoted(out, "tokenizer_path", id);
    buf_ch(out, ',');
    quoted(out, "served_model_name", id);
    buf_fmt(out,
            ",\"is_generation\":true,\"tp_size\":%u,\"dp_size\":1,\"context_length\":%u,"
            "\"max_total_num_tokens\":%u,\"max_running_requests\":%u,\"page_size\":%u,"
            "\"vocab_size\":%u,",
            l->n_shards, l->max_total_tokens, l->max_batch_total_tokens,
            c->edge->config->max_concurrent_requests, l->block_size, l->vocab_size);
    quoted(out, "dtype", l->dtype);
    buf_ch(out, ',');
    quoted(out, "device", l->device);
    buf_ch(out, ',');
    quoted(out, "version", VERSION);
    buf_ch(out, '}');
    call_reply(c);
}

const struct route route_server_info = {
    .method = "GET",
    .paths = {"/server_info", "/model_info", "/get_server_info", "/get_model_info"},
    .summary = "The model's name, the shards (`tp_size`) and the limits, in SGLang's words.",
    .access = ACCESS_DESCRIBES,
    .reply = reply,
};
