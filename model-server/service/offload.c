/* KvStore, KvFetch and KvLoad: blocks of prefixes between the caches and the lower tiers. */
#include "common/clock.h"
#include "common/log/log.h"
#include "model-server/offload/identity.h"
#include "model-server/offload/tier.h"
#include "model-server/service/impl.h"
#include <string.h>

_Static_assert((int)CACHE_BLOCK == KV_PART_BLOCK && (int)CACHE_WINDOW == KV_PART_WINDOW &&
                   (int)CACHE_STATE == KV_PART_STATE && (int)N_CACHE_KINDS == KV_N_PARTS,
               "both lists are in the same order");

int service_lay_out(struct service *s, struct err *e)
{
    struct kv_layout l = {0};
    s->offloads = false;
    if (!s->o.tier)
        return 0;
    model_cache_bytes(s->o.weights, l.bytes);
    if (l.bytes[KV_PART_BLOCK] == 0) {
        LOG(LOG_WARN, "this backend does not copy KV blocks: they are not offloaded");
        return 0;
    }
    if (kv_identity_of_layout(s->o.kv_identity, &l, e) || kv_tier_layout(s->o.tier, &l, e))
        return -1;
    s->offloads = true;
    return 0;
}

/* ------------------------------------------------------------------ messages */

static Generate__V3__KvTierStats *write_stats(const struct service *s, struct rpc_mem *m)
{
    Generate__V3__KvTierStats *r = RPC_NEW(m, Generate__V3__KvTierStats, 1);
    if (!r)
        return NULL;
    const struct kv_tier_stats t = kv_tier_stats(s->o.tier);
    generate__v3__kv_tier_stats__init(r);
    r->memory_bytes = t.memory_bytes;
    r->disk_bytes = t.disk_bytes;
    r->memory_evictions = t.memory_evictions;
    r->disk_evictions = t.disk_evictions;
    r->damaged = t.damaged;
    r->foreign = t.foreign;
    r->failed_writes = t.failed_writes;
    r->written = t.written;
    return r;
}

/* The addresses of a named block's parts, and which parts it has. */
struct place {
    const uint8_t *key;
    uint32_t at[KV_N_PARTS];
    unsigned parts;
};

/* Numbers from the wire address memory. */
static int read_place(const struct service *s, const Generate__V3__KvBlock *b, struct place *p,
                      struct err *e)
{
    const struct seq_limits lim = engine_limits(s->o.engine);
    const bool cell = b->_cell_case == GENERATE__V3__KV_BLOCK___CELL_CELL;
    *p = (struct place){.key = b->key.data, .at = {b->block, b->window_block, cell ? b->cell : 0}};
    p->parts = (b->block ? 1U << KV_PART_BLOCK : 0) | (b->window_block ? 1U << KV_PART_WINDOW : 0) |
               (cell ? 1U << KV_PART_STATE : 0);
    if (b->key.len != KV_KEY)
        return err_set(e, ERR_VALIDATION, "a key of %zu bytes: it has %d", b->key.len, KV_KEY);
    if (b->block >= lim.n_blocks || (b->window_block && b->window_block >= lim.n_windows) ||
        (cell && (!lim.cells || b->cell >= lim.cells->n)))
        return err_set(e, ERR_VALIDATION, "block %u, window %u or cell %u is outside of its cache",
                       b->block, b->window_block, b->cell);
    return 0;
}

static const ProtobufCMessage *refused(struct rpc_call *call, struct err *e)
{
    call->code =
        e->kind == ERR_VALIDATION ? GRPC_STATUS_INVALID_ARGUMENT : GRPC_STATUS_FAILED_PRECONDITION;
    return NULL;
}

static const ProtobufCMessage *not_here(struct rpc_call *call, struct err *e)
{
    err_set(e, ERR_VALIDATION, "no KV blocks are offloaded here: see --kv-offload-dir");
    call->code = GRPC_STATUS_FAILED_PRECONDITION;
    return NULL;
}

/* ------------------------------------------------------------------ store */

/* 1: stored, or already present; 0: no room; -1: an error. */
static int store(struct service *s, const struct place *p, void **record, struct err *e)
{
    if (!kv_tier_begin(s->o.tier, p->key, p->parts, record))
        return 0;
    for (int i = 0; *record && i < KV_N_PARTS; i++) {
        if (!(p->parts >> i & 1))
            continue;
        void *to = kv_record_part(kv_tier_laid_out(s->o.tier), *record, (enum kv_part)i);
        if (model_export(s->o.weights, (enum cache_kind)i, p->at[i], to, e))
            return -1;
    }
    return 1;
}

/* Stores nothing unless all of it could be copied. */
static int store_all(struct service *s, const Generate__V3__KvStoreRequest *q, void **records,
                     uint32_t *taken, struct err *e)
{
    struct place p;
    int got = 1;
    for (*taken = 0; *taken < q->n_blocks; ++*taken) {
        got = read_place(s, q->blocks[*taken], &p, e) ? -1 : store(s, &p, &records[*taken], e);
        if (got <= 0)
            break;
    }
    const uint32_t begun = *taken + (got < 0 && *taken < q->n_blocks);
    struct err late = ERR_INIT;
    /* also after an error: then no copy writes to a record that is dropped */
    const bool copied = model_export_wait(s->o.weights, &late) == 0, ok = copied && got >= 0;
    if (got >= 0 && !copied)
        *e = late;
    for (uint32_t i = 0; i < begun; i++) {
        if (!records[i])
            continue;
        if (ok)
            kv_tier_put(s->o.tier, records[i]);
        else
            kv_tier_drop(s->o.tier, records[i]);
    }
    const int64_t until = clock_ns() + q->keep_ms * INT64_C(1000000);
    for (uint32_t i = 0; ok && q->keep_ms && i < *taken; i++)
        kv_tier_keep(s->o.tier, q->blocks[i]->key.data, until);
    return ok ? 0 : -1;
}

const ProtobufCMessage *rpc_kv_store(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                     struct err *e)
{
    const Generate__V3__KvStoreRequest *q = (const void *)in;
    struct service *s = ctx;
    Generate__V3__KvStoreResponse *r = RPC_NEW(call->mem, Generate__V3__KvStoreResponse, 1);
    void **records = RPC_NEW(call->mem, void *, q->n_blocks + 1);
    if (!s->offloads)
        return not_here(call, e);
    service_begin(s, "KvStore");
    if (!r || !records)
        return err_nomem(e), NULL;
    generate__v3__kv_store_response__init(r);
    memset(records, 0, (q->n_blocks + 1) * sizeof(*records));
    if (store_all(s, q, records, &r->taken, e))
        return refused(call, e);
    r->stats = write_stats(s, call->mem);
    return &r->base;
}

/* ------------------------------------------------------------------ fetch */

const ProtobufCMessage *rpc_kv_fetch(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                     struct err *e)
{
    const Generate__V3__KvFetchRequest *q = (const void *)in;
    struct service *s = ctx;
    Generate__V3__KvFetchResponse *r = RPC_NEW(call->mem, Generate__V3__KvFetchResponse, 1);
    const uint8_t **keys = RPC_NEW(call->mem, const uint8_t *, q->n_keys + 1);
    uint8_t *parts = RPC_NEW(call->mem, uint8_t, q->n_keys + 1);
    bool more;
    if (!s->offloads)
        return not_here(call, e);
    if (!r || !keys || !parts)
        return err_nomem(e), NULL;
    if (q->peer && q->peer->n > q->n_keys) {
        err_set(e, ERR_VALIDATION, "a peer has %u of %zu keys", q->peer->n, q->n_keys);
        return refused(call, e);
    }
    for (size_t i = 0; i < q->n_keys; i++) {
        if (q->keys[i].len != KV_KEY) {
            err_set(e, ERR_VALIDATION, "a key of %zu bytes: it has %d", q->keys[i].len, KV_KEY);
            return refused(call, e);
        }
        keys[i] = q->keys[i].data;
    }
    generate__v3__kv_fetch_response__init(r);
    const uint32_t n = (uint32_t)q->n_keys;
    r->parts.data = parts;
    r->parts.len = kv_tier_fetch(s->o.tier, q->id, keys, n, parts, &r->from_disk, &more);
    if (q->peer && r->parts.len < n && !more &&
        fetch_from_peer(s, q->peer, keys, (uint32_t)r->parts.len, r)) {
        uint32_t from_disk;
        const bool full = r->peer_outcome == GENERATE__V3__KV_PEER_OUTCOME__KV_PEER_FULL;
        r->parts.len = kv_tier_fetch(s->o.tier, q->id, keys, n, parts, &from_disk, &more);
        more |= full && r->from_peer > 0;
    }
    r->more = more;
    r->stats = write_stats(s, call->mem);
    return &r->base;
}

/* ------------------------------------------------------------------ load */

static int load(struct service *s, uint64_t id, const Generate__V3__KvBlock *b, struct err *e)
{
    struct place p;
    if (read_place(s, b, &p, e))
        return -1;
    for (int i = 0; i < KV_N_PARTS; i++) {
        if (!(p.parts >> i & 1))
            continue;
        const void *from = kv_tier_ready(s->o.tier, id, p.key, (enum kv_part)i);
        if (!from)
            return err_set(e, ERR_SYSTEM, "a block that is to be loaded was not fetched");
        if (model_import(s->o.weights, (enum cache_kind)i, p.at[i], from, e))
            return -1;
    }
    return 0;
}

const ProtobufCMessage *rpc_kv_load(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                    struct err *e)
{
    static const Generate__V3__KvLoadResponse done = GENERATE__V3__KV_LOAD_RESPONSE__INIT;
    const Generate__V3__KvLoadRequest *q = (const void *)in;
    struct service *s = ctx;
    int rc = 0;
    if (!s->offloads)
        return not_here(call, e);
    service_begin(s, "KvLoad");
    if (!kv_tier_hold(s->o.tier)) {
        err_set(e, ERR_SYSTEM, "another fetch is under way");
        return refused(call, e);
    }
    for (size_t i = 0; i < q->n_blocks && rc == 0; i++)
        rc = load(s, q->id, q->blocks[i], e);
    struct err late = ERR_INIT;
    if (model_export_wait(s->o.weights, &late) && rc == 0) { /* then the copies are complete */
        *e = late;
        rc = -1;
    }
    kv_tier_release(s->o.tier);
    return rc ? refused(call, e) : &done.base;
}
