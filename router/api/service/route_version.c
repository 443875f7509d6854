#include "router/call/call.h"

static void reply(struct call *c)
{
    buf_str(&c->out, "{\"version\":\"" VERSION "\"}");
    call_reply(c);
}

const struct route route_version = {
    .method = "GET",
    .paths = {"/version"},
    .summary = "The version of the server (vLLM's).",
    .access = ACCESS_DESCRIBES,
    .reply = reply,
};
