/* peer_server.h - other services' ranks read blocks from this one (proto/kv_transfer.proto).
 *
 * A server of its own, on an address of its own: who may read blocks can call nothing else. It has
 * one thread; callers prove themselves as `cluster` says. Keys are hashes of whole prompts, so that
 * a caller finds only blocks of prompts that it knows. */
#ifndef MODEL_SERVER_OFFLOAD_PEER_SERVER_H
#define MODEL_SERVER_OFFLOAD_PEER_SERVER_H
#include "common/cluster.h"
#include "model-server/offload/tier.h"

struct kv_peer_server;
/* Serves `t`, which outlives it, at "tcp://host:port". */
struct kv_peer_server *kv_peer_server_open(const char *address, const struct cluster *c,
                                           struct kv_tier *t, struct err *e);
void kv_peer_server_close(struct kv_peer_server *s); /* NULL is fine */
#endif
