#include "router/api/ollama/ollama.h"
#include "router/http/route.h"

static void reply(struct call *c)
{
    buf_str(&c->out, "{\"version\":\"" OLLAMA_VERSION "\"}");
    call_reply(c);
}

const struct route route_ollama_version = {
    .method = "GET",
    .paths = {"/api/version"},
    .errors = ERRORS_OLLAMA,
    .summary = "The version of Ollama's API that these routes follow.",
    .access = ACCESS_DESCRIBES,
    .reply = reply,
};
