#include "router/api/openai/chat_completion.h"
#include "router/call/tokens.h"
#include "router/http/route.h"

static int work(struct call *c, struct err *e)
{
    struct chat_request r;
    if (chat_request_parse(c, &r, e) != 0)
        return -1;
    const struct ask *q = r.openai->asks;
    const char *text;
    size_t n;
    unsigned flags = 0;
    if (tokens_text(c, q, &text, &n, &flags, e) != 0)
        return -1;
    buf_str(&c->out, "{\"tokenize_response\":");
    if (tokens_json(c, text, n, flags, e) != 0)
        return -1;
    buf_str(&c->out, ",\"templated_text\":");
    buf_json_str(&c->out, q->inputs, q->n_inputs);
    buf_ch(&c->out, '}');
    return 0;
}

const struct route route_chat_tokenize = {
    .method = "POST",
    .paths = {"/chat_tokenize"},
    .summary = "The prompt that the chat template makes of messages, and its tokens.",
    .body = "as `/v1/chat/completions`",
    .takes = "Conversation",
    .example = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}",
    .gives = "ChatTokens",
    .work = work,
};
