#include "router/api/ollama/ollama.h"
#include "router/http/route.h"

static int work(struct call *c, struct err *e)
{
    struct chat_request r;
    struct ollama *o = ARENA_NEW(&c->arena, struct ollama, 1);
    if (!o)
        return err_nomem(e);
    if (ollama_chat_body(c, o, e) != 0)
        return -1;
    if (o->load)
        return ollama_loaded(c, o), 0;
    return chat_request_parse(c, &r, e) == 0 ? ollama_answer(c, &r, o, e) : -1;
}

const struct route route_ollama_chat = {
    .method = "POST",
    .paths = {"/api/chat"},
    .errors = ERRORS_OLLAMA,
    .any_type = true,
    .summary = "Ollama's chat: lines of JSON, or one object where `stream` is false.",
    .body = "`messages` (with `images`, `tool_calls`, `thinking`), `tools`, `format` (`json` or a "
            "schema), `options`, `think`, `stream`; no messages: nothing is generated",
    .takes = "OllamaChat",
    .example = "{\"model\": \"demo\", \"stream\": false, \"messages\": [{\"role\": \"user\", "
               "\"content\": \"Hello!\"}]}",
    .gives = "OllamaAnswer",
    .work = work,
};
