#include "router/api/openai/chat_completion.h"
#include "router/http/route.h"

static int work(struct call *c, struct err *e)
{
    struct chat_request r;
    if (chat_request_parse(c, &r, e) != 0)
        return -1;
    return chat_generate(c, &r, e);
}

const struct route route_chat_completions = {
    .method = "POST",
    .paths = {"/v1/chat/completions", "/chat/completions"},
    .errors = ERRORS_OPENAI,
    .summary = "OpenAI's chat: one answer, or chunks and `[DONE]` when `stream` is true.",
    .body =
        "`messages`, and what OpenAI's clients send, `tools`, `tool_choice` and `response_format` "
        "included; TGI's `tool_prompt`; vLLM's `guided_*` and `structured_outputs`; llama.cpp's "
        "`json_schema` and `grammar`",
    .takes = "Chat",
    .example = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}], \"max_tokens\": "
               "60, \"temperature\": 0.7, \"seed\": 1}",
    .gives = "ChatAnswer",
    .work = work,
};
