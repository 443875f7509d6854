/* Reads blocks of another service's rank into memory, where KvFetch finds them. */
#include "model-server/offload/peer.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/net/peer_address.h"
#include "model-server/offload/tier.h"
#include "model-server/service/impl.h"
#include <stdio.h>
#include <string.h>

/* A fetch reads at most this share of the memory at once; then its blocks are loaded, and it
 * continues. */
enum { SHARE = 4 };
#define LOG_EVERY_NS INT64_C(10000000000)

_Static_assert((int)KV_PEER_FULL == GENERATE__V3__KV_PEER_OUTCOME__KV_PEER_FULL &&
                   (int)KV_PEER_LATE == GENERATE__V3__KV_PEER_OUTCOME__KV_PEER_LATE,
               "both lists are in the same order");

struct peer_taker {
    struct kv_tier *tier;
    const uint8_t *const *keys;
    uint64_t bytes;
    uint32_t n;
};

static enum kv_peer_outcome take(void *arg, uint32_t i, const void *record, size_t len)
{
    struct peer_taker *t = arg;
    bool room;
    if (kv_tier_insert(t->tier, t->keys[i], record, len, &room) != KV_FINE)
        return KV_PEER_DAMAGED;
    if (!room)
        return KV_PEER_FULL;
    t->n++;
    t->bytes += len;
    return t->bytes < kv_tier_memory(t->tier) / SHARE ? KV_PEER_FOUND : KV_PEER_FULL;
}

/* One log line in ten seconds, whatever addresses clients send. */
static void complain(struct service *s, const char *address, const struct err *why)
{
    const int64_t now = clock_ns();
    if (s->peer_logged_ns && now - s->peer_logged_ns < LOG_EVERY_NS)
        return;
    s->peer_logged_ns = now;
    LOG(LOG_WARN, "KV blocks of a peer are computed instead", LOGS("peer", address),
        LOGS("error", why->msg));
}

bool fetch_from_peer(struct service *s, const Generate__V3__KvPeer *peer,
                     const uint8_t *const *keys, uint32_t from, Generate__V3__KvFetchResponse *r)
{
    const uint32_t port = peer->port + s->o.rank;
    char address[300], host[PEER_HOST_MOST + 1];
    struct err why = ERR_INIT;
    struct peer_taker t = {.tier = s->o.tier, .keys = keys + from};
    if (!s->o.peers || peer->n <= from)
        return false;
    r->peer_outcome = GENERATE__V3__KV_PEER_OUTCOME__KV_PEER_REFUSED;
    if (port > UINT16_MAX || !peer_host_of(peer->host, s->o.rank, s->o.world, host))
        return false;
    snprintf(address, sizeof(address), strchr(host, ':') ? "tcp://[%s]:%u" : "tcp://%s:%u", host,
             port);
    const int64_t began = clock_ns();
    const struct kv_peer_read q = {.address = address,
                                   .layout = kv_tier_laid_out(s->o.tier),
                                   .keys = t.keys,
                                   .n = peer->n - from,
                                   .until_ns = began + peer->timeout_ms * INT64_C(1000000),
                                   .take = take,
                                   .arg = &t};
    const enum kv_peer_outcome out = kv_peers_read(s->o.peers, &q, &why);
    if (out != KV_PEER_FOUND && out != KV_PEER_FULL)
        complain(s, address, &why);
    r->peer_outcome = (Generate__V3__KvPeerOutcome)out;
    r->from_peer = t.n;
    r->peer_bytes = t.bytes;
    r->peer_ns = (uint64_t)(clock_ns() - began);
    return t.n > 0;
}
