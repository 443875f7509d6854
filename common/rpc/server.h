/* server.h - a gRPC server over the C core: a table of methods, with four lanes.
 *
 * RPC_AT_ONCE methods run on the server's own thread at any time, and may only read immutable data.
 * RPC_SERIAL methods run one after the other, in arrival order, on the thread that called
 * rpc_server_run(), which owns the model. RPC_APART methods run likewise on a separate thread; they
 * may wait for disks, and must lock what they share. RPC_STREAM is for reflection: each message of
 * the client gets one answer, on the server's thread, until the client half-closes. Unknown methods
 * are answered UNIMPLEMENTED. Message size is bounded only by the memory limit in server.c.
 *
 * RPC_SERIAL and RPC_APART calls belong to one caller at a time, if callers say who they are
 * (common/rpc/session.h). Others are answered ABORTED.
 *
 * Addresses: "unix:///run/shard-0", a bare path (the same), "tcp://host:port" (port 0: any free
 * one). A Unix socket has mode 0600. A stale one is replaced, but never one whose server lives: the
 * server holds a lock on `<path>.lock`. */
#ifndef COMMON_RPC_SERVER_H
#define COMMON_RPC_SERVER_H
#include "common/err.h"
#include "common/rpc/pack.h"
#include <grpc/status.h>

struct tracer;  /* common/rpc/trace.h */
struct cluster; /* common/net/cluster.h */

struct rpc_call {
    struct rpc_mem *mem; /* the answer is allocated here */
    /* status of a failed call; INTERNAL unless the handler changes it */
    grpc_status_code code;
};

enum rpc_lane { RPC_AT_ONCE, RPC_SERIAL, RPC_APART, RPC_STREAM };
struct rpc_method {
    const char *name; /* "/package.Service/Method" */
    const ProtobufCMessageDescriptor *request;
    enum rpc_lane lane;
    /* Returns the answer, in call->mem or static. NULL: failed; the client gets the message of
     * `e`. */
    const ProtobufCMessage *(*handle)(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                      struct err *e);
};

struct rpc_server_options {
    const char *address;
    const struct rpc_method *methods; /* must outlive the server */
    size_t n_methods;
    void *ctx; /* first argument of the handlers */
    /* Called on the serial lane's thread after each serial call was answered, to start work for the
     * next call. NULL: none. */
    void (*after)(void *ctx);
    /* Called on that thread before a serial call is answered with an error; also if its request
     * could not be unpacked, so that no handler saw it. Returns the status of the answer, which is
     * `code` unless the handler knows better. NULL: none. */
    grpc_status_code (*failed)(void *ctx, const struct rpc_method *m, grpc_status_code code,
                               const struct err *e);
    /* Receives spans of calls with a sampled `traceparent`; NULL: no tracing. */
    struct tracer *tracer;
    const char *also; /* a second listening address, or NULL */
    /* For a watchdog: when the current serial call began, in clock_ns(); 0: idle. A long call may
     * update it to show progress. NULL: none. */
    _Atomic int64_t *busy_ns;
    /* How callers over TCP authenticate; NULL: not at all, and only loopback addresses are served.
     * Callers through a Unix socket need not. With a secret RPC_STREAM is disabled. */
    const struct cluster *cluster;
};

struct rpc_server;

/* Binds and starts to answer. Calls grpc_init(). Errors name the address and the fault. */
struct rpc_server *rpc_server_open(const struct rpc_server_options *o, struct err *e);
int rpc_server_port(const struct rpc_server *s); /* the bound TCP port; 0: only Unix sockets */
/* Runs the serial lane on this thread until rpc_server_stop(). The call in progress is completed;
 * queued calls are answered UNAVAILABLE. */
void rpc_server_run(struct rpc_server *s);
/* As busy_ns, for the server's own thread. */
const _Atomic int64_t *rpc_server_busy(const struct rpc_server *s);
void rpc_server_stop(struct rpc_server *s); /* any thread, also from a handler; may be repeated */
/* After rpc_server_run() has returned, or was never called: sends pending answers, closes,
 * frees. */
void rpc_server_close(struct rpc_server *s);
#endif
