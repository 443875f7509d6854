#include "router/scheduler/wire.h"
#include "common/params.h"
#include <assert.h>
#include <string.h>

/* One allocation: a Request and everything it points to. */
struct whole {
    Generate__V3__Request r;
    Generate__V3__NextTokenChooserParameters p;
    Generate__V3__StoppingCriteriaParameters s;
    Generate__V3__Input input;
    Generate__V3__InputChunk chunk, *chunks[1];
};

_Static_assert((int)CONSTRAINT_MAY_REASON ==
                       GENERATE__V3__GRAMMAR_REASONING__GRAMMAR_REASONING_MAY &&
                   (int)CONSTRAINT_CHANNEL_CALLS ==
                       GENERATE__V3__GRAMMAR_REASONING__GRAMMAR_REASONING_CALLS &&
                   (int)THOUGHT_SOLAR2 == GENERATE__V3__REASONING_MARKS__REASONING_MARKS_SOLAR2,
               "both lists are in the same order");

static Generate__V3__GrammarType grammar_type(enum constraint_kind kind)
{
    switch (kind) {
    case CONSTRAINT_REGEX:
        return GENERATE__V3__GRAMMAR_TYPE__GRAMMAR_TYPE_REGEX;
    case CONSTRAINT_JSON_COMPACT:
        return GENERATE__V3__GRAMMAR_TYPE__GRAMMAR_TYPE_JSON_COMPACT;
    case CONSTRAINT_GBNF:
        return GENERATE__V3__GRAMMAR_TYPE__GRAMMAR_TYPE_GBNF;
    case CONSTRAINT_LARK:
        return GENERATE__V3__GRAMMAR_TYPE__GRAMMAR_TYPE_LARK;
    case CONSTRAINT_CALLS:
        return GENERATE__V3__GRAMMAR_TYPE__GRAMMAR_TYPE_CALLS;
    case CONSTRAINT_CALLS_OR:
        return GENERATE__V3__GRAMMAR_TYPE__GRAMMAR_TYPE_CALLS_OR;
    case CONSTRAINT_JSON_SCHEMA:
        break;
    }
    return GENERATE__V3__GRAMMAR_TYPE__GRAMMAR_TYPE_JSON;
}

/* protobuf-c has no const; packing does not write. */
static void *mutable(const void *p) { return (void *)(uintptr_t)p; }

static struct whole *whole_new(struct rpc_mem *m)
{
    struct whole *w = RPC_NEW(m, struct whole, 1);
    if (!w)
        return NULL;
    generate__v3__request__init(&w->r);
    generate__v3__next_token_chooser_parameters__init(&w->p);
    generate__v3__stopping_criteria_parameters__init(&w->s);
    w->r.parameters = &w->p;
    w->r.stopping_parameters = &w->s;
    return w;
}

static void put_text(struct whole *w, const char *text)
{
    generate__v3__input__init(&w->input);
    generate__v3__input_chunk__init(&w->chunk);
    w->chunk.chunk_case = GENERATE__V3__INPUT_CHUNK__CHUNK_TEXT;
    w->chunk.text = w->r.inputs = mutable(text);
    w->chunks[0] = &w->chunk;
    w->input.n_chunks = 1;
    w->input.chunks = w->chunks;
    w->r.input_chunks = &w->input;
}

static void put_params(struct whole *w, const struct gen_params *g)
{
#define PARAM(kind, type, name, ...) w->p.name = g->name;
#include "common/params.def"
    w->p.do_sample = g->do_sample;
    w->p.seed = g->seed;
    w->p.watermark = g->watermark;
    w->p.raw_logprobs = g->raw_logprobs;
    if (g->constraint) {
        w->p.grammar = mutable(g->constraint);
        w->p.grammar_type = grammar_type(g->constraint_kind);
        w->p.grammar_reasoning = (Generate__V3__GrammarReasoning)g->constraint_front.reasoning;
        w->p.reasoning_marks = (Generate__V3__ReasoningMarks)g->constraint_front.marks;
    }
    w->s.max_new_tokens = g->max_new_tokens;
    w->s.n_stop_sequences = g->n_stop;
    w->s.stop_sequences = mutable(g->stop);
    w->s.ignore_eos_token = g->ignore_eos;
    w->s.min_new_tokens = g->min_new_tokens;
    w->s.n_stop_token_ids = g->n_stop_token_ids;
    w->s.stop_token_ids = mutable(g->stop_token_ids);
    w->p.n_bias_ids = w->p.n_bias_values = g->n_bias;
    w->p.bias_ids = mutable(g->bias_ids);
    w->p.bias_values = mutable(g->bias);
    w->p.n_bad_word_ids = g->bad_words.n_ids;
    w->p.bad_word_ids = mutable(g->bad_words.ids);
    w->p.n_bad_word_lengths = g->bad_words.n;
    w->p.bad_word_lengths = mutable(g->bad_words.lengths);
    w->p.n_logprob_token_ids = g->n_logprob_ids;
    w->p.logprob_token_ids = mutable(g->logprob_ids);
    w->p.n_dry_sequence_breakers = g->n_dry_breakers;
    w->p.dry_sequence_breakers = mutable(g->dry_breakers);
    w->r.prefill_logprobs = g->prefill_logprobs;
    w->r.top_n_tokens = g->top_n_tokens;
    if (g->adapter_id) {
        w->r._adapter_id_case = GENERATE__V3__REQUEST___ADAPTER_ID_ADAPTER_ID;
        w->r.adapter_id = mutable(g->adapter_id);
    }
}

static int put_blocks(struct whole *w, const struct wire_peer *p, const struct seq *q,
                      struct rpc_mem *m)
{
    if (p->requires_padding)
        return 0;
    assert(q->kv.n_cached <= (uint64_t)q->kv.len * p->block_size);
    w->r.n_blocks = q->kv.len;
    w->r.blocks = q->kv.ids;
    w->r.cache_len = q->kv.n_cached;
    if (p->windows) {
        w->r.window_from = q->kv.windows_from;
        w->r.window_blocks = q->kv.windows + q->kv.windows_from;
        w->r.n_window_blocks = q->kv.windows_to - q->kv.windows_from;
    }
    if (q->kv.stateful) {
        w->r.n_state_cells = CELLS_EACH;
        w->r.state_cells = mutable(q->kv.cells);
    }
    if (q->kv.state_from) {
        w->r._state_from_case = GENERATE__V3__REQUEST___STATE_FROM_STATE_FROM;
        w->r.state_from = q->kv.state_from - 1;
    }
    if (p->takes_input_ids)
        return 0;
    uint32_t n = q->waiter.n_reserve;
    w->r.slots = RPC_NEW(m, uint32_t, n);
    if (!w->r.slots)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        w->r.slots[i] = q->kv.ids[i / p->block_size] * p->block_size + i % p->block_size;
    w->r.n_slots = n;
    return 0;
}

Generate__V3__Media **wire_media(const struct gen_medium *media, uint32_t n, struct rpc_mem *m)
{
    struct one {
        Generate__V3__Media media;
        Generate__V3__Image image;
    } *v = RPC_NEW(m, struct one, n);
    Generate__V3__Media **list = RPC_NEW(m, Generate__V3__Media *, n);
    for (uint32_t i = 0; v && list && i < n; i++, v++) {
        const struct gen_medium *p = &media[i];
        generate__v3__media__init(&v->media);
        if (p->ids) {
            v->media.text = mutable(p->ids);
            v->media.n_text = p->n_ids;
        }
        if (p->bytes) {
            generate__v3__image__init(&v->image);
            v->image.data = (ProtobufCBinaryData){p->n_bytes, mutable(p->bytes)};
            v->image.mimetype = mutable(p->type);
            v->media.image = &v->image;
        }
        v->media.position = p->first;
        v->media.tokens = p->n;
        v->media.digest = p->digest;
        list[i] = &v->media;
    }
    return v ? list : NULL; /* v: the memory behind the last one, or no memory */
}

static Generate__V3__Request *request(const struct wire_peer *p, const struct seq *q,
                                      struct rpc_mem *m)
{
    struct whole *w = whole_new(m);
    if (!w || put_blocks(w, p, q, m) != 0)
        return NULL;
    w->r.id = q->id;
    w->r.truncate = q->req->truncate;
    w->r.add_special_tokens = q->req->add_special_tokens;
    put_params(w, &q->req->params);
    if (p->takes_input_ids) {
        w->r.n_input_ids = q->n_tokens;
        w->r.input_ids = mutable(q->tokens);
        w->r.generated_len = seq_generated(q);
        w->r.prefill_logprobs &= seq_generated(q) == 0; /* not after a preemption: they were sent */
        if (q->req->n_media && !(w->r.media = wire_media(q->req->media, q->req->n_media, m)))
            return NULL;
        w->r.n_media = q->req->n_media;
    } else if (q->req->inputs) {
        put_text(w, q->req->inputs);
    }
    if (q->cut) {
        w->r._chunk_len_case = GENERATE__V3__REQUEST___CHUNK_LEN_CHUNK_LEN;
        w->r.chunk_len = q->n_now;
    }
    return &w->r;
}

static Generate__V3__CachedBatch *cached_batch(const struct wire_batch *b, struct rpc_mem *m)
{
    Generate__V3__CachedBatch *c = RPC_NEW(m, Generate__V3__CachedBatch, 1);
    if (!c)
        return NULL;
    /* peers read the id only: the list of requests stays empty */
    generate__v3__cached_batch__init(c);
    c->id = b->id;
    c->size = b->size;
    c->max_tokens = b->max_tokens;
    c->current_tokens = b->current_tokens;
    return c;
}

/* Block copies that `joining` needs first: at most one each. */
static int put_copies(Generate__V3__PrefillRequest *msg, const struct wire_peer *p,
                      struct seq *const *joining, uint32_t n, struct rpc_mem *m)
{
    msg->kv_copies = RPC_NEW(m, Generate__V3__KvCopy *, n);
    for (uint32_t i = 0; msg->kv_copies && i < n; i++) {
        const struct kv_table *t = &joining[i]->kv;
        if (!t->copy_from)
            continue;
        Generate__V3__KvCopy *c = RPC_NEW(m, Generate__V3__KvCopy, 1);
        if (!c)
            return -1;
        generate__v3__kv_copy__init(c);
        assert(t->n_cached / p->block_size < t->len);
        c->source = t->copy_from;
        c->target = t->ids[t->n_cached / p->block_size];
        if (p->windows) {
            c->window_source = t->window_copy;
            c->window_target = t->windows[t->n_cached / p->block_size];
        }
        msg->kv_copies[msg->n_kv_copies++] = c;
    }
    return msg->kv_copies ? 0 : -1;
}

static Generate__V3__BlockMoves *block_moves(const struct wire_moves *v, struct rpc_mem *m)
{
    Generate__V3__BlockMoves *w = RPC_NEW(m, Generate__V3__BlockMoves, 1);
    if (!w)
        return NULL;
    generate__v3__block_moves__init(w);
    w->blocks = mutable(v->blocks);
    w->slots = mutable(v->slots);
    w->n_blocks = w->n_slots = v->n;
    return w;
}

static bool put_grown(Generate__V3__Edits *w, const struct wire_edits *x, struct rpc_mem *m)
{
    Generate__V3__MoreBlocks *v = RPC_NEW(m, Generate__V3__MoreBlocks, x->n_grown);
    w->more = RPC_NEW(m, Generate__V3__MoreBlocks *, x->n_grown);
    if (!v || !w->more)
        return false;
    for (w->n_more = 0; w->n_more < x->n_grown; w->n_more++, v++) {
        const struct seq *q = x->grown[w->n_more];
        assert(q->n_blocks_sent <= q->kv.len);
        generate__v3__more_blocks__init(v);
        v->request_id = q->id;
        v->from = q->n_blocks_sent;
        v->blocks = q->kv.ids + q->n_blocks_sent;
        v->n_blocks = q->kv.len - q->n_blocks_sent;
        if (q->kv.windows) {
            assert(q->kv.windows_from <= q->n_windows_sent);
            v->window_from = q->n_windows_sent;
            v->window_blocks = q->kv.windows + q->n_windows_sent;
            v->n_window_blocks = q->kv.windows_to - q->n_windows_sent;
        }
        w->more[w->n_more] = v;
    }
    return true;
}

static bool put_saves(Generate__V3__Edits *w, const struct wire_edits *x, struct rpc_mem *m)
{
    Generate__V3__StateSave *v = RPC_NEW(m, Generate__V3__StateSave, x->n_saves);
    w->state_saves = RPC_NEW(m, Generate__V3__StateSave *, x->n_saves);
    if (!v || !w->state_saves)
        return false;
    for (w->n_state_saves = 0; w->n_state_saves < x->n_saves; w->n_state_saves++, v++) {
        const struct wire_save *save = &x->saves[w->n_state_saves];
        generate__v3__state_save__init(v);
        v->request_id = save->id;
        v->cell = save->cell;
        v->tokens = save->tokens;
        w->state_saves[w->n_state_saves] = v;
    }
    return true;
}

static bool put_drafts(Generate__V3__Edits *w, const struct wire_edits *x, struct rpc_mem *m)
{
    Generate__V3__Draft *v = RPC_NEW(m, Generate__V3__Draft, x->n_drafts);
    w->drafts = RPC_NEW(m, Generate__V3__Draft *, x->n_drafts);
    if (!v || !w->drafts)
        return false;
    for (w->n_drafts = 0; w->n_drafts < x->n_drafts; w->n_drafts++, v++) {
        const struct wire_draft *d = &x->drafts[w->n_drafts];
        generate__v3__draft__init(v);
        assert(d->n > 0 && d->ids);
        v->request_id = d->q->id;
        v->position = d->q->n_tokens;
        v->ids = mutable(d->ids);
        v->n_ids = d->n;
        w->drafts[w->n_drafts] = v;
    }
    return true;
}

/* False: out of memory. *out stays NULL if nothing changes. */
static bool edits(const struct wire_edits *x, struct rpc_mem *m, Generate__V3__Edits **out)
{
    if (!x || !(x->n_saves || x->n_leave || x->out.n || x->in.n || x->n_grown || x->n_drafts ||
                x->drafting))
        return true;
    Generate__V3__Edits *w = *out = RPC_NEW(m, Generate__V3__Edits, 1);
    if (!w)
        return false;
    generate__v3__edits__init(w);
    w->leave = mutable(x->leave);
    w->n_leave = x->n_leave;
    w->drafting = x->drafting;
    return (!x->n_saves || put_saves(w, x, m)) &&
           (!x->out.n || (w->out = block_moves(&x->out, m))) &&
           (!x->in.n || (w->in = block_moves(&x->in, m))) && (!x->n_grown || put_grown(w, x, m)) &&
           (!x->n_drafts || put_drafts(w, x, m));
}

const ProtobufCMessage *wire_prefill(const struct wire_peer *p, uint64_t id,
                                     struct seq *const *joining, uint32_t n,
                                     const struct wire_batch *cached, const struct wire_edits *x,
                                     struct rpc_mem *m)
{
    Generate__V3__PrefillRequest *msg = RPC_NEW(m, Generate__V3__PrefillRequest, 1);
    Generate__V3__Batch *b = RPC_NEW(m, Generate__V3__Batch, 1);
    if (!msg || !b)
        return NULL;
    generate__v3__prefill_request__init(msg);
    generate__v3__batch__init(b);
    msg->batch = b;
    b->id = id;
    b->size = n;
    b->requests = RPC_NEW(m, Generate__V3__Request *, n);
    if (!b->requests)
        return NULL;
    for (; b->n_requests < n; b->n_requests++) {
        const struct seq *q = joining[b->n_requests];
        if (!(b->requests[b->n_requests] = request(p, q, m)))
            return NULL;
        b->max_tokens += q->waiter.n_reserve;
        b->max_blocks = q->kv.len > b->max_blocks ? q->kv.len : b->max_blocks;
    }
    if (put_copies(msg, p, joining, n, m) != 0 || !edits(x, m, &msg->edits) ||
        (cached && !(msg->cached_batch = cached_batch(cached, m))))
        return NULL;
    return &msg->base;
}

const ProtobufCMessage *wire_decode(const struct wire_batch *const *batches, uint32_t n,
                                    const struct wire_edits *x, struct rpc_mem *m)
{
    Generate__V3__DecodeRequest *msg = RPC_NEW(m, Generate__V3__DecodeRequest, 1);
    if (!msg)
        return NULL;
    generate__v3__decode_request__init(msg);
    msg->batches = RPC_NEW(m, Generate__V3__CachedBatch *, n);
    for (; msg->batches && msg->n_batches < n; msg->n_batches++)
        if (!(msg->batches[msg->n_batches] = cached_batch(batches[msg->n_batches], m)))
            return NULL;
    return msg->batches && edits(x, m, &msg->edits) ? &msg->base : NULL;
}

/* The Edits of a Prefill or Decode; created if absent. */
static Generate__V3__Edits *edits_of(const ProtobufCMessage *call, struct rpc_mem *m)
{
    Generate__V3__Edits **at = call->descriptor == &generate__v3__decode_request__descriptor
                                   ? &((Generate__V3__DecodeRequest *)mutable(call))->edits
                                   : &((Generate__V3__PrefillRequest *)mutable(call))->edits;
    if (!*at && (*at = RPC_NEW(m, Generate__V3__Edits, 1)))
        generate__v3__edits__init(*at);
    return *at;
}

const ProtobufCMessage *wire_chunks(const ProtobufCMessage *call, struct seq *const *running,
                                    uint32_t n, uint64_t encode_most, struct rpc_mem *m)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < n; i++)
        open += seq_in_prompt(running[i]);
    if (call && open == 0 && !encode_most)
        return call;
    Generate__V3__Edits *x = call ? edits_of(call, m) : NULL;
    Generate__V3__Chunks *c = x ? RPC_NEW(m, Generate__V3__Chunks, 1) : NULL;
    if (!c)
        return NULL;
    generate__v3__chunks__init(c);
    c->request_ids = RPC_NEW(m, uint64_t, open + 1);
    c->tokens = RPC_NEW(m, uint32_t, open + 1);
    if (!c->request_ids || !c->tokens)
        return NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (!seq_in_prompt(running[i]) || running[i]->n_now == 0)
            continue;
        c->request_ids[c->n_request_ids++] = running[i]->id;
        c->tokens[c->n_tokens++] = running[i]->n_now;
    }
    x->chunks = c;
    x->encode_most = encode_most;
    return call;
}

const ProtobufCMessage *wire_clear(const uint64_t *batch, struct rpc_mem *m)
{
    Generate__V3__ClearCacheRequest *msg = RPC_NEW(m, Generate__V3__ClearCacheRequest, 1);
    if (!msg)
        return NULL;
    generate__v3__clear_cache_request__init(msg);
    if (batch) {
        msg->_id_case = GENERATE__V3__CLEAR_CACHE_REQUEST___ID_ID;
        msg->id = *batch;
    }
    return &msg->base;
}

const ProtobufCMessage *wire_filter(uint64_t batch, const uint64_t *keep, uint32_t n_keep,
                                    struct rpc_mem *m)
{
    Generate__V3__FilterBatchRequest *msg = RPC_NEW(m, Generate__V3__FilterBatchRequest, 1);
    if (!msg)
        return NULL;
    generate__v3__filter_batch_request__init(msg);
    msg->batch_id = batch;
    msg->n_request_ids = n_keep;
    msg->request_ids = mutable(keep);
    return &msg->base;
}

const ProtobufCMessage *wire_probe(const struct wire_peer *p, struct rpc_mem *m)
{
    static uint32_t zero[1] = {0};
    Generate__V3__PrefillRequest *msg = RPC_NEW(m, Generate__V3__PrefillRequest, 1);
    Generate__V3__Batch *b = RPC_NEW(m, Generate__V3__Batch, 1);
    Generate__V3__Request **list = RPC_NEW(m, Generate__V3__Request *, 1);
    struct whole *w = whole_new(m);
    if (!msg || !b || !list || !w)
        return NULL;
    w->r.id = WIRE_PROBE_ID;
    w->r.truncate = 1;
#define PARAM(kind, type, name, member, neutral, ...) w->p.name = neutral;
#include "common/params.def"
    w->s.max_new_tokens = 1;
    w->r.n_blocks = w->r.n_slots = 1;
    w->r.blocks = w->r.slots = w->r.window_blocks = zero;
    w->r.n_window_blocks = p->windows;
    if (p->takes_input_ids) {
        w->r.n_input_ids = 1;
        w->r.input_ids = zero;
    } else {
        put_text(w, "liveness");
    }
    generate__v3__prefill_request__init(msg);
    generate__v3__batch__init(b);
    list[0] = &w->r;
    *b = (Generate__V3__Batch){.base = b->base,
                               .id = WIRE_PROBE_ID,
                               .n_requests = 1,
                               .requests = list,
                               .size = 1,
                               .max_tokens = 2,
                               .max_blocks = 1};
    msg->batch = b;
    return &msg->base;
}
