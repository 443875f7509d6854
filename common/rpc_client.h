/* rpc_client.h - unary gRPC calls as events of an rpc_loop.
 *
 * One rpc_client is a channel to one server; it reconnects by itself (first after 100 ms, at most 1
 * s apart). A call is a `struct rpc_unary` of the caller's, usable again after each done(). Calls
 * may be started from any thread; done() runs on the loop's thread, exactly once per start,
 * whatever happens. Nothing moves on the wire unless a thread is in rpc_loop_run().
 *
 * To members of a cluster (rpc_loop_set_cluster) a client over TCP proves itself, and wants proof:
 * by TLS, or call by call (common/rpc_proof.h). A server that asks for a proof anew gets it: that
 * call is sent again, once, without its caller noticing. */
#ifndef COMMON_RPC_CLIENT_H
#define COMMON_RPC_CLIENT_H
#include "common/err.h"
#include "common/rpc_loop.h"
#include "common/rpc_proof.h"
#include <grpc/grpc.h>

struct rpc_client_options {
    /* "unix:///path", "unix:path", "/path", "tcp://host:port", "host:port" */
    const char *target;
    /* Ping an idle or silent peer, so that a frozen one is found: 0 = never. A peer that is not
     * prepared for pings closes the connection ("too_many_pings"). */
    int keepalive_ms, keepalive_timeout_ms;
};

struct rpc_client;
/* ERR_SYSTEM where the target is a Unix socket that is there and belongs neither to our user nor to
 * root. */
struct rpc_client *rpc_client_new(struct rpc_loop *l, const struct rpc_client_options *o,
                                  struct err *e);
/* No call in flight. A watch still armed fires once more, with ok == false or a new state. */
void rpc_client_free(struct rpc_client *c);

/* `path` ("/package.Service/Method") is looked up once; the handle lives as long as the client, and
 * so must the string. */
void *rpc_client_method(struct rpc_client *c, const char *path);

/* op->done is called once when the connection is no longer in `last`; then, and at first, ask
 * rpc_client_state(). */
void rpc_client_watch(struct rpc_client *c, grpc_connectivity_state last, struct rpc_op *op);
grpc_connectivity_state rpc_client_state(struct rpc_client *c);

struct rpc_unary {
    void (*done)(struct rpc_unary *u);
    const char *name; /* for the trace */
    /* Sent along as metadata of that name; NULL or "": none. Copied when the call starts. */
    const char *traceparent;

    /* The outcome, valid in done() and until the next start or rpc_unary_clear(). */
    grpc_status_code status;
    char message[400];       /* the server's words; "" on success */
    grpc_byte_buffer *reply; /* NULL unless status is OK; may be NULL for an empty message */

    /* private */
    struct rpc_op op;
    grpc_call *call;
    grpc_byte_buffer *request;
    grpc_metadata_array head, tail;
    grpc_slice details;
    struct rpc_client *client; /* to prove itself to; NULL: not */
    grpc_byte_buffer *again;   /* the request, should it have to be sent again */
    void *method;
    gpr_timespec end;
    bool waits;
    struct rpc_ticket ticket;
};

/* Takes `request` over. timeout_ms <= 0: none. `wait`: an unreachable server is waited for until
 * the deadline; otherwise the call fails at once with UNAVAILABLE. */
void rpc_unary_start(struct rpc_client *c, void *method, struct rpc_unary *u,
                     grpc_byte_buffer *request, int64_t timeout_ms, bool wait);
void rpc_unary_cancel(struct rpc_unary *u); /* loop thread; done() still comes (CANCELLED) */
void rpc_unary_clear(struct rpc_unary *u);  /* drops the reply */
#endif
