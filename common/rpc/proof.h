/* proof.h - authentication of calls over TCP by a shared secret (CLUSTER_SECRET).
 *
 * A server has a random nonce per process. A call without a proof is answered UNAUTHENTICATED with
 * that nonce as metadata `cluster-challenge` (hex); it is not executed. The proof is metadata
 * `cluster-proof`, in hex: the caller's id (16 random bytes), the call's number (8 bytes, big
 * endian), SHA-256 of the request's bytes (32), and an HMAC-SHA256 (32) with the secret over the
 * label "call", the nonce, the method and the first three. Each number of an id is accepted once.
 * The answer carries `cluster-proof`: an HMAC over "answer", the nonce, id, number and SHA-256 of
 * the reply.
 *
 * So only members can call. A recorded call cannot be replayed to any server, and neither request
 * nor answer can be modified. Both can be read, and error statuses can be forged:
 * docs/decisions/machines.md. */
#ifndef COMMON_RPC_PROOF_H
#define COMMON_RPC_PROOF_H
#include "common/net/cluster.h"
#include <grpc/grpc.h>

#define RPC_PROOF_KEY     "cluster-proof"
#define RPC_CHALLENGE_KEY "cluster-challenge"
enum {
    RPC_ID = 16,
    RPC_DIGEST = 32,
    RPC_CALLERS = 256,
    RPC_WINDOW = 256, /* most calls of one caller that may be reordered */
    RPC_PROOF_BYTES = RPC_ID + 8 + RPC_DIGEST + CLUSTER_MAC,
    RPC_PROOF_TEXT = 2 * RPC_PROOF_BYTES + 1,
    RPC_HEX32 = 2 * 32 + 1
};

/* The values of one call known to both sides. */
struct rpc_ticket {
    uint8_t nonce[CLUSTER_NONCE], id[RPC_ID], number[8], digest[RPC_DIGEST];
};

void rpc_hex(const uint8_t *p, size_t n, char *out); /* out: 2 n + 1 */
/* exactly n bytes; false: invalid */
bool rpc_unhex(const char *text, size_t n_text, uint8_t *p, size_t n);
/* SHA-256 of an uncompressed message (NULL: an empty one). -1: library error. */
int rpc_digest(grpc_byte_buffer *b, uint8_t out[RPC_DIGEST]);
/* The caller's proof, in hex. */
int rpc_proof_make(const struct cluster *c, const struct rpc_ticket *t, const char *method,
                   char out[RPC_PROOF_TEXT]);
/* The server's proof for the reply with that digest; compare, or send in hex. */
int rpc_proof_answer(const struct cluster *c, const struct rpc_ticket *t,
                     const uint8_t digest[RPC_DIGEST], uint8_t out[CLUSTER_MAC]);

/* The calls a server has accepted. One thread. */
struct rpc_guard {
    const struct cluster *cluster;
    uint8_t nonce[CLUSTER_NONCE];
    size_t n;
    struct rpc_caller {
        uint8_t id[RPC_ID];
        uint64_t top; /* highest number accepted; seen[] is a ring of bits for the numbers below */
        uint64_t seen[RPC_WINDOW / 64];
    } callers[RPC_CALLERS];
};
int rpc_guard_init(struct rpc_guard *g, const struct cluster *c, struct err *e);
/* True if `text` authenticates a call of `method` not seen before; fills *t. */
bool rpc_guard_admits(struct rpc_guard *g, grpc_slice method, const char *text, size_t n,
                      struct rpc_ticket *t);
#endif
