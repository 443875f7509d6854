/* fake_shard_model.h - the state of a fake shard and its steps: see fake_shard.h.
 *
 * The KV cache holds token ids, and the next token is a hash of what the blocks of a sequence hold.
 * fake_expect() computes the right answer from the prompt alone. */
#ifndef TESTS_FAKE_SHARD_MODEL_H
#define TESTS_FAKE_SHARD_MODEL_H
#include "common/rpc/server.h"
#include "proto/generate.pb-c.h"
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    FAKE_VOCAB = 1000,
    FAKE_MAX_RUN = 512,
    FAKE_MAX_LOG = 4096,
    FAKE_MAX_BLOCK = 16,
    FAKE_MAX_KEPT = 4096,
    FAKE_MAX_ADAPTERS = 8
};

struct fake_seq {
    uint64_t id, batch;
    uint32_t *blocks, n_blocks;
    uint32_t *tokens, n_tokens, n_prompt, n_known, computed, n_next, max_new;
    bool ends; /* has its last token, waits for FilterBatch */
    bool stateful;
    uint32_t cells[2]; /* the first one holds the state after `computed` tokens */
};

struct fake_cell {  /* recurrent state */
    uint32_t h, n;  /* a hash of the preceding n tokens */
    uint64_t owner; /* id + 1 of the request that owns it; 0: a snapshot, or free */
};

enum fake_rpc { FAKE_PREFILL, FAKE_DECODE, FAKE_FILTER, FAKE_CLEAR };
struct fake_log {
    enum fake_rpc rpc;
    uint32_t n_new, n_size; /* requests: joined by this call; in the batch after it */
    uint32_t n_tokens;      /* computed by this step */
    uint32_t cached;        /* cache_len of the first new request */
};

struct fake_shard {
    /* set before fake_start() */
    char path[100];
    const char *urls[8];
    uint64_t checkpoint_hash; /* 0: not said */
    uint32_t rank, world, block_size, n_blocks;
    bool no_chunking, no_prefix_caching, no_copies, no_edits, no_chunks, text_only;
    bool takes_images;         /* reported by Info; images themselves are ignored */
    uint32_t n_windows;        /* blocks of a sliding-window cache that it reports; it has none */
    uint32_t n_slots;          /* of the swap region */
    uint64_t swap_block_ns;    /* time to move a block; a token takes 1000 ns to compute */
    uint32_t n_cells;          /* of recurrent state; 0: there is none */
    bool offloads;             /* it has lower tiers; block_size <= FAKE_MAX_BLOCK */
    bool transfers;            /* it reads blocks of `peer`; NULL: the peer is gone */
    bool quick;                /* constant tokens: for benchmarks */
    uint32_t speculate;        /* drafts that it says to verify; it rejects them all */
    uint32_t runtime_adapters; /* it loads so many, at most FAKE_MAX_ADAPTERS */
    bool embeds;               /* it gives vectors: the first id of a text */
    bool stamps; /* the text of a token is the time when its step ended, in monotonic ns */
    int64_t stamp;
    /* script */
    _Atomic uint32_t hold_embed, lose_embed; /* this Embed, from 1, waits; is answered as if lost */
    _Atomic uint32_t lose_warmups;           /* so many are answered as if lost */
    _Atomic int step_ms;
    _Atomic int fetch_ms;                          /* what a KvFetch takes */
    _Atomic int fail_store, fail_fetch, fail_load; /* this many next calls fail */
    struct fake_shard *peer;                       /* under its lock */
    _Atomic uint32_t peer_most;  /* most blocks of a fetch from the peer; 0: all */
    _Atomic uint32_t keeps_most; /* most blocks that a KvStore stores; 0: all */
    _Atomic uint32_t finds_most; /* most blocks that a KvFetch finds; 0: all */
    _Atomic int fail_prefill, fail_decode, fail_filter; /* this many next calls fail */
    _Atomic int fail_status;    /* status of failing Prefills and Decodes; 0: INTERNAL */
    _Atomic bool fail_late;     /* a failing Prefill has applied its edits */
    _Atomic bool fail_drops;    /* a failing Prefill loses the cached batch (TGI's way) */
    _Atomic uint64_t fail_one;  /* id + 1: its next generation is an error */
    _Atomic int hold;           /* steps wait while it is set */
    _Atomic int hold_adapter;   /* loads of adapters wait while it is set */
    _Atomic bool holds_adapter; /* one has waited */
    _Atomic bool hangs;         /* a step waits for `hold` */
    /* results; read under `lock` */
    pthread_mutex_t lock;
    struct fake_log log[FAKE_MAX_LOG];
    uint32_t n_log;
    _Atomic uint32_t n_health, n_probe, n_embeds;
    uint32_t n_bad; /* cached blocks, and states, with wrong contents */
    _Atomic uint32_t n_left, n_more, n_out, n_in;  /* edits */
    _Atomic uint32_t n_saves, n_from;              /* snapshots taken, and used */
    _Atomic uint32_t n_stores, n_fetches, n_loads; /* KvStore, KvFetch; blocks that were loaded */
    _Atomic uint32_t n_kept_for_peers, n_peer_fetches;
    _Atomic uint32_t n_unfair; /* preempted for a newer one */
    _Atomic uint32_t n_tight;  /* steps after which a sequence had no block for run-ahead */
    /* its own */
    uint32_t max_prefill, max_chunk, *kv, *swap;
    struct fake_cell *cell;
    struct fake_kept { /* a block in a lower tier; under `lock` */
        uint8_t key[32];
        uint32_t ids[FAKE_MAX_BLOCK];
        struct fake_cell cell;
        uint8_t parts;
    } * kept;
    uint32_t n_kept;
    char adapters[FAKE_MAX_ADAPTERS][32]; /* names; under `lock` */
    uint32_t n_adapters;
    uint64_t fetched; /* id of the last KvFetch */
    struct fake_seq run[FAKE_MAX_RUN];
    uint32_t n_run;
    struct rpc_server *server;
    pthread_t thread;
};

static inline uint32_t fake_next(uint32_t h) { return (h >> 7) % FAKE_VOCAB; }
static inline uint32_t fake_mix(uint32_t h, uint32_t tok) { return (h ^ tok) * 0x9e3779b1u; }

/* The n tokens after `prompt`. */
static inline void fake_expect(const uint32_t *prompt, uint32_t n_prompt, uint32_t *out, uint32_t n)
{
    uint32_t h = 1;
    for (uint32_t i = 0; i < n_prompt; i++)
        h = fake_mix(h, prompt[i]);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = fake_next(h);
        h = fake_mix(h, out[i]);
    }
}

static inline uint32_t *fake_slot(struct fake_shard *f, const struct fake_seq *q, uint32_t pos)
{
    assert(pos / f->block_size < q->n_blocks);
    return &f->kv[q->blocks[pos / f->block_size] * f->block_size + pos % f->block_size];
}

static inline void fake_note(struct fake_shard *f, struct fake_log l)
{
    pthread_mutex_lock(&f->lock);
    if (f->n_log < FAKE_MAX_LOG)
        f->log[f->n_log++] = l;
    pthread_mutex_unlock(&f->lock);
}

/* From now on its cells belong to the request: they are no snapshot, and no other request's. */
static inline void fake_state_begin(struct fake_shard *f, struct fake_seq *q,
                                    const Generate__V3__Request *r)
{
    q->stateful = f->n_cells > 0 && r->id != UINT64_MAX; /* the probe has one of the shard's own */
    if (!q->stateful)
        return;
    assert(r->n_state_cells == 2 && r->state_cells[0] != r->state_cells[1]);
    assert(!r->_state_from_case == !r->cache_len);
    struct fake_cell from = {.h = 1};
    if (r->_state_from_case) {
        assert(r->state_from < f->n_cells);
        from = f->cell[r->state_from];
        assert(!from.owner); /* read before a joining request takes it */
        f->n_bad += from.n != r->cache_len;
        f->n_from++;
    }
    for (int k = 0; k < 2; k++) {
        assert(r->state_cells[k] < f->n_cells);
        q->cells[k] = r->state_cells[k];
        assert(!f->cell[q->cells[k]].owner);
        f->cell[q->cells[k]] =
            (struct fake_cell){k ? 0xbad : from.h, k ? UINT32_MAX : from.n, r->id + 1};
    }
}

/* Writes its state after its next n tokens to the cell that it does not read. */
static inline void fake_state_step(struct fake_shard *f, const struct fake_seq *q, uint32_t n)
{
    const struct fake_cell *from = &f->cell[q->cells[0]];
    struct fake_cell *to = &f->cell[q->cells[1]];
    assert(from->owner == q->id + 1 && to->owner == q->id + 1);
    f->n_bad += from->n != q->computed;
    to->h = from->h;
    to->n = from->n + n;
    for (uint32_t i = 0; i < n; i++)
        to->h = fake_mix(to->h, q->tokens[q->computed + i]);
}

static inline void fake_state_accept(struct fake_seq *q)
{
    uint32_t read = q->cells[0];
    q->cells[0] = q->cells[1];
    q->cells[1] = read;
}

static inline void fake_drop(struct fake_shard *f, uint32_t i)
{
    for (int k = 0; k < 2 && f->run[i].stateful; k++)
        f->cell[f->run[i].cells[k]].owner = 0;
    free(f->run[i].blocks);
    free(f->run[i].tokens);
    memmove(&f->run[i], &f->run[i + 1], (f->n_run - i - 1) * sizeof(f->run[0]));
    f->n_run--;
}

static inline void fake_drop_batch(struct fake_shard *f, uint64_t id)
{
    for (uint32_t i = f->n_run; i-- > 0;)
        if (f->run[i].batch == id)
            fake_drop(f, i);
}

static inline uint32_t fake_batch_size(struct fake_shard *f, uint64_t id)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n_run; i++)
        n += f->run[i].batch == id;
    return n;
}

static inline void fake_pause(struct fake_shard *f)
{
    if (!f->hold && !f->step_ms)
        return;
    do {
        bool hold = f->hold;
        f->hangs = hold;
        nanosleep(&(struct timespec){.tv_nsec = hold ? 1000000 : f->step_ms * 1000000L}, NULL);
    } while (f->hold);
    f->hangs = false;
}

static inline Generate__V3__Tokens *fake_tokens(uint32_t id, struct rpc_mem *m)
{
    Generate__V3__Tokens *t = RPC_NEW(m, Generate__V3__Tokens, 1);
    generate__v3__tokens__init(t);
    t->n_ids = t->n_logprobs = t->n_texts = t->n_is_special = 1;
    t->ids = RPC_NEW(m, uint32_t, 1);
    t->logprobs = RPC_NEW(m, float, 1);
    t->is_special = RPC_NEW(m, protobuf_c_boolean, 1);
    t->texts = RPC_NEW(m, char *, 1);
    t->ids[0] = id;
    t->logprobs[0] = -0.5f;
    t->texts[0] = rpc_mem_alloc(m, 12);
    snprintf(t->texts[0], 12, "t%u ", id);
    return t;
}

static inline Generate__V3__Generation *fake_generation(struct fake_shard *f, struct fake_seq *q,
                                                        struct rpc_mem *m)
{
    Generate__V3__Generation *g = RPC_NEW(m, Generate__V3__Generation, 1);
    generate__v3__generation__init(g);
    g->request_id = q->id;
    uint32_t h = 1;
    for (uint32_t i = 0; !f->quick && i < q->computed; i++)
        h = fake_mix(h, *fake_slot(f, q, i));
    if (q->stateful && f->cell[q->cells[0]].h != h) {
        f->n_bad++;
        h ^= f->cell[q->cells[0]].h;
    }
    uint32_t id = fake_next(h);
    q->tokens[q->n_tokens++] = id;
    g->tokens = fake_tokens(id, m);
    if (f->stamps) {
        g->tokens->texts[0] = rpc_mem_alloc(m, 24);
        snprintf(g->tokens->texts[0], 24, "%lld ", (long long)f->stamp);
    }
    q->ends = q->n_tokens - q->n_prompt == q->max_new;
    if (q->ends) {
        g->generated_text = RPC_NEW(m, Generate__V3__GeneratedText, 1);
        generate__v3__generated_text__init(g->generated_text);
        g->generated_text->text = rpc_mem_strdup(m, "whole", 5);
        g->generated_text->generated_tokens = q->max_new;
    }
    return g;
}

/* One forward pass over a batch: computes n_next tokens of every sequence. */
static inline const ProtobufCMessage *fake_step(struct fake_shard *f, uint64_t batch,
                                                struct rpc_mem *m, struct fake_log l)
{
    Generate__V3__PrefillResponse *r = RPC_NEW(m, Generate__V3__PrefillResponse, 1);
    generate__v3__prefill_response__init(r);
    r->generations = RPC_NEW(m, Generate__V3__Generation *, f->n_run + 1);
    uint32_t n_open = 0;
    fake_pause(f);
    if (f->stamps) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        f->stamp = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }
    for (uint32_t i = 0; i < f->n_run; i++) {
        struct fake_seq *q = &f->run[i];
        if (q->batch != batch)
            continue;
        assert(!q->ends); /* otherwise the router forgot to filter */
        if (q->stateful && q->n_next > 0) {
            fake_state_step(f, q, q->n_next);
            fake_state_accept(q);
        }
        for (uint32_t end = q->computed + q->n_next; q->computed < end; q->computed++)
            *fake_slot(f, q, q->computed) = q->tokens[q->computed];
        l.n_tokens += q->n_next;
        if (q->computed < q->n_known) {
            n_open++;
            continue;
        }
        Generate__V3__Generation *g = fake_generation(f, q, m);
        if (f->fail_one == q->id + 1) {
            g->error = rpc_mem_strdup(m, "its own fault", 13);
            f->fail_one = 0;
            fake_drop(f, i--);
        } else {
            n_open += !q->ends;
        }
        if (f->world < 2 || g->request_id % f->world == f->rank)
            r->generations[r->n_generations++] = g;
    }
    l.n_size = fake_batch_size(f, batch);
    fake_note(f, l);
    r->forward_ns = r->total_ns = 1000 * (uint64_t)l.n_tokens;
    if (n_open == 0) {
        fake_drop_batch(f, batch);
        return &r->base;
    }
    r->batch = RPC_NEW(m, Generate__V3__CachedBatch, 1);
    generate__v3__cached_batch__init(r->batch);
    r->batch->id = batch;
    r->batch->size = l.n_size;
    uint32_t budget = f->max_chunk > l.n_size ? f->max_chunk - (l.n_size - 1) : 1;
    for (uint32_t i = f->n_run; i-- > 0;) { /* plan of the next step: TGI's rule */
        struct fake_seq *q = &f->run[i];
        if (q->batch != batch)
            continue;
        uint32_t left = q->n_known > q->computed ? q->n_known - q->computed : 0;
        q->n_next = left == 0 ? 1 : left < budget ? left : budget > 0 ? budget : 1;
        if (left)
            budget -= q->n_next < budget ? q->n_next : budget;
        r->batch->current_tokens += q->n_next;
    }
    return &r->base;
}

static inline void fake_add(struct fake_shard *f, const Generate__V3__Request *r, uint64_t batch)
{
    struct fake_seq *q = &f->run[f->n_run++];
    assert(f->n_run < FAKE_MAX_RUN);
    *q = (struct fake_seq){.id = r->id,
                           .batch = batch,
                           .n_prompt = (uint32_t)r->n_input_ids - r->generated_len,
                           .n_known = (uint32_t)r->n_input_ids,
                           .n_tokens = (uint32_t)r->n_input_ids,
                           .computed = r->cache_len,
                           .n_blocks = (uint32_t)r->n_blocks,
                           .max_new = r->stopping_parameters->max_new_tokens};
    if (f->text_only)
        q->n_prompt = q->n_known = q->n_tokens = (uint32_t)strlen(r->inputs);
    q->tokens = calloc(q->n_prompt + q->max_new + 1, sizeof(uint32_t));
    q->blocks =
        calloc(q->n_blocks + (q->n_prompt + q->max_new) / f->block_size + 2, sizeof(uint32_t));
    if (f->text_only)
        for (uint32_t i = 0; i < q->n_prompt; i++)
            q->tokens[i] = (unsigned char)r->inputs[i];
    else
        memcpy(q->tokens, r->input_ids, q->n_known * sizeof(uint32_t));
    memcpy(q->blocks, r->blocks, q->n_blocks * sizeof(uint32_t));
    assert(r->cache_len < q->n_known);
    fake_state_begin(f, q, r);
    q->n_next = r->_chunk_len_case ? r->chunk_len : q->n_known - q->computed;
    for (uint32_t i = 0; i < q->computed; i++)
        if (*fake_slot(f, q, i) != q->tokens[i])
            f->n_bad++;
}

/* Sets what prompts in prefill compute now, if the call says so. */
static inline void fake_chunks(struct fake_shard *f, const Generate__V3__Edits *x, uint64_t batch)
{
    if (!x || !x->chunks)
        return;
    assert(!f->no_chunks && x->chunks->n_tokens == x->chunks->n_request_ids);
    for (uint32_t i = 0; i < f->n_run; i++) {
        struct fake_seq *q = &f->run[i];
        if (q->batch != batch || q->n_tokens - q->computed <= 1)
            continue;
        q->n_next = 0;
        for (size_t k = 0; k < x->chunks->n_tokens; k++)
            if (x->chunks->request_ids[k] == q->id)
                q->n_next = x->chunks->tokens[k];
        assert(q->n_next <= q->n_tokens - q->computed);
    }
}

static inline struct fake_seq *fake_find(struct fake_shard *f, uint64_t id, uint64_t batch)
{
    for (uint32_t i = 0; i < f->n_run; i++)
        if (f->run[i].id == id && f->run[i].batch == batch)
            return &f->run[i];
    return NULL;
}

/* Applies the router's changes, in order; an invalid one is a bug of the router. */
static inline void fake_edit(struct fake_shard *f, const Generate__V3__Edits *x, uint64_t batch)
{
    size_t bytes = f->block_size * sizeof(uint32_t);
    uint64_t newest = UINT64_MAX; /* a request that stays may not be newer than a preempted one */
    assert(!x || !f->no_edits);
    for (size_t i = 0; x && i < x->n_state_saves; i++) {
        const Generate__V3__StateSave *save = x->state_saves[i];
        const struct fake_seq *q = fake_find(f, save->request_id, batch);
        assert(q && q->stateful && save->cell < f->n_cells && !f->cell[save->cell].owner);
        assert(save->tokens == q->computed && save->tokens % f->block_size == 0);
        f->cell[save->cell] = f->cell[q->cells[0]];
        f->cell[save->cell].owner = 0;
        f->n_saves++;
    }
    for (size_t i = 0; x && i < x->n_leave; i++) {
        struct fake_seq *q = fake_find(f, x->leave[i], batch);
        assert(q);
        newest = !q->ends && q->id < newest ? q->id : newest;
        fake_drop(f, (uint32_t)(q - f->run));
        f->n_left++;
    }
    for (uint32_t i = 0; i < f->n_run; i++)
        f->n_unfair += f->run[i].batch == batch && f->run[i].id > newest;
    for (size_t i = 0; x && x->out && i < x->out->n_blocks; i++) {
        assert(x->out->slots[i] < f->n_slots && x->out->blocks[i] < f->n_blocks);
        memcpy(f->swap + x->out->slots[i] * f->block_size,
               f->kv + x->out->blocks[i] * f->block_size, bytes);
        f->n_out++;
    }
    for (size_t i = 0; x && x->in && i < x->in->n_blocks; i++) {
        assert(x->in->slots[i] < f->n_slots && x->in->blocks[i] < f->n_blocks);
        memcpy(f->kv + x->in->blocks[i] * f->block_size, f->swap + x->in->slots[i] * f->block_size,
               bytes);
        memset(f->swap + x->in->slots[i] * f->block_size, 0xff, bytes); /* read once */
        f->n_in++;
    }
    for (size_t i = 0; x && i < x->n_more; i++) {
        struct fake_seq *q = fake_find(f, x->more[i]->request_id, batch);
        assert(q && x->more[i]->n_blocks > 0);
        assert(x->more[i]->from <= q->n_blocks);
        memcpy(q->blocks + x->more[i]->from, x->more[i]->blocks,
               x->more[i]->n_blocks * sizeof(uint32_t));
        q->n_blocks = x->more[i]->from + (uint32_t)x->more[i]->n_blocks;
        assert(q->n_blocks <= (q->n_prompt + q->max_new) / f->block_size + 1);
        f->n_more++;
    }
    fake_chunks(f, x, batch);
}

/* After a Decode writes the next token of each sequence into its block, if all have one. */
static inline void fake_ahead(struct fake_shard *f, uint64_t batch)
{
    bool room = true;
    for (int write = 0; write < 2 && room; write++)
        for (uint32_t i = 0; i < f->n_run; i++) {
            struct fake_seq *q = &f->run[i];
            if (q->batch != batch || q->ends || q->computed + 1 != q->n_tokens)
                continue;
            if (write) {
                *fake_slot(f, q, q->computed) = q->tokens[q->computed];
                if (q->stateful)
                    fake_state_step(f, q, 1); /* not accepted yet */
            } else
                room &= q->computed / f->block_size < q->n_blocks;
        }
    f->n_tight += !room;
}

static inline bool fake_fails(_Atomic int *n)
{
    if (*n <= 0)
        return false;
    --*n;
    return true;
}
#endif
