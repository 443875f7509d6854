#include "router/api/ollama/ollama.h"
#include "router/api/openai/completions.h"
#include "router/http/route.h"

static int work(struct call *c, struct err *e)
{
    struct chat_request r = {0};
    struct ollama *o = ARENA_NEW(&c->arena, struct ollama, 1);
    if (!o)
        return err_nomem(e);
    if (ollama_generate_body(c, o, e) != 0)
        return -1;
    if (o->load)
        return ollama_loaded(c, o), 0;
    if (o->raw ? !(r.openai = completions_parse(c, e)) : chat_request_parse(c, &r, e) != 0)
        return -1;
    return ollama_answer(c, &r, o, e);
}

const struct route route_ollama_generate = {
    .method = "POST",
    .paths = {"/api/generate"},
    .errors = ERRORS_OLLAMA,
    .any_type = true,
    .summary = "Ollama's answer to one prompt: lines of JSON, or one object where `stream` is "
               "false.",
    .body =
        "`prompt`, `suffix` (the middle is generated, if the model has tokens for it), `system`, "
        "`images`, `raw` (without the chat template), `format` (`json` or a "
        "schema), `options`, `think`, `stream`; no prompt: nothing is generated",
    .takes = "OllamaGenerate",
    .example = "{\"model\": \"demo\", \"stream\": false, \"prompt\": \"Hello!\"}",
    .gives = "OllamaText",
    .work = work,
};
