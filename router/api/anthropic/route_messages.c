#include "router/api/anthropic/messages.h"
#include "router/http/route.h"

static int work(struct call *c, struct err *e)
{
    struct chat_request r;
    return messages_parse(c, false, &r, e) == 0 ? messages_generate(c, &r, e) : -1;
}

const struct route route_messages = {
    .method = "POST",
    .paths = {"/v1/messages"},
    .errors = ERRORS_ANTHROPIC,
    .summary = "Anthropic's messages: one answer, or named events when `stream` is true.",
    .body =
        "`messages`, `max_tokens`, and what Anthropic's clients send, `tools`, "
        "`tool_choice` and `thinking` included; Anthropic's own tools and `mcp_servers` are left "
        "out, which the header `warning` says; images are refused unless the model takes them, "
        "PDF documents always",
    .takes = "Messages",
    .example = "{\"model\": \"tgi\", \"max_tokens\": 60, \"messages\": [{\"role\": \"user\", "
               "\"content\": \"Hello!\"}]}",
    .gives = "MessagesAnswer",
    .work = work,
};
