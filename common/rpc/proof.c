#include "common/rpc/proof.h"
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <string.h>
#include <sys/random.h>

/* ---------------------------------------------------------------- text */

void rpc_hex(const uint8_t *p, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[p[i] >> 4];
        out[2 * i + 1] = digits[p[i] & 15];
    }
    out[2 * n] = '\0';
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool rpc_unhex(const char *text, size_t n_text, uint8_t *p, size_t n)
{
    if (n_text != 2 * n)
        return false;
    for (size_t i = 0; i < n; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        p[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* ---------------------------------------------------------------- proofs */

int rpc_digest(grpc_byte_buffer *b, uint8_t out[RPC_DIGEST])
{
    gnutls_hash_hd_t h;
    grpc_byte_buffer_reader r;
    grpc_slice s;
    int rc = 0;
    if (gnutls_hash_init(&h, GNUTLS_DIG_SHA256) < 0)
        return -1;
    if (b && grpc_byte_buffer_reader_init(&r, b)) {
        while (grpc_byte_buffer_reader_next(&r, &s)) {
            if (GRPC_SLICE_LENGTH(s) &&
                gnutls_hash(h, GRPC_SLICE_START_PTR(s), GRPC_SLICE_LENGTH(s)) < 0)
                rc = -1;
            grpc_slice_unref(s);
        }
        grpc_byte_buffer_reader_destroy(&r);
    } else if (b) {
        rc = -1;
    }
    gnutls_hash_deinit(h, out);
    return rc;
}

static int call_mac(const struct cluster *c, const struct rpc_ticket *t, const void *method,
                    size_t n, uint8_t out[CLUSTER_MAC])
{
    const struct cluster_part parts[] = {{t->nonce, sizeof(t->nonce)},
                                         {method, n},
                                         {t->id, sizeof(t->id)},
                                         {t->number, sizeof(t->number)},
                                         {t->digest, sizeof(t->digest)}};
    return cluster_mac(c, "call", parts, 5, out);
}

int rpc_proof_make(const struct cluster *c, const struct rpc_ticket *t, const char *method,
                   char out[RPC_PROOF_TEXT])
{
    uint8_t mac[CLUSTER_MAC];
    if (call_mac(c, t, method, strlen(method), mac))
        return -1;
    rpc_hex(t->id, sizeof(t->id), out);
    rpc_hex(t->number, sizeof(t->number), out + strlen(out));
    rpc_hex(t->digest, sizeof(t->digest), out + strlen(out));
    rpc_hex(mac, sizeof(mac), out + strlen(out));
    return 0;
}

int rpc_proof_answer(const struct cluster *c, const struct rpc_ticket *t,
                     const uint8_t digest[RPC_DIGEST], uint8_t out[CLUSTER_MAC])
{
    const struct cluster_part parts[] = {{t->nonce, sizeof(t->nonce)},
                                         {t->id, sizeof(t->id)},
                                         {t->number, sizeof(t->number)},
                                         {digest, RPC_DIGEST}};
    return cluster_mac(c, "answer", parts, 4, out);
}

/* ---------------------------------------------------------------- replay protection */

/* Draws a fresh nonce, which invalidates all earlier proofs. */
static bool begin(struct rpc_guard *g)
{
    g->n = 0;
    return getrandom(g->nonce, sizeof(g->nonce), 0) == (ssize_t)sizeof(g->nonce);
}

int rpc_guard_init(struct rpc_guard *g, const struct cluster *c, struct err *e)
{
    g->cluster = c;
    return begin(g) ? 0 : err_sys(e, "getrandom");
}

/* The entry of this id. NULL: the table was full, and all callers must authenticate again. */
static struct rpc_caller *caller_of(struct rpc_guard *g, const uint8_t id[RPC_ID])
{
    for (size_t i = 0; i < g->n; i++)
        if (!memcmp(g->callers[i].id, id, RPC_ID))
            return &g->callers[i];
    if (g->n == RPC_CALLERS) {
        begin(g);
        return NULL;
    }
    struct rpc_caller *c = &g->callers[g->n++];
    *c = (struct rpc_caller){0};
    memcpy(c->id, id, RPC_ID);
    return c;
}

static bool first_time(struct rpc_caller *c, uint64_t number)
{
    const uint64_t bit = UINT64_C(1) << (number % 64);
    uint64_t *word = &c->seen[number / 64 % (RPC_WINDOW / 64)];
    if (number == 0 || number + RPC_WINDOW <= c->top)
        return false;
    if (number > c->top) {
        uint64_t steps = number - c->top;
        for (uint64_t i = 1; i <= (steps < RPC_WINDOW ? steps : RPC_WINDOW); i++) {
            uint64_t at = c->top + i;
            c->seen[at / 64 % (RPC_WINDOW / 64)] &= ~(UINT64_C(1) << (at % 64));
        }
        c->top = number;
    } else if (*word & bit) {
        return false;
    }
    *word |= bit;
    return true;
}

bool rpc_guard_admits(struct rpc_guard *g, grpc_slice method, const char *text, size_t n,
                      struct rpc_ticket *t)
{
    uint8_t raw[RPC_PROOF_BYTES], mac[CLUSTER_MAC];
    uint64_t number = 0;
    if (!rpc_unhex(text, n, raw, sizeof(raw)))
        return false;
    memcpy(t->nonce, g->nonce, sizeof(t->nonce));
    memcpy(t->id, raw, sizeof(t->id));
    memcpy(t->number, raw + RPC_ID, sizeof(t->number));
    memcpy(t->digest, raw + RPC_ID + 8, sizeof(t->digest));
    if (call_mac(g->cluster, t, GRPC_SLICE_START_PTR(method), GRPC_SLICE_LENGTH(method), mac) ||
        !cluster_same(mac, raw + RPC_ID + 8 + RPC_DIGEST, sizeof(mac)))
        return false;
    for (size_t i = 0; i < sizeof(t->number); i++)
        number = number << 8 | t->number[i];
    struct rpc_caller *c = number >> 63 ? NULL : caller_of(g, t->id);
    return c && first_time(c, number);
}
