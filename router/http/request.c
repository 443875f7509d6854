/* From the first header to the last byte of the body: decides which requests reach a route. */
#include "common/clock.h"
#include "common/hash.h"
#include "router/http/conn.h"
#include "router/http/encoding.h"
#include "router/http/head.h"
#include "router/http/keys.h"
#include "router/http/route.h"
#include <gnutls/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

/* A refused body is read and dropped, so that the client sees the answer and can reuse the
 * connection. If it is declared longer than EARLY_MAX, the answer is sent at once, and linger.c
 * drops the body. */
enum { EARLY_MAX = 64 << 20, SWALLOW_MAX = 1 << 30 };

static struct conn *conn_of(struct MHD_Connection *mhd)
{
    return MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

static bool printable(const char *s, size_t max)
{
    size_t n = 0;
    for (; s[n]; n++)
        if (n == max || s[n] < 0x21 || s[n] > 0x7e)
            return false;
    return n > 0;
}

void exchange_set_id(struct exchange *x, const char *given)
{
    if (given && printable(given, REQUEST_ID_MAX)) {
        memcpy(x->id, given, strlen(given) + 1);
        return;
    }
    snprintf(x->id, sizeof(x->id), "%016llx", (unsigned long long)hash_mix(++x->http->last_id));
}

/* Called after the request line was read, with the raw target. Its result becomes the first
 * *con_cls. */
void *http_uri(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    struct exchange *x = calloc(1, sizeof(*x));
    struct conn *c = conn_of(mhd);
    if (!x || !c) {
        free(x);
        return NULL;
    }
    x->sink = &http_sink;
    x->http = cls;
    x->conn = c;
    x->mhd = mhd;
    x->begun_ns = clock_ns();
    /* libmicrohttpd decodes into a C string: "/health%00x" would be read as "/health" */
    x->bad_uri = strstr(uri, "%00") != NULL;
    x->target = uri;
    x->target_end = uri + strlen(uri);
    for (const char *p = uri; *p; p++)
        x->bad_uri |= (unsigned char)*p <= ' ' || *p == 0x7f;
    c->x = x;
    return x;
}

void exchange_free(struct exchange *x)
{
    for (struct header *f = x->headers, *next; f; f = next) {
        next = f->next;
        free(f);
    }
    if (x->response)
        MHD_destroy_response(x->response);
    sse_free(&x->sse);
    buf_free(&x->body);
    free(x->path);
    free(x);
}

void http_completed(void *cls, struct MHD_Connection *mhd, void **con_cls,
                    enum MHD_RequestTerminationCode why)
{
    struct http *h = cls;
    struct exchange *x = *con_cls;
    (void)mhd;
    if (!x)
        return;
    if (x->dispatched && !x->cut)
        h->c.events.over(h->c.arg, x, why == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    if (!x->dispatched && h->c.events.aside)
        h->c.events.aside(h->c.arg, x);
    if (x->conn) {
        x->conn->x = NULL;
        x->conn->deadline_ms = x->conn->hung_up ? 0 : clock_ms() + h->c.idle_timeout_ms;
    }
    exchange_free(x);
    *con_cls = NULL;
}

const char *exchange_other_key(const struct exchange *x)
{
    const char *key = exchange_header(x, "x-api-key");
    key = key ? key : exchange_header(x, "x-goog-api-key");
    const bool google = x->route && x->route->errors == ERRORS_GOOGLE;
    return key || !google ? key : exchange_argument(x, "key");
}

/* `Authorization: Bearer KEY`, or exchange_other_key(). */
static bool authorized(struct exchange *x, enum route_access access)
{
    const struct http_config *c = &x->http->c;
    const struct keys *keys = c->keys;
    const char *given = exchange_header(x, "Authorization");
    if (!keys || !keys->n || access == ACCESS_PROBE ||
        (access == ACCESS_DESCRIBES && !c->keys_for_all))
        return true;
    if (given)
        return !strncasecmp(given, "Bearer ", 7) && keys_have(keys, given + 7, x->key);
    given = exchange_other_key(x);
    return given && keys_have(keys, given, x->key);
}

/* application/json or application/anything+json, with or without parameters. */
static bool is_json(const char *type)
{
    if (!type || strncasecmp(type, "application/", 12) != 0)
        return false;
    size_t n = strcspn(type += 12, "; \t");
    return (n == 4 && !strncasecmp(type, "json", 4)) ||
           (n > 5 && !strncasecmp(type + n - 5, "+json", 5));
}

const struct encoding *exchange_encoding(const struct exchange *x)
{
    bool known;
    return x->ws ? NULL : encoding_of(exchange_header(x, "Content-Encoding"), &known);
}

/* Is the body compressed in a way that is not taken? */
static bool is_encoded(const struct exchange *x)
{
    bool known;
    (void)encoding_of(exchange_header(x, "Content-Encoding"), &known);
    return !known;
}

static uint64_t declared(const struct exchange *x)
{
    const char *length = exchange_header(x, "Content-Length");
    return length ? strtoull(length, NULL, 10) : 0;
}

/* Methods of a path, also for a CORS preflight. `*` is the whole server. */
static int judge_options(struct exchange *x)
{
    if (!strcmp(x->path, "*"))
        snprintf(x->allow, sizeof(x->allow), "GET, HEAD, POST, OPTIONS");
    else
        route_find("OPTIONS", x->path, x->allow);
    return x->allow[0] ? 200 : 404;
}

static int judge_headers(struct exchange *x, const char *method, bool old)
{
    if (x->bad_uri || x->ambiguous)
        return 400;
    if (!strcmp(method, "OPTIONS"))
        return judge_options(x);
    if (socket_wanted(x, method) && !old)
        return authorized(x, ACCESS_KEY) ? socket_judge(x) : 401;
    if (!(x->route = route_find(method, x->path, x->allow)))
        return x->allow[0] ? 405 : 404;
    if (declared(x) > x->http->c.max_body)
        return 413;
    if (!authorized(x, x->route->access))
        return 401;
    if (x->route->messages) { /* GET is a handshake there, and nothing else */
        route_find("OPTIONS", x->path, x->allow);
        x->route = NULL;
        return 405;
    }
    const bool typed = !x->route->any_type || exchange_header(x, "Origin");
    if (x->route->work && !strcmp(x->route->method, "POST") && !x->route->no_body &&
        (is_encoded(x) || (typed && !is_json(exchange_header(x, "Content-Type")))))
        return 415;
    return 0;
}

/* Clients often append a path to a base URL that has a part of it already. */
static const char *no_such_path(struct exchange *x)
{
    const char *near = x->path ? route_near(x->path) : NULL;
    if (near)
        snprintf(x->said, sizeof(x->said), "There is no such path; did you mean `%s`?", near);
    else
        snprintf(x->said, sizeof(x->said), "There is no such path; `/docs` lists them.");
    return x->said;
}

static const char *refusal_text(struct exchange *x)
{
    switch (x->refusal) {
    case 404:
        return no_such_path(x);
    case 405:
        return error_refusal_text(405);
    case 400:
        return "Bad request";
    case 403:
        return "This origin may not open WebSockets here";
    case 413:
        return "Failed to buffer the request body: length limit exceeded";
    case 426:
        return "WebSocket version 13 is spoken here";
    case 415:
        return is_encoded(x)
                   ? "Expected a body without `Content-Encoding`, or with one of: " ENCODINGS
                   : "Expected request with `Content-Type: application/json`";
    default:
        return NULL;
    }
}

/* Some clients send an absolute URI, as to a proxy (RFC 9112, 3.2.2). */
static const char *path_of(const char *url)
{
    const char *host = *url == '/' ? NULL : strstr(url, "://");
    const char *path = host ? strchr(host + 3, '/') : url;
    return path ? path : "/";
}

/* The path below --root-path. */
static const char *below(const char *root, const char *path)
{
    const size_t n = root ? http_prefix_len(root) : 0;
    if (!n || strncmp(path, root, n) != 0 || (path[n] && path[n] != '/'))
        return path;
    return path[n] ? path + n : "/";
}

static enum MHD_Result begin(struct exchange *x, const char *url, const char *method,
                             const char *version)
{
    struct http_head head = http_head_check(x->mhd, method, x->target, x->target_end, version);
    x->begun = true;
    x->ambiguous = head.ambiguous;
    /* libmicrohttpd parses the chunks, and accepts bare line ends there. So nothing after them on
     * this connection is read as a request. */
    if (head.chunked)
        exchange_add(x, "connection", "close");
    snprintf(x->method, sizeof(x->method), "%s", method);
    exchange_set_id(x, exchange_header(x, "x-request-id"));
    if (!(x->path = strdup(below(x->http->c.root_path, path_of(url)))))
        return MHD_NO;
    if (!x->conn->hung_up)
        x->conn->deadline_ms = clock_ms() + x->http->c.body_timeout_ms;
    x->refusal = judge_headers(x, method, !strcmp(version, "HTTP/1.0"));
    if (x->refusal == 415 && is_encoded(x)) /* RFC 9110, 12.5.3 */
        exchange_add(x, "accept-encoding", ENCODINGS);
    /* The end of the body is unknown, or the client waits for permission to send it: answer now. */
    if (x->refusal == 400 || (x->refusal && exchange_header(x, "Expect")) ||
        (x->refusal && declared(x) > EARLY_MAX)) {
        x->conn->refused_early = true;
        if (!head.chunked)
            exchange_add(x, "connection", "close");
        exchange_refuse(x, x->refusal, refusal_text(x));
        return exchange_queue(x);
    }
    return MHD_YES;
}

static enum MHD_Result take_body(struct exchange *x, const char *p, size_t n)
{
    x->received += n;
    if (x->received > x->http->c.max_body && (!x->refusal || x->refusal == 413)) {
        x->refusal = 413;
        buf_free(&x->body);
    }
    if (x->refusal)
        return x->received <= SWALLOW_MAX ? MHD_YES : MHD_NO;
    buf_add(&x->body, p, n);
    return x->body.oom ? MHD_NO : MHD_YES;
}

static enum MHD_Result dispatch(struct exchange *x)
{
    struct http *h = x->http;
    x->conn->deadline_ms = INT64_MAX;
    if (x->refusal) {
        exchange_refuse(x, x->refusal, refusal_text(x));
        return exchange_queue(x);
    }
    if (h->stop)
        return MHD_NO;
    if (x->upgrade)
        return socket_open(x);
    x->dispatched = true;
    h->c.events.request(h->c.arg, x);
    if (x->response)
        return exchange_queue(x);
    MHD_suspend_connection(x->mhd);
    x->suspended = true;
    if (x->conn->hung_up)
        exchange_drop(x);
    return MHD_YES;
}

enum MHD_Result http_access(void *cls, struct MHD_Connection *mhd, const char *url,
                            const char *method, const char *version, const char *upload,
                            size_t *upload_size, void **con_cls)
{
    struct exchange *x = *con_cls;
    (void)cls, (void)mhd;
    if (!x || x->cut)
        return MHD_NO;
    if (!x->begun)
        return begin(x, url, method, version);
    if (*upload_size) {
        size_t n = *upload_size;
        *upload_size = 0;
        return take_body(x, upload, n);
    }
    if (!x->dispatched)
        return dispatch(x);
    return x->response ? exchange_queue(x) : MHD_NO;
}

const char *exchange_prefix(const struct exchange *x)
{
    const char *given = exchange_header(x, "X-Forwarded-Prefix"), *root = x->http->c.root_path;
    if (given && *given == '/' && strlen(given) < 256 &&
        strspn(given, HTTP_PREFIX_CHARS) == strlen(given))
        return given;
    return root ? root : "";
}
const char *exchange_path(const struct exchange *x) { return x->path; }
const char *exchange_method(const struct exchange *x) { return x->method; }
void exchange_key_digest(const struct exchange *x, char out[EXCHANGE_DIGEST])
{
    unsigned char sum[32];
    const char *given = exchange_header(x, "Authorization");
    given = given ? given + strlen("Bearer ") : exchange_other_key(x);
    *out = 0;
    if (!x->key[0] || !given || gnutls_hash_fast(GNUTLS_DIG_SHA256, given, strlen(given), sum) < 0)
        return;
    for (size_t i = 0; i < sizeof(sum); i++)
        snprintf(out + 2 * i, 3, "%02x", sum[i]);
}

const char *exchange_argument(const struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->mhd, MHD_GET_ARGUMENT_KIND, name);
}

const char *exchange_key(const struct exchange *x) { return x->key; }
const char *exchange_refusal(const struct exchange *x) { return x->why; }
int exchange_status(const struct exchange *x) { return x->status; }
int64_t exchange_begun_ns(const struct exchange *x) { return x->begun_ns; }
const struct route *exchange_route(const struct exchange *x) { return x->route; }
const char *exchange_id(const struct exchange *x) { return x->id; }
void exchange_set_user(struct exchange *x, void *user) { x->user = user; }
void *exchange_user(const struct exchange *x) { return x->user; }

struct buf exchange_take_body(struct exchange *x)
{
    struct buf b = x->body;
    x->body = (struct buf)BUF_INIT;
    return b;
}

const char *exchange_header(const struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, name);
}
