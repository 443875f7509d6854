/* fetch.h - a picture from a URL that a stranger wrote.
 *
 * Blocks, for a worker thread; any number of threads. http and https only, ports 80 and 443, no
 * user or password, no proxy, no cookie. libcurl parses the URL once and connects to the address
 * that was checked; a redirect is a new URL with the same checks. Nothing of what a server answers
 * but the bytes of a 200 leaves this file. */
#ifndef ROUTER_MEDIA_FETCH_H
#define ROUTER_MEDIA_FETCH_H
#include "common/buf.h"
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct media_fetch_options {
    size_t max_bytes;    /* of the file, counted while it is read */
    uint32_t timeout_ms; /* of all, with redirects */
    /* Hosts that may be asked, NULL after the last; NULL: any. ".example.com" stands for
     * its subdomains and itself. A redirect to another host is refused. */
    const char *const *domains;
    const char *ca_file; /* certificates to trust; NULL: the system's */
    bool allow_loopback; /* for tests: 127/8 and ::1, at any port */
};

/* Appends the file to `out`, which is empty. ERR_VALIDATION, one sentence without the URL, the
 * address or the answer's text: the URL is not allowed, the server did not answer with a file, or
 * the file is too large or too slow. ERR_SYSTEM: no memory. `out` is empty after an error. */
int media_fetch(const struct media_fetch_options *o, const char *url, struct buf *out,
                struct err *e);
/* The checks that need no network: ERR_VALIDATION as above. */
int media_url_check(const struct media_fetch_options *o, const char *url, struct err *e);
#endif
