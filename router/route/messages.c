#include "router/messages/messages.h"
#include "router/route.h"

static int work(struct call *c, struct err *e)
{
    struct openai *o = messages_parse(c, false, e);
    return o ? openai_generate(c, o, o->stream ? &messages_stream : &messages_object, e) : -1;
}

const struct route route_messages = {
    .method = "POST",
    .paths = {"/v1/messages"},
    .summary = "Anthropic's messages: one answer, or named events when `stream` is true.",
    .body = "`messages`, `max_tokens`, and what Anthropic's clients send; text only: tools are "
            "shown to the template, forced tool use, images and `thinking` are refused",
    .work = work,
};
