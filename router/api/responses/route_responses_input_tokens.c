#include "router/api/responses/stored.h"
#include "router/call/tokens.h"
#include "router/http/route.h"

static int work(struct call *c, struct err *e)
{
    struct chat_request r;
    struct responses *p = ARENA_NEW(&c->arena, struct responses, 1);
    uint32_t n;
    if (!p)
        return err_nomem(e);
    const int rc = stored_recall(c, p, e);
    if (rc != 0)
        return rc;
    if (responses_parse(c, &r, p, e) != 0)
        return -1;
    const struct ask *q = r.openai->asks;
    if (tokens_count(c, q, false, &n, e) != 0)
        return -1;
    buf_fmt(&c->out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%u}", n);
    return 0;
}

const struct route route_responses_input_tokens = {
    .method = "POST",
    .paths = {"/v1/responses/input_tokens"},
    .errors = ERRORS_OPENAI,
    .summary = "How many tokens the prompt of `/v1/responses` would have.",
    .body = "as `/v1/responses`",
    .takes = "ResponsesInput",
    .example = "{\"input\": \"Hello!\", \"instructions\": \"Be kind.\"}",
    .gives = "Count",
    .work = work,
};
