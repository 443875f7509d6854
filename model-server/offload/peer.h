/* peer.h - client of peer_server.h: reads KV blocks of another service's rank over TCP.
 *
 * Up to PEERS connections are kept open. They are authenticated as the cluster's flags require. A
 * peer that was unreachable or late is not tried again for two seconds. All functions run on one
 * thread; kv_peers_new() starts a loop of its own for the connections. */
#ifndef MODEL_SERVER_OFFLOAD_PEER_H
#define MODEL_SERVER_OFFLOAD_PEER_H
#include "common/net/cluster.h"
#include "model-server/offload/record.h"

enum kv_peer_outcome { /* as KvFetchResponse.peer_outcome */
                       KV_PEER_NONE,
                       KV_PEER_FOUND,       /* all requested blocks were read */
                       KV_PEER_MISSING,     /* a block was evicted or is not computed yet */
                       KV_PEER_UNREACHABLE, /* no connection, or it broke */
                       KV_PEER_REFUSED,     /* another model or format, or authentication failed */
                       KV_PEER_DAMAGED,     /* a record is malformed or has another key */
                       KV_PEER_LATE,        /* the deadline passed */
                       KV_PEER_FULL         /* take() had no memory for more */
};

struct kv_peers;
/* `c` is borrowed for its lifetime. NULL: no authentication, for tests. */
struct kv_peers *kv_peers_new(const struct cluster *c, struct err *e);
void kv_peers_free(struct kv_peers *p); /* NULL is fine */

struct kv_peer_read {
    const char *address; /* of the peer's rank: "tcp://host:port" */
    const struct kv_layout *layout;
    const uint8_t *const *keys; /* [n] keys of the blocks of a prefix, in order */
    uint32_t n;
    int64_t until_ns; /* deadline */
    /* Receives the record of keys[i], in the order of i. The caller verifies it. KV_PEER_FOUND
     * continues; any other value ends the read with that outcome. */
    enum kv_peer_outcome (*take)(void *arg, uint32_t i, const void *record, size_t len);
    void *arg;
};
/* Reads the blocks in order, with two requests in flight. If the outcome is not KV_PEER_FOUND,
 * `why` has one line. */
enum kv_peer_outcome kv_peers_read(struct kv_peers *p, const struct kv_peer_read *r,
                                   struct err *why);
#endif
