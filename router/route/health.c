#include "router/page/page.h"
#include <string.h>

/* Ready: the shards answer and new requests are taken. */
static void reply(struct call *c)
{
    if (!strcmp(c->path, "/") && page_wanted(c)) {
        page_reply(c, PAGE_CHAT);
        return;
    }
    struct infer *i = atomic_load(&c->edge->infer);
    if (edge_closed(c->edge) || !infer_healthy(i)) {
        struct err e;
        err_set(&e, ERR_UNHEALTHY, "unhealthy");
        call_reply_error(c, &e);
        return;
    }
    call_reply(c);
}

const struct route route_health = {
    .method = "GET",
    .paths = {"/health", "/ping", "/", "/readyz"},
    .summary =
        "200 when requests are served; 503 while the model loads, when a shard does not answer, "
        "and from the first SIGTERM on. `/` with `Accept: text/html` is a page to chat with the "
        "model.",
    .probe = true,
    .open = true,
    .reply = reply,
};
