/* Replies and streams: the only file that creates libmicrohttpd responses. */
#include "common/clock.h"
#include "router/http/conn.h"
#include "router/http/errors.h"
#include "router/http/route.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { STREAM_BLOCK = 4096, WRITE_TIMEOUT_MS = 300000 };

void exchange_add(struct exchange *x, const char *name, const char *value)
{
    size_t n = strlen(value) + 1;
    struct header *f = malloc(sizeof(*f) + n);
    if (!f)
        return;
    f->name = name;
    memcpy(f->value, value, n);
    f->next = NULL;
    struct header **last = &x->headers;
    while (*last)
        last = &(*last)->next;
    *last = f;
}

static void add_cors(struct exchange *x, struct MHD_Response *r)
{
    const struct http_config *c = &x->http->c;
    const char *origin = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "Origin");
    const char *allowed = c->n_origins ? NULL : "*";
    for (uint32_t i = 0; origin && i < c->n_origins; i++)
        if (!strcmp(c->origins[i], origin) || !strcmp(c->origins[i], "*"))
            allowed = origin;
    if (allowed)
        MHD_add_response_header(r, "access-control-allow-origin", allowed);
    if (allowed && origin) /* browser SDKs read x-request-id and retry-after */
        MHD_add_response_header(r, "access-control-expose-headers", "*");
    MHD_add_response_header(
        r, "vary", "origin, access-control-request-method, access-control-request-headers");
}

static void finish_headers(struct exchange *x)
{
    add_cors(x, x->response);
    MHD_add_response_header(x->response, "x-request-id", x->id);
    for (const struct header *f = x->headers; f; f = f->next)
        MHD_add_response_header(x->response, f->name, f->value);
}

static void resume(struct exchange *x)
{
    if (x->suspended) {
        x->suspended = false;
        MHD_resume_connection(x->mhd);
    }
}

bool exchange_waits(const struct exchange *x) { return x->dispatched && !x->answered; }

enum MHD_Result exchange_queue(struct exchange *x)
{
    struct MHD_Response *r = x->response;
    x->response = NULL;
    if (x->conn && !x->streaming)
        x->conn->deadline_ms = clock_ms() + WRITE_TIMEOUT_MS;
    enum MHD_Result ok = MHD_queue_response(x->mhd, (unsigned)x->status, r);
    MHD_destroy_response(r); /* our reference; the connection holds its own */
    return ok;
}

static void http_reply(struct exchange *x, int status, const char *type, struct buf *body)
{
    size_t n = body && !body->oom ? body->len : 0;
    char *p = n ? buf_take(body) : NULL;
    if (body)
        buf_free(body);
    x->answered = true;
    x->status = status;
    x->response =
        MHD_create_response_from_buffer(n, p, p ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (!x->response) {
        free(p);
        exchange_drop(x);
        return;
    }
    if (type)
        MHD_add_response_header(x->response, "content-type", type);
    finish_headers(x);
    resume(x);
}

void exchange_refuse(struct exchange *x, int status, const char *text)
{
    struct buf body = BUF_INIT;
    x->why = text || status == 200 ? text : error_refusal_text(status);
    enum error_shape shape = x->route  ? x->route->errors
                             : x->path ? route_errors(x->path)
                                       : ERRORS_TGI;
    if (status != 200 && shape != ERRORS_TGI)
        error_refusal(&body, shape, status, text, x->id);
    else if (text)
        buf_str(&body, text);
    const char *type = shape != ERRORS_TGI ? "application/json" : "text/plain; charset=utf-8";
    if (status == 405 || status == 200)
        exchange_add(x, "allow", x->allow);
    if (status == 426)
        exchange_add(x, "sec-websocket-version", "13");
    if (status == 401)
        exchange_add(x, "www-authenticate", "Bearer");
    if (status == 200) { /* OPTIONS */
        exchange_add(x, "access-control-allow-methods", x->allow);
        /* Browser SDKs send a dozen headers of their own. The star does not cover
         * `authorization`. */
        exchange_add(x, "access-control-allow-headers", "*,authorization");
    }
    exchange_reply(x, status, body.len ? type : NULL, &body);
}

/* libmicrohttpd requests bytes. If there are none, suspend until some are pushed. */
static ssize_t pull(void *cls, uint64_t pos, char *out, size_t max)
{
    struct exchange *x = cls;
    (void)pos;
    if (x->cut)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = sse_read(&x->sse, out, max);
    if (n)
        return (ssize_t)n;
    if (x->sse.state == SSE_DONE)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (x->sse.state == SSE_DEAD)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    MHD_suspend_connection(x->mhd);
    x->suspended = true;
    return 0;
}

static void http_stream(struct exchange *x, const char *type, size_t body)
{
    x->status = 200;
    x->response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, pull, x, NULL);
    if (!x->response) {
        exchange_drop(x);
        return;
    }
    x->streaming = true;
    sse_init(&x->sse, x->http->c.stream_limit + STREAM_REPEATS * body, clock_ms());
    x->sse.quiet = type != NULL;
    /* clients that read lines of text (Python's requests) take Latin-1 for text without a charset
     */
    MHD_add_response_header(x->response, "content-type",
                            type ? type : "text/event-stream; charset=utf-8");
    MHD_add_response_header(x->response, "cache-control", "no-cache");
    MHD_add_response_header(x->response, "x-accel-buffering", "no");
    finish_headers(x);
    resume(x);
}

void exchange_act(struct exchange *x, unsigned acts)
{
    if (acts & (SSE_CANCEL | SSE_CLOSE))
        exchange_drop(x);
    else if (acts & SSE_WAKE)
        resume(x);
}

static void http_push(struct exchange *x, const char *p, size_t n)
{
    exchange_act(x, sse_push(&x->sse, p, n, clock_ms()));
}

static void http_end(struct exchange *x)
{
    x->answered = true;
    if (x->conn)
        x->conn->deadline_ms = clock_ms() + WRITE_TIMEOUT_MS;
    exchange_act(x, sse_end(&x->sse));
}

static void http_drop(struct exchange *x)
{
    struct http *h = x->http;
    if (x->cut)
        return;
    x->cut = true;
    (void)sse_gone(&x->sse);
    if (x->dispatched)
        h->c.events.over(h->c.arg, x, false);
    if (x->conn)
        shutdown(x->conn->fd, SHUT_RDWR); /* the only way to end a connection blocked in send */
    resume(x);
}

const struct exchange_sink http_sink = {http_reply, http_stream, http_push, http_end, http_drop};

void exchange_reply(struct exchange *x, int status, const char *type, struct buf *body)
{
    x->sink->reply(x, status, type, body);
}
void exchange_stream(struct exchange *x, const char *type, size_t body)
{
    x->sink->stream(x, type, body);
}
void exchange_push(struct exchange *x, const char *p, size_t n) { x->sink->push(x, p, n); }
void exchange_end(struct exchange *x) { x->sink->end(x); }
void exchange_drop(struct exchange *x) { x->sink->drop(x); }
