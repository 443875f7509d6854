/* peer_server.h - serves KV blocks of this rank to other services (proto/kv_transfer.proto).
 *
 * It has its own address, so that clients with access to blocks can call nothing else, and one
 * thread. Clients are authenticated as `cluster` requires. Keys are hashes over whole prefixes: a
 * client can read only blocks of prompts whose tokens it has. */
#ifndef MODEL_SERVER_OFFLOAD_PEER_SERVER_H
#define MODEL_SERVER_OFFLOAD_PEER_SERVER_H
#include "common/net/cluster.h"
#include "model-server/offload/tier.h"

struct kv_peer_server;
/* Serves `t`, which is borrowed, at "tcp://host:port". NULL: ERR_SYSTEM. */
struct kv_peer_server *kv_peer_server_open(const char *address, const struct cluster *c,
                                           struct kv_tier *t, struct err *e);
void kv_peer_server_close(struct kv_peer_server *s); /* NULL is fine */
#endif
