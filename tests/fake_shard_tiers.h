/* fake_shard_tiers.h - the lower KV tiers of a fake shard: KvStore, KvFetch and KvLoad. See
 * fake_shard.h. */
#ifndef TESTS_FAKE_SHARD_TIERS_H
#define TESTS_FAKE_SHARD_TIERS_H
#include "tests/fake_shard_model.h"

static inline struct fake_kept *fake_find_kept(struct fake_shard *f, const ProtobufCBinaryData *key)
{
    assert(key->len == sizeof(f->kept[0].key));
    for (uint32_t i = 0; i < f->n_kept; i++)
        if (memcmp(f->kept[i].key, key->data, key->len) == 0)
            return &f->kept[i];
    return NULL;
}

static inline bool fake_fails_call(_Atomic int *left, struct err *e)
{
    const bool fails = fake_fails(left);
    if (fails)
        err_set(e, ERR_SYSTEM, "scripted");
    return fails;
}

static inline const ProtobufCMessage *fake_store(void *ctx, const ProtobufCMessage *in,
                                                 struct rpc_call *call, struct err *e)
{
    struct fake_shard *f = ctx;
    const Generate__V3__KvStoreRequest *q = (const void *)in;
    Generate__V3__KvStoreResponse *r = RPC_NEW(call->mem, Generate__V3__KvStoreResponse, 1);
    f->n_stores++;
    if (fake_fails_call(&f->fail_store, e))
        return NULL;
    generate__v3__kv_store_response__init(r);
    pthread_mutex_lock(&f->lock);
    for (; r->taken < q->n_blocks && (!f->keeps_most || r->taken < f->keeps_most); r->taken++) {
        const Generate__V3__KvBlock *b = q->blocks[r->taken];
        struct fake_kept *k = fake_find_kept(f, &b->key);
        assert(f->n_kept < FAKE_MAX_KEPT && b->block > 0 && b->block < f->n_blocks);
        k = k ? k : &f->kept[f->n_kept++];
        memcpy(k->key, b->key.data, b->key.len);
        memcpy(k->ids, f->kv + b->block * f->block_size, f->block_size * sizeof(uint32_t));
        k->parts |= 1;
        if (b->_cell_case == GENERATE__V3__KV_BLOCK___CELL_CELL) {
            k->cell = f->cell[b->cell];
            k->parts |= 4;
        }
    }
    f->n_kept_for_peers += q->keep_ms ? r->taken : 0;
    pthread_mutex_unlock(&f->lock);
    return &r->base;
}

/* Missing blocks are read from the peer, if it has them; as many as memory would hold. */
static inline void fake_read_peer(struct fake_shard *f, const Generate__V3__KvFetchRequest *q,
                                  Generate__V3__KvFetchResponse *r)
{
    const uint32_t most = f->peer_most;
    f->n_peer_fetches++;
    r->peer_ns = 1000;
    r->peer_outcome = GENERATE__V3__KV_PEER_OUTCOME__KV_PEER_UNREACHABLE;
    for (uint32_t i = 0; f->peer && i < q->peer->n; i++) {
        struct fake_kept found;
        pthread_mutex_lock(&f->peer->lock);
        const struct fake_kept *k = fake_find_kept(f->peer, &q->keys[i]);
        if (k)
            found = *k;
        pthread_mutex_unlock(&f->peer->lock);
        r->peer_outcome = GENERATE__V3__KV_PEER_OUTCOME__KV_PEER_MISSING;
        if (!k)
            return;
        r->peer_outcome = GENERATE__V3__KV_PEER_OUTCOME__KV_PEER_FULL;
        if (most && r->from_peer == most)
            return;
        pthread_mutex_lock(&f->lock);
        if (!fake_find_kept(f, &q->keys[i])) {
            assert(f->n_kept < FAKE_MAX_KEPT);
            f->kept[f->n_kept++] = found;
            r->from_peer++;
            r->peer_bytes += f->block_size;
        }
        pthread_mutex_unlock(&f->lock);
        r->peer_outcome = GENERATE__V3__KV_PEER_OUTCOME__KV_PEER_FOUND;
    }
}

static inline const ProtobufCMessage *fake_fetch(void *ctx, const ProtobufCMessage *in,
                                                 struct rpc_call *call, struct err *e)
{
    struct fake_shard *f = ctx;
    const Generate__V3__KvFetchRequest *q = (const void *)in;
    Generate__V3__KvFetchResponse *r = RPC_NEW(call->mem, Generate__V3__KvFetchResponse, 1);
    const struct timespec wait = {f->fetch_ms / 1000, f->fetch_ms % 1000 * 1000000L};
    f->n_fetches++;
    nanosleep(&wait, NULL);
    if (fake_fails_call(&f->fail_fetch, e))
        return NULL;
    generate__v3__kv_fetch_response__init(r);
    r->parts.data = RPC_NEW(call->mem, uint8_t, q->n_keys + 1);
    if (q->peer)
        fake_read_peer(f, q, r);
    r->more = r->peer_outcome == GENERATE__V3__KV_PEER_OUTCOME__KV_PEER_FULL;
    pthread_mutex_lock(&f->lock);
    f->fetched = q->id;
    for (size_t i = 0; i < q->n_keys; i++) {
        const struct fake_kept *k = fake_find_kept(f, &q->keys[i]);
        if (!k || (f->finds_most && r->parts.len == f->finds_most))
            break;
        r->parts.data[r->parts.len++] = k->parts;
    }
    pthread_mutex_unlock(&f->lock);
    return &r->base;
}

static inline const ProtobufCMessage *fake_load(void *ctx, const ProtobufCMessage *in,
                                                struct rpc_call *call, struct err *e)
{
    static const Generate__V3__KvLoadResponse done = GENERATE__V3__KV_LOAD_RESPONSE__INIT;
    struct fake_shard *f = ctx;
    const Generate__V3__KvLoadRequest *q = (const void *)in;
    (void)call;
    pthread_mutex_lock(&f->lock);
    assert(q->id == f->fetched);
    for (size_t i = 0; i < q->n_blocks; i++) { /* a failed one has written a part */
        const Generate__V3__KvBlock *b = q->blocks[i];
        const struct fake_kept *k = fake_find_kept(f, &b->key);
        assert(k && b->block < f->n_blocks);
        if (b->block)
            memcpy(f->kv + b->block * f->block_size, k->ids, f->block_size * sizeof(uint32_t));
        if (b->_cell_case == GENERATE__V3__KV_BLOCK___CELL_CELL) {
            assert(k->parts & 4 && b->cell < f->n_cells);
            f->cell[b->cell] = (struct fake_cell){.h = k->cell.h, .n = k->cell.n};
        }
        f->n_loads++;
    }
    pthread_mutex_unlock(&f->lock);
    return fake_fails_call(&f->fail_load, e) ? NULL : &done.base;
}
#endif
