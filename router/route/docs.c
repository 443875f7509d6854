#include "router/call.h"
#include <string.h>

/* The one page that people without the repository see: the route table, nothing to load. */
static void reply(struct call *c)
{
    struct buf *out = &c->out;
    if (!strcmp(c->path, "/api-doc/openapi.json")) {
        routes_openapi(out);
        call_reply(c);
        return;
    }
    c->type = "text/html; charset=utf-8";
    buf_str(out, "<!doctype html><meta charset=utf-8><title>API</title><h1>HTTP interface</h1>"
                 "<p><a href=/api-doc/openapi.json>openapi.json</a><table border=1>");
    for (unsigned i = 0; i < n_routes; i++) {
        buf_fmt(out, "<tr><td>%s<td>", routes[i]->method);
        for (int k = 0; k < ROUTE_PATHS && routes[i]->paths[k]; k++)
            buf_fmt(out, "%s<code>%s</code>", k ? ", " : "", routes[i]->paths[k]);
        buf_fmt(out, "<td>%s", routes[i]->summary);
    }
    buf_str(out, "</table>\n");
    call_reply(c);
}

const struct route route_docs = {
    .method = "GET",
    .paths = {"/docs", "/docs/", "/api-doc/openapi.json"},
    .summary = "This interface, as a page and as OpenAPI.",
    .open = true,
    .reply = reply,
};
