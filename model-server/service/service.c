#include "model-server/service/service.h"
#include "common/hash.h"
#include "common/log/log.h"
#include "common/model_identity.h"
#include "common/params.h"
#include "common/rpc/std.h"
#include "model-server/service/v2.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int service_init(struct service *s, const struct service_options *o, struct err *e)
{
    *s = (struct service){.o = *o, .v2 = calloc(1, sizeof(*s->v2))};
    pthread_mutex_init(&s->adapters_lock, NULL);
    return s->v2 ? 0 : err_nomem(e);
}

void service_begin(struct service *s, const char *what)
{
    struct service_status *t = &s->status;
    const struct engine_stats g = engine_stats(s->o.engine);
    atomic_store(&t->batches, g.batches);
    atomic_store(&t->sequences, g.sequences);
    atomic_store(&t->blocks, g.blocks);
    atomic_store(&t->blocks_total, g.blocks_total);
    atomic_store(&t->tokens, g.tokens);
    atomic_fetch_add(&t->calls, what != NULL);
    atomic_store(&t->doing, what);
}

void service_log_status(struct service *s)
{
    struct service_status *t = &s->status;
    LOG(LOG_ERROR, "State of the engine", LOGI("rank", s->o.rank),
        LOGS("doing", atomic_load(&t->doing)), LOGI("calls", atomic_load(&t->calls)),
        LOGI("batches", atomic_load(&t->batches)), LOGI("sequences", atomic_load(&t->sequences)),
        LOGI("tokens", atomic_load(&t->tokens)), LOGI("blocks", atomic_load(&t->blocks)),
        LOGI("blocks_total", atomic_load(&t->blocks_total)));
}

void service_free(struct service *s)
{
    tok_scratch_free(s->scratch);
    if (s->v2)
        v2_blocks_free(s->v2);
    free(s->v2);
}

/* Equal for two models with one vocabulary, however many special tokens each adds. 0: out of
 * memory. */
static uint64_t vocab_hash(const struct tokenizer *tok)
{
    const uint32_t n = tokenizer_vocab_size(tok);
    size_t *end = malloc((n + (size_t)1) * sizeof(*end)), from = 0;
    struct buf bytes = BUF_INIT;
    uint64_t h = 0;
    if (end && tokenizer_token_bytes(tok, &bytes, end) == 0)
        for (uint32_t id = 0; id < n; from = end[id++])
            if (end[id] > from)
                h = hash_bytes(h ^ id, bytes.p + from, end[id] - from);
    free(end);
    buf_free(&bytes);
    return h;
}

/* The sampling parameters that a TGI shard lacks; their number. 0: out of memory. */
static size_t own_fields(Generate__V3__InfoResponse *r, struct rpc_mem *m)
{
    static const uint32_t numbers[] = {
#define PARAM(kind, type, name, member, neutral, low, high, taken, words, tgi, openai, lmtp,       \
              number, ...)                                                                         \
    number,
#include "common/params.def"
        PARAM_LOGPROB_TOKEN_IDS,
    };
    enum { N = sizeof(numbers) / sizeof(numbers[0]) };
    size_t n = 0;
    r->sampling_fields = RPC_NEW(m, uint32_t, N);
    for (size_t i = 0; r->sampling_fields && i < N; i++)
        if (numbers[i] >= PARAM_OWN_FIELDS)
            r->sampling_fields[n++] = numbers[i];
    return n;
}

/* Of a model that embeds. */
static void embed_info(const struct model_info *m, Generate__V3__InfoResponse *r)
{
    r->embed_width = m->width;
    r->sparse = m->sparse;
    r->first_row = m->first_row;
    r->cosine_scale = m->cosine_scale;
    r->cosine_plus = m->cosine_plus;
    r->cosines_each = m->cosines_each;
    r->labels = (char **)(uintptr_t)m->labels;
    r->n_labels = m->labels ? m->width : 0;
    r->embed_tokens = m->max_length;
    r->hidden_size = m->row_width ? m->row_width : m->hidden;
    r->pairs_as_text = m->pairs_as_text;
}

const ProtobufCMessage *rpc_info(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                 struct err *e)
{
    struct service *s = ctx;
    Generate__V3__InfoResponse *r = RPC_NEW(call->mem, Generate__V3__InfoResponse, 1);
    char dtype[40];
    (void)in;
    if (!r)
        return err_nomem(e), NULL;
    generate__v3__info_response__init(r);
    snprintf(dtype, sizeof(dtype), "torch.%s", dtype_name(s->o.model->dtype));
    r->dtype = rpc_mem_strdup(call->mem, dtype, strlen(dtype));
    r->quantize = (char *)quant_name(s->o.model->quant);
    r->activations = (char *)arith_name(s->o.model->arith);
    r->matrices = (char *)s->o.model->matrices;
    r->family = (char *)(uintptr_t)s->o.model->type;
    r->parameters = s->o.model->parameters;
    r->weight_bytes = s->o.model->weight_bytes;
    if (s->o.files)
        memcpy(&r->checkpoint_hash, s->o.files->content, sizeof(r->checkpoint_hash));
    r->program_version = (char *)VERSION;
    if (s->o.words) {
        r->options = (char *)(uintptr_t)s->o.words->options;
        r->products = (char *)(uintptr_t)s->o.words->products;
    }
    r->device_type = (char *)s->o.device_type;
    r->support_chunking = true;
    r->use_prefix_caching = !s->o.model->by_length;
    r->attention_impl = (char *)"paged";
    r->block_size = s->o.block_size;
    r->state_cells_per_request = s->o.model->state_bytes ? CELLS_EACH : 0;
    r->speculate = s->o.speculate;
    if (!s->vocab_hash)
        s->vocab_hash = vocab_hash(s->o.tok);
    r->vocab_hash = s->vocab_hash;
    r->vocab_size = s->o.model->vocab;
    r->max_positions = s->o.model->max_positions;
    r->world_size = s->o.world;
    r->takes_input_ids = true;
    r->runtime_adapters = s->o.runtime_adapters;
    r->copies_kv = r->takes_chunks = true;
    r->takes_windows = s->o.model->kv_window > 0;
    r->n_sampling_fields = own_fields(r, call->mem);
    r->takes_images = s->o.vision != NULL;
    if (s->o.model->attends_text) {
        r->_decoder_start_case = GENERATE__V3__INFO_RESPONSE___DECODER_START_DECODER_START;
        r->decoder_start = s->o.model->start;
    }
    r->takes_edits = r->takes_bias = r->takes_reasoning = r->takes_grammars = true;
    r->task = (char *)(uintptr_t)model_task_name(s->o.model->task);
    embed_info(s->o.model, r);
    return r->dtype && r->n_sampling_fields && !list_adapters(s, r, call->mem)
               ? &r->base
               : (err_nomem(e), NULL);
}

const ProtobufCMessage *rpc_health(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                   struct err *e)
{
    static const Generate__V3__HealthResponse fine = GENERATE__V3__HEALTH_RESPONSE__INIT;
    (void)ctx, (void)in, (void)call, (void)e;
    return &fine.base;
}

const ProtobufCMessage *rpc_discover(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                     struct err *e)
{
    const struct service *s = ctx;
    Generate__V3__ServiceDiscoveryResponse *r =
        RPC_NEW(call->mem, Generate__V3__ServiceDiscoveryResponse, 1);
    (void)in;
    if (!r)
        return err_nomem(e), NULL;
    generate__v3__service_discovery_response__init(r);
    r->urls = (char **)(uintptr_t)s->o.addresses;
    r->n_urls = s->o.world;
    return &r->base;
}

const ProtobufCMessage *rpc_clear_cache(void *ctx, const ProtobufCMessage *in,
                                        struct rpc_call *call, struct err *e)
{
    static const Generate__V3__ClearCacheResponse done = GENERATE__V3__CLEAR_CACHE_RESPONSE__INIT;
    const Generate__V3__ClearCacheRequest *q = (const void *)in;
    struct service *s = ctx;
    (void)call, (void)e;
    engine_clear(s->o.engine,
                 q->_id_case == GENERATE__V3__CLEAR_CACHE_REQUEST___ID_ID ? &q->id : NULL);
    return &done.base;
}

const ProtobufCMessage *rpc_filter_batch(void *ctx, const ProtobufCMessage *in,
                                         struct rpc_call *call, struct err *e)
{
    const Generate__V3__FilterBatchRequest *q = (const void *)in;
    struct service *s = ctx;
    const struct batch *b;
    Generate__V3__FilterBatchResponse *r = RPC_NEW(call->mem, Generate__V3__FilterBatchResponse, 1);
    if (!r)
        return err_nomem(e), NULL;
    if (engine_filter(s->o.engine, q->batch_id, q->request_ids, q->n_request_ids, &b, e))
        return NULL;
    generate__v3__filter_batch_response__init(r);
    r->batch = write_batch(s, b, call->mem);
    return r->batch ? &r->base : (err_nomem(e), NULL);
}

#define V3(rpc, message, lane, fn)                                                                 \
    {                                                                                              \
        "/generate.v3.TextGenerationService/" rpc, &generate__v3__##message##__descriptor, lane,   \
            fn                                                                                     \
    }
/* Parsed as v3's messages, of which they are subsets. */
#define V2(rpc, message, lane, fn)                                                                 \
    {                                                                                              \
        "/generate.v2.TextGenerationService/" rpc, &generate__v3__##message##__descriptor, lane,   \
            fn                                                                                     \
    }
const struct rpc_method service_methods[] = {
    V3("Info", info_request, RPC_AT_ONCE, rpc_info),
    V3("Health", health_request, RPC_AT_ONCE, rpc_health),
    V3("ServiceDiscovery", service_discovery_request, RPC_AT_ONCE, rpc_discover),
    V3("ClearCache", clear_cache_request, RPC_SERIAL, rpc_clear_cache),
    V3("FilterBatch", filter_batch_request, RPC_SERIAL, rpc_filter_batch),
    V3("Warmup", warmup_request, RPC_SERIAL, rpc_warmup),
    V3("Prefill", prefill_request, RPC_SERIAL, rpc_prefill),
    V3("Decode", decode_request, RPC_SERIAL, rpc_decode),
    V3("Embed", embed_request, RPC_SERIAL, rpc_embed),
    V3("LoadAdapter", load_adapter_request, RPC_SERIAL, rpc_load_adapter),
    V3("UnloadAdapter", unload_adapter_request, RPC_SERIAL, rpc_unload_adapter),
    V3("KvStore", kv_store_request, RPC_SERIAL, rpc_kv_store),
    V3("KvFetch", kv_fetch_request, RPC_APART, rpc_kv_fetch),
    V3("KvLoad", kv_load_request, RPC_SERIAL, rpc_kv_load),
    V2_METHODS(V2),
    RPC_STD_METHODS,
};
const size_t service_n_methods = sizeof(service_methods) / sizeof(service_methods[0]);
