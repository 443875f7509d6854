/* fetch.h - downloads an image from an untrusted URL.
 *
 * Blocks; for worker threads, any number of them. http and https only, ports 80 and 443, no user or
 * password, no proxy, no cookie. libcurl parses the URL once and connects to the address that was
 * checked. A redirect is a new URL with the same checks. Only the bytes of a 200 response leave
 * this file. */
#ifndef ROUTER_MEDIA_FETCH_H
#define ROUTER_MEDIA_FETCH_H
#include "common/buf.h"
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct media_fetch_options {
    size_t max_bytes;    /* of the file, counted while reading */
    uint32_t timeout_ms; /* in total, including redirects */
    /* Allowed hosts, terminated by NULL; NULL: any. ".example.com" covers its subdomains and
     * itself. A redirect to another host is refused. */
    const char *const *domains;
    const char *ca_file; /* trusted certificates; NULL: the system's */
    bool allow_loopback; /* for tests: 127/8 and ::1, any port */
};

/* Appends the file to `out`, which must be empty. ERR_VALIDATION, as one sentence without the URL,
 * the address or the server's text: the URL is not allowed, the server sent no file, or the file is
 * too large or too slow. ERR_SYSTEM: out of memory. `out` is empty after an error. */
int media_fetch(const struct media_fetch_options *o, const char *url, struct buf *out,
                struct err *e);
/* The checks that need no network. ERR_VALIDATION as above. */
int media_url_check(const struct media_fetch_options *o, const char *url, struct err *e);
#endif
