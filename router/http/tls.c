#include "router/http/tls.h"
#include "common/json/json.h"
#include "common/log/log.h"
#include <gnutls/x509.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FILE_MAX = 1 << 20 };

struct tls_cert {
    struct tls_cert *next;
    gnutls_certificate_credentials_t cred;
    unsigned n_users; /* loop thread */
};

struct tls {
    const char *cert_path, *key_path;
    char *cert_pem, *key_pem;         /* as first loaded */
    _Atomic(struct tls_cert *) newer; /* loaded, not yet used by the loop */
    struct tls_cert *all;             /* newest first; loop thread */
};

struct pem {
    char *p;
    size_t n;
};

static void wipe(struct pem *f)
{
    if (f->p)
        gnutls_memset(f->p, 0, f->n);
    free(f->p);
}

static int read_pem(const char *path, struct pem *f, struct err *e)
{
    f->p = file_read(path, FILE_MAX, &f->n, e);
    return f->p ? 0 : -1;
}

static gnutls_datum_t datum(const struct pem *f)
{
    return (gnutls_datum_t){(unsigned char *)f->p, (unsigned)f->n};
}

/* Logs the expiry date: a forgotten renewal is noticed there first. */
static int check_cert(const char *path, const struct pem *f, struct err *e)
{
    gnutls_x509_crt_t *list = NULL;
    unsigned n = 0;
    gnutls_datum_t d = datum(f);
    int rc = gnutls_x509_crt_list_import2(&list, &n, &d, GNUTLS_X509_FMT_PEM, 0);
    if (rc < 0)
        return err_set(e, ERR_VALIDATION, "--tls-cert %s: no certificate in PEM: %s", path,
                       gnutls_strerror(rc));
    time_t ends = gnutls_x509_crt_get_expiration_time(list[0]), now = time(NULL);
    struct tm tm;
    char day[32], name[256] = "";
    size_t size = sizeof(name);
    strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&ends, &tm));
    gnutls_x509_crt_get_dn(list[0], name, &size);
    LOG(ends < now ? LOG_WARN : LOG_INFO,
        ends < now ? "The certificate has expired" : "Certificate loaded", LOGS("file", path),
        LOGS("subject", name), LOGS("expires", day));
    for (unsigned i = 0; i < n; i++)
        gnutls_x509_crt_deinit(list[i]);
    gnutls_free(list);
    return 0;
}

static int check_key(const char *path, const struct pem *f, struct err *e)
{
    gnutls_x509_privkey_t key;
    gnutls_datum_t d = datum(f);
    if (strstr(f->p, "ENCRYPTED"))
        return err_set(e, ERR_VALIDATION,
                       "--tls-key %s: the key is encrypted, and no password can be asked for",
                       path);
    if (gnutls_x509_privkey_init(&key) < 0)
        return err_nomem(e);
    int rc = gnutls_x509_privkey_import2(key, &d, GNUTLS_X509_FMT_PEM, NULL, 0);
    gnutls_x509_privkey_deinit(key);
    return rc < 0 ? err_set(e, ERR_VALIDATION, "--tls-key %s: no private key in PEM: %s", path,
                            gnutls_strerror(rc))
                  : 0;
}

static void cert_free(struct tls_cert *c)
{
    if (c && c->cred)
        gnutls_certificate_free_credentials(c->cred);
    free(c);
}

static struct tls_cert *make(const struct tls *t, const struct pem *cert, const struct pem *key,
                             struct err *e)
{
    struct tls_cert *c = calloc(1, sizeof(*c));
    gnutls_datum_t dc = datum(cert), dk = datum(key);
    if (!c || gnutls_certificate_allocate_credentials(&c->cred) < 0) {
        err_nomem(e);
        cert_free(c);
        return NULL;
    }
    int rc = gnutls_certificate_set_x509_key_mem(c->cred, &dc, &dk, GNUTLS_X509_FMT_PEM);
    if (rc >= 0)
        return c;
    if (rc == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
        err_set(e, ERR_VALIDATION, "--tls-key %s: the key does not belong to the certificate %s",
                t->key_path, t->cert_path);
    else
        err_set(e, ERR_VALIDATION, "--tls-cert %s, --tls-key %s: %s", t->cert_path, t->key_path,
                gnutls_strerror(rc));
    cert_free(c);
    return NULL;
}

/* Reads and checks the files. */
static struct tls_cert *load(const struct tls *t, struct pem *cert, struct pem *key, struct err *e)
{
    if (read_pem(t->cert_path, cert, e) != 0) {
        err_wrap(e, "--tls-cert");
        return NULL;
    }
    if (read_pem(t->key_path, key, e) != 0) {
        err_wrap(e, "--tls-key");
        return NULL;
    }
    return check_cert(t->cert_path, cert, e) == 0 && check_key(t->key_path, key, e) == 0
               ? make(t, cert, key, e)
               : NULL;
}

struct tls *tls_new(const char *cert_path, const char *key_path, struct err *e)
{
    struct pem cert = {0}, key = {0};
    struct tls *t = calloc(1, sizeof(*t));
    if (!t) {
        err_nomem(e);
        return NULL;
    }
    t->cert_path = cert_path;
    t->key_path = key_path;
    struct tls_cert *c = load(t, &cert, &key, e);
    if (!c) {
        wipe(&cert);
        wipe(&key);
        free(t);
        return NULL;
    }
    t->all = c;
    t->cert_pem = cert.p;
    t->key_pem = key.p;
    return t;
}

int tls_reload(struct tls *t, struct err *e)
{
    struct pem cert = {0}, key = {0};
    struct tls_cert *c = load(t, &cert, &key, e);
    wipe(&cert);
    wipe(&key);
    if (!c)
        return -1;
    cert_free(atomic_exchange(&t->newer, c)); /* one that the loop never used */
    return 0;
}

static void take_over(struct tls *t)
{
    struct tls_cert *c = atomic_exchange(&t->newer, NULL);
    if (!c)
        return;
    for (struct tls_cert **at = &t->all, *old; (old = *at);) {
        if (old->n_users) {
            at = &old->next;
            continue;
        }
        *at = old->next;
        cert_free(old);
    }
    c->next = t->all;
    t->all = c;
}

/* RFC 7301: the handshake fails for a client that offers protocols, but none of these. Without a
 * list it would use one of its own. curl --http1.0 offers http/1.0 alone. */
static bool offer_http1(gnutls_session_t session)
{
    static const gnutls_datum_t names[] = {{(unsigned char *)"http/1.1", 8},
                                           {(unsigned char *)"http/1.0", 8}};
    return gnutls_alpn_set_protocols(session, names, 2,
                                     GNUTLS_ALPN_MANDATORY | GNUTLS_ALPN_SERVER_PRECEDENCE) >= 0;
}

struct tls_cert *tls_take(struct tls *t, gnutls_session_t session)
{
    take_over(t);
    if (!offer_http1(session))
        LOG(LOG_WARN, "Out of memory: a connection is opened without ALPN");
    if (gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, t->all->cred) < 0)
        return NULL; /* it keeps the first certificate */
    t->all->n_users++;
    return t->all;
}

void tls_drop(struct tls_cert *c)
{
    if (c)
        c->n_users--;
}

const char *tls_cert_pem(const struct tls *t) { return t->cert_pem; }
const char *tls_key_pem(const struct tls *t) { return t->key_pem; }

void tls_free(struct tls *t)
{
    if (!t)
        return;
    for (struct tls_cert *c = t->all, *next; c; c = next) {
        next = c->next;
        cert_free(c);
    }
    cert_free(atomic_load(&t->newer));
    struct pem key = {t->key_pem, strlen(t->key_pem)};
    wipe(&key);
    free(t->cert_pem);
    free(t);
}
