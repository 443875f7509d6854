#include "router/responses/responses.h"
#include "router/route.h"

static int work(struct call *c, struct err *e)
{
    struct chat_request r;
    struct responses *p = ARENA_NEW(&c->arena, struct responses, 1);
    if (!p)
        return err_nomem(e);
    return responses_parse(c, &r, p, e) == 0 ? responses_generate(c, &r, p, e) : -1;
}

const struct route route_responses = {
    .method = "POST",
    .paths = {"/v1/responses"},
    .summary = "OpenAI's responses, nothing stored: one answer, or typed events when `stream` is "
               "true.",
    .body = "`input` (a string or items: messages, `function_call`, `function_call_output`, "
            "`reasoning`), `instructions`, `tools` (functions), `tool_choice`, `text.format`, "
            "`max_output_tokens`, `truncation`, `reasoning.effort`, `include` "
            "(`message.output_text.logprobs`), `top_logprobs`, and the sampling fields of "
            "`/v1/chat/completions`; `previous_response_id` is refused",
    .takes = "Responses",
    .example = "{\"input\": \"Hello!\", \"max_output_tokens\": 60}",
    .gives = "ResponsesAnswer",
    .work = work,
};
