#include "common/net/cluster.h"
#include "common/file/file_stamp.h"
#include "common/json/json.h"
#include "common/log/log.h"
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { FILE_MAX = 1 << 20, SECRET_MIN = 16 };

/* ---------------------------------------------------------------- files */

/* Kubernetes mounts secrets with the pod's group: group read access is allowed, others' is not. */
static int check_private(const char *flag, const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st))
        return err_sys(e, "%s %s", flag, path);
    if (st.st_mode & (S_IRWXO | S_IWGRP))
        return err_set(e, ERR_VALIDATION,
                       "%s %s: others may use it (mode %03o): chmod 600, or 640 for a group", flag,
                       path, (unsigned)(st.st_mode & 0777));
    return 0;
}

/* A NUL-terminated text. */
static char *read_text(const char *flag, const char *path, size_t *n, struct err *e)
{
    char *p = file_read(path, FILE_MAX, n, e);
    if (!p)
        err_wrap(e, "%s", flag);
    return p;
}

static int load_secret(struct cluster *c, const char *path, struct err *e)
{
    size_t n;
    if (check_private("--cluster-secret-file", path, e) ||
        !(c->secret = (uint8_t *)read_text("--cluster-secret-file", path, &n, e)))
        return -1;
    while (n && strchr(" \t\r\n", c->secret[n - 1]))
        n--;
    c->n_secret = n;
    if (n < SECRET_MIN || n > CLUSTER_SECRET_MAX)
        return err_set(e, ERR_VALIDATION,
                       "--cluster-secret-file %s: %zu bytes, a secret has %d to %d "
                       "(`openssl rand -hex 32` makes one)",
                       path, n, SECRET_MIN, CLUSTER_SECRET_MAX);
    return 0;
}

/* ---------------------------------------------------------------- certificates */

static gnutls_datum_t datum(char *pem)
{
    return (gnutls_datum_t){(unsigned char *)pem, (unsigned)strlen(pem)};
}

/* The first DNS name of the certificate, which members share. */
static int find_name(struct cluster *c, gnutls_x509_crt_t crt, const char *path, struct err *e)
{
    for (unsigned i = 0;; i++) {
        size_t n = sizeof(c->name) - 1;
        int rc = gnutls_x509_crt_get_subject_alt_name(crt, i, c->name, &n, NULL);
        if (rc == GNUTLS_SAN_DNSNAME) {
            c->name[n < sizeof(c->name) ? n : sizeof(c->name) - 1] = 0;
            return 0;
        }
        if (rc < 0 && rc != GNUTLS_E_SHORT_MEMORY_BUFFER)
            return err_set(e, ERR_VALIDATION,
                           "--cluster-cert %s: it has no DNS name (subjectAltName), by which the "
                           "members of a cluster know each other",
                           path);
    }
}

/* Verifies our certificate as peers would. */
static int check_chain(const gnutls_x509_crt_t *chain, unsigned n, gnutls_datum_t ca,
                       const struct cluster_options *o, struct err *e)
{
    gnutls_x509_trust_list_t trust;
    gnutls_datum_t text = {0};
    unsigned status = 0;
    if (gnutls_x509_trust_list_init(&trust, 0) < 0)
        return err_nomem(e);
    int rc = gnutls_x509_trust_list_add_trust_mem(trust, &ca, NULL, GNUTLS_X509_FMT_PEM, 0, 0);
    if (rc <= 0)
        err_set(e, ERR_VALIDATION, "--cluster-ca %s: no certificate in PEM", o->ca);
    else if ((rc = gnutls_x509_trust_list_verify_crt(trust, (gnutls_x509_crt_t *)chain, n, 0,
                                                     &status, NULL)) < 0 ||
             status) {
        gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &text, 0);
        err_set(e, ERR_VALIDATION, "--cluster-cert %s, --cluster-ca %s: %s", o->cert, o->ca,
                text.data ? (char *)text.data : gnutls_strerror(rc));
        gnutls_free(text.data);
        rc = -1;
    } else {
        rc = 1;
    }
    gnutls_x509_trust_list_deinit(trust, 1);
    return rc > 0 ? 0 : -1;
}

static int check_cert(struct cluster *c, const struct cluster_options *o, struct err *e)
{
    gnutls_x509_crt_t *chain = NULL;
    unsigned n = 0;
    gnutls_datum_t cert = datum(c->cert);
    int rc = gnutls_x509_crt_list_import2(&chain, &n, &cert, GNUTLS_X509_FMT_PEM, 0);
    if (rc < 0)
        return err_set(e, ERR_VALIDATION, "--cluster-cert %s: no certificate in PEM: %s", o->cert,
                       gnutls_strerror(rc));
    c->expires = gnutls_x509_crt_get_expiration_time(chain[0]);
    rc = find_name(c, chain[0], o->cert, e) || check_chain(chain, n, datum(c->ca), o, e) ? -1 : 0;
    for (unsigned i = 0; i < n; i++)
        gnutls_x509_crt_deinit(chain[i]);
    gnutls_free(chain);
    return rc;
}

static int load_certificates(struct cluster *c, const struct cluster_options *o, struct err *e)
{
    size_t n;
    if (check_private("--cluster-key", o->key, e) ||
        !(c->cert = read_text("--cluster-cert", o->cert, &n, e)) ||
        !(c->key = read_text("--cluster-key", o->key, &n, e)) ||
        !(c->ca = read_text("--cluster-ca", o->ca, &n, e)) || check_cert(c, o, e))
        return -1;
    gnutls_datum_t cert = datum(c->cert), key = datum(c->key), ca = datum(c->ca);
    if (gnutls_certificate_allocate_credentials(&c->cred) < 0)
        return err_nomem(e);
    int rc = gnutls_certificate_set_x509_key_mem(c->cred, &cert, &key, GNUTLS_X509_FMT_PEM);
    if (rc >= 0)
        rc = gnutls_certificate_set_x509_trust_mem(c->cred, &ca, GNUTLS_X509_FMT_PEM);
    return rc < 0 ? err_set(e, ERR_VALIDATION, "--cluster-cert %s, --cluster-key %s: %s", o->cert,
                            o->key, gnutls_strerror(rc))
                  : 0;
}

/* ---------------------------------------------------------------- renewal */

enum { N_FILES = 3 };

struct cluster_renewal {
    pthread_mutex_t lock; /* guards the following */
    struct cluster_options files;
    struct file_stamp seen[N_FILES]; /* of the files as last read */
    struct cluster_certs now;
};

static void stamp_files(const struct cluster_options *o, struct file_stamp out[N_FILES])
{
    const char *const paths[N_FILES] = {o->cert, o->key, o->ca};
    for (int i = 0; i < N_FILES; i++)
        out[i] = file_stamp_at(paths[i]);
}

static void log_certificate(const char *what, const struct cluster *c)
{
    char day[32];
    struct tm tm;
    const time_t ends = (time_t)c->expires;
    strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&ends, &tm));
    LOG(LOG_INFO, what, LOGS("name", c->name), LOGS("expires", day));
}

static char *copy_text(const char *text) { return text ? strdup(text) : NULL; }

static int copy_certs(struct cluster_certs *to, const struct cluster_certs *from)
{
    *to = (struct cluster_certs){from->version, copy_text(from->cert), copy_text(from->key),
                                 copy_text(from->ca)};
    if (to->cert && to->key && to->ca)
        return 0;
    cluster_certs_free(to);
    return -1;
}

/* Before the files are read: a change during the reading is noticed later. */
static int prepare_renewal(struct cluster *c, const struct cluster_options *o)
{
    if (!(c->renewal = calloc(1, sizeof(*c->renewal))))
        return -1;
    pthread_mutex_init(&c->renewal->lock, NULL);
    c->renewal->files = *o;
    stamp_files(o, c->renewal->seen);
    return 0;
}

/* With the lock: takes over the certificates of changed files. */
static void renew(struct cluster_renewal *r, const struct cluster *c)
{
    struct err e = ERR_INIT;
    struct cluster fresh = {.kind = CLUSTER_TLS};
    struct cluster_certs copy;
    int rc = load_certificates(&fresh, &r->files, &e);
    if (!rc && strcmp(fresh.name, c->name) != 0)
        rc = err_set(&e, ERR_VALIDATION,
                     "--cluster-cert %s: it is for %s, the members of this cluster are %s",
                     r->files.cert, fresh.name, c->name);
    const struct cluster_certs read = {r->now.version + 1, fresh.cert, fresh.key, fresh.ca};
    if (!rc && copy_certs(&copy, &read) == 0) {
        cluster_certs_free(&r->now);
        r->now = copy;
        log_certificate("Cluster certificate renewed", &fresh);
    } else {
        LOG(LOG_WARN, "The cluster's certificate was not renewed; the previous one stays",
            LOGS("why", rc ? e.msg : "out of memory"));
    }
    cluster_free(&fresh);
}

int cluster_certs_now(const struct cluster *c, struct cluster_certs *out)
{
    struct cluster_renewal *r = c->renewal;
    struct file_stamp now[N_FILES];
    pthread_mutex_lock(&r->lock);
    stamp_files(&r->files, now);
    bool same = true;
    for (int i = 0; i < N_FILES; i++)
        same &= file_stamp_same(&r->seen[i], &now[i]);
    if (!same) {
        memcpy(r->seen, now, sizeof(now));
        renew(r, c);
    }
    const int rc = copy_certs(out, &r->now);
    pthread_mutex_unlock(&r->lock);
    return rc;
}

static void wipe(char *text)
{
    if (text)
        gnutls_memset(text, 0, strlen(text));
    free(text);
}

void cluster_certs_free(struct cluster_certs *p)
{
    free(p->cert);
    wipe(p->key);
    free(p->ca);
    *p = (struct cluster_certs){0};
}

static void renewal_free(struct cluster_renewal *r)
{
    if (!r)
        return;
    cluster_certs_free(&r->now);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* ---------------------------------------------------------------- life */

static int load_renewable(struct cluster *c, const struct cluster_options *o, struct err *e)
{
    if (prepare_renewal(c, o))
        return err_nomem(e);
    if (load_certificates(c, o, e))
        return -1;
    const struct cluster_certs read = {1, c->cert, c->key, c->ca};
    return copy_certs(&c->renewal->now, &read) ? err_nomem(e) : 0;
}

int cluster_load(struct cluster *c, const struct cluster_options *o, struct err *e)
{
    *c = (struct cluster){.kind = cluster_kind_of(o)};
    int rc = cluster_flags_check(o, e);
    if (!rc && c->kind == CLUSTER_SECRET)
        rc = load_secret(c, o->secret_file, e);
    if (!rc && c->kind == CLUSTER_TLS)
        rc = load_renewable(c, o, e);
    if (rc)
        cluster_free(c);
    return rc;
}

void cluster_free(struct cluster *c)
{
    if (c->cred)
        gnutls_certificate_free_credentials(c->cred);
    if (c->secret)
        gnutls_memset(c->secret, 0, c->n_secret);
    free(c->cert);
    wipe(c->key);
    free(c->ca);
    renewal_free(c->renewal);
    free(c->secret);
    *c = (struct cluster){0};
}

void cluster_announce(const struct cluster *c)
{
    if (c->kind == CLUSTER_TLS)
        log_certificate("Connections between machines: mutual TLS", c);
    else if (c->kind == CLUSTER_SECRET)
        LOG(LOG_WARN, "Connections between machines are authenticated by the shared secret, and "
                      "not encrypted");
    else
        LOG(LOG_WARN, "TCP connections on the loopback interface are neither authenticated nor "
                      "encrypted: other users of this machine can reach them");
}

/* ---------------------------------------------------------------- authentication */

static int add_part(gnutls_hmac_hd_t h, const void *p, size_t n)
{
    uint8_t size[8];
    for (int i = 0; i < 8; i++)
        size[i] = (uint8_t)((uint64_t)n >> (8 * i));
    return gnutls_hmac(h, size, sizeof(size)) < 0 || (n && gnutls_hmac(h, p, n) < 0) ? -1 : 0;
}

int cluster_mac(const struct cluster *c, const char *label, const struct cluster_part *parts,
                size_t n, uint8_t out[CLUSTER_MAC])
{
    gnutls_hmac_hd_t h;
    if (gnutls_hmac_init(&h, GNUTLS_MAC_SHA256, c->secret, c->n_secret) < 0)
        return -1;
    int rc = add_part(h, label, strlen(label));
    for (size_t i = 0; i < n && !rc; i++)
        rc = add_part(h, parts[i].p, parts[i].n);
    gnutls_hmac_deinit(h, out);
    return rc;
}

bool cluster_same(const void *a, const void *b, size_t n) { return gnutls_memcmp(a, b, n) == 0; }
