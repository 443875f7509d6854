#include "router/api/openai/chat_completion.h"
#include "router/call/tokens.h"
#include "router/http/route.h"

static int work(struct call *c, struct err *e)
{
    struct chat_request r;
    uint32_t n;
    if (chat_request_parse(c, &r, e) != 0 || tokens_count(c, r.openai->asks, false, &n, e) != 0)
        return -1;
    buf_fmt(&c->out, "{\"input_tokens\":%u}", n);
    return 0;
}

const struct route route_chat_input_tokens = {
    .method = "POST",
    .paths = {"/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"},
    .errors = ERRORS_OPENAI,
    .summary = "How many tokens the prompt of `/v1/chat/completions` would have (llama-server's).",
    .body = "as `/v1/chat/completions`",
    .takes = "Conversation",
    .example = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}",
    .gives = "Count",
    .work = work,
};
