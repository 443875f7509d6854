/* cluster.h - authentication between the processes of one service on several machines.
 *
 * Connections between machines are authenticated by certificates (mutual TLS, which also encrypts)
 * or by a shared secret (which does not encrypt). Without either, only Unix sockets and loopback
 * addresses are used. docs/decisions/machines.md describes what each protects.
 *
 * Certificates are read again when their files change, for the connections that follow. Otherwise a
 * struct cluster is read-only after cluster_load(). It may be used by any thread. */
#ifndef COMMON_CLUSTER_H
#define COMMON_CLUSTER_H
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values of the four flags; NULL or "": not given. */
struct cluster_options {
    const char *cert, *key, *ca; /* PEM files: our chain, its key, the cluster's CA */
    const char *secret_file;
};

/* Help texts of the flags, shared by all programs. */
#define CLUSTER_CERT_HELP                                                                          \
    "PEM file with the certificate (followed by its chain) that authenticates this machine's "     \
    "processes to "                                                                                \
    "other machines. TCP connections are then encrypted. All members share its first DNS name. "   \
    "Requires "                                                                                    \
    "--cluster-key and --cluster-ca."
#define CLUSTER_KEY_HELP                                                                           \
    "PEM file with the private key of --cluster-cert, not readable by other users."
#define CLUSTER_CA_HELP "PEM file with the CA that issued the certificates of all members."
#define CLUSTER_SECRET_HELP                                                                        \
    "Instead of certificates: a file with a secret of at least 16 bytes, equal on all machines "   \
    "and not "                                                                                     \
    "readable by other users. It authenticates TCP connections but does not encrypt them. "        \
    "Addresses other "                                                                             \
    "than loopback need one of the two."

enum cluster_kind { CLUSTER_OPEN, CLUSTER_SECRET, CLUSTER_TLS };
enum { CLUSTER_MAC = 32, CLUSTER_NONCE = 32, CLUSTER_SECRET_MAX = 4096 };

struct gnutls_certificate_credentials_st;
struct cluster {
    enum cluster_kind kind;
    /* CLUSTER_TLS. A member is a peer with a certificate from `ca` for the DNS name `name`, which
     * is the first name of our own certificate. */
    char *cert, *key, *ca; /* PEM, as read at start */
    char name[256];
    int64_t expires;                 /* seconds since 1970, of our own certificate */
    struct cluster_renewal *renewal; /* what cluster_certs_now() has */
    struct gnutls_certificate_credentials_st *cred;
    /* CLUSTER_SECRET */
    uint8_t *secret;
    size_t n_secret;
};

/* ---- functions that read no file (cluster_flags.c) ---- */

enum cluster_kind cluster_kind_of(const struct cluster_options *o);
/* Checks that the flags are consistent: all three for certificates, or the secret, or none.
 * ERR_VALIDATION. */
int cluster_flags_check(const struct cluster_options *o, struct err *e);
/* True for a Unix socket, or a TCP address of this machine: "tcp://127.0.0.1:80", "[::1]",
 * "localhost". Names are not resolved: all others count as remote. */
bool cluster_is_local(const char *address);
/* Checks that connections of `kind` may use `address`. ERR_VALIDATION, naming the flags. */
int cluster_allows(enum cluster_kind kind, const char *address, struct err *e);

/* ---- credentials (cluster.c) ---- */

/* Reads and checks the files, whose names must outlive `c`. Refused: a secret or key readable by
 * other users; a secret of less than 16 bytes; a certificate not issued by the CA or without a DNS
 * name. Trailing white space of the secret is ignored. */
int cluster_load(struct cluster *c, const struct cluster_options *o, struct err *e);
void cluster_free(struct cluster *c); /* wipes the key and the secret; a zeroed struct is allowed */
/* Logs one line: how connections to other machines are protected. */
void cluster_announce(const struct cluster *c);

/* The certificates for a handshake, each in PEM. */
struct cluster_certs {
    uint64_t version; /* from 1; greater after each renewal */
    char *cert, *key, *ca;
};
/* CLUSTER_TLS: copies the current certificates to `out`. Reads the files first if they changed.
 * Files that do not match, or are for another name, are logged once, and the previous ones stay: a
 * renewal may be in progress. -1: out of memory. */
int cluster_certs_now(const struct cluster *c, struct cluster_certs *out);
void cluster_certs_free(struct cluster_certs *p); /* wipes the key */

struct cluster_part {
    const void *p;
    size_t n;
};
/* HMAC-SHA256 with the secret over `label` and the parts, each preceded by its length. 0, or -1 on
 * a library error. */
int cluster_mac(const struct cluster *c, const char *label, const struct cluster_part *parts,
                size_t n, uint8_t out[CLUSTER_MAC]);
/* Compares in constant time. */
bool cluster_same(const void *a, const void *b, size_t n);
#endif
