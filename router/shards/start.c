#include "router/shards/start.h"
#include "common/hash.h"
#include "common/log/log.h"
#include "common/params.h"
#include "common/rpc/pack.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    INFO_TIMEOUT_MS = 60000,
    WARMUP_TIMEOUT_MS = 30 * 60000, /* it captures graphs and touches all memory */
    DEFAULT_PREFILL_TOKENS = 4096,
    FALLBACK_BATCH_TOTAL = 16000, /* TGI's default, for peers that report no maximum */
    V2_INPUT_TOKENS = 1024,       /* sent to v2 peers, which do not report it */
    V2_TOTAL_TOKENS = 2048,
    LEAST_WINDOWS = 5, /* minimum window blocks beside those that a window fills */
};

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }

static struct served_adapters *read_adapters(const Generate__V3__InfoResponse *r)
{
    struct served_adapters *s = served_adapters_none();
    for (size_t i = 0; s && i < r->n_adapters; i++) {
        const struct served_adapter a = {.name = r->adapters[i]->name,
                                         .pages = r->adapters[i]->pages,
                                         .content = r->adapters[i]->content_hash,
                                         .number = (uint32_t)i + 1};
        struct served_adapters *more = served_adapters_with(s, &a);
        served_adapters_release(s);
        s = more;
    }
    return s;
}

void shard_labels_free(struct shard_model *m)
{
    for (uint32_t i = 0; m->labels && i < m->n_labels; i++)
        free(m->labels[i]);
    free(m->labels);
    m->labels = NULL;
    m->n_labels = 0;
}

static int read_labels(struct shard_model *m, const Generate__V3__InfoResponse *r, struct err *e)
{
    m->labels = calloc(r->n_labels + (size_t)1, sizeof(*m->labels));
    for (size_t i = 0; m->labels && i < r->n_labels; i++) {
        if (!(m->labels[i] = strdup(r->labels[i])))
            return err_nomem(e);
        m->n_labels++;
    }
    return m->labels ? 0 : err_nomem(e);
}

/* Reads the task of a model that does not generate. */
static int read_task(struct shard_model *m, const Generate__V3__InfoResponse *r, struct err *e)
{
    m->task = TASK_GENERATE;
    m->hidden_size = r->hidden_size;
    for (enum model_task t = TASK_EMBED; t < TASK_N; t++)
        if (strcmp(r->task, model_task_name(t)) == 0)
            m->task = t;
    if (m->task == TASK_GENERATE)
        return *r->task && strcmp(r->task, model_task_name(TASK_GENERATE)) != 0
                   ? err_set(e, ERR_SYSTEM, "the shards serve `%.40s`", r->task)
                   : 0;
    m->embed_width = r->embed_width;
    m->sparse = r->sparse;
    m->first_row = r->first_row;
    m->cosine_scale = r->cosine_scale;
    m->cosine_plus = r->cosine_plus;
    m->cosines_each = r->cosines_each;
    m->pairs_as_text = r->pairs_as_text;
    return m->wants_labels ? read_labels(m, r, e) : 0;
}

static bool other_adapters(const Generate__V3__InfoResponse *a, const Generate__V3__InfoResponse *b)
{
    bool other = a->n_adapters != b->n_adapters;
    for (size_t i = 0; !other && i < a->n_adapters; i++)
        other = strcmp(a->adapters[i]->name, b->adapters[i]->name) != 0 ||
                other_files(a->adapters[i]->content_hash, b->adapters[i]->content_hash);
    return other;
}

/* What two ranks of one group differ in that would make their sums wrong; NULL: nothing. */
static const char *difference(const Generate__V3__InfoResponse *a,
                              const Generate__V3__InfoResponse *b)
{
    return other_files(a->checkpoint_hash, b->checkpoint_hash) ? "files of weights or configuration"
           : strcmp(a->dtype, b->dtype) || strcmp(a->quantize, b->quantize) ||
                   strcmp(a->activations, b->activations)
               ? "types of weights (--dtype, --quantize)"
           : other_adapters(a, b)                                ? "adapters"
           : other_words(a->program_version, b->program_version) ? "versions of the program"
                                                                 : NULL;
}

/* Ranks may run on several machines, each with its own folder and command line. */
static int check_ranks(const struct fan *f, struct rpc_mem *mem, struct err *e)
{
    const Generate__V3__InfoResponse *first = (const void *)fan_reply(f, 0, mem, e), *r = first;
    for (uint32_t i = 1; r && i < f->n; i++) {
        if (!(r = (const void *)fan_reply(f, i, mem, e)))
            break;
        const char *what = difference(first, r);
        if (what)
            return err_set(e, ERR_VALIDATION,
                           "shard %u (%s) and shard 0 (%s) have different %s: %016llx %s %s %s and "
                           "%016llx %s %s %s",
                           i, shards_address(f->s, i), shards_address(f->s, 0), what,
                           (unsigned long long)r->checkpoint_hash, r->dtype, r->quantize,
                           r->program_version, (unsigned long long)first->checkpoint_hash,
                           first->dtype, first->quantize, first->program_version);
        if (other_words(first->options, r->options))
            return err_set(e, ERR_VALIDATION,
                           "shard %u (%s) and shard 0 (%s) have different options: %s and %s", i,
                           shards_address(f->s, i), shards_address(f->s, 0), r->options,
                           first->options);
    }
    return r ? 0 : err_wrap(e, "Unable to get the model shards info");
}

/* Adds up what the shards hold, and mixes the hashes of their files. A shard that does not say
 * makes the sum, or the hash, unknown. */
static int add_sizes(struct fan *f, struct shard_model *m, struct rpc_mem *mem, struct err *e)
{
    bool all = true, named = true;
    m->parameters = m->weight_bytes = m->checkpoint_hash = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        const Generate__V3__InfoResponse *r = (const void *)fan_reply(f, i, mem, e);
        if (!r)
            return err_wrap(e, "Unable to get the model shards info");
        all = all && r->weight_bytes > 0;
        m->parameters += r->parameters;
        m->weight_bytes += r->weight_bytes;
        named = named && r->checkpoint_hash > 0;
        m->checkpoint_hash = hash_mix(m->checkpoint_hash ^ r->checkpoint_hash);
    }
    if (!named)
        m->checkpoint_hash = 0;
    if (!all)
        m->parameters = m->weight_bytes = 0;
    return 0;
}

static int ask_info(struct fan *f, struct shard_model *m, struct rpc_mem *mem, struct err *e)
{
    Generate__V3__InfoRequest ask = GENERATE__V3__INFO_REQUEST__INIT;
    const Generate__V3__InfoResponse *r = NULL;
    if (fan_call_sync(f, SHARD_INFO, &ask.base, INFO_TIMEOUT_MS, false, e) == 0)
        r = (const void *)fan_reply(f, f->n - 1, mem, e);
    if (!r)
        return err_wrap(e, "Unable to get the model shards info");
    if (check_ranks(f, mem, e) || add_sizes(f, m, mem, e))
        return -1;
    m->version = shards_version(f->s);
    m->requires_padding = r->requires_padding || m->version == 2;
    m->chunking = r->support_chunking;
    m->prefix_caching = r->use_prefix_caching;
    m->takes_input_ids = r->takes_input_ids;
    m->copies_kv = r->copies_kv;
    m->takes_edits = r->takes_edits && r->takes_input_ids && r->support_chunking;
    m->takes_chunks = r->takes_chunks && r->support_chunking;
    m->takes_bias = r->takes_bias;
    m->takes_reasoning = r->takes_reasoning;
    m->takes_grammars = r->takes_grammars;
    m->takes_images = r->takes_images && r->takes_input_ids;
    m->has_encoder =
        m->takes_input_ids &&
        r->_decoder_start_case == GENERATE__V3__INFO_RESPONSE___DECODER_START_DECODER_START;
    m->decoder_start = m->has_encoder ? r->decoder_start : 0;
    m->state_cells_per_request = r->state_cells_per_request;
    m->takes_windows = r->takes_windows && m->takes_edits && m->takes_chunks;
    m->sampling_fields = 0;
    for (size_t i = 0; i < r->n_sampling_fields; i++)
        m->sampling_fields |= param_bit(r->sampling_fields[i]);
    m->speculate = r->speculate;
    m->block_size = r->block_size ? r->block_size : 1;
    m->vocab_size = r->vocab_size;
    m->vocab_hash = r->vocab_hash;
    m->max_positions = r->max_positions;
    snprintf(m->dtype, sizeof(m->dtype), "%s", r->dtype);
    snprintf(m->quantize, sizeof(m->quantize), "%s", r->quantize);
    snprintf(m->activations, sizeof(m->activations), "%s", r->activations);
    snprintf(m->matrices, sizeof(m->matrices), "%s", r->matrices);
    snprintf(m->family, sizeof(m->family), "%s", r->family);
    snprintf(m->options, sizeof(m->options), "%s", r->options);
    snprintf(m->products, sizeof(m->products), "%s", r->products);
    snprintf(m->program, sizeof(m->program), "%s", r->program_version);
    snprintf(m->device, sizeof(m->device), "%s", r->device_type);
    if (m->state_cells_per_request)
        m->copies_kv = false; /* recurrent state cannot be rewound: no partial block hits */
    if (m->state_cells_per_request && m->state_cells_per_request != SHARD_STATE_CELLS)
        return err_set(e, ERR_SYSTEM,
                       "a request needs %u cells of recurrent state: only 2 are known",
                       m->state_cells_per_request);
    m->runtime_adapters = r->runtime_adapters;
    m->adapters = read_adapters(r);
    return m->adapters ? read_task(m, r, e) : err_nomem(e);
}

/* No effect on the result, but enables every sampling feature so that its memory is touched. */
static void fill_request(Generate__V3__Request *r, Generate__V3__NextTokenChooserParameters *p,
                         Generate__V3__StoppingCriteriaParameters *stop, uint32_t n,
                         const struct shard_model *m)
{
    generate__v3__next_token_chooser_parameters__init(p);
    p->temperature = 0.9f;
    p->top_k = 10;
    p->top_p = p->typical_p = 0.9f;
    p->repetition_penalty = 1.2f;
    p->frequency_penalty = 0.1f;
    p->watermark = true;
    generate__v3__stopping_criteria_parameters__init(stop);
    stop->max_new_tokens = m->max_total_tokens > n ? m->max_total_tokens - n : 1;
    stop->ignore_eos_token = true;
    generate__v3__request__init(r);
    r->truncate = n;
    r->parameters = p;
    r->stopping_parameters = stop;
    r->prefill_logprobs = true;
    r->add_special_tokens = true;
    r->top_n_tokens = 20;
}

static int fill_prompt(Generate__V3__Request *r, uint32_t n, const struct shard_model *m,
                       struct rpc_mem *mem)
{
    if (m->takes_input_ids) {
        r->n_input_ids = n;
        r->input_ids = RPC_NEW(mem, uint32_t, n);
        for (uint32_t i = 0; r->input_ids && i < n; i++)
            r->input_ids[i] = i % min_u32(m->vocab_size ? m->vocab_size : 1, 997);
        return r->input_ids ? 0 : -1;
    }
    static const char word[] = "_test ";
    enum { W = sizeof(word) - 1 };
    char *text = rpc_mem_alloc(mem, (size_t)n * W + 1);
    Generate__V3__InputChunk *chunk = RPC_NEW(mem, Generate__V3__InputChunk, 1);
    r->input_chunks = RPC_NEW(mem, Generate__V3__Input, 1);
    Generate__V3__InputChunk **list = RPC_NEW(mem, Generate__V3__InputChunk *, 1);
    if (!text || !chunk || !list || !r->input_chunks)
        return -1;
    for (size_t i = 0; i < (size_t)n * W; i++)
        text[i] = word[i % W];
    generate__v3__input_chunk__init(chunk);
    chunk->chunk_case = GENERATE__V3__INPUT_CHUNK__CHUNK_TEXT;
    chunk->text = r->inputs = text;
    list[0] = chunk;
    generate__v3__input__init(r->input_chunks);
    r->input_chunks->n_chunks = 1;
    r->input_chunks->chunks = list;
    return 0;
}

/* TGI's warm-up batch: as many prompts as one prefill may hold, each of maximum length. */
static int fill_batch(Generate__V3__Batch *b, const struct shard_model *m, struct rpc_mem *mem)
{
    uint32_t longest = m->max_input_tokens ? m->max_input_tokens : m->max_batch_prefill_tokens;
    if (m->max_positions > 1)
        longest = min_u32(longest, m->max_positions - 1);
    uint32_t cap = m->max_batch_prefill_tokens / longest + 1;
    b->requests = RPC_NEW(mem, Generate__V3__Request *, cap);
    for (uint32_t left = m->max_batch_prefill_tokens; b->requests && left > 0;) {
        uint32_t n = min_u32(longest, left);
        struct {
            Generate__V3__Request r;
            Generate__V3__NextTokenChooserParameters p;
            Generate__V3__StoppingCriteriaParameters s;
        } *one = rpc_mem_alloc(mem, sizeof(*one));
        if (!one)
            return -1;
        fill_request(&one->r, &one->p, &one->s, n, m);
        if (fill_prompt(&one->r, n, m, mem) != 0)
            return -1;
        b->requests[b->n_requests++] = &one->r;
        left -= n;
        if (m->max_batch_size && b->n_requests >= m->max_batch_size)
            break;
    }
    b->size = (uint32_t)b->n_requests;
    b->max_tokens = m->max_input_tokens;
    return b->requests ? 0 : -1;
}

/* What a rank, or a group of ranks, answered. */
struct warmed {
    bool has_supported;
    uint32_t supported, input, total;
    bool offloads, transfers;
    struct peer_hosts transfer_hosts; /* of all ranks so far */
    uint32_t swap_slots;
    uint64_t swap_block_ns;
    uint32_t adapter_pages;
    uint32_t state_cells;
    uint32_t window_blocks;
    uint32_t window_tokens;
};

/* Adds a rank's machine, unless it is that of the rank before. */
static int add_machine(struct peer_hosts *at, const char *address, uint32_t ranks, struct err *e)
{
    struct peer_address a;
    const char *comma = strrchr(at->hosts, ',');
    const char *last = comma ? comma + 1 : at->hosts;
    const size_t n = strlen(at->hosts);
    if (peer_address_parse(address, ranks, &a, e))
        return err_wrap(e, "a shard's --kv-transfer-address");
    if (n && a.port != at->port)
        return err_set(e, ERR_SYSTEM,
                       "--kv-transfer-address has port %u on one machine and %u on another",
                       at->port, a.port);
    at->port = a.port;
    if (n && strcmp(last, a.host) == 0)
        return 0;
    if (n + 1 + strlen(a.host) >= sizeof(at->hosts))
        return err_set(e, ERR_SYSTEM, "--kv-transfer-address: the machines' names are too long");
    snprintf(at->hosts + n, sizeof(at->hosts) - n, n ? ",%s" : "%s", a.host);
    return 0;
}

static bool smaller(const struct warmed *a, const struct warmed *b)
{
    if (a->has_supported != b->has_supported)
        return !a->has_supported; /* absent counts as smallest */
    if (a->supported != b->supported)
        return a->supported < b->supported;
    return a->input != b->input ? a->input < b->input : a->total < b->total;
}

/* What two ranks, or groups of ranks, can do together: the limits of the smaller one, and the least
 * of everything else. */
static struct warmed together(const struct warmed *a, const struct warmed *b)
{
    struct warmed w = smaller(b, a) ? *b : *a;
    w.transfer_hosts = a->transfer_hosts; /* b's machine is added by add_machine() */
    w.offloads = a->offloads && b->offloads;
    w.transfers = a->transfers && b->transfers;
    w.swap_slots = min_u32(a->swap_slots, b->swap_slots);
    w.swap_block_ns = a->swap_block_ns > b->swap_block_ns ? a->swap_block_ns : b->swap_block_ns;
    w.adapter_pages = min_u32(a->adapter_pages, b->adapter_pages);
    w.state_cells = min_u32(a->state_cells, b->state_cells);
    w.window_blocks = min_u32(a->window_blocks, b->window_blocks);
    return w;
}

static struct warmed read_warmed(const Generate__V3__WarmupResponse *r, const struct shard_model *m)
{
    const bool has = r->_max_supported_total_tokens_case != 0;
    return (struct warmed){.has_supported = has,
                           .supported = has ? r->max_supported_total_tokens : 0,
                           .input = m->version == 2 ? m->max_input_tokens : r->max_input_tokens,
                           .total = m->version == 2 ? m->max_total_tokens : r->max_total_tokens,
                           .offloads = r->offloads,
                           .transfers = r->transfers,
                           .swap_slots = r->swap_slots,
                           .swap_block_ns = r->swap_block_ns,
                           .adapter_pages = r->adapter_pages,
                           .state_cells = r->state_cells,
                           .window_blocks = r->window_blocks,
                           .window_tokens = r->window_tokens};
}

static int ask_warmup(struct fan *f, const struct shard_model *m, struct rpc_mem *mem,
                      struct warmed *out, struct err *e)
{
    Generate__V3__WarmupRequest ask = GENERATE__V3__WARMUP_REQUEST__INIT;
    Generate__V3__Batch batch = GENERATE__V3__BATCH__INIT;
    if (fill_batch(&batch, m, mem) != 0)
        return err_nomem(e);
    ask.batch = &batch;
    ask.max_prefill_tokens = m->max_batch_prefill_tokens;
    ask.windows = m->takes_windows && m->wants_windows;
    /* A quarter of each step is reserved for new prompts, so that a short one need not wait for the
     * end of a long one. */
    ask.max_chunk_tokens = m->max_batch_prefill_tokens - m->max_batch_prefill_tokens / 4;
    if (m->max_input_tokens) {
        ask._max_input_tokens_case =
            GENERATE__V3__WARMUP_REQUEST___MAX_INPUT_TOKENS_MAX_INPUT_TOKENS;
        ask.max_input_tokens = m->max_input_tokens;
    }
    if (m->max_total_tokens) {
        ask._max_total_tokens_case =
            GENERATE__V3__WARMUP_REQUEST___MAX_TOTAL_TOKENS_MAX_TOTAL_TOKENS;
        ask.max_total_tokens = m->max_total_tokens;
    }
    if (fan_call_sync(f, SHARD_WARMUP, &ask.base, WARMUP_TIMEOUT_MS, false, e) != 0)
        return -1;
    for (uint32_t i = 0; i < f->n; i++) {
        const Generate__V3__WarmupResponse *r = (const void *)fan_reply(f, i, mem, e);
        if (!r)
            return -1;
        const struct warmed one = read_warmed(r, m);
        *out = i ? together(out, &one) : one;
        if (r->transfers && *r->transfer_address &&
            add_machine(&out->transfer_hosts, r->transfer_address, f->n, e))
            return -1;
    }
    return 0;
}

/* Block 0 is never handed out, so the longest request is one block shorter than the cache. */
static uint32_t usable(const struct shard_model *m, uint32_t batch_total)
{
    uint32_t blocks = batch_total / m->block_size;
    return m->requires_padding ? batch_total : blocks > 1 ? (blocks - 1) * m->block_size : 0;
}

/* Embeddings keep no KV: only the length of a text is limited. */
static void settle_texts(struct shard_model *m, const struct warmed *w)
{
    m->max_input_tokens = m->max_total_tokens = w->input;
    m->max_batch_total_tokens = m->max_batch_prefill_tokens;
}

static int settle(struct shard_model *m, const struct warmed *w, struct err *e)
{
    uint32_t asked = m->max_batch_total_tokens, asked_total = m->max_total_tokens;
    if ((m->max_input_tokens && w->input != m->max_input_tokens) ||
        (m->max_total_tokens && w->total != m->max_total_tokens))
        return err_set(e, ERR_SYSTEM,
                       "the shards changed `max_input_tokens` to %u and `max_total_tokens` to %u",
                       w->input, w->total);
    m->adapter_pages = w->adapter_pages;
    /* without the recurrent state, swapped KV is useless */
    m->swap_slots = m->state_cells_per_request ? 0 : w->swap_slots;
    m->offloads = w->offloads && m->takes_edits && m->prefix_caching && m->version == 3;
    m->transfers = w->transfers && m->offloads;
    m->transfer_hosts = w->transfer_hosts;
    m->state_cells = w->state_cells;
    if (m->state_cells < m->state_cells_per_request)
        return err_set(e, ERR_SYSTEM, "the shards hold the recurrent state of no request");
    m->window_blocks = w->window_tokens ? w->window_blocks : 0;
    m->window_tokens = m->window_blocks ? w->window_tokens : 0;
    if (m->window_blocks && m->window_blocks < m->window_tokens / m->block_size + LEAST_WINDOWS)
        return err_set(e, ERR_SYSTEM,
                       "a cache of %u blocks for windows of %u tokens holds no request "
                       "(--kv-cache-memory)",
                       m->window_blocks, m->window_tokens);
    m->swap_block_ns = w->swap_block_ns;
    m->max_input_tokens = w->input;
    m->max_total_tokens = w->total;
    if (w->has_supported && asked > w->supported)
        log_msg(LOG_WARN, "`max_batch_total_tokens` is %u: %u do not fit", w->supported, asked);
    if (w->has_supported)
        m->max_batch_total_tokens = asked ? min_u32(asked, w->supported) : w->supported;
    else if (!asked)
        m->max_batch_total_tokens = max_u32(
            FALLBACK_BATCH_TOTAL, max_u32(m->max_total_tokens, m->max_batch_prefill_tokens));
    if (m->max_total_tokens > m->max_batch_total_tokens)
        return err_set(e, ERR_SYSTEM,
                       "Not enough memory to handle `max_total_tokens=%u`: the KV cache holds %u "
                       "(--max-total-tokens, --kv-cache-memory, --kv-cache-dtype int8)",
                       m->max_total_tokens, m->max_batch_total_tokens);
    uint32_t longest = usable(m, m->max_batch_total_tokens);
    if (longest < 2)
        return err_set(
            e, ERR_SYSTEM,
            "a KV cache of %u tokens in blocks of %u holds no request (--kv-cache-memory)",
            m->max_batch_total_tokens, m->block_size);
    if (m->max_total_tokens > longest) {
        if (asked_total)
            log_msg(LOG_WARN, "`max_total_tokens` is %u: one block of %u tokens is reserved",
                    longest, m->block_size);
        m->max_total_tokens = longest;
    }
    if (m->max_input_tokens >= m->max_total_tokens)
        m->max_input_tokens = m->max_total_tokens - 1;
    return 0;
}

/* Chooses max_input_tokens and max_total_tokens, which v2's Warmup requires. */
static void choose_limits(struct shard_model *m)
{
    if (!m->max_total_tokens)
        m->max_total_tokens = max_u32(V2_TOTAL_TOKENS, m->max_input_tokens + 1);
    if (!m->max_input_tokens)
        m->max_input_tokens = min_u32(V2_INPUT_TOKENS, m->max_total_tokens - 1);
}

int shards_warmup(struct shards *s, struct shard_model *m, struct err *e)
{
    struct warmed w = {0};
    struct rpc_mem mem;
    struct fan f;
    if (fan_init(&f, s, NULL, NULL, e) != 0)
        return -1;
    rpc_mem_init(&mem, 256u << 20);
    int rc = ask_info(&f, m, &mem, e);
    if (rc == 0) {
        if (m->version == 2)
            choose_limits(m);
        if (!m->max_batch_prefill_tokens)
            m->max_batch_prefill_tokens =
                max_u32(DEFAULT_PREFILL_TOKENS, m->chunking ? 0 : m->max_input_tokens);
        rc = ask_warmup(&f, m, &mem, &w, e);
        if (rc == 0 && m->task != TASK_GENERATE)
            settle_texts(m, &w);
        else if (rc == 0)
            rc = settle(m, &w, e);
        if (rc != 0)
            err_wrap(e, "Unable to warmup the model shards");
    }
    rpc_mem_free(&mem);
    fan_free(&f);
    return rc;
}

const char *shard_model_unfit(const struct shard_model *was, const struct shard_model *m)
{
    const bool same =
        m->task == was->task && m->embed_width == was->embed_width && m->sparse == was->sparse &&
        m->first_row == was->first_row && m->hidden_size == was->hidden_size &&
        m->vocab_hash == was->vocab_hash &&
        !other_files(m->checkpoint_hash, was->checkpoint_hash) &&
        m->vocab_size == was->vocab_size && m->block_size == was->block_size &&
        m->takes_edits == was->takes_edits && m->takes_chunks == was->takes_chunks &&
        m->takes_bias == was->takes_bias && m->takes_reasoning == was->takes_reasoning &&
        m->takes_grammars == was->takes_grammars && m->takes_images == was->takes_images &&
        m->has_encoder == was->has_encoder && m->decoder_start == was->decoder_start &&
        m->sampling_fields == was->sampling_fields && m->copies_kv == was->copies_kv &&
        m->prefix_caching == was->prefix_caching && m->speculate == was->speculate &&
        m->state_cells_per_request == was->state_cells_per_request &&
        m->window_tokens == was->window_tokens && !strcmp(m->dtype, was->dtype) &&
        !strcmp(m->quantize, was->quantize) && !strcmp(m->activations, was->activations) &&
        !strcmp(m->device, was->device);
    if (!same)
        return "another model came back";
    if (other_words(m->options, was->options) || strcmp(m->products, was->products) != 0)
        return "they came back with other options, or on another kind of device";
    if (m->max_input_tokens != was->max_input_tokens ||
        m->max_total_tokens != was->max_total_tokens ||
        m->max_batch_prefill_tokens != was->max_batch_prefill_tokens)
        return "they hold less than before";
    return NULL;
}
