#include "router/http/route.h"
#include "common/nearest.h"
#include <stdio.h>
#include <string.h>

#define ROW(name) extern const struct route route_##name;
#include "routes.h"
#undef ROW
const struct route *const routes[] = {
#define ROW(name) &route_##name,
#include "routes.h"
#undef ROW
};
const unsigned n_routes = sizeof(routes) / sizeof(routes[0]);

static bool matches(const char *pattern, const char *path)
{
    const size_t n = strcspn(pattern, "*");
    if (!pattern[n])
        return !strcmp(pattern, path);
    if (strncmp(pattern, path, n) != 0 || !path[n])
        return false;
    const char *rest = path + n + strcspn(path + n, "/");
    return !pattern[n + 1] || (rest > path + n && matches(pattern + n + 1, rest));
}

static bool serves(const struct route *r, const char *path)
{
    for (int i = 0; i < ROUTE_PATHS && r->paths[i]; i++)
        if (matches(r->paths[i], path))
            return true;
    return false;
}

static bool names(const struct route *r, const char *path)
{
    for (int i = 0; i < ROUTE_PATHS && r->paths[i]; i++)
        if (!strcmp(r->paths[i], path))
            return true;
    return false;
}

/* Is it literally a path of some route? Then patterns do not apply. */
static bool is_named(const char *path)
{
    for (unsigned i = 0; i < n_routes; i++)
        if (names(routes[i], path))
            return true;
    return false;
}

const char *route_near(const char *path)
{
    enum { SHORTEST = 5, TYPING_ERROR = 2 };
    const size_t n = strlen(path);
    const char *near = NULL, *end = NULL;
    uint32_t best = UINT32_MAX;
    for (unsigned i = 0; i < n_routes; i++)
        for (int k = 0; k < ROUTE_PATHS && routes[i]->paths[k]; k++) {
            const char *known = routes[i]->paths[k];
            const size_t len = strlen(known);
            if (strchr(known, '*'))
                continue;
            if (len > 1 && len < n && !strcmp(path + n - len, known) && (!end || len > strlen(end)))
                end = known;
            if (nearest_is(path, n, known, &best))
                near = known;
        }
    if (n < SHORTEST)
        return NULL;
    return best <= TYPING_ERROR ? near : end;
}

const struct route *route_find(const char *method, const char *path, char allow[64])
{
    const struct route *found = NULL;
    bool get = false, post = false, delete = false;
    const char *want = strcmp(method, "HEAD") ? method : "GET";
    const bool named = is_named(path);
    for (unsigned i = 0; i < n_routes && !found; i++) {
        if (named ? !names(routes[i], path) : !serves(routes[i], path))
            continue;
        get |= !strcmp(routes[i]->method, "GET") && !routes[i]->messages; /* a handshake alone */
        post |= !strcmp(routes[i]->method, "POST");
        delete |= !strcmp(routes[i]->method, "DELETE");
        if (!strcmp(routes[i]->method, want))
            found = routes[i];
    }
    bool wrong = !found && (get || post || delete);
    snprintf(allow, 64, "%s%s%s%s", wrong && get ? "GET, HEAD, " : "",
             wrong && post ? "POST, " : "", wrong && delete ? "DELETE, " : "",
             wrong ? "OPTIONS" : "");
    return found;
}

enum error_shape route_errors(const char *path)
{
    /* of paths that are no route's: the SDKs read errors in their protocol's shape alone */
    static const struct {
        const char *begin;
        enum error_shape errors;
    } protocols[] = {{"/v1/messages/", ERRORS_ANTHROPIC},
                     {"/v1/projects/", ERRORS_GOOGLE},
                     {"/v1/", ERRORS_OPENAI},
                     {"/v1beta", ERRORS_GOOGLE},
                     {"/api/", ERRORS_OLLAMA}};
    for (unsigned i = 0; i < n_routes; i++)
        if (serves(routes[i], path))
            return routes[i]->errors;
    for (size_t i = 0; i < sizeof(protocols) / sizeof(protocols[0]); i++)
        if (!strncmp(path, protocols[i].begin, strlen(protocols[i].begin)))
            return protocols[i].errors;
    return ERRORS_TGI;
}

static void route_rows(struct buf *out)
{
    static const char *const keys[] = {"yes", "if set", "no"}; /* by enum route_access */
    for (unsigned i = 0; i < n_routes; i++) {
        buf_fmt(out, "| %s | ", routes[i]->method);
        for (int k = 0; k < ROUTE_PATHS && routes[i]->paths[k]; k++)
            buf_fmt(out, "%s`%s`", k ? ", " : "", routes[i]->paths[k]);
        buf_fmt(out, " | %s | %s", keys[routes[i]->access], routes[i]->summary);
        if (routes[i]->body)
            buf_fmt(out, " Body: %s.", routes[i]->body);
        buf_str(out, " |\n");
    }
}

/* Error kinds that differ only in OpenAI's code share a row. */
static bool listed_before(enum err_kind kind)
{
    for (enum err_kind k = ERR_NONE + 1; k < kind; k++)
        if (err_status(k) == err_status(kind) && !strcmp(err_wire(k), err_wire(kind)))
            return true;
    return false;
}

void routes_markdown(struct buf *out)
{
    buf_str(out,
            "# HTTP interface\n\n"
            "Printed by `router routes`; do not edit. Fields, messages and framing are those of "
            "TGI 3.3 and of OpenAI's API; `decisions/http-quirks.md` lists the differences.\n\n"
            "| method | path | key | what it does |\n|---|---|---|---|\n");
    route_rows(out);
    buf_str(
        out,
        "\n\"Key\": with `--api-key` or `--api-key-file`, the request must carry one of the keys, "
        "as "
        "`Authorization: Bearer KEY` or as `x-api-key: KEY` or `x-goog-api-key: KEY`. \"If set\": "
        "only with "
        "`--api-key-all-routes`.\n"
        "\n## Turns\n\n"
        "Requests wait in turns by tokens served: one account for each value of "
        "`x-gateway-inference-fairness-id`, else for each key in `Authorization`; with "
        "`--api-key`, "
        "`user` of OpenAI's bodies separates its users. Within an account the lowest `priority` "
        "(in "
        "`parameters`, or beside OpenAI's fields; default 0) runs first, then the oldest; every "
        "eighth turn is the oldest one's.\n"
        "\n## Errors\n\n"
        "TGI's routes: `{\"error\": text, \"error_type\": word}`; where there is no word, plain "
        "text. `/v1/*`: `{\"error\": {\"message\", \"type\", \"param\", \"code\"}, "
        "\"error_type\": word}`, with 400 for 422 and 500 for 424; a server whose permits are all "
        "held, or whose shards lack memory for the request, says 503, an API key that holds its "
        "share of them 429. `/v1/messages`: `{\"type\": "
        "\"error\", \"error\": {\"type\", \"message\"}, \"request_id\"}`, same statuses. Replies "
        "with 429 and 503 carry `Retry-After`: the seconds in which those that wait will have been "
        "served, at the pace of the last minute (1 to 120; 5 where there is none). Google's routes "
        "say it in the error's `details`, too, where its clients read it.\n\n"
        "| status | error_type |\n|---|---|\n");
#define X(kind, status, wire)                                                                      \
    if (kind != ERR_NONE && !listed_before(kind))                                                  \
        buf_fmt(out, "| %d | %s |\n", status, *(wire) ? "`" wire "`" : "(plain text)");
    ERR_KINDS(X)
#undef X
    buf_str(
        out,
        "\nBefore any route: 400 (ambiguous framing), 401 (key), 404, 405 (with `Allow`), 413 "
        "(`--payload-limit`), 415 (not JSON, or compressed otherwise than by `gzip`, `deflate` or "
        "`zstd`; `--payload-limit` is for what it decompresses to, too). `OPTIONS` of a path that "
        "is there is answered with 200, and `Allow` names its methods.\n"
        "\n## Streams\n\n"
        "`text/event-stream`; each event is `data: ` and one line of JSON. After 15 s without an "
        "event a comment line (`:`) is sent. Streams of `/v1/*` end with `data: [DONE]`. TGI's "
        "routes send errors before the first token as an event with status 200 too, except for 503 "
        "and for template and tool errors; `/v1/*` answers with the status until the stream has "
        "begun. A client with more unread than 1 MB and four times its body is cut off.\n"
        "\n## Headers\n\n"
        "`x-request-id` is echoed, or made up. `warning` names parts of the body that have no "
        "effect. Answers to generations carry `x-compute-type`, "
        "`x-compute-time` (s), `x-compute-characters`, `x-total-time`, `x-validation-time`, "
        "`x-queue-time`, `x-inference-time`, `x-time-per-token` (ms), `x-prompt-tokens` and "
        "`x-generated-tokens`.\n");
}
