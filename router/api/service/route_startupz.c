#include "router/call/call.h"

/* 200 from the first load of the model on; /readyz is 200 only while the shards answer. */
static void reply(struct call *c)
{
    if (!atomic_load(&c->edge->fleet)) {
        struct err e;
        err_set(&e, ERR_UNHEALTHY, "the model is being loaded");
        call_reply_error(c, &e);
        return;
    }
    call_reply(c);
}

const struct route route_startupz = {
    .method = "GET",
    .paths = {"/startupz"},
    .summary = "503 until the model is loaded and warm, 200 from then on.",
    .probe = true,
    .access = ACCESS_PROBE,
    .reply = reply,
};
