#include "router/api/openai/completions.h"
#include "router/http/route.h"

static int work(struct call *c, struct err *e)
{
    struct openai *o = completions_parse(c, e);
    return o ? openai_generate(c, o, o->stream ? &completions_stream : &completions_object, e) : -1;
}

const struct route route_completions = {
    .method = "POST",
    .paths = {"/v1/completions", "/completions"},
    .errors = ERRORS_OPENAI,
    .summary = "OpenAI's completions: one answer, or chunks and `[DONE]` when `stream` is true.",
    .body = "`prompt` (a string, a list of strings, token ids, or lists of ids), and what OpenAI's "
            "clients send",
    .takes = "Completion",
    .example = "{\"prompt\": \"Once upon a time\", \"max_tokens\": 20}",
    .gives = "CompletionAnswer",
    .work = work,
};
