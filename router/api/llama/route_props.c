#include "common/json/json.h"
#include "router/api/llama/llama.h"
#include "router/chat/chat.h"
#include "router/http/route.h"
#include <string.h>

static void member(struct buf *out, const char *key, const char *s)
{
    buf_fmt(out, ",\"%s\":", key);
    buf_json_str(out, s ? s : "", s ? strlen(s) : 0);
}

static void reply(struct call *c)
{
    const struct infer_limits *l = edge_limits(c->edge);
    const char *closed = edge_closed(c->edge);
    struct buf *out = &c->out;
    struct err e = ERR_INIT;
    if (closed || !c->edge->chat) {
        err_set(&e, ERR_UNHEALTHY, "%s", closed ? closed : "there is no tokenizer");
        call_reply_error(c, &e);
        return;
    }
    const char *info = chat_tokenizer_info(c->edge->chat);
    cJSON *j = json_parse(info, strlen(info), &e);
    buf_fmt(out, "{\"default_generation_settings\":{\"id\":0,\"n_ctx\":%u,\"params\":{",
            l->max_total_tokens);
    llama_defaults(&c->edge->defaults, out);
    buf_fmt(out, "}},\"total_slots\":%u", llama_slots(c->edge));
    member(out, "model_path", c->edge->model_id);
    member(out, "model_alias", c->edge->model_id);
    member(out, "chat_template", json_str(j, "chat_template", ""));
    member(out, "bos_token", tokenizer_special(c->edge->tokenizer, "bos_token"));
    member(out, "eos_token", tokenizer_special(c->edge->tokenizer, "eos_token"));
    buf_fmt(out, ",\"modalities\":{\"vision\":%s,\"audio\":false}",
            l->takes_images && c->edge->vision ? "true" : "false");
    member(out, "build_info", VERSION);
    buf_ch(out, '}');
    cJSON_Delete(j);
    call_reply(c);
}

const struct route route_props = {
    .method = "GET",
    .paths = {"/props"},
    .errors = ERRORS_OPENAI,
    .summary = "The context, the chat template and the defaults of /completion, in llama-server's "
               "words.",
    .reply = reply,
};
