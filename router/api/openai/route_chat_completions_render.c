#include "router/api/openai/chat_completion.h"
#include "router/call/render.h"

static int work(struct call *c, struct err *e)
{
    struct chat_request r;
    return chat_request_parse(c, &r, e) == 0 ? render_ask(c, r.openai->asks, e) : -1;
}

const struct route route_chat_completions_render = {
    .method = "POST",
    .paths = {"/v1/chat/completions/render"},
    .errors = ERRORS_OPENAI,
    .summary = "The prompt that the chat template makes of messages, as the `token_ids` that a "
               "generation would be given and as `prompt`; nothing is generated.",
    .body = "as `/v1/chat/completions`",
    .takes = "Chat",
    .example = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}",
    .gives = "Rendered",
    .work = work,
};
