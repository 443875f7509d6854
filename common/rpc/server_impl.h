/* server_impl.h - private to server.c and server_call.c: the layout of a server and its calls. */
#ifndef COMMON_RPC_SERVER_IMPL_H
#define COMMON_RPC_SERVER_IMPL_H
#include "common/rpc/bind.h"
#include "common/rpc/loop.h"
#include "common/rpc/proof.h"
#include "common/rpc/server.h"
#include "common/rpc/session.h"
#include "common/rpc/trace.h"
#include <pthread.h>
#include <stdatomic.h>

struct server_call;
struct call_lane { /* queued calls in arrival order */
    struct server_call *head, **tail;
};

/* A server. The loop thread receives and sends; handlers run on it or on a lane's thread. */
struct rpc_server {
    struct rpc_server_options o;
    struct rpc_bind bind, also;
    struct rpc_loop *loop;
    grpc_server *grpc;
    pthread_t thread; /* runs the loop and the RPC_AT_ONCE lane */
    struct rpc_op down;
    atomic_int n_calls;
    atomic_int unarmed;     /* call objects that there was no memory for */
    bool is_down;           /* loop thread */
    struct rpc_mem at_once; /* loop thread */
    struct rpc_guard guard; /* loop thread */
    struct rpc_mem serial;  /* serial lane's thread */
    struct rpc_mem apart;   /* the thread of the RPC_APART lane */
    pthread_t apart_thread; /* exists if a method uses that lane */
    bool no_thread;         /* none could be started */
    bool has_apart;
    pthread_mutex_t lock; /* guards the following */
    pthread_cond_t wake;
    struct call_lane lanes[2]; /* RPC_SERIAL, RPC_APART */
    bool stopping, drained;
    struct rpc_session session;
};

/* One call, from the moment it can be received in this object until its status was sent. It belongs
 * to the loop thread, and while it is queued or handled to its lane's thread. */
struct server_call {
    struct rpc_op op;
    struct rpc_server *s;
    struct server_call *next; /* in its lane */
    const struct rpc_method *method;
    grpc_call *c;
    grpc_call_details details;
    grpc_metadata_array md;
    grpc_byte_buffer *in, *out;
    grpc_slice why; /* message of the status */
    int cancelled;
    bool greeted;    /* initial metadata sent */
    bool proved;     /* authenticated by `ticket`; the answer is signed as well */
    bool challenged; /* the nonce is sent to the caller */
    struct rpc_ticket ticket;
    char session[RPC_SESSION_TEXT]; /* the caller's id; "": none */
    bool holds;                     /* the session counts this call */
    grpc_slice trailer;             /* value of the trailing metadata */
    struct trace_context parent;    /* zero: none */
    int64_t arrived_ns, begun_ns;   /* begun: when the handler was called */
};

/* What a call object does when a call has arrived in it, or the server shuts down (`ok` false). */
void server_call_arrived(struct rpc_op *op, bool ok);

/* The core holds one call object more, to receive a call in. Without memory for it, one that ends
 * is armed again. Any thread. */
void server_call_arm(struct rpc_server *s);
/* The call has ended: its object is armed again where one lacks, or freed. */
void server_call_free(struct server_call *k);
/* Stops the loop when the server is down and its last call has ended. */
void server_stop_when_empty(struct rpc_server *s);
#endif
