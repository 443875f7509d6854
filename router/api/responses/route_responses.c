#include "router/api/responses/responses.h"
#include "router/http/route.h"

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
            "`reasoning`, and those of other tools, which become text), `instructions`, `tools` "
            "(functions and `custom`; others are left out, which the header `warning` says), "
            "`tool_choice`, `text.format`, "
            "`max_output_tokens`, `truncation`, `reasoning.effort`, `include` "
            "(`message.output_text.logprobs`), `top_logprobs`, and the sampling fields of "
            "`/v1/chat/completions`; `previous_response_id` and "
            "`background` are refused",
    .takes = "Responses",
    .example = "{\"input\": \"Hello!\", \"max_output_tokens\": 60}",
    .gives = "ResponsesAnswer",
    .work = work,
};
