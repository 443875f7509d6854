/* The rpcs that run the model. */
#include "common/clock.h"
#include "common/log/log.h"
#include "model-server/service/impl.h"
#include <errno.h>

/* This process ends: its launcher starts all ranks again. */
static void leave(struct service *s, const char *why)
{
    if (atomic_exchange(&s->failed, true))
        return;
    LOG(LOG_ERROR, why, LOGI("rank", s->o.rank));
    rpc_server_stop(s->server);
}

static void leave_others(struct service *s)
{
    leave(s, s->o.world > 1 ? "the ranks have lost each other: shutting down"
                            : "the device is lost: shutting down");
}

int service_spoilt(const struct service *s, struct err *e)
{
    return packed_check(s->o.packed, e) || adapters_check(s->o.adapters, e) ? -1 : 0;
}

int service_check_weights(struct service *s, struct rpc_call *call, struct err *e)
{
    if (service_spoilt(s, e) == 0)
        return 0;
    leave(s, e->msg);
    call->code = GRPC_STATUS_UNAVAILABLE; /* a lost shard: the next one computes it again */
    return -1;
}

/* Spoilt weights are a cause, also of the other errors. */
static void leave_if_unfit(struct service *s)
{
    struct err spoilt = ERR_INIT;
    if (service_spoilt(s, &spoilt))
        leave(s, spoilt.msg);
    else if (engine_broken(s->o.engine))
        leave_others(s);
}

const ProtobufCMessage *service_failed(struct service *s, const char *rpc, const struct err *e)
{
    LOG(LOG_ERROR, "rpc failed", LOGS("rpc", rpc), LOGS("error", e->msg));
    leave_if_unfit(s);
    return NULL;
}

grpc_status_code service_refused(void *service, const struct rpc_method *m, grpc_status_code code,
                                 const struct err *e)
{
    struct service *s = service;
    leave_if_unfit(s);
    if (s->o.world > 1 && e->sys == ENOMEM && code != GRPC_STATUS_DATA_LOSS) {
        LOG(LOG_ERROR, "rpc failed", LOGS("rpc", m->name), LOGS("error", e->msg));
        leave_others(s);
    }
    return atomic_load(&s->failed) ? GRPC_STATUS_UNAVAILABLE : code;
}

void service_after(void *service)
{
    struct service *s = service;
    struct err e = ERR_INIT;
    service_begin(s, "run-ahead");
    if (engine_ahead(s->o.engine, &e))
        service_failed(s, "run-ahead", &e);
    service_begin(s, NULL);
}

/* The two responses have the same fields with different types. */
struct step_reply {
    Generate__V3__Generation **generations;
    size_t n_generations;
    Generate__V3__CachedBatch *batch;
    Generate__V3__Chunks *stalled;              /* NULL: none */
    Generate__V3__ConstraintStats *constraints; /* NULL: none */
};

/* Lists prompts that wait for an image. False: out of memory. */
static bool write_stalled(const struct batch *b, struct rpc_mem *m, Generate__V3__Chunks **out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++)
        n += b->v[i]->stalled > 0;
    if (!n)
        return true;
    Generate__V3__Chunks *c = *out = RPC_NEW(m, Generate__V3__Chunks, 1);
    if (!c)
        return false;
    generate__v3__chunks__init(c);
    c->request_ids = RPC_NEW(m, uint64_t, n);
    c->tokens = RPC_NEW(m, uint32_t, n);
    for (uint32_t i = 0; c->request_ids && c->tokens && i < b->n; i++)
        if (b->v[i]->stalled) {
            c->request_ids[c->n_request_ids++] = b->v[i]->id;
            c->tokens[c->n_tokens++] = b->v[i]->stalled;
        }
    return c->n_tokens == n;
}

/* *out: NULL if no request has had a constraint. False: out of memory. */
static bool write_constraints(const struct service *s, struct rpc_mem *m,
                              Generate__V3__ConstraintStats **out)
{
    const struct grammars_stats g = engine_grammars(s->o.engine);
    if (!g.bytes && !g.dropped)
        return true;
    if (!(*out = RPC_NEW(m, Generate__V3__ConstraintStats, 1)))
        return false;
    generate__v3__constraint_stats__init(*out);
    (*out)->bytes = g.bytes;
    (*out)->dropped = g.dropped;
    (*out)->trimmed = g.trimmed;
    (*out)->closed = g.closed;
    return true;
}

/* The step is done: without its reply the router lacks tokens, which DATA_LOSS means. Any other
 * status means that nothing was computed. */
static int write_reply(struct service *s, const struct answer *a, struct rpc_call *call,
                       struct step_reply *r, struct err *e)
{
    struct rpc_mem *m = call->mem;
    *r = (struct step_reply){0};
    if (service_check_weights(s, call, e))
        return -1;
    if (write_generations(s, a->out, m, &r->generations, &r->n_generations) == 0 &&
        write_constraints(s, m, &r->constraints) &&
        (!a->batch ||
         ((r->batch = write_batch(s, a->batch, m)) && write_stalled(a->batch, m, &r->stalled))))
        return 0;
    call->code = GRPC_STATUS_DATA_LOSS;
    return err_nomem(e);
}

/* Fields of both answers; KIND: PREFILL or DECODE. */
#define FILL(KIND, r, reply, a, t0)                                                                \
    do {                                                                                           \
        (r)->generations = (reply).generations;                                                    \
        (r)->n_generations = (reply).n_generations;                                                \
        (r)->batch = (reply).batch;                                                                \
        (r)->stalled = (reply).stalled;                                                            \
        (r)->constraints = (reply).constraints;                                                    \
        (r)->encode_ns = (uint64_t)(a).encode_ns;                                                  \
        (r)->encode_done = (a).encode_done;                                                        \
        (r)->forward_ns = (uint64_t)(a).out->forward_ns;                                           \
        (r)->decode_ns = (uint64_t)(a).out->decode_ns;                                             \
        (r)->total_ns = (uint64_t)(clock_ns() - (t0) + (a).out->early_ns);                         \
        if ((a).concat_ns >= 0) {                                                                  \
            (r)->_concat_ns_case = GENERATE__V3__##KIND##_RESPONSE___CONCAT_NS_CONCAT_NS;          \
            (r)->concat_ns = (uint64_t)(a).concat_ns;                                              \
        }                                                                                          \
    } while (0)

static int copy_blocks(struct service *s, const Generate__V3__PrefillRequest *q, struct rpc_mem *m,
                       struct err *e)
{
    uint32_t n = (uint32_t)q->n_kv_copies;
    uint32_t *source = RPC_NEW(m, uint32_t, n + 1), *target = RPC_NEW(m, uint32_t, n + 1), k = 0;
    if (!source || !target)
        return err_nomem(e);
    for (uint32_t i = 0; i < n; i++) {
        source[i] = q->kv_copies[i]->source;
        target[i] = q->kv_copies[i]->target;
    }
    if (engine_copy(s->o.engine, source, target, n, e))
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        source[k] = q->kv_copies[i]->window_source;
        target[k] = q->kv_copies[i]->window_target;
        k += target[k] != 0;
    }
    return engine_copy_windows(s->o.engine, source, target, k, e);
}

/* Reads the changes before the step into *x; false: out of memory. NULL if there are none. */
static bool read_edits(const Generate__V3__Edits *q, struct rpc_mem *m, struct edits *x,
                       const struct edits **out)
{
    *out = NULL;
    if (!q)
        return true;
    struct kv_more *more = RPC_NEW(m, struct kv_more, q->n_more + 1);
    struct draft_offer *offers = RPC_NEW(m, struct draft_offer, q->n_drafts + 1);
    struct state_save *saves = RPC_NEW(m, struct state_save, q->n_state_saves + 1);
    if (!more || !offers || !saves)
        return false;
    for (size_t i = 0; i < q->n_state_saves; i++)
        saves[i] = (struct state_save){q->state_saves[i]->request_id, q->state_saves[i]->cell,
                                       q->state_saves[i]->tokens};
    for (size_t i = 0; i < q->n_drafts; i++)
        offers[i] = (struct draft_offer){q->drafts[i]->request_id, q->drafts[i]->position,
                                         q->drafts[i]->ids, q->drafts[i]->n_ids};
    for (size_t i = 0; i < q->n_more; i++)
        more[i] = (struct kv_more){.id = q->more[i]->request_id,
                                   .from = q->more[i]->from,
                                   .blocks = q->more[i]->blocks,
                                   .n = q->more[i]->n_blocks,
                                   .window_from = q->more[i]->window_from,
                                   .windows = q->more[i]->window_blocks,
                                   .n_windows = q->more[i]->n_window_blocks};
    *x = (struct edits){.saves = saves,
                        .n_saves = q->n_state_saves,
                        .leave = q->leave,
                        .n_leave = q->n_leave,
                        .more = more,
                        .n_more = q->n_more,
                        .offers = offers,
                        .n_offers = q->n_drafts,
                        .drafting = q->drafting,
                        .encode_most = q->encode_most};
    if (q->out)
        x->out =
            (struct kv_moves){q->out->blocks, q->out->slots, q->out->n_blocks, q->out->n_slots};
    if (q->in)
        x->in = (struct kv_moves){q->in->blocks, q->in->slots, q->in->n_blocks, q->in->n_slots};
    if ((x->names_chunks = q->chunks))
        x->chunks = (struct chunks){q->chunks->request_ids, q->chunks->tokens,
                                    q->chunks->n_request_ids, q->chunks->n_tokens};
    *out = x;
    return true;
}

Generate__V3__PrefillResponse *run_prefill(struct service *s, const Generate__V3__PrefillRequest *q,
                                           const struct seq_spec *specs, int64_t t0,
                                           struct rpc_call *call, struct err *e)
{
    struct answer a;
    struct step_reply reply;
    struct edits edits;
    const struct edits *x;
    Generate__V3__PrefillResponse *r = RPC_NEW(call->mem, Generate__V3__PrefillResponse, 1);
    if (!r || !read_edits(q->edits, call->mem, &edits, &x))
        return err_nomem(e), NULL;
    if (copy_blocks(s, q, call->mem, e) ||
        engine_prefill(s->o.engine, q->batch->id, specs, (uint32_t)q->batch->n_requests,
                       q->cached_batch ? &q->cached_batch->id : NULL, x, &a, e)) {
        service_failed(s, "Prefill", e);
        return NULL;
    }
    if (write_reply(s, &a, call, &reply, e))
        return NULL;
    generate__v3__prefill_response__init(r);
    FILL(PREFILL, r, reply, a, t0);
    return r;
}

const ProtobufCMessage *rpc_prefill(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                    struct err *e)
{
    const Generate__V3__PrefillRequest *q = (const void *)in;
    struct service *s = ctx;
    const int64_t t0 = clock_ns();
    service_begin(s, "Prefill");
    if (!q->batch)
        return err_set(e, ERR_VALIDATION, "Prefill without a batch"), NULL;
    struct seq_spec *specs = read_requests(s, q->batch, false, call->mem);
    if (!specs)
        return err_nomem(e), NULL;
    Generate__V3__PrefillResponse *r = run_prefill(s, q, specs, t0, call, e);
    return r ? &r->base : NULL;
}

const ProtobufCMessage *rpc_decode(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                   struct err *e)
{
    const Generate__V3__DecodeRequest *q = (const void *)in;
    struct service *s = ctx;
    struct answer a;
    struct step_reply reply;
    struct edits edits;
    const struct edits *x;
    int64_t t0 = clock_ns();
    Generate__V3__DecodeResponse *r = RPC_NEW(call->mem, Generate__V3__DecodeResponse, 1);
    uint64_t *ids = RPC_NEW(call->mem, uint64_t, q->n_batches);
    service_begin(s, "Decode");
    if (!r || !ids || !read_edits(q->edits, call->mem, &edits, &x))
        return err_nomem(e), NULL;
    for (size_t i = 0; i < q->n_batches; i++)
        ids[i] = q->batches[i]->id;
    if (engine_decode(s->o.engine, ids, q->n_batches, x, &a, e))
        return service_failed(s, "Decode", e);
    if (write_reply(s, &a, call, &reply, e))
        return NULL;
    generate__v3__decode_response__init(r);
    FILL(DECODE, r, reply, a, t0);
    return &r->base;
}

const ProtobufCMessage *rpc_warmup(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                   struct err *e)
{
    const Generate__V3__WarmupRequest *q = (const void *)in;
    struct service *s = ctx;
    struct warmup w = {.max_prefill_tokens = q->max_prefill_tokens,
                       .max_chunk_tokens = q->max_chunk_tokens,
                       .windows = q->windows};
    Generate__V3__WarmupResponse *r = RPC_NEW(call->mem, Generate__V3__WarmupResponse, 1);
    struct seq_spec *specs = q->batch ? read_requests(s, q->batch, true, call->mem) : NULL;
    service_begin(s, "Warmup");
    if (!r || (q->batch && !specs))
        return err_nomem(e), NULL;
    w.specs = specs;
    w.n = q->batch ? (uint32_t)q->batch->n_requests : 0;
    if (q->_max_input_tokens_case ==
        GENERATE__V3__WARMUP_REQUEST___MAX_INPUT_TOKENS_MAX_INPUT_TOKENS)
        w.max_input_tokens = q->max_input_tokens;
    if (q->_max_total_tokens_case ==
        GENERATE__V3__WARMUP_REQUEST___MAX_TOTAL_TOKENS_MAX_TOTAL_TOKENS)
        w.max_total_tokens = q->max_total_tokens;
    if (engine_warmup(s->o.engine, &w, e) || service_lay_out(s, e))
        return service_failed(s, "Warmup", e);
    if (!s->warm) {
        startup_add(s->o.startup, s->o.rank, STARTUP_WARM_UP, -w.kv_ns);
        startup_add(s->o.startup, s->o.rank, STARTUP_KV, w.kv_ns);
        startup_begin(s->o.startup, s->o.rank, STARTUP_READY);
        s->warm = true;
    }
    generate__v3__warmup_response__init(r);
    r->_max_supported_total_tokens_case =
        GENERATE__V3__WARMUP_RESPONSE___MAX_SUPPORTED_TOTAL_TOKENS_MAX_SUPPORTED_TOTAL_TOKENS;
    r->max_supported_total_tokens = w.supported_tokens;
    r->max_input_tokens = w.max_input_tokens;
    r->max_total_tokens = w.max_total_tokens;
    r->offloads = s->offloads;
    r->transfers = s->offloads && s->o.peers;
    r->transfer_address = (char *)(uintptr_t)(s->o.transfer_address ? s->o.transfer_address : "");
    r->swap_slots = w.swap_slots;
    r->adapter_pages = w.adapter_pages;
    r->state_cells = w.state_cells;
    r->window_blocks = w.window_blocks;
    r->window_tokens = w.window_tokens;
    r->state_cell_bytes = s->o.model->state_bytes;
    r->swap_block_ns = (uint64_t)w.swap_block_ns;
    return &r->base;
}
