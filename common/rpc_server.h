/* rpc_server.h - a gRPC server over the C core: a table of methods, three lanes.
 *
 * RPC_AT_ONCE methods run on the server's own thread, whatever else is going on: they may only read
 * what never changes. RPC_SERIAL methods run one after the other, in arrival order, on the thread
 * that called rpc_server_run(): the thread that owns the model. RPC_APART methods do the same on a
 * thread of their own: they may wait for disks, and share nothing with the others that they do not
 * lock. RPC_STREAM is for reflection: every message of the client is answered with one, on the
 * server's thread, until the client has said all. Methods that are not in the table are answered
 * UNIMPLEMENTED; messages have no size limit but the memory limit in rpc_server.c.
 *
 * Addresses: "unix:///run/shard-0", a bare path (the same), "tcp://host:port" (port 0: any free
 * one). A Unix socket is made 0600; a stale one is replaced, but never one whose server lives: a
 * lock on
 * `<path>.lock` is held for as long as we serve. */
#ifndef COMMON_RPC_SERVER_H
#define COMMON_RPC_SERVER_H
#include "common/err.h"
#include "common/rpc_pack.h"
#include <grpc/status.h>

struct tracer;  /* common/trace.h */
struct cluster; /* common/cluster.h */

struct rpc_call {
    struct rpc_mem *mem; /* the answer is built here */
    grpc_status_code
        code; /* what a failure is answered with; INTERNAL unless the handler changes it */
};

enum rpc_lane { RPC_AT_ONCE, RPC_SERIAL, RPC_APART, RPC_STREAM };
struct rpc_method {
    const char *name; /* "/package.Service/Method" */
    const ProtobufCMessageDescriptor *request;
    enum rpc_lane lane;
    /* The answer, in call->mem or static; NULL: `e` says what the client is told. */
    const ProtobufCMessage *(*handle)(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                      struct err *e);
};

struct rpc_server_options {
    const char *address;
    const struct rpc_method *methods; /* must outlive the server */
    size_t n_methods;
    void *ctx; /* for the handlers */
    /* Called on the serial lane's thread after each serial call was answered: the place to start
     * work whose result the next call will ask for. NULL: none. */
    void (*after)(void *ctx);
    /* Where spans of calls that came with a sampled `traceparent` go; NULL: nowhere. */
    struct tracer *tracer;
    const char *also; /* a second address to listen at, or NULL */
    /* For a watchdog: since when the serial lane has been busy; 0: it waits. A long call may set it
     * anew as it goes on. NULL: not wanted. */
    _Atomic int64_t *busy_ns;
    /* How callers over TCP prove themselves; NULL: they do not, and only loopback addresses are
     * served. Callers through a Unix socket need not. With a secret there is no RPC_STREAM. */
    const struct cluster *cluster;
};

struct rpc_server;

/* Bind and begin to answer. grpc_init() is done here. Errors name the address and what is wrong. */
struct rpc_server *rpc_server_open(const struct rpc_server_options *o, struct err *e);
int rpc_server_port(const struct rpc_server *s); /* the bound TCP port; 0: only Unix sockets */
/* Run the serial lane on this thread until rpc_server_stop(). The call in progress is finished and
 * answered; those that wait are answered UNAVAILABLE. */
void rpc_server_run(struct rpc_server *s);
/* The same for the server's own thread. */
const _Atomic int64_t *rpc_server_busy(const struct rpc_server *s);
void rpc_server_stop(struct rpc_server *s); /* any thread, also from a handler; may be repeated */
/* After rpc_server_run() returned (or was never called): let answers go out, close, free. */
void rpc_server_close(struct rpc_server *s);
#endif
