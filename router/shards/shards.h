/* shards.h - all ranks of one model as one peer.
 *
 * Every call goes to all ranks in parallel with identical content. Answers are merged by TGI's
 * rules, except that every rank must succeed for every call.
 *
 *   Prefill, Decode   generations concatenated, last rank first; next batch of the last rank;
 *                     timings of the slowest rank
 *   Warmup            the smallest answer
 *   others            the last rank's answer
 *
 * shards_connect() blocks and is called while another thread runs the loop. Everything else runs on
 * the loop thread, except fan_call_sync(). */
#ifndef ROUTER_SHARDS_SHARDS_H
#define ROUTER_SHARDS_SHARDS_H
#include "common/err.h"
#include "common/rpc/client.h"
#include "common/rpc/loop.h"
#include "common/rpc/pack.h"
#include "common/rpc/trace.h"
#include "proto/generate.pb-c.h"
#include <stdbool.h>
#include <stdint.h>

enum { SHARDS_MAX = 64 };
enum shard_rpc {
    SHARD_DISCOVERY,
    SHARD_CLEAR_CACHE,
    SHARD_INFO,
    SHARD_WARMUP,
    SHARD_HEALTH,
    SHARD_FILTER_BATCH,
    SHARD_PREFILL,
    SHARD_DECODE,
    SHARD_LOAD_ADAPTER, /* v3 and our own shards only */
    SHARD_UNLOAD_ADAPTER,
    SHARD_EMBED,
    SHARD_KV_STORE,
    SHARD_KV_FETCH,
    SHARD_KV_LOAD,
    N_SHARD_RPCS
};

struct shards;
/* Connects to rank 0 by generate.v3, or v2 if it does not know that. Asks it for the other ranks
 * (ServiceDiscovery), connects to them and waits at most timeout_ms until all answer. `wait`: also
 * waits for ranks that do not listen yet. */
struct shards *shards_connect(struct rpc_loop *l, const char *target, int64_t timeout_ms, bool wait,
                              struct err *e);
void shards_free(struct shards *s); /* no call may be in flight; watches fire once more */
uint32_t shards_count(const struct shards *s);
const char *shards_address(const struct shards *s, uint32_t rank); /* valid as long as `s` */
int shards_version(const struct shards *s);                        /* of generate.vN: 3, or 2 */

/* One call to all ranks. Owned by its caller and reusable. */
struct fan {
    void (*done)(struct fan *f); /* loop thread, when the last rank has answered */
    void *arg;
    /* Trace context of the next call (common/rpc/trace.h); "": none. Reset when the call is sent.
     */
    char traceparent[TRACE_PARENT_LEN + 1];
    /* private */
    struct shards *s;
    enum shard_rpc rpc;
    uint32_t n, left;
    bool busy;
    struct fan_rank *ranks;
};
/* Prepares calls to `s`, which must outlive the fan. -1: out of memory. fan_free(): no call may be
 * in flight. */
int fan_init(struct fan *f, struct shards *s, void (*done)(struct fan *f), void *arg,
             struct err *e);
void fan_free(struct fan *f);
/* Sends a call. `request` is packed before this returns. `wait`: wait for unreachable ranks. */
void fan_call(struct fan *f, enum shard_rpc rpc, const ProtobufCMessage *request,
              int64_t timeout_ms, bool wait);
void fan_cancel(struct fan *f); /* the call in flight, if any, ends with CANCELLED */
/* As fan_call(), but blocks; not on the loop thread. -1: as fan_error(). */
int fan_call_sync(struct fan *f, enum shard_rpc rpc, const ProtobufCMessage *request,
                  int64_t timeout_ms, bool wait, struct err *e);

/* After done(): 0 if every rank succeeded, otherwise -1 and the first failure with TGI's message
 * ("Server error: ...", "Could not connect to Text Generation server: ..."). e->kind is
 * ERR_OVERLOADED if the rank reports RESOURCE_EXHAUSTED, otherwise ERR_GENERATION. e->sys is
 * ECONNRESET if a rank was lost, EBUSY if another router has it (common/rpc/session.h), ETIMEDOUT
 * if it did not answer in time, otherwise 0. */
int fan_error(const struct fan *f, struct err *e);
/* True of an error that says that a rank was lost, to another router or altogether. */
bool shards_lost(const struct err *e);
/* The kind of error of a request that a failed call carried, from the call's own error kind. A
 * request that failed for lack of memory may be repeated; any other has failed in generation. */
enum err_kind fan_request_error(enum err_kind k);
/* True if every rank answered and none executed the call: their states still agree. */
bool fan_refused(const struct fan *f);
/* The status of one rank; `why`: its message, valid until the next call. */
grpc_status_code fan_status(const struct fan *f, uint32_t rank, const char **why);
int fan_lost_rank(const struct fan *f); /* an unreachable rank; -1: none */

/* Unpacks the answer of one rank (n - 1: the last) into `m`. NULL: not a valid message, or out of
 * memory. */
const ProtobufCMessage *fan_reply(const struct fan *f, uint32_t rank, struct rpc_mem *m,
                                  struct err *e);

struct step_reply { /* merged answer of Prefill or Decode; all memory in `m` */
    Generate__V3__Generation **gens;
    size_t n_gens;
    const Generate__V3__CachedBatch *batch;              /* NULL: every request ended */
    uint64_t forward_ns, decode_ns, total_ns, concat_ns; /* concat_ns 0: no concatenation */
    /* image encoding, part of forward_ns; see DecodeResponse */
    uint64_t encode_ns, encode_done;
    /* prompts that computed fewer tokens than planned; NULL: none */
    const Generate__V3__Chunks *stalled;
    const Generate__V3__ConstraintStats *constraints; /* of rank 0; NULL: none so far */
};
/* Merges the answers of a Prefill or Decode that succeeded. -1: an invalid answer, or out of
 * memory. */
int fan_step_reply(const struct fan *f, struct rpc_mem *m, struct step_reply *out, struct err *e);

/* Calls fn(arg, why) on the loop thread when a connection breaks, also if no call is in flight. The
 * message is that of a call which fails for this reason. */
void shards_watch(struct shards *s, void (*fn)(void *arg, const char *why), void *arg);
/* Ends the watches. Calls `gone(arg)` when none is armed any more, possibly at once. */
void shards_unwatch(struct shards *s, void (*gone)(void *arg), void *arg);
#endif
