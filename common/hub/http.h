/* http.h - HTTP requests to the hub with libcurl: one at a time, any thread, one shared handle.
 *
 * The token is sent to the endpoint only: libcurl drops it on a redirect to another host. Redirects
 * of an https endpoint stay https. Proxies are configured as in libcurl (https_proxy, no_proxy,
 * ...). */
#ifndef COMMON_HUB_HTTP_H
#define COMMON_HUB_HTTP_H
#include "common/buf.h"
#include "common/err.h"
#include "common/hub/names.h"
#include "common/hub/settings.h"

enum hub_verdict {
    HUB_OK,
    HUB_AGAIN,   /* may succeed later: network errors, 408, 429, 5xx */
    HUB_REFUSED, /* permanent: another status, or an error of the sink */
    HUB_STOPPED, /* stop_fd became readable */
};

/* The last answer of a redirect chain; -1 and "": the header was absent. */
struct hub_reply {
    enum hub_verdict verdict;
    long status;
    int64_t size;        /* X-Linked-Size, otherwise Content-Length if it is not a redirect */
    int64_t length;      /* Content-Length */
    int64_t range_start; /* Content-Range */
    long retry_after_s;
    char etag[HUB_ETAG_MAX]; /* X-Linked-Etag, otherwise ETag; normalised */
    char error_code[64];     /* X-Error-Code: GatedRepo, RepoNotFound, ... */
    char error[200];         /* X-Error-Message */
    bool linked;             /* X-Linked-Etag was present */
};

/* Receives bytes of a 200 or 206 answer. -1: abort, `e` says why. */
typedef int hub_sink(void *to, const struct hub_reply *r, const char *p, size_t n, struct err *e);

struct hub_http;
/* `s` is kept and must outlive it. `stop_fd`: abort when readable; -1: none. NULL: out of
 * memory. */
struct hub_http *hub_http_open(const struct hub_settings *s, int stop_fd, struct err *e);
void hub_http_close(struct hub_http *h); /* NULL is allowed */

/* "<endpoint>/<path>/<a>/<b>": `path` unescaped, a and b escaped; b may be NULL. Caller frees;
 * NULL: out of memory. */
char *hub_url(const struct hub_http *h, const char *path, const char *a, const char *b);

/* GET from byte `from` on. Returns 0 or -1; r->verdict classifies the result, `e` describes it. */
int hub_get(struct hub_http *h, const char *url, int64_t from, hub_sink *sink, void *to,
            struct hub_reply *r, struct err *e);
/* HEAD; follows redirects within the endpoint only: the hub's own answer describes the file. */
int hub_head(struct hub_http *h, const char *url, struct hub_reply *r, struct err *e);
/* 0 after `ms`; -1 if stop_fd became readable first. */
int hub_wait(const struct hub_http *h, int ms);
#endif
