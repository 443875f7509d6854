#include "router/api/anthropic/messages.h"
#include "router/call/tokens.h"
#include "router/http/route.h"

static int work(struct call *c, struct err *e)
{
    struct chat_request r;
    uint32_t n;
    if (messages_parse(c, true, &r, e) != 0)
        return -1;
    const struct ask *q = r.openai->asks;
    if (tokens_count(c, q, false, &n, e) != 0)
        return -1;
    buf_fmt(&c->out, "{\"input_tokens\":%u}", n);
    return 0;
}

const struct route route_messages_count_tokens = {
    .method = "POST",
    .paths = {"/v1/messages/count_tokens"},
    .errors = ERRORS_ANTHROPIC,
    .summary = "How many tokens the prompt of `/v1/messages` would have.",
    .body = "as `/v1/messages`, without `max_tokens`",
    .takes = "CountTokens",
    .example =
        "{\"model\": \"tgi\", \"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}",
    .gives = "Count",
    .work = work,
};
