#include "router/http/traffic.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { CLASSES = 5, BOUNDS = 8 }; /* statuses 1xx to 5xx */

static const double bound[BOUNDS] = {0.1, 0.5, 1, 5, 10, 30, 60, 300}; /* seconds */

struct row {
    _Atomic uint64_t status[CLASSES], bucket[BOUNDS + 1], ns;
};

struct traffic {
    unsigned n;        /* routes */
    struct row none;   /* requests without a route */
    struct row rows[]; /* in the order of routes[] */
};

struct traffic *traffic_new(void)
{
    struct traffic *t = calloc(1, sizeof(*t) + n_routes * sizeof(t->rows[0]));
    if (t)
        t->n = n_routes;
    return t;
}

void traffic_free(struct traffic *t) { free(t); }

static struct row *row_of(struct traffic *t, const struct route *route)
{
    for (unsigned i = 0; i < t->n; i++)
        if (routes[i] == route)
            return &t->rows[i];
    return &t->none;
}

static void add(_Atomic uint64_t *to, uint64_t v)
{
    atomic_fetch_add_explicit(to, v, memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

void traffic_note(struct traffic *t, const struct route *route, int status, int64_t ns)
{
    if (route && route->probe)
        return;
    struct row *r = row_of(t, route);
    unsigned i = 0;
    while (i < BOUNDS && (double)ns > bound[i] * 1e9)
        i++;
    add(&r->status[status >= 100 && status < 600 ? status / 100 - 1 : 3], 1);
    add(&r->bucket[i], 1);
    add(&r->ns, ns > 0 ? (uint64_t)ns : 0);
}

struct view { /* a row, and its labels */
    const struct row *row;
    const char *handler, *method;
};

static struct view view_of(const struct traffic *t, unsigned i)
{
    if (i == t->n)
        return (struct view){&t->none, "none", "none"};
    return (struct view){&t->rows[i], routes[i]->paths[0], routes[i]->method};
}

static void print_requests(const struct view *v, struct buf *out)
{
    for (unsigned k = 0; k < CLASSES; k++)
        if (get(&v->row->status[k]))
            buf_fmt(out, "http_requests_total{handler=\"%s\",method=\"%s\",status=\"%uxx\"} %llu\n",
                    v->handler, v->method, k + 1, (unsigned long long)get(&v->row->status[k]));
}

static void print_durations(const struct view *v, struct buf *out)
{
    static const char name[] = "http_request_duration_seconds";
    unsigned long long n = 0;
    bool any = false;
    for (unsigned k = 0; k <= BOUNDS; k++)
        any |= get(&v->row->bucket[k]) > 0;
    for (unsigned k = 0; any && k <= BOUNDS; k++) {
        char le[16] = "+Inf";
        n += get(&v->row->bucket[k]);
        if (k < BOUNDS)
            snprintf(le, sizeof(le), "%g", bound[k]);
        buf_fmt(out, "%s_bucket{handler=\"%s\",method=\"%s\",le=\"%s\"} %llu\n", name, v->handler,
                v->method, le, n);
    }
    if (!any)
        return;
    buf_fmt(out, "%s_sum{handler=\"%s\",method=\"%s\"} %.9g\n", name, v->handler, v->method,
            (double)get(&v->row->ns) * 1e-9);
    buf_fmt(out, "%s_count{handler=\"%s\",method=\"%s\"} %llu\n", name, v->handler, v->method, n);
}

static void print_head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_fmt(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void traffic_print(const struct traffic *t, struct buf *out)
{
    print_head(out, "http_requests_total", "counter", "Requests by route, method and status.");
    for (unsigned i = 0; i <= t->n; i++) {
        struct view v = view_of(t, i);
        print_requests(&v, out);
    }
    print_head(out, "http_request_duration_seconds", "histogram",
               "Seconds from a request's first line to its end.");
    for (unsigned i = 0; i <= t->n; i++) {
        struct view v = view_of(t, i);
        print_durations(&v, out);
    }
}
