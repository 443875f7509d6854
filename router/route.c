#include "router/route.h"
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
    size_t n = strlen(pattern);
    if (n > 1 && pattern[n - 1] == '*')
        return !strncmp(pattern, path, n - 1) && path[n - 1];
    return !strcmp(pattern, path);
}

static bool serves(const struct route *r, const char *path)
{
    for (int i = 0; i < ROUTE_PATHS && r->paths[i]; i++)
        if (matches(r->paths[i], path))
            return true;
    return false;
}

const struct route *route_find(const char *method, const char *path, char allow[64])
{
    const struct route *found = NULL;
    bool get = false, post = false;
    const char *want = strcmp(method, "HEAD") ? method : "GET";
    for (unsigned i = 0; i < n_routes && !found; i++) {
        if (!serves(routes[i], path))
            continue;
        get |= !strcmp(routes[i]->method, "GET");
        post |= !strcmp(routes[i]->method, "POST");
        if (!strcmp(routes[i]->method, want))
            found = routes[i];
    }
    allow[0] = 0;
    if (!found && (get || post))
        strcpy(allow, get && post ? "GET, HEAD, POST, OPTIONS"
                      : get       ? "GET, HEAD, OPTIONS"
                                  : "POST, OPTIONS");
    return found;
}

void routes_markdown(struct buf *out)
{
    buf_str(out, "| method | path | key | what it does |\n|---|---|---|---|\n");
    for (unsigned i = 0; i < n_routes; i++) {
        buf_fmt(out, "| %s | ", routes[i]->method);
        for (int k = 0; k < ROUTE_PATHS && routes[i]->paths[k]; k++)
            buf_fmt(out, "%s`%s`", k ? ", " : "", routes[i]->paths[k]);
        buf_fmt(out, " | %s | %s", routes[i]->open ? "no" : "yes", routes[i]->summary);
        if (routes[i]->body)
            buf_fmt(out, " Body: %s", routes[i]->body);
        buf_str(out, " |\n");
    }
}
