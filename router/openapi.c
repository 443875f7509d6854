/* The OpenAPI document, from the route table. Bodies are described in words: see docs/http-api.md.
 */
#include "router/route.h"
#include <string.h>

static void string(struct buf *out, const char *s) { buf_json_str(out, s, strlen(s)); }

static void operation(struct buf *out, const struct route *r)
{
    bool post = !strcmp(r->method, "POST");
    buf_fmt(out, "\"%s\":{\"summary\":", post ? "post" : "get");
    string(out, r->summary);
    if (post) {
        buf_str(out, ",\"requestBody\":{\"required\":true,\"description\":");
        string(out, r->body ? r->body : "");
        buf_str(out, ",\"content\":{\"application/json\":{\"schema\":{\"type\":\"object\"}}}}");
    }
    buf_str(out, ",\"responses\":{\"200\":{\"description\":\"OK\"}");
    if (post)
        buf_str(out, ",\"400\":{\"description\":\"The body is not JSON\"}"
                     ",\"413\":{\"description\":\"The body is too large\"}"
                     ",\"415\":{\"description\":\"The content type is not JSON\"}"
                     ",\"422\":{\"description\":\"Input validation error\"}"
                     ",\"424\":{\"description\":\"Generation error\"}"
                     ",\"429\":{\"description\":\"Model is overloaded\"}"
                     ",\"500\":{\"description\":\"Incomplete generation\"}");
    if (!r->open)
        buf_str(out, ",\"401\":{\"description\":\"The key is missing or wrong\"}");
    if (post || !strcmp(r->paths[0], "/health"))
        buf_str(out, ",\"503\":{\"description\":\"Not ready\"}");
    buf_str(out, "}}");
}

/* All operations of one path belong into one object: a path is printed with its first route. */
static bool printed_before(unsigned upto, int k, const char *path)
{
    for (unsigned i = 0; i <= upto; i++)
        for (int p = 0; p < ROUTE_PATHS && routes[i]->paths[p]; p++) {
            if (i == upto && p == k)
                return false;
            if (!strcmp(routes[i]->paths[p], path))
                return true;
        }
    return false;
}

static void path_item(struct buf *out, const char *path)
{
    const char *sep = "";
    for (unsigned i = 0; i < n_routes; i++)
        for (int p = 0; p < ROUTE_PATHS && routes[i]->paths[p]; p++)
            if (!strcmp(routes[i]->paths[p], path)) {
                buf_str(out, sep);
                operation(out, routes[i]);
                sep = ",";
            }
}

void routes_openapi(struct buf *out)
{
    const char *sep = "";
    buf_fmt(out,
            "{\"openapi\":\"3.0.3\",\"info\":{\"title\":\"Text generation\",\"version\":\"%s\"},"
            "\"paths\":{",
            VERSION);
    for (unsigned i = 0; i < n_routes; i++)
        for (int k = 0; k < ROUTE_PATHS && routes[i]->paths[k]; k++) {
            const char *path = routes[i]->paths[k];
            if (strchr(path, '*') || printed_before(i, k, path))
                continue;
            buf_str(out, sep);
            string(out, path);
            buf_str(out, ":{");
            path_item(out, path);
            buf_ch(out, '}');
            sep = ",";
        }
    buf_str(out, "},\"components\":{\"securitySchemes\":{\"key\":{\"type\":\"http\",\"scheme\":"
                 "\"bearer\"}}}}");
}
