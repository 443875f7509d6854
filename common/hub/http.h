/* http.h - requests to the hub, by libcurl: one at a time, any thread, one handle for all.
 *
 * The token goes to the endpoint only: libcurl drops it when a redirect leads to another host.
 * Redirects of an https endpoint stay https. Proxies are libcurl's (https_proxy, no_proxy, ...). */
#ifndef COMMON_HUB_HTTP_H
#define COMMON_HUB_HTTP_H
#include "common/buf.h"
#include "common/err.h"
#include "common/hub/names.h"
#include "common/hub/settings.h"

enum hub_verdict {
    HUB_OK,
    HUB_AGAIN,   /* may work later: the network, 408, 429, 5xx */
    HUB_REFUSED, /* will not: another status, or the sink's own error */
    HUB_STOPPED, /* stop_fd became readable */
};

/* Of the last answer in a chain of redirects; -1 and "": the header was not there. */
struct hub_reply {
    enum hub_verdict verdict;
    long status;
    int64_t size;        /* X-Linked-Size, else Content-Length where the answer is no redirect */
    int64_t length;      /* Content-Length */
    int64_t range_start; /* Content-Range */
    long retry_after_s;
    char etag[HUB_ETAG_MAX]; /* X-Linked-Etag, else ETag; normalised */
    char error_code[64];     /* X-Error-Code: GatedRepo, RepoNotFound, ... */
    char error[200];         /* X-Error-Message */
    bool linked;             /* there was an X-Linked-Etag */
};

/* Takes bytes of an answer of 200 or 206; -1: stop, `e` says why. */
typedef int hub_sink(void *to, const struct hub_reply *r, const char *p, size_t n, struct err *e);

struct hub_http;
/* `s` is kept and must outlive it. `stop_fd`: readable means stop; -1: none. NULL: no memory. */
struct hub_http *hub_http_open(const struct hub_settings *s, int stop_fd, struct err *e);
void hub_http_close(struct hub_http *h); /* NULL: nothing */

/* "<endpoint>/<path>/<a>/<b>": `path` as it is, a and b escaped; b may be NULL. Caller frees; NULL:
 * no memory. */
char *hub_url(const struct hub_http *h, const char *path, const char *a, const char *b);

/* GET from byte `from` on. Returns 0 or -1; r->verdict says what to make of it, `e` what happened.
 */
int hub_get(struct hub_http *h, const char *url, int64_t from, hub_sink *sink, void *to,
            struct hub_reply *r, struct err *e);
/* HEAD; follows redirects within the endpoint, but not out of it: what the hub says of a file is in
 * its own answer. */
int hub_head(struct hub_http *h, const char *url, struct hub_reply *r, struct err *e);
/* 0 after `ms`, -1 when stop_fd became readable first. */
int hub_wait(const struct hub_http *h, int ms);
#endif
