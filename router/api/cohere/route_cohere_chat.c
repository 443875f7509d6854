#include "router/api/cohere/cohere.h"
#include "router/http/route.h"

static int work(struct call *c, struct err *e)
{
    struct chat_request r;
    return cohere_chat_parse(c, &r, e) == 0 ? cohere_chat_generate(c, &r, e) : -1;
}

const struct route route_cohere_chat = {
    .method = "POST",
    .paths = {"/v2/chat"},
    .errors = ERRORS_COHERE,
    .summary = "Cohere's chat: one answer, or named events when `stream` is true.",
    .body = "`messages`, `tools`, `tool_choice`, `strict_tools`, `response_format`, `thinking`, "
            "`max_tokens`, `stop_sequences`, `temperature`, `p`, `k`, `seed`, `frequency_penalty`, "
            "`presence_penalty`, `logprobs`, `stream`; `documents` are refused, since an answer "
            "has no citations",
    .takes = "CohereChat",
    .example = "{\"model\": \"demo\", \"max_tokens\": 60, \"messages\": [{\"role\": \"user\", "
               "\"content\": \"Hello!\"}]}",
    .gives = "CohereAnswer",
    .work = work,
};
