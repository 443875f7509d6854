/* tls.h - certificate and key, and their renewal while connections last.
 *
 * libmicrohttpd makes the sessions; each is given the newest certificate when it begins, and keeps
 * it. A renewal is loaded on any thread and taken over by the loop with the next connection. */
#ifndef ROUTER_HTTP_TLS_H
#define ROUTER_HTTP_TLS_H
#include "common/err.h"
#include <gnutls/gnutls.h>

/* Ciphers and versions for GnuTLS: TLS 1.2 and 1.3. Its NORMAL alone takes 1.0 and 1.1 as well,
 * which RFC 8996 forbids. */
#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

struct tls;
struct tls_cert; /* one certificate with its key, for as long as a session uses it */

/* PEM files: the certificate with the chain behind it, and its key, not encrypted. Errors name the
 * file and what is wrong with it. The paths are kept, not copied. */
struct tls *tls_new(const char *cert_path, const char *key_path, struct err *e);
void tls_free(struct tls *t); /* NULL: nothing */
/* Reads the files again; on failure what was there stays. Any thread, one at a time. */
int tls_reload(struct tls *t, struct err *e);

/* Loop thread: the session that begins now gets the newest certificate, which is given back with
 * tls_drop() when the connection is over. */
struct tls_cert *tls_take(struct tls *t, gnutls_session_t session);
void tls_drop(struct tls_cert *c); /* NULL: nothing */
/* The files as they were first read, for libmicrohttpd's own check. */
const char *tls_cert_pem(const struct tls *t);
const char *tls_key_pem(const struct tls *t);
#endif
