/* client.h - unary gRPC calls as operations of an rpc_loop.
 *
 * One rpc_client is a channel to one server; it reconnects automatically (first after 100 ms, at
 * most 1 s apart). A call is a `struct rpc_unary` of the caller, reusable after each done(). Calls
 * may be started from any thread; done() runs on the loop thread, exactly once per start. Calls
 * only progress while a thread is in rpc_loop_run().
 *
 * For members of a cluster (rpc_loop_set_cluster) both sides of a TCP connection authenticate: by
 * TLS, or per call (common/rpc/proof.h). If the server sends a new challenge, the call is repeated
 * once without involving the caller. */
#ifndef COMMON_RPC_CLIENT_H
#define COMMON_RPC_CLIENT_H
#include "common/err.h"
#include "common/rpc/loop.h"
#include "common/rpc/proof.h"
#include <grpc/grpc.h>

struct rpc_client_options {
    const char *target; /* as of common/rpc/target.h */
    /* Ping an idle or silent peer to detect a frozen one; ms; 0: never. A peer that does not allow
     * pings closes the connection ("too_many_pings"). */
    int keepalive_ms, keepalive_timeout_ms;
};

struct rpc_client;
/* NULL, ERR_SYSTEM: the target is a Unix socket that belongs neither to our user nor to root. */
struct rpc_client *rpc_client_new(struct rpc_loop *l, const struct rpc_client_options *o,
                                  struct err *e);
/* No call may be in flight. An armed watch fires once more, with ok == false or a new state. */
void rpc_client_free(struct rpc_client *c);

/* Registers `path` ("/package.Service/Method") once; the handle lives as long as the client, and so
 * must the string. */
void *rpc_client_method(struct rpc_client *c, const char *path);

/* Calls op->done once when the connection is no longer in state `last`. Read the state with
 * rpc_client_state(), also initially. */
void rpc_client_watch(struct rpc_client *c, grpc_connectivity_state last, struct rpc_op *op);
grpc_connectivity_state rpc_client_state(struct rpc_client *c);

struct rpc_unary {
    void (*done)(struct rpc_unary *u);
    const char *name; /* for the trace */
    /* Sent as metadata of that name; NULL or "": none. Copied when the call starts. */
    const char *traceparent;

    /* The result, valid in done() and until the next start or rpc_unary_clear(). */
    grpc_status_code status;
    char message[400];       /* the server's error message; "" on success */
    grpc_byte_buffer *reply; /* NULL unless status is OK; may be NULL for an empty message */

    /* private */
    struct rpc_op op;
    grpc_call *call;
    grpc_byte_buffer *request;
    grpc_metadata_array head, tail;
    grpc_slice details;
    struct rpc_client *client; /* for authentication; NULL: none */
    grpc_byte_buffer *again;   /* the request, in case it must be repeated */
    void *method;
    gpr_timespec end;
    bool waits;
    struct rpc_ticket ticket;
};

/* Starts a call and takes ownership of `request`. timeout_ms <= 0: none. `wait`: waits for an
 * unreachable server until the deadline; otherwise the call fails at once with UNAVAILABLE. */
void rpc_unary_start(struct rpc_client *c, void *method, struct rpc_unary *u,
                     grpc_byte_buffer *request, int64_t timeout_ms, bool wait);
void rpc_unary_cancel(struct rpc_unary *u); /* loop thread; done() still follows (CANCELLED) */
void rpc_unary_clear(struct rpc_unary *u);  /* frees the reply */
#endif
