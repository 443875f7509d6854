/* fake_shard.h - a shard without a model, in the test's own process.
 *
 * It serves generate.v3 on a Unix socket and has a KV cache of token ids: a step writes the ids
 * that it computes to its blocks, and the next token is a hash of what the blocks then hold. So the
 * answer changes if a block is assigned to two writers, or is offered as cached with other
 * contents. fake_expect() computes the right answer. Tests script it by the fields under "script",
 * which any thread may set. */
#ifndef TESTS_FAKE_SHARD_H
#define TESTS_FAKE_SHARD_H
#include "tests/fake_shard_adapters.h"
#include "tests/fake_shard_tiers.h"

static inline const ProtobufCMessage *fake_failed(struct fake_shard *f, struct rpc_call *call,
                                                  struct err *e, const char *why)
{
    if (f->fail_status)
        call->code = (grpc_status_code)f->fail_status;
    err_set(e, ERR_SYSTEM, "%s", why);
    return NULL;
}

static inline const ProtobufCMessage *fake_prefill(void *ctx, const ProtobufCMessage *in,
                                                   struct rpc_call *call, struct err *e)
{
    struct fake_shard *f = ctx;
    const Generate__V3__PrefillRequest *p = (const void *)in;
    uint64_t id = p->cached_batch ? p->cached_batch->id : p->batch->id;
    if (p->batch->id == UINT64_MAX)
        f->n_probe++;
    if (!f->max_prefill) {
        err_set(e, ERR_VALIDATION, "the KV cache has 0 blocks before Warmup");
        return NULL;
    }
    if (fake_fails(&f->fail_prefill)) {
        if (f->fail_late && fake_batch_size(f, id) > 0)
            fake_edit(f, p->edits, id);
        if (f->fail_drops)
            fake_drop_batch(f, id);
        fake_pause(f);
        return fake_failed(f, call, e, "prefill failed");
    }
    if (p->cached_batch && fake_batch_size(f, id) == 0) {
        err_set(e, ERR_SYSTEM, "Batch ID %lu not found in cache.", (unsigned long)id);
        return NULL;
    }
    assert(p->n_kv_copies == 0 || !f->no_copies);
    for (size_t i = 0; i < p->n_kv_copies; i++)
        memcpy(&f->kv[p->kv_copies[i]->target * f->block_size],
               &f->kv[p->kv_copies[i]->source * f->block_size], f->block_size * sizeof(f->kv[0]));
    fake_edit(f, p->edits, id);
    for (size_t i = 0; i < p->batch->n_requests; i++)
        fake_add(f, p->batch->requests[i], id);
    return fake_step(f, id, call->mem,
                     (struct fake_log){.rpc = FAKE_PREFILL,
                                       .n_new = (uint32_t)p->batch->n_requests,
                                       .cached = p->batch->requests[0]->cache_len});
}

static inline const ProtobufCMessage *fake_decode(void *ctx, const ProtobufCMessage *in,
                                                  struct rpc_call *call, struct err *e)
{
    struct fake_shard *f = ctx;
    const Generate__V3__DecodeRequest *d = (const void *)in;
    assert(d->n_batches > 0);
    uint64_t id = d->batches[0]->id;
    bool fails = fake_fails(&f->fail_decode);
    for (size_t i = 0; i < d->n_batches; i++) {
        uint64_t other = d->batches[i]->id;
        if (fake_batch_size(f, other) == 0) {
            err_set(e, ERR_SYSTEM, "Batch ID %lu not found in cache.", (unsigned long)other);
            return NULL;
        }
        for (uint32_t k = 0; k < f->n_run; k++)
            if (f->run[k].batch == other)
                f->run[k].batch = id;
    }
    if (fails) {
        fake_drop_batch(f, id);
        return fake_failed(f, call, e, "decode failed");
    }
    fake_edit(f, d->edits, id);
    const ProtobufCMessage *r = fake_step(f, id, call->mem, (struct fake_log){.rpc = FAKE_DECODE});
    fake_ahead(f, id);
    return r;
}

static inline const ProtobufCMessage *fake_filter(void *ctx, const ProtobufCMessage *in,
                                                  struct rpc_call *call, struct err *e)
{
    struct fake_shard *f = ctx;
    const Generate__V3__FilterBatchRequest *p = (const void *)in;
    if (fake_fails(&f->fail_filter) || fake_batch_size(f, p->batch_id) == 0) {
        err_set(e, ERR_SYSTEM, "Batch ID %lu not found in cache.", (unsigned long)p->batch_id);
        return NULL;
    }
    Generate__V3__FilterBatchResponse *r = RPC_NEW(call->mem, Generate__V3__FilterBatchResponse, 1);
    generate__v3__filter_batch_response__init(r);
    r->batch = RPC_NEW(call->mem, Generate__V3__CachedBatch, 1);
    generate__v3__cached_batch__init(r->batch);
    r->batch->id = p->batch_id;
    for (uint32_t i = f->n_run; i-- > 0;) {
        bool keep = false;
        for (size_t k = 0; k < p->n_request_ids; k++)
            keep |= p->request_ids[k] == f->run[i].id;
        if (f->run[i].batch != p->batch_id)
            continue;
        if (keep)
            r->batch->current_tokens += f->run[i].n_next;
        else
            fake_drop(f, i);
    }
    r->batch->size = fake_batch_size(f, p->batch_id);
    fake_note(f, (struct fake_log){.rpc = FAKE_FILTER, .n_size = r->batch->size});
    return &r->base;
}

static inline const ProtobufCMessage *fake_clear(void *ctx, const ProtobufCMessage *in,
                                                 struct rpc_call *call, struct err *e)
{
    struct fake_shard *f = ctx;
    const Generate__V3__ClearCacheRequest *p = (const void *)in;
    static const Generate__V3__ClearCacheResponse none = GENERATE__V3__CLEAR_CACHE_RESPONSE__INIT;
    (void)call, (void)e;
    for (uint32_t i = f->n_run; i-- > 0;)
        if (!p->_id_case || f->run[i].batch == p->id)
            fake_drop(f, i);
    fake_note(f, (struct fake_log){.rpc = FAKE_CLEAR});
    return &none.base;
}

static inline const ProtobufCMessage *fake_health(void *ctx, const ProtobufCMessage *in,
                                                  struct rpc_call *call, struct err *e)
{
    static const Generate__V3__HealthResponse none = GENERATE__V3__HEALTH_RESPONSE__INIT;
    struct fake_shard *f = ctx;
    (void)in, (void)call, (void)e;
    f->n_health++;
    return &none.base;
}

static inline const ProtobufCMessage *fake_info(void *ctx, const ProtobufCMessage *in,
                                                struct rpc_call *call, struct err *e)
{
    struct fake_shard *f = ctx;
    (void)in, (void)e;
    Generate__V3__InfoResponse *r = RPC_NEW(call->mem, Generate__V3__InfoResponse, 1);
    generate__v3__info_response__init(r);
    r->dtype = rpc_mem_strdup(call->mem, "float32", 7);
    r->device_type = rpc_mem_strdup(call->mem, "cpu", 3);
    r->block_size = f->block_size;
    r->checkpoint_hash = f->checkpoint_hash;
    r->support_chunking = !f->no_chunking;
    r->use_prefix_caching = !f->no_prefix_caching;
    r->takes_input_ids = !f->text_only;
    r->copies_kv = !f->no_copies;
    r->takes_edits = !f->no_edits && !f->text_only;
    r->takes_chunks = !f->no_chunks;
    r->takes_grammars = true;
    r->takes_images = f->takes_images;
    fake_adapters_info(f, r);
    r->speculate = f->speculate;
    r->state_cells_per_request = f->n_cells ? 2 : 0;
    static uint32_t own_fields[] = {100, 101, 102};
    r->sampling_fields = own_fields;
    r->n_sampling_fields = sizeof(own_fields) / sizeof(own_fields[0]);
    r->vocab_size = f->text_only ? 0 : FAKE_VOCAB;
    if (f->embeds) {
        r->task = rpc_mem_strdup(call->mem, "embed", 5);
        r->embed_width = r->hidden_size = 1;
    }
    return &r->base;
}

static inline const ProtobufCMessage *fake_discovery(void *ctx, const ProtobufCMessage *in,
                                                     struct rpc_call *call, struct err *e)
{
    struct fake_shard *f = ctx;
    (void)in, (void)e;
    Generate__V3__ServiceDiscoveryResponse *r =
        RPC_NEW(call->mem, Generate__V3__ServiceDiscoveryResponse, 1);
    generate__v3__service_discovery_response__init(r);
    r->n_urls = f->world;
    r->urls = (char **)(uintptr_t)f->urls;
    return &r->base;
}

static inline const ProtobufCMessage *fake_warmup(void *ctx, const ProtobufCMessage *in,
                                                  struct rpc_call *call, struct err *e)
{
    struct fake_shard *f = ctx;
    const Generate__V3__WarmupRequest *p = (const void *)in;
    if (f->lose_warmups) {
        f->lose_warmups--;
        call->code = GRPC_STATUS_UNAVAILABLE;
        err_set(e, ERR_SYSTEM, "warmup");
        return NULL;
    }
    Generate__V3__WarmupResponse *r = RPC_NEW(call->mem, Generate__V3__WarmupResponse, 1);
    generate__v3__warmup_response__init(r);
    f->max_prefill = p->max_prefill_tokens;
    f->max_chunk = p->max_chunk_tokens ? p->max_chunk_tokens : f->max_prefill;
    r->_max_supported_total_tokens_case = 1;
    r->max_supported_total_tokens = f->n_blocks * f->block_size;
    r->max_total_tokens =
        p->_max_total_tokens_case ? p->max_total_tokens : f->n_blocks * f->block_size;
    r->max_input_tokens = p->_max_input_tokens_case ? p->max_input_tokens : r->max_total_tokens - 1;
    r->swap_slots = f->n_slots;
    r->offloads = f->offloads;
    r->transfers = f->transfers;
    r->state_cells = f->n_cells;
    r->window_blocks = f->n_windows;
    r->window_tokens = f->n_windows ? f->block_size : 0;
    r->state_cell_bytes = f->n_cells ? 8 : 0;
    r->swap_block_ns = f->swap_block_ns;
    return &r->base;
}

static inline const ProtobufCMessage *fake_embed(void *ctx, const ProtobufCMessage *in,
                                                 struct rpc_call *call, struct err *e)
{
    struct fake_shard *f = ctx;
    const Generate__V3__EmbedRequest *p = (const void *)in;
    const uint32_t no = ++f->n_embeds;
    while (f->hold_embed == no)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    if (f->lose_embed == no) {
        call->code = GRPC_STATUS_UNAVAILABLE;
        err_set(e, ERR_SYSTEM, "embed");
        return NULL;
    }
    Generate__V3__EmbedResponse *r = RPC_NEW(call->mem, Generate__V3__EmbedResponse, 1);
    generate__v3__embed_response__init(r);
    r->values = RPC_NEW(call->mem, float, p->n_texts);
    for (r->n_values = 0; r->n_values < p->n_texts; r->n_values++)
        r->values[r->n_values] = (float)p->texts[r->n_values]->ids[0];
    r->width = 1;
    return &r->base;
}

#define FAKE_RPC(rpc, type, lane_, fn)                                                             \
    {                                                                                              \
        .name = "/generate.v3.TextGenerationService/" rpc,                                         \
        .request = &generate__v3__##type##_request__descriptor, .lane = lane_, .handle = fn        \
    }
static const struct rpc_method fake_methods[] = {
    FAKE_RPC("Info", info, RPC_AT_ONCE, fake_info),
    FAKE_RPC("Health", health, RPC_AT_ONCE, fake_health),
    FAKE_RPC("ServiceDiscovery", service_discovery, RPC_AT_ONCE, fake_discovery),
    FAKE_RPC("ClearCache", clear_cache, RPC_SERIAL, fake_clear),
    FAKE_RPC("FilterBatch", filter_batch, RPC_SERIAL, fake_filter),
    FAKE_RPC("Warmup", warmup, RPC_SERIAL, fake_warmup),
    FAKE_RPC("Prefill", prefill, RPC_SERIAL, fake_prefill),
    FAKE_RPC("Decode", decode, RPC_SERIAL, fake_decode),
    FAKE_RPC("Embed", embed, RPC_SERIAL, fake_embed),
    FAKE_RPC("LoadAdapter", load_adapter, RPC_SERIAL, fake_load_adapter),
    FAKE_RPC("UnloadAdapter", unload_adapter, RPC_SERIAL, fake_unload_adapter),
    FAKE_RPC("KvStore", kv_store, RPC_SERIAL, fake_store),
    FAKE_RPC("KvFetch", kv_fetch, RPC_APART, fake_fetch),
    FAKE_RPC("KvLoad", kv_load, RPC_SERIAL, fake_load),
};

static inline void *fake_run(void *arg)
{
    rpc_server_run(((struct fake_shard *)arg)->server);
    return NULL;
}

static inline void fake_open(struct fake_shard *f)
{
    struct err e = ERR_INIT;
    pthread_mutex_init(&f->lock, NULL);
    if (!f->world) {
        f->world = 1;
        f->urls[0] = f->path;
    }
    f->block_size = f->block_size ? f->block_size : 4;
    f->n_blocks = f->n_blocks ? f->n_blocks : 64;
    f->kv = calloc((size_t)f->n_blocks * f->block_size, sizeof(uint32_t));
    f->cell = calloc((size_t)f->n_cells + 1, sizeof(*f->cell));
    f->swap = calloc((size_t)f->n_slots * f->block_size + 1, sizeof(uint32_t));
    f->kept = calloc(f->offloads ? FAKE_MAX_KEPT : 1, sizeof(*f->kept));
    f->server = rpc_server_open(
        &(struct rpc_server_options){.address = f->path,
                                     .methods = fake_methods,
                                     .n_methods = sizeof(fake_methods) / sizeof(fake_methods[0]),
                                     .ctx = f},
        &e);
    if (!f->server) {
        fprintf(stderr, "fake shard: %s\n", e.msg);
        abort();
    }
}

static inline void fake_start(struct fake_shard *f)
{
    fake_open(f);
    pthread_create(&f->thread, NULL, fake_run, f);
}

static inline void fake_stop(struct fake_shard *f)
{
    if (!f->server)
        return;
    rpc_server_stop(f->server);
    pthread_join(f->thread, NULL);
    rpc_server_close(f->server);
    f->server = NULL;
    while (f->n_run)
        fake_drop(f, 0);
    free(f->kv);
    free(f->swap);
    free(f->cell);
    free(f->kept);
    f->kept = NULL;
    f->cell = NULL;
    f->kv = f->swap = NULL;
}
#endif
