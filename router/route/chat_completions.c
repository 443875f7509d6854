#include "router/chat/completion.h"
#include "router/route.h"

static int work(struct call *c, struct err *e)
{
    struct chat_request r;
    if (chat_request_parse(c, &r, e) != 0)
        return -1;
    return openai_generate(c, r.openai, r.openai->stream ? &chat_stream : &chat_object, e);
}

const struct route route_chat_completions = {
    .method = "POST",
    .paths = {"/v1/chat/completions"},
    .summary = "OpenAI's chat: one answer, or chunks and `[DONE]` when `stream` is true.",
    .body =
        "`messages`, and what OpenAI's clients send; tools are shown to the template, forced tool "
        "calls and JSON formats are refused",
    .work = work,
};
