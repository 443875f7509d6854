#include "router/api/docs/page.h"
#include <string.h>

static void reply(struct call *c)
{
    if (strcmp(c->path, "/api-doc/openapi.json") != 0) {
        page_reply(c, PAGE_DOCS);
        return;
    }
    routes_openapi(&c->out, edge_limits(c->edge)->task, c->x ? exchange_prefix(c->x) : "");
    call_reply(c);
}

const struct route route_docs = {
    .method = "GET",
    .paths = {"/docs", "/docs/", "/api-doc/openapi.json"},
    .summary = "This interface, as a page and as OpenAPI.",
    .access = ACCESS_DESCRIBES,
    .reply = reply,
};
