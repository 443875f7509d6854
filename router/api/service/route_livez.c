#include "router/call/call.h"

static void reply(struct call *c) { call_reply(c); }

const struct route route_livez = {
    .method = "GET",
    .paths = {"/livez", "/api/hello"},
    .summary = "200 as long as the process runs. Claude Code asks for `/api/hello` first.",
    .probe = true,
    .access = ACCESS_PROBE,
    .reply = reply,
};
