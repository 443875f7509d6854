/* tls.h - the TLS certificate and key, and their renewal without closing connections.
 *
 * libmicrohttpd creates the sessions. Each session gets the newest certificate when it begins, and
 * keeps it. A renewal is loaded on any thread; the loop uses it from the next connection on. */
#ifndef ROUTER_HTTP_TLS_H
#define ROUTER_HTTP_TLS_H
#include "common/err.h"
#include <gnutls/gnutls.h>

/* GnuTLS priorities: TLS 1.2 and 1.3. NORMAL alone also allows 1.0 and 1.1, which RFC 8996
 * deprecates. */
#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

struct tls;
struct tls_cert; /* a certificate with its key, reference-counted by sessions */

/* Loads PEM files: the certificate followed by its chain, and its unencrypted key. Errors name the
 * file and the fault. The paths are kept, not copied. */
struct tls *tls_new(const char *cert_path, const char *key_path, struct err *e);
void tls_free(struct tls *t); /* NULL is allowed */
/* Reloads the files; on failure the previous certificate stays. Any thread, one at a time. */
int tls_reload(struct tls *t, struct err *e);

/* Loop thread: assigns the newest certificate to a session that begins, and the protocols HTTP/1.1
 * and 1.0 (ALPN, RFC 7301). Release it with tls_drop() when the connection ends. */
struct tls_cert *tls_take(struct tls *t, gnutls_session_t session);
void tls_drop(struct tls_cert *c); /* NULL is allowed */
/* The files as first loaded, for libmicrohttpd's own check. */
const char *tls_cert_pem(const struct tls *t);
const char *tls_key_pem(const struct tls *t);
#endif
