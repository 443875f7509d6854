#include "model-server/service/v2.h"
#include "common/clock.h"
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- blocks */

void v2_blocks_free(struct v2_blocks *b)
{
    free(b->owner);
    free(b->taken);
    *b = (struct v2_blocks){0};
}

/* Frees blocks of requests that are in no batch any more; the cache may have another size since
 * the last warm-up. */
static int refresh(struct service *s, struct err *e)
{
    struct v2_blocks *b = s->v2;
    const uint32_t n = engine_limits(s->o.engine).n_blocks;
    if (n != b->n) {
        v2_blocks_free(b);
        b->owner = calloc(n, sizeof(*b->owner));
        b->taken = calloc(n, sizeof(*b->taken));
        if (!b->owner || !b->taken)
            return err_nomem(e);
        b->n = n;
    }
    uint64_t last = 0;
    bool asked = false, held = false;
    for (uint32_t i = 0; i < n; i++) {
        if (!b->taken[i])
            continue;
        if (!asked || b->owner[i] != last) /* adjacent blocks usually have one owner */
            held = engine_holds(s->o.engine, last = b->owner[i]);
        asked = true;
        b->taken[i] = held;
    }
    return 0;
}

/* Blocks for prompt and answer. A request without enough blocks fails by itself. Block 0 is never
 * assigned, as in v3. */
static int place(struct service *s, struct seq_spec *spec, struct rpc_mem *m)
{
    struct v2_blocks *b = s->v2;
    const uint64_t tokens = (uint64_t)spec->n_prompt + spec->max_new_tokens;
    const uint64_t want = (tokens + s->o.block_size - 1) / s->o.block_size;
    uint32_t *v = want < b->n ? RPC_NEW(m, uint32_t, want + 1) : NULL;
    uint64_t got = 0;
    if (spec->refusal)
        return 0;
    if (want < b->n && !v)
        return -1;
    for (uint32_t i = 1; v && i < b->n && got < want; i++)
        if (!b->taken[i])
            v[got++] = i;
    if (got < want) {
        spec->refusal = "the KV cache has no room for this request";
        return 0;
    }
    for (uint64_t i = 0; i < got; i++) {
        b->taken[v[i]] = true;
        b->owner[v[i]] = spec->id;
    }
    spec->blocks = v;
    spec->n_blocks = got;
    return 0;
}

/* ---------------------------------------------------------------- calls */

static void strip(Generate__V3__CachedBatch *b)
{
    if (b)
        b->current_tokens = 0;
}

const ProtobufCMessage *v2_info(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                struct err *e)
{
    const Generate__V3__InfoResponse *all = (const void *)rpc_info(ctx, in, call, e);
    Generate__V3__InfoResponse *r = RPC_NEW(call->mem, Generate__V3__InfoResponse, 1);
    if (!all || !r)
        return all ? (err_nomem(e), NULL) : NULL;
    generate__v3__info_response__init(r);
    r->dtype = all->dtype;
    r->device_type = all->device_type;
    r->speculate = all->speculate;
    return &r->base;
}

const ProtobufCMessage *v2_filter_batch(void *ctx, const ProtobufCMessage *in,
                                        struct rpc_call *call, struct err *e)
{
    const ProtobufCMessage *out = rpc_filter_batch(ctx, in, call, e);
    if (out)
        strip(((const Generate__V3__FilterBatchResponse *)out)->batch);
    return out;
}

const ProtobufCMessage *v2_warmup(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                  struct err *e)
{
    const struct service *s = ctx;
    Generate__V3__WarmupRequest q = *(const Generate__V3__WarmupRequest *)in;
    q.max_chunk_tokens = 0;
    const Generate__V3__WarmupResponse *all = (const void *)rpc_warmup(ctx, &q.base, call, e);
    Generate__V3__WarmupResponse *r = RPC_NEW(call->mem, Generate__V3__WarmupResponse, 1);
    if (!all || !r)
        return all ? (err_nomem(e), NULL) : NULL;
    generate__v3__warmup_response__init(r);
    r->_max_supported_total_tokens_case = all->_max_supported_total_tokens_case;
    r->max_supported_total_tokens = all->max_supported_total_tokens > s->o.block_size
                                        ? all->max_supported_total_tokens - s->o.block_size
                                        : 0;
    return &r->base;
}

const ProtobufCMessage *v2_prefill(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                   struct err *e)
{
    struct service *s = ctx;
    const int64_t t0 = clock_ns();
    Generate__V3__PrefillRequest q = GENERATE__V3__PREFILL_REQUEST__INIT;
    q.batch = ((const Generate__V3__PrefillRequest *)in)->batch;
    if (!q.batch)
        return err_set(e, ERR_VALIDATION, "Prefill without a batch"), NULL;
    for (size_t i = 0; i < q.batch->n_requests; i++)
        q.batch->requests[i]->add_special_tokens = true;
    struct seq_spec *specs = read_requests(s, q.batch, false, call->mem);
    if (!specs)
        return err_nomem(e), NULL;
    if (refresh(s, e))
        return NULL;
    for (size_t i = 0; i < q.batch->n_requests; i++)
        if (place(s, &specs[i], call->mem))
            return err_nomem(e), NULL;
    Generate__V3__PrefillResponse *r = run_prefill(s, &q, specs, t0, call, e);
    if (!r)
        return NULL;
    strip(r->batch);
    r->_concat_ns_case = 0;
    return &r->base;
}

const ProtobufCMessage *v2_decode(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                  struct err *e)
{
    Generate__V3__DecodeRequest q = *(const Generate__V3__DecodeRequest *)in;
    q.edits = NULL;
    const ProtobufCMessage *out = rpc_decode(ctx, &q.base, call, e);
    if (out)
        strip(((const Generate__V3__DecodeResponse *)out)->batch);
    return out;
}
