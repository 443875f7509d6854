/* peer.h - blocks that another service's rank has (peer_server.h) are read over TCP.
 *
 * Connections are kept, at most PEERS of them, and proved as the cluster's flags say. A peer that
 * could not be reached, or said nothing in time, is not tried again for two seconds. All functions
 * on one thread, but for the loop that new() starts. */
#ifndef MODEL_SERVER_OFFLOAD_PEER_H
#define MODEL_SERVER_OFFLOAD_PEER_H
#include "common/cluster.h"
#include "model-server/offload/record.h"

enum kv_peer_outcome { /* as KvFetchResponse.peer_outcome */
                       KV_PEER_NONE,
                       KV_PEER_FOUND,       /* all that was asked for */
                       KV_PEER_MISSING,     /* one is not there any more, or not yet */
                       KV_PEER_UNREACHABLE, /* or the connection broke on the way */
                       KV_PEER_REFUSED, /* another model or format, or no member of the cluster */
                       KV_PEER_DAMAGED, /* what came is no record, or another one */
                       KV_PEER_LATE,    /* the time was over */
                       KV_PEER_FULL     /* the taker has no room for more */
};

struct kv_peers;
/* `c` outlives it; NULL: nothing is proved, as for tests. */
struct kv_peers *kv_peers_new(const struct cluster *c, struct err *e);
void kv_peers_free(struct kv_peers *p); /* NULL is fine */

struct kv_peer_read {
    const char *address; /* "tcp://host:port" of the rank */
    const struct kv_layout *layout;
    const uint8_t *const *keys; /* [n] of a prefix's blocks */
    uint32_t n;
    int64_t until_ns;
    /* A record of len bytes for keys[i], in the order of i; it is not checked. KV_PEER_FOUND: go
     * on; else that is the outcome. */
    enum kv_peer_outcome (*take)(void *arg, uint32_t i, const void *record, size_t len);
    void *arg;
};
/* Asks for the blocks in order, two answers ahead of what is taken. Not FOUND: `why` has one line.
 */
enum kv_peer_outcome kv_peers_read(struct kv_peers *p, const struct kv_peer_read *r,
                                   struct err *why);
#endif
