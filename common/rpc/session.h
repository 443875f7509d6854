/* session.h - which caller owns a server whose state belongs to one caller at a time.
 *
 * A shard holds KV blocks that its router numbers. Two routers would overwrite each other's blocks,
 * and their answers would be wrong without an error. So a router sends its id with each call, as
 * metadata RPC_SESSION_KEY. The first one owns the server, until it has sent no call for
 * RPC_SESSION_LEASE_MS; then another one may take it. Until then calls of another one end with
 * GRPC_STATUS_ABORTED. A caller without an id is never refused. Not thread-safe: the server has a
 * lock. */
#ifndef COMMON_RPC_SESSION_H
#define COMMON_RPC_SESSION_H
#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

#define RPC_SESSION_KEY "router-session"
enum { RPC_SESSION_TEXT = 33, RPC_SESSION_LEASE_MS = 5000 };

struct rpc_session { /* zero-initialise */
    char owner[RPC_SESSION_TEXT];
    uint32_t in_flight; /* calls of the owner */
    int64_t seen_ms;    /* the owner's last call, or the end of it */
};

/* Draws a random id. ERR_SYSTEM: the system has no random numbers. */
int rpc_session_draw(char out[RPC_SESSION_TEXT], struct err *e);
/* A call of `id` that uses the state has arrived. True: it may proceed, and rpc_session_end()
 * follows. */
bool rpc_session_begin(struct rpc_session *s, const char *id, int64_t now_ms);
void rpc_session_end(struct rpc_session *s, const char *id, int64_t now_ms);
/* Another call of `id`, such as Health: extends the lease of the owner. */
void rpc_session_seen(struct rpc_session *s, const char *id, int64_t now_ms);
#endif
