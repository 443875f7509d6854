/* Disaggregated prefill and decode. A request that exports has its prompt blocks stored as they are
 * computed, before the next step, and kept for a while. A request that imports fetches blocks from
 * another service's shards, with the same calls as from memory and disk (offload.h). */
#include "router/request/transfer.h"
#include "common/log/log.h"
#include "router/metrics.h"
#include "router/scheduler/state.h"

void transfer_export(struct scheduler *s, struct seq *q)
{
    if (!q->exports || !s->offload.on || !s->o.model.transfers)
        return;
    const uint32_t n = q->n_prompt / s->peer.block_size;
    const uint32_t sealed = q->kv.n_sealed < n ? q->kv.n_sealed : n;
    if (q->n_exported >= sealed)
        return;
    while (q->n_exported < sealed)
        kv_offer(s->kv, q->kv.ids[q->n_exported++]);
    s->offload.urgent = kv_spill_waiting(s->kv);
}

bool transfer_peer(const struct scheduler *s, const struct seq *q, uint32_t n, int64_t ms,
                   Generate__V3__KvPeer *out)
{
    const struct kv_transfer *t = q->req ? q->req->transfer : NULL;
    if (!t || !t->host || !s->o.model.transfers)
        return false;
    if (!out)
        return t->n_blocks > 0;
    out->host = (char *)(uintptr_t)t->host;
    out->port = t->port;
    out->n = t->n_blocks < n ? t->n_blocks : n;
    out->timeout_ms = (uint32_t)ms;
    return out->n > 0;
}

static bool is_whole(Generate__V3__KvPeerOutcome o)
{
    return o == GENERATE__V3__KV_PEER_OUTCOME__KV_PEER_FOUND;
}

void transfer_note(struct transfer_read *x, uint32_t rank, const Generate__V3__KvFetchResponse *r)
{
    x->blocks = rank && x->blocks < r->from_peer ? x->blocks : r->from_peer;
    x->bytes += r->peer_bytes;
    x->ns = x->ns > r->peer_ns ? x->ns : r->peer_ns;
    if (rank == 0 || is_whole(x->outcome))
        x->outcome = r->peer_outcome;
}

void transfer_count(struct scheduler *s, const struct transfer_read *x)
{
    static const char *const names[] = {NULL,      "found",   "missing", "unreachable",
                                        "refused", "damaged", "late",    "full"};
    sched_count(s, M_TRANSFER_BLOCKS, NULL, x->blocks);
    sched_count(s, M_TRANSFER_BYTES, NULL, (double)x->bytes);
    sched_count(s, M_TRANSFER_SECONDS, NULL, (double)x->ns * 1e-9);
    if ((unsigned)x->outcome < sizeof(names) / sizeof(names[0]) && names[x->outcome])
        sched_count(s, M_TRANSFER_READS, names[x->outcome], 1);
}
