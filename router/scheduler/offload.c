#include "router/scheduler/offload.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "router/metrics.h"
#include "router/scheduler/state.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    FETCH_LEAST = 2, /* fewer blocks are not worth a call */
    /* minimum timeout of a fetch */
    PATIENCE_LEAST_MS = 100,
    /* until the prompt throughput is known */
    PATIENCE_FIRST_MS = 5000,
    PATIENCE_MOST_MS = 30000,
    CALL_MS = 60000,
    BEHIND_MS = 100,
    KEEP_MS = 60000,      /* how long blocks are kept for a peer that has not asked yet */
    PEER_GRACE_MS = 2000, /* a shard answers with what it has this long before the timeout */
    PEER_LEAST_MS = 1000, /* minimum: a connection takes time, and more on a busy machine */
    SHARE_OUT = 20,       /* storing takes at most 1/20 of the time */
    MEM_LIMIT = 64 << 20,
};
#define PAUSE_NS INT64_C(5000000000) /* pause after a fetch that was too late */

/* ------------------------------------------------------------------ messages */

static ProtobufCBinaryData key_bytes(const uint8_t *key)
{
    return (ProtobufCBinaryData){KV_CHAIN, (uint8_t *)(uintptr_t)key};
}

static void put_block(Generate__V3__KvBlock *b, const struct kv_spill *x, const uint8_t *key)
{
    generate__v3__kv_block__init(b);
    b->key = key_bytes(key);
    b->block = x->block;
    b->window_block = x->window;
    if (x->cell == NO_CELL)
        return;
    b->_cell_case = GENERATE__V3__KV_BLOCK___CELL_CELL;
    b->cell = x->cell;
}

/* Of rank 0; the other ranks store the same blocks. */
static void note_stats(struct scheduler *s, const Generate__V3__KvTierStats *t)
{
    struct offload_counts *c = &s->offload.seen;
    if (!t)
        return;
    sched_gauge(s, M_OFFLOAD_BYTES, "memory", (double)t->memory_bytes);
    sched_gauge(s, M_OFFLOAD_BYTES, "disk", (double)t->disk_bytes);
    sched_count_since(s, M_OFFLOAD_EVICTIONS, "memory", t->memory_evictions, &c->memory_evictions);
    sched_count_since(s, M_OFFLOAD_EVICTIONS, "disk", t->disk_evictions, &c->disk_evictions);
    sched_count_since(s, M_OFFLOAD_REFUSED, "damaged", t->damaged, &c->damaged);
    sched_count_since(s, M_OFFLOAD_REFUSED, "foreign", t->foreign, &c->foreign);
    sched_count_since(s, M_OFFLOAD_REFUSED, "write", t->failed_writes, &c->failed_writes);
    sched_count_since(s, M_OFFLOAD_WRITTEN, NULL, t->written, &c->written);
}

/* ------------------------------------------------------------------ store */

static bool send_store(struct scheduler *s)
{
    struct offload *o = &s->offload;
    Generate__V3__KvStoreRequest msg = GENERATE__V3__KV_STORE_REQUEST__INIT;
    Generate__V3__KvBlock v[OFFLOAD_MOST], *at[OFFLOAD_MOST];
    const uint64_t lost = kv_spill_lost(s->kv);
    const bool busy = s->n_running > 0 || policy_waiting(&s->policy);
    sched_count(s, M_OFFLOAD_LOST, NULL, (double)(lost - o->n_lost));
    o->n_lost = lost;
    const bool waits = (busy && o->urgent == 0) || o->behind;
    if (kv_spill_waiting(s->kv) == 0 || (waits && clock_ns() < o->store_after_ns))
        return false;
    o->n_spill = kv_spill(s->kv, o->spill, busy && !o->urgent ? OFFLOAD_MOST / 4 : OFFLOAD_MOST);
    if (o->n_spill == 0)
        return false;
    o->kept = o->urgent > 0;
    msg.keep_ms = o->kept ? KEEP_MS : 0;
    o->urgent -= o->urgent < o->n_spill ? o->urgent : o->n_spill;
    for (uint32_t i = 0; i < o->n_spill; i++) {
        put_block(&v[i], &o->spill[i], o->spill[i].key);
        at[i] = &v[i];
    }
    msg.blocks = at;
    msg.n_blocks = o->n_spill;
    o->storing = true;
    sched_send(s, CALL_OFFLOAD, SHARD_KV_STORE, &msg.base, CALL_MS);
    return true;
}

static void on_again(struct rpc_op *op, bool ok);

/* Arms a timer for the next store, in case no turn comes before. */
static void arm(struct scheduler *s)
{
    struct offload *o = &s->offload;
    const int64_t left = o->store_after_ns - clock_ns();
    if (o->timer || !s->o.loop || s->stopping)
        return;
    o->timer = true;
    o->again = (struct rpc_op){on_again, "offload"};
    rpc_after(s->o.loop, left > 0 ? left / 1000000 + 1 : 1, &o->again);
}

/* Another turn may have sent a store meanwhile and postponed the next. */
static void on_again(struct rpc_op *op, bool ok)
{
    struct scheduler *s = CONTAINER_OF(op, struct scheduler, offload.again);
    struct offload *o = &s->offload;
    o->timer = false;
    if (ok && o->behind && clock_ns() < o->store_after_ns)
        arm(s);
    sched_turn(s);
    sched_end_turn(s);
}

/* The disk is slower than the computation: pause until it has caught up. */
static void wait_for_disk(struct scheduler *s)
{
    s->offload.store_after_ns = clock_ns() + BEHIND_MS * INT64_C(1000000);
    arm(s);
}

/* The rank that stored the fewest blocks decides. */
static void stored(struct scheduler *s, bool ok)
{
    struct offload *o = &s->offload;
    struct err e = ERR_INIT;
    const int64_t now = clock_ns();
    uint32_t taken = ok ? o->n_spill : 0;
    for (uint32_t i = 0; ok && i < s->fan.n; i++) {
        const Generate__V3__KvStoreResponse *r = (const void *)fan_reply(&s->fan, i, &s->in, &e);
        taken = r && r->taken < taken ? r->taken : r ? taken : 0;
        if (i == 0 && r)
            note_stats(s, r->stats);
    }
    kv_spilled(s->kv, o->spill, o->n_spill, taken);
    sched_count(s, M_OFFLOAD_STORED, NULL, taken);
    sched_count(s, M_TRANSFER_EXPORTED, NULL, o->kept ? taken : 0);
    o->store_after_ns = now + SHARE_OUT * (now - s->call_ns);
    o->behind = taken < o->n_spill;
    if (o->behind)
        wait_for_disk(s);
    o->storing = false;
    o->n_spill = 0;
}

/* ------------------------------------------------------------------ waiting requests */

static void serve_next(struct scheduler *s);

static struct seq *pop(struct offload *o)
{
    struct seq *q = o->head;
    if (!(o->head = q->next))
        o->tail = &o->head;
    q->next = NULL;
    free(o->keys);
    free(o->parts);
    o->keys = NULL;
    o->parts = NULL;
    o->n_keys = o->n_parts = 0;
    o->peer_is_done = false;
    return q;
}

/* `head` stops waiting and enters the queue. */
static void enqueue_head(struct scheduler *s)
{
    struct seq *q = pop(&s->offload);
    s->offload.state = OFFLOAD_IDLE;
    if (q->gone)
        sched_drop(s, q);
    else
        follow_enqueue(s, q);
}

static void let_all_in(struct scheduler *s)
{
    while (s->offload.head)
        enqueue_head(s);
}

void offload_enqueue(struct scheduler *s, struct seq *q)
{
    struct offload *o = &s->offload;
    const struct kv_key *k = &q->waiter.key;
    const uint32_t most = o->on && q->waiter.share && !k->adapter ? kv_most_blocks(s->kv, k) : 0;
    const bool peer = transfer_peer(s, q, most, 0, NULL);
    const uint32_t least = peer ? 1 : FETCH_LEAST;
    if (most < least || s->link_state != LINK_CONNECTED || s->lost ||
        (!peer && clock_ns() < o->fetch_after_ns) || kv_resident(s->kv, k) + least > most) {
        follow_enqueue(s, q);
        return;
    }
    q->state = SEQ_FETCHING;
    q->next = NULL;
    *o->tail = q;
    o->tail = &q->next;
    if (o->state == OFFLOAD_IDLE)
        serve_next(s);
}

void offload_cancel(struct scheduler *s, struct seq *q)
{
    struct offload *o = &s->offload;
    struct seq **at = &o->head;
    if (q == o->head && o->state == OFFLOAD_LOADING) {
        q->gone = true; /* its tokens are needed until the call returns */
        return;
    }
    if (q == o->head) {
        sched_drop(s, pop(o));
        o->state = OFFLOAD_IDLE;
        serve_next(s);
        return;
    }
    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
    if (o->tail == &q->next)
        o->tail = at;
    sched_drop(s, q);
}

/* ------------------------------------------------------------------ fetch */

/* Time that computing the tokens would take. */
static int64_t patience_ms(const struct scheduler *s, uint32_t tokens)
{
    const double ms = s->token_ns > 0 ? s->token_ns * tokens * 1e-6 : PATIENCE_FIRST_MS;
    return ms < PATIENCE_LEAST_MS  ? PATIENCE_LEAST_MS
           : ms > PATIENCE_MOST_MS ? PATIENCE_MOST_MS
                                   : (int64_t)ms;
}

/* False: `head` has nothing to wait for. */
static bool fetch(struct scheduler *s)
{
    struct offload *o = &s->offload;
    struct seq *q = o->head;
    const struct kv_key *k = &q->waiter.key;
    Generate__V3__KvFetchRequest msg = GENERATE__V3__KV_FETCH_REQUEST__INIT;
    if (!o->keys) {
        o->n_keys = kv_most_blocks(s->kv, k);
        o->keys = malloc((size_t)o->n_keys * sizeof(*o->keys));
        if (!o->keys)
            return false;
        kv_chain_keys(s->kv, k, o->n_keys, o->keys);
    }
    o->from = kv_resident(s->kv, k);
    if (o->from >= o->n_keys)
        return false;
    const uint32_t n = o->n_keys - o->from;
    ProtobufCBinaryData *v = malloc(n * sizeof(*v));
    if (!v)
        return false;
    for (uint32_t i = 0; i < n; i++)
        v[i] = key_bytes(o->keys[o->from + i]);
    msg.id = ++o->id;
    msg.keys = v;
    msg.n_keys = n;
    o->state = OFFLOAD_FETCHING;
    int64_t ms = patience_ms(s, n * s->peer.block_size);
    const int64_t peer_ms = ms > PEER_LEAST_MS ? ms : PEER_LEAST_MS;
    Generate__V3__KvPeer peer = GENERATE__V3__KV_PEER__INIT;
    o->asked_peer =
        !o->peer_is_done && transfer_peer(s, q, o->n_keys, peer_ms, &peer) && peer.n > o->from;
    ms = o->asked_peer ? peer_ms + PEER_GRACE_MS : ms;
    peer.n -= o->asked_peer ? o->from : 0;
    msg.peer = o->asked_peer ? &peer : NULL;
    fan_call(&o->fan, SHARD_KV_FETCH, &msg.base, ms, false);
    free(v);
    return true;
}

static void serve_next(struct scheduler *s)
{
    struct offload *o = &s->offload;
    while (o->head && o->state == OFFLOAD_IDLE && !o->fan.busy) {
        const bool peer = transfer_peer(s, o->head, 1, 0, NULL);
        if ((!peer && clock_ns() < o->fetch_after_ns) || !fetch(s))
            enqueue_head(s);
    }
}

/* Intersects what all ranks found: the parts of each block, and the shortest prefix. */
static bool read_found(struct scheduler *s, struct rpc_mem *mem)
{
    struct offload *o = &s->offload;
    struct err e = ERR_INIT;
    struct transfer_read peer = {0};
    uint32_t from_disk = 0;
    free(o->parts);
    o->parts = NULL;
    o->n_parts = 0;
    for (uint32_t i = 0; i < o->fan.n; i++) {
        const Generate__V3__KvFetchResponse *r = (const void *)fan_reply(&o->fan, i, mem, &e);
        if (!r || r->parts.len > o->n_keys - o->from)
            return false;
        if (i == 0 && !(o->parts = malloc(r->parts.len + 1)))
            return false;
        if (i == 0 || r->parts.len < o->n_parts) /* a later rank may have found more, too */
            o->n_parts = (uint32_t)r->parts.len;
        for (uint32_t k = 0; k < o->n_parts; k++)
            o->parts[k] = i ? o->parts[k] & r->parts.data[k] : r->parts.data[k];
        o->more = (i == 0 || o->more) && r->more;
        transfer_note(&peer, i, r);
        if (i == 0) {
            from_disk = r->from_disk;
            note_stats(s, r->stats);
        }
    }
    const uint32_t disk = from_disk < o->n_parts ? from_disk : o->n_parts;
    sched_count(s, M_OFFLOAD_HITS, "disk", disk);
    const uint32_t here = o->n_parts - disk; /* blocks of a peer are in memory too by now */
    sched_count(s, M_OFFLOAD_HITS, "memory", here - (peer.blocks < here ? peer.blocks : here));
    if (o->asked_peer)
        transfer_count(s, &peer);
    o->peer_is_done = peer.outcome != GENERATE__V3__KV_PEER_OUTCOME__KV_PEER_FOUND &&
                      peer.outcome != GENERATE__V3__KV_PEER_OUTCOME__KV_PEER_FULL;
    sched_count(s, M_OFFLOAD_MISSES, NULL, o->more ? 0 : o->n_keys - o->from - o->n_parts);
    return true;
}

static void on_fetched(struct fan *f)
{
    struct scheduler *s = f->arg;
    struct offload *o = &s->offload;
    struct rpc_mem mem;
    struct err e = ERR_INIT;
    if (o->state == OFFLOAD_FETCHING) {
        rpc_mem_init(&mem, MEM_LIMIT);
        if (fan_error(f, &e) != 0) {
            LOG(LOG_WARN, "reading offloaded KV blocks took too long", LOGS("error", e.msg));
            sched_count(s, M_OFFLOAD_LATE, NULL, 1);
            o->fetch_after_ns = clock_ns() + PAUSE_NS;
            if (o->asked_peer)
                enqueue_head(s);
            else
                let_all_in(s);
        } else if (!read_found(s, &mem) || o->n_parts == 0) {
            enqueue_head(s);
        } else {
            o->state = OFFLOAD_READY;
        }
        rpc_mem_free(&mem);
    }
    serve_next(s);
    sched_turn(s);
    sched_end_turn(s);
}

/* ------------------------------------------------------------------ load */

static bool send_load(struct scheduler *s, uint32_t n)
{
    struct offload *o = &s->offload;
    Generate__V3__KvLoadRequest msg = GENERATE__V3__KV_LOAD_REQUEST__INIT;
    Generate__V3__KvBlock *v = malloc((n + 1) * sizeof(*v));
    // NOLINTNEXTLINE(bugprone-sizeof-expression): of pointers, indeed
    Generate__V3__KvBlock **at = malloc((n + 1) * sizeof(*at));
    struct kv_spill x;
    for (uint32_t i = 0; v && at && i < n; i++) {
        if (!kv_import_wants(s->kv, &o->table, i, &x))
            continue;
        if (i < o->from || i >= o->from + o->n_parts || x.parts & ~o->parts[i - o->from])
            break; /* evicted since it was requested */
        put_block(&v[msg.n_blocks], &x, o->keys[i]);
        at[msg.n_blocks] = &v[msg.n_blocks];
        msg.n_blocks++;
        if (i + 1 == n) {
            msg.id = o->id;
            msg.blocks = at;
            o->state = OFFLOAD_LOADING;
            sched_send(s, CALL_OFFLOAD, SHARD_KV_LOAD, &msg.base, CALL_MS);
        }
    }
    free(v);
    free(at);
    return o->state == OFFLOAD_LOADING;
}

/* A load must wait until no step on the shards writes blocks of a removed sequence. */
static bool load(struct scheduler *s)
{
    struct offload *o = &s->offload;
    const struct kv_key *k = &o->head->waiter.key;
    if (s->n_leave > 0 || s->batch_unknown)
        return false;
    const uint32_t n = kv_import(s->kv, &o->table, k, o->from, o->parts, o->n_parts);
    if (n > 0 && send_load(s, n))
        return true;
    if (n > 0)
        kv_imported(s->kv, &o->table, k, false);
    enqueue_head(s);
    serve_next(s);
    return false;
}

static void loaded(struct scheduler *s, bool ok)
{
    struct offload *o = &s->offload;
    assert(o->head && o->state == OFFLOAD_LOADING);
    struct seq *q = o->head;
    const uint32_t was = o->from;
    sched_count(s, M_OFFLOAD_LOADED, NULL, ok ? (double)o->table.len - was : 0);
    q->n_loaded += ok ? (o->table.len - was) * s->peer.block_size : 0;
    kv_imported(s->kv, &o->table, &q->waiter.key, ok);
    o->state = OFFLOAD_IDLE;
    const bool goes_on = ok && o->more && !q->gone && kv_resident(s->kv, &q->waiter.key) > was;
    if (!goes_on || o->fan.busy || !fetch(s))
        enqueue_head(s);
    serve_next(s);
}

/* ------------------------------------------------------------------ turns */

bool offload_turn(struct scheduler *s)
{
    struct offload *o = &s->offload;
    if (!o->on)
        return false;
    return (o->state == OFFLOAD_READY && load(s)) || send_store(s);
}

void offload_answered(struct scheduler *s, bool ok)
{
    struct offload *o = &s->offload;
    if (o->storing)
        stored(s, ok);
    else if (o->state == OFFLOAD_LOADING)
        loaded(s, ok);
}

void offload_forget(struct scheduler *s)
{
    struct offload *o = &s->offload;
    if (!o->on)
        return;
    if (o->state == OFFLOAD_LOADING)
        kv_imported(s->kv, &o->table, &o->head->waiter.key, false);
    o->storing = false;
    o->n_spill = 0;
    o->state = OFFLOAD_IDLE;
    let_all_in(s);
}

void offload_fail_all(struct scheduler *s, const struct err *why)
{
    struct offload *o = &s->offload;
    struct seq *first = o->state == OFFLOAD_LOADING ? o->head : NULL;
    const int64_t now = clock_ns();
    while (o->head && o->head != first) {
        struct seq *q = pop(o);
        o->state = OFFLOAD_IDLE;
        fail_request(s, q, why, now);
        sched_drop(s, q);
    }
    if (!first)
        return;
    fail_request(s, first, why, now);
    first->gone = true;
    while (first->next) {
        struct seq *q = first->next;
        first->next = q->next;
        fail_request(s, q, why, now);
        sched_drop(s, q);
    }
    o->tail = &first->next;
}

int offload_init(struct scheduler *s, struct shards *of, struct err *e)
{
    struct offload *o = &s->offload;
    o->on = s->o.model.offloads && s->grows;
    o->fetch_after_ns = o->store_after_ns = 0; /* that state was of the previous shards */
    if (!o->tail)
        o->tail = &o->head;
    return fan_init(&o->fan, of, on_fetched, s, e);
}

void offload_free(struct scheduler *s)
{
    assert(!s->offload.head);
    fan_free(&s->offload.fan);
}
