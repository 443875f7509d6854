/* kv_below.h - a rank's lower KV tiers (offload/tier.h), and the exchange of blocks with other
 * services' ranks. */
#ifndef MODEL_SERVER_KV_BELOW_H
#define MODEL_SERVER_KV_BELOW_H
#include "common/net/cluster.h"
#include "model-server/offload/identity.h"
#include "model-server/offload/peer.h"
#include "model-server/offload/peer_server.h"
#include "model-server/offload/tier.h"

struct kv_below_options { /* the flags' values */
    const char *dir, *address;
    double dir_gib, memory_gib;
};
struct kv_below { /* zero: nothing */
    struct kv_tier *tier;
    struct model_identity identity;
    const struct cluster *cluster;
    struct kv_peers *peers;
    struct kv_peer_server *server;
};

/* Checks the address for peers before anything is loaded. */
int kv_below_check(const struct kv_below_options *o, enum cluster_kind kind, uint32_t ranks,
                   struct err *e);
uint64_t kv_below_memory(const struct kv_below_options *o); /* bytes; 0: there are no tiers */
/* For the model with these files; `words`: see model_identity_with(). `c` must outlive it. Only if
 * there are tiers. */
int kv_below_open(struct kv_below *b, const struct kv_below_options *o,
                  const struct model_identity *files, const char *words, const struct cluster *c,
                  struct err *e);
/* Starts to serve peers, if an address is given. */
int kv_below_serve(struct kv_below *b, const struct kv_below_options *o, uint32_t rank,
                   struct err *e);
void kv_below_close(struct kv_below *b);
#endif
