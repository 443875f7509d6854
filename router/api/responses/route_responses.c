#include "router/api/responses/stored.h"
#include "router/http/route.h"

static int work(struct call *c, struct err *e)
{
    struct chat_request r;
    struct responses *p = ARENA_NEW(&c->arena, struct responses, 1);
    if (!p)
        return err_nomem(e);
    int rc = c->shared && !c->state ? socket_message(c, e) : 0;
    if (rc == 1) /* an empty answer */
        return 0;
    rc = rc == 0 ? stored_recall(c, p, e) : rc;
    if (rc != 0)
        return rc;
    if (responses_parse(c, &r, p, e) != 0 || responses_generate(c, &r, p, e) != 0)
        return -1;
    c->on_loop = p->background ? stored_begin : NULL;
    return 0;
}

const struct route route_responses = {
    .method = "POST",
    .paths = {"/v1/responses"},
    .errors = ERRORS_OPENAI,
    .summary = "OpenAI's responses: one answer, or typed events when `stream` is true. With "
               "`--response-store` they are kept (`store`), for the same key alone.",
    .body = "`input` (a string or items: messages, `function_call`, `function_call_output`, "
            "`reasoning`, and those of other tools, which become text), `instructions`, `tools` "
            "(functions and `custom`; others are left out, which the header `warning` says), "
            "`tool_choice`, `text.format`, "
            "`max_output_tokens`, `truncation`, `reasoning.effort`, `reasoning.summary`, `include` "
            "(`message.output_text.logprobs`), `top_logprobs`, and the sampling fields of "
            "`/v1/chat/completions`; with `--response-store` also "
            "`store`, `previous_response_id` and `background`",
    .takes = "Responses",
    .example = "{\"input\": \"Hello!\", \"max_output_tokens\": 60}",
    .gives = "ResponsesAnswer",
    .work = work,
};
