#include "model-server/kv_below.h"
#include "common/log/log.h"
#include "common/net/peer_address.h"
#include <stdio.h>
#include <string.h>

#define FOLDER_MEMORY_GIB   0.25 /* default with a folder */
#define TRANSFER_MEMORY_GIB 1    /* with peers */

static bool given(const char *s) { return s && *s; }

int kv_below_check(const struct kv_below_options *o, enum cluster_kind kind, uint32_t ranks,
                   struct err *e)
{
    struct peer_address a;
    if (given(o->address) &&
        (peer_address_parse(o->address, ranks, &a, e) || cluster_allows(kind, o->address, e)))
        return err_wrap(e, "--kv-transfer-address");
    return 0;
}

uint64_t kv_below_memory(const struct kv_below_options *o)
{
    const double gib = o->memory_gib > 0   ? o->memory_gib
                       : given(o->address) ? TRANSFER_MEMORY_GIB
                       : given(o->dir)     ? FOLDER_MEMORY_GIB
                                           : 0;
    return (uint64_t)(gib * (double)(1 << 30));
}

int kv_below_open(struct kv_below *b, const struct kv_below_options *o,
                  const struct model_identity *files, const char *words, const struct cluster *c,
                  struct err *e)
{
    const struct kv_tier_options t = {.dir = given(o->dir) ? o->dir : NULL,
                                      .dir_bytes = (uint64_t)(o->dir_gib * (double)(1 << 30)),
                                      .memory_bytes = kv_below_memory(o)};
    b->cluster = c;
    if (model_identity_with(files, words, &b->identity, e) || !(b->tier = kv_tier_new(&t, e)))
        return -1;
    return given(o->address) && !(b->peers = kv_peers_new(c, e)) ? -1 : 0;
}

int kv_below_serve(struct kv_below *b, const struct kv_below_options *o, uint32_t rank,
                   struct err *e)
{
    struct peer_address a;
    char address[PEER_HOST_MOST + 20];
    if (!b->peers)
        return 0;
    if (peer_address_parse(o->address, rank + 1, &a, e))
        return -1;
    snprintf(address, sizeof(address), strchr(a.host, ':') ? "tcp://[%s]:%u" : "tcp://%s:%u",
             a.host, a.port + rank);
    cluster_announce(b->cluster);
    if (!(b->server = kv_peer_server_open(address, b->cluster, b->tier, e)))
        return err_wrap(e, "--kv-transfer-address");
    LOG(LOG_INFO, "KV blocks are handed to peers", LOGS("address", address));
    return 0;
}

void kv_below_close(struct kv_below *b)
{
    kv_peer_server_close(b->server);
    kv_peers_free(b->peers);
    kv_tier_free(b->tier);
}
