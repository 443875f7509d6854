#include "router/call/call.h"

static void reply(struct call *c) { call_reply(c); }

const struct route route_livez = {
    .method = "GET",
    .paths = {"/livez"},
    .summary = "200 as long as the process runs.",
    .probe = true,
    .open = true,
    .reply = reply,
};
