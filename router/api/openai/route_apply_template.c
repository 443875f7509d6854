#include "router/api/openai/chat_completion.h"
#include "router/http/route.h"

static int work(struct call *c, struct err *e)
{
    struct chat_request r;
    if (chat_request_parse(c, &r, e) != 0)
        return -1;
    const struct ask *q = r.openai->asks;
    buf_str(&c->out, "{\"prompt\":");
    buf_json_str(&c->out, q->inputs, q->n_inputs);
    buf_ch(&c->out, '}');
    return 0;
}

const struct route route_apply_template = {
    .method = "POST",
    .paths = {"/apply-template"},
    .summary = "The prompt that the chat template makes of messages, as `prompt`.",
    .body = "as `/v1/chat/completions`",
    .takes = "Conversation",
    .example = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}",
    .gives = "Prompt",
    .work = work,
};
