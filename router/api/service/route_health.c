#include "router/api/docs/page.h"
#include <string.h>

/* The current start phase and its progress. */
static void reply_loading(struct call *c)
{
    const struct startup_view v = edge_startup(edge_home(c->edge));
    char words[96];
    startup_words(&v, words, sizeof(words));
    buf_fmt(&c->out,
            "{\"error\":\"the model is being loaded: %s\",\"error_type\":\"%s\","
            "\"status\":\"loading\",\"phase\":\"%s\",\"seconds\":%.1f",
            words, err_wire(ERR_UNHEALTHY),
            v.phase == STARTUP_NONE ? "start" : startup_name(v.phase), v.seconds);
    if (v.percent >= 0)
        buf_fmt(&c->out, ",\"percent\":%.1f", v.percent);
    if (v.left >= 0)
        buf_fmt(&c->out, ",\"seconds_left\":%.1f", v.left);
    buf_ch(&c->out, '}');
    c->status = 503;
    call_retry_after(c);
    call_reply(c);
}

/* Ready: the shards answer and new requests are accepted. */
static void reply(struct call *c)
{
    if (!strcmp(c->path, "/") && page_wanted(c)) {
        page_reply(c, PAGE_CHAT);
        return;
    }
    struct fleet *f = atomic_load(&c->edge->fleet);
    if (!f) {
        reply_loading(c);
        return;
    }
    if (edge_closed(c->edge) || !fleet_healthy(f)) {
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
        "and from the first SIGTERM on. While it loads the body says how far that is: `status`, "
        "`phase`, `percent`, `seconds_left`. `/` with `Accept: text/html` is a page to chat with "
        "the "
        "model.",
    .probe = true,
    .access = ACCESS_PROBE,
    .reply = reply,
};
