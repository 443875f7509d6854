/* certs.h - a self-signed certificate and a secret, as files for tests. */
#ifndef TESTS_CERTS_H
#define TESTS_CERTS_H
#include "common/net/cluster.h"
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct certs {
    char dir[32], cert[64], key[64], secret[64];
};

static void certs_write(const char *path, const void *p, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, p, n) != (ssize_t)n)
        abort();
    close(fd);
}

/* Writes the files to a new folder, which certs_remove() deletes; the certificate is for
 * `name`. */
static void certs_make(struct certs *c, const char *name)
{
    static const char secret[] = "a secret of more than sixteen bytes\n";
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t crt;
    gnutls_datum_t out;
    snprintf(c->dir, sizeof(c->dir), "/tmp/certs-XXXXXX");
    if (!mkdtemp(c->dir))
        abort();
    snprintf(c->cert, sizeof(c->cert), "%s/cert.pem", c->dir);
    snprintf(c->key, sizeof(c->key), "%s/key.pem", c->dir);
    snprintf(c->secret, sizeof(c->secret), "%s/secret", c->dir);
    certs_write(c->secret, secret, sizeof(secret) - 1);
    gnutls_x509_privkey_init(&key);
    gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA,
                                 GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
    gnutls_x509_crt_init(&crt);
    gnutls_x509_crt_set_version(crt, 3);
    gnutls_x509_crt_set_serial(crt, "\1\2\3", 3);
    gnutls_x509_crt_set_activation_time(crt, time(NULL) - 3600);
    gnutls_x509_crt_set_expiration_time(crt, time(NULL) + 86400);
    gnutls_x509_crt_set_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, name,
                                  (unsigned)strlen(name));
    gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_DNSNAME, name, (unsigned)strlen(name),
                                         GNUTLS_FSAN_SET);
    gnutls_x509_crt_set_basic_constraints(crt, 1, -1);
    gnutls_x509_crt_set_key(crt, key);
    if (gnutls_x509_crt_sign2(crt, crt, key, GNUTLS_DIG_SHA256, 0) < 0 ||
        gnutls_x509_crt_export2(crt, GNUTLS_X509_FMT_PEM, &out) < 0)
        abort();
    certs_write(c->cert, out.data, out.size);
    gnutls_free(out.data);
    if (gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &out) < 0)
        abort();
    certs_write(c->key, out.data, out.size);
    gnutls_free(out.data);
    gnutls_x509_crt_deinit(crt);
    gnutls_x509_privkey_deinit(key);
}

static inline struct cluster_options certs_options(const struct certs *c, enum cluster_kind kind)
{
    struct cluster_options o = {0};
    if (kind == CLUSTER_TLS)
        o = (struct cluster_options){c->cert, c->key, c->cert, NULL};
    if (kind == CLUSTER_SECRET)
        o.secret_file = c->secret;
    return o;
}

/* Overwrites the file `to` in place, as a renewal may. */
static inline void certs_copy(const char *to, const char *from)
{
    char text[8192];
    int fd = open(from, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
    if (n <= 0 || n == sizeof(text))
        abort();
    close(fd);
    certs_write(to, text, (size_t)n);
}

static inline void certs_remove(const struct certs *c)
{
    unlink(c->cert);
    unlink(c->key);
    unlink(c->secret);
    rmdir(c->dir);
}
#endif
