/* shards.h - all ranks of one model as one peer.
 *
 * Every call goes to all ranks in parallel with identical content. What comes back follows TGI's
 * fan-in rules, made stricter: every rank must succeed for every call.
 *
 *   Prefill, Decode   generations concatenated, last rank first; next batch of the last rank;
 *                     timings of the slowest rank
 *   Warmup            the smallest answer
 *   others            the last rank's answer
 *
 * shards_connect() blocks and is called while another thread runs the loop; everything else runs on
 * the loop's thread. */
#ifndef ROUTER_SHARDS_SHARDS_H
#define ROUTER_SHARDS_SHARDS_H
#include "common/err.h"
#include "common/rpc_client.h"
#include "common/rpc_loop.h"
#include "common/rpc_pack.h"
#include "common/trace.h"
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
    SHARD_LOAD_ADAPTER, /* shards of ours alone, by v3 */
    SHARD_UNLOAD_ADAPTER,
    SHARD_EMBED,
    SHARD_KV_STORE,
    SHARD_KV_FETCH,
    SHARD_KV_LOAD,
    N_SHARD_RPCS
};

struct shards;
/* Connect to rank 0, by generate.v3 or, where it does not know that, v2; ask it for the others
 * (ServiceDiscovery), connect to them and wait until all answer, at most timeout_ms; `wait`: also
 * for those who do not listen yet. */
struct shards *shards_connect(struct rpc_loop *l, const char *target, int64_t timeout_ms, bool wait,
                              struct err *e);
void shards_free(struct shards *s); /* no call in flight; watches fire once more */
uint32_t shards_count(const struct shards *s);
int shards_version(const struct shards *s); /* of generate.vN: 3, or 2 where they know no 3 */

/* One call to all ranks; owned by its caller, used again and again. */
struct fan {
    void (*done)(struct fan *f); /* loop thread, when the last rank has answered */
    void *arg;
    /* Metadata of the next call (common/trace.h); "": none. Forgotten when it has been sent. */
    char traceparent[TRACE_PARENT_LEN + 1];
    /* private */
    struct shards *s;
    enum shard_rpc rpc;
    uint32_t n, left;
    bool busy;
    struct fan_rank *ranks;
};
int fan_init(struct fan *f, struct shards *s, void (*done)(struct fan *f), void *arg,
             struct err *e);
void fan_free(struct fan *f);
/* `request` is packed before this returns. wait: unreachable ranks are waited for. */
void fan_call(struct fan *f, enum shard_rpc rpc, const ProtobufCMessage *request,
              int64_t timeout_ms, bool wait);
void fan_cancel(struct fan *f);
/* The same, blocking, from a thread that is not the loop's: -1 as fan_error(). */
int fan_call_sync(struct fan *f, enum shard_rpc rpc, const ProtobufCMessage *request,
                  int64_t timeout_ms, bool wait, struct err *e);

/* After done(): 0 when every rank succeeded, else -1 and the first failure in TGI's words
 * ("Server error: ...", "Could not connect to Text Generation server: ..."). */
int fan_error(const struct fan *f, struct err *e);
/* Every rank has answered, and none did it: they still agree with each other. */
bool fan_refused(const struct fan *f);
/* What one rank answered; `why`: its words, until the next call. */
grpc_status_code fan_status(const struct fan *f, uint32_t rank, const char **why);
int fan_lost_rank(const struct fan *f); /* a rank that cannot be reached; -1: none */

/* The answer of one rank (n - 1: the last), in `m`; NULL: not a message. */
const ProtobufCMessage *fan_reply(const struct fan *f, uint32_t rank, struct rpc_mem *m,
                                  struct err *e);

struct step_reply { /* of Prefill and Decode; everything in `m` */
    Generate__V3__Generation **gens;
    size_t n_gens;
    const Generate__V3__CachedBatch *batch;              /* NULL: every request ended */
    uint64_t forward_ns, decode_ns, total_ns, concat_ns; /* concat_ns 0: none */
    uint64_t encode_ns, encode_done;                     /* of forward_ns; see DecodeResponse */
    const Generate__V3__Chunks *stalled; /* prompts that computed fewer tokens; NULL: none */
};
int fan_step_reply(const struct fan *f, struct rpc_mem *m, struct step_reply *out, struct err *e);

/* fn(arg, rank) on the loop's thread when a connection breaks, also with nothing in flight. */
void shards_watch(struct shards *s, void (*fn)(void *arg, uint32_t rank), void *arg);
/* Ends the watches: `gone(arg)` when none is armed any more (perhaps at once). */
void shards_unwatch(struct shards *s, void (*gone)(void *arg), void *arg);
#endif
