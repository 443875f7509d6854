/* Converts a Request to the engine's type. Its text is tokenized here unless the router sent
 * ids. */
#include "model-server/engine/prompt.h"
#include "model-server/service/media.h"
#include <string.h>

/* Joins all text of a request; *n is its length. NULL: out of memory. */
static char *join_text(const Generate__V3__Request *q, struct rpc_mem *m, bool *image, size_t *n)
{
    const Generate__V3__Input *in = q->input_chunks;
    if (!in || !in->n_chunks) {
        *n = strlen(q->inputs);
        return q->inputs;
    }
    *n = 0;
    for (size_t i = 0; i < in->n_chunks; i++)
        if (in->chunks[i]->chunk_case == GENERATE__V3__INPUT_CHUNK__CHUNK_TEXT)
            *n += strlen(in->chunks[i]->text);
        else
            *image = true;
    char *text = rpc_mem_alloc(m, *n + 1), *at = text;
    for (size_t i = 0; text && i < in->n_chunks; i++)
        if (in->chunks[i]->chunk_case == GENERATE__V3__INPUT_CHUNK__CHUNK_TEXT) {
            size_t len = strlen(in->chunks[i]->text);
            memcpy(at, in->chunks[i]->text, len);
            at += len;
        }
    return text;
}

/* Tokenizes a text; spec->refusal has the error. */
static int tokenize(struct service *s, const Generate__V3__Request *q, const char *text, size_t n,
                    uint32_t truncate, struct rpc_mem *m, struct seq_spec *spec)
{
    struct tok_ids ids = {0};
    struct err e = ERR_INIT;
    if (prompt_encode(s->o.tok, text, n, q->add_special_tokens, truncate, &s->scratch, &ids, &e)) {
        spec->refusal = rpc_mem_strdup(m, e.msg, strlen(e.msg));
    } else {
        uint32_t *copy = RPC_NEW(m, uint32_t, ids.n);
        spec->prompt = copy;
        spec->n_prompt = ids.n;
        if (copy && ids.n)
            memcpy(copy, ids.id, ids.n * sizeof(*copy));
    }
    tok_ids_free(&ids);
    return spec->refusal || spec->prompt ? 0 : -1;
}

/* Texts and pictures. */
static int read_chunks(struct service *s, const Generate__V3__Request *q, struct rpc_mem *m,
                       struct seq_spec *spec)
{
    struct buf text = BUF_INIT;
    int rc = join_chunks(s, q->input_chunks, m, spec, &text) || text.oom ? -1 : 0;
    if (rc == 0 && !spec->refusal)
        rc = tokenize(s, q, text.p ? text.p : "", text.len, 0, m, spec);
    buf_free(&text);
    if (rc || spec->refusal)
        return rc;
    place_media(s, spec);
    if (q->truncate && spec->n_prompt > q->truncate)
        spec->refusal = "a prompt with pictures cannot be truncated";
    return 0;
}

static int read_text(struct service *s, const Generate__V3__Request *q, bool warmup,
                     struct rpc_mem *m, struct seq_spec *spec)
{
    bool image = false;
    size_t n;
    char *text = join_text(q, m, &image, &n);
    if (!text)
        return -1;
    if (image && !warmup && s->o.vision && !s->o.model->attends_text)
        return read_chunks(s, q, m, spec);
    if (image && !warmup) {
        spec->refusal = "this model reads text only";
        return 0;
    }
    return tokenize(s, q, text, n, q->truncate, m, spec);
}

static struct sampling read_sampling(const struct service *s,
                                     const Generate__V3__NextTokenChooserParameters *p)
{
    struct sampling out = sampling_neutral();
    if (!p)
        return out;
#define PARAM(kind, type, name, member, ...) out.member = p->name;
#include "common/params.def"
    out.sample = p->do_sample;
    out.seed = p->seed;
    out.raw_logprobs = p->raw_logprobs;
    size_t n = p->n_bias_ids < p->n_bias_values ? p->n_bias_ids : p->n_bias_values;
    out.bias = (struct bias){p->bias_ids, p->bias_values, n};
    out.report = (struct report){p->logprob_token_ids, p->n_logprob_token_ids};
    if (p->watermark)
        out.watermark = s->o.watermark;
    return out;
}

static struct constraint_front front_of(Generate__V3__GrammarReasoning r,
                                        Generate__V3__ReasoningMarks m)
{
    return (struct constraint_front){
        .reasoning = (int)r > 0 && (int)r <= CONSTRAINT_CHANNEL_CALLS ? (enum constraint_reasoning)r
                                                                      : CONSTRAINT_NO_REASONING,
        .marks = (int)m > 0 && (int)m < THOUGHT_MARKS ? (enum thought_marks)m : THOUGHT_THINK};
}

static struct grammar_spec read_grammar(const Generate__V3__NextTokenChooserParameters *p)
{
    static const struct {
        Generate__V3__GrammarType type;
        enum constraint_kind kind;
    } of[] = {{GENERATE__V3__GRAMMAR_TYPE__GRAMMAR_TYPE_REGEX, CONSTRAINT_REGEX},
              {GENERATE__V3__GRAMMAR_TYPE__GRAMMAR_TYPE_JSON_COMPACT, CONSTRAINT_JSON_COMPACT},
              {GENERATE__V3__GRAMMAR_TYPE__GRAMMAR_TYPE_GBNF, CONSTRAINT_GBNF},
              {GENERATE__V3__GRAMMAR_TYPE__GRAMMAR_TYPE_LARK, CONSTRAINT_LARK},
              {GENERATE__V3__GRAMMAR_TYPE__GRAMMAR_TYPE_CALLS, CONSTRAINT_CALLS},
              {GENERATE__V3__GRAMMAR_TYPE__GRAMMAR_TYPE_CALLS_OR, CONSTRAINT_CALLS_OR}};
    struct grammar_spec g = {.kind = CONSTRAINT_JSON_SCHEMA};
    if (!p || p->grammar_type == GENERATE__V3__GRAMMAR_TYPE__GRAMMAR_TYPE_NONE)
        return g;
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
        if (p->grammar_type == of[i].type)
            g.kind = of[i].kind;
    g.text = p->grammar; /* "" as a pattern: an empty answer */
    g.front = front_of(p->grammar_reasoning, p->reasoning_marks);
    return g;
}

static struct bad_words read_bad_words(const Generate__V3__NextTokenChooserParameters *p)
{
    return p ? (struct bad_words){.id = p->bad_word_ids,
                                  .len = p->bad_word_lengths,
                                  .n_ids = p->n_bad_word_ids,
                                  .n = p->n_bad_word_lengths}
             : (struct bad_words){0};
}

static int read_request(struct service *s, const Generate__V3__Request *q, bool warmup,
                        struct rpc_mem *m, struct seq_spec *spec)
{
    const Generate__V3__NextTokenChooserParameters *p = q->parameters;
    const Generate__V3__StoppingCriteriaParameters *stop = q->stopping_parameters;
    *spec = (struct seq_spec){.id = q->id,
                              .prompt = q->input_ids,
                              .n_prompt = (uint32_t)q->n_input_ids,
                              .blocks = q->blocks,
                              .slots = q->slots,
                              .n_blocks = q->n_blocks,
                              .n_slots = q->n_slots,
                              .windows = q->window_blocks,
                              .n_windows = q->n_window_blocks,
                              .window_from = q->window_from,
                              .cells = q->state_cells,
                              .n_cells = q->n_state_cells,
                              .cache_len = q->cache_len,
                              .n_generated = q->generated_len,
                              .sampling = read_sampling(s, p),
                              .bad_words = read_bad_words(p),
                              .top_n = q->top_n_tokens,
                              .adapter = q->adapter_id,
                              .prefill_logprobs = q->prefill_logprobs && s->o.prefill_logprobs};
    if (q->_state_from_case == GENERATE__V3__REQUEST___STATE_FROM_STATE_FROM)
        spec->state_from = &q->state_from;
    if (q->_chunk_len_case == GENERATE__V3__REQUEST___CHUNK_LEN_CHUNK_LEN)
        spec->chunk_len = q->chunk_len;
    if (stop) {
        spec->max_new_tokens = stop->max_new_tokens;
        spec->ignore_eos = stop->ignore_eos_token;
        spec->min_new_tokens = stop->min_new_tokens;
        spec->stop_tokens = stop->stop_token_ids;
        spec->n_stop_tokens = stop->n_stop_token_ids;
        spec->stops = stop->stop_sequences;
        spec->n_stops = stop->n_stop_sequences;
    }
    spec->grammar = read_grammar(p);
    if (p) {
        spec->dry_breakers = p->dry_sequence_breakers;
        spec->n_dry_breakers = p->n_dry_sequence_breakers;
    }
    const int rc =
        q->n_input_ids == 0 ? read_text(s, q, warmup, m, spec) : read_media(s, q, m, spec);
    if (rc || spec->refusal || warmup || !s->o.model->attends_text)
        return rc;
    if (!spec->n_media && encode_prompt(s, m, spec))
        return -1;
    limit_positions(s, m, spec);
    return 0;
}

struct seq_spec *read_requests(struct service *s, const Generate__V3__Batch *b, bool warmup,
                               struct rpc_mem *m)
{
    struct seq_spec *v = RPC_NEW(m, struct seq_spec, b->n_requests + 1);
    for (size_t i = 0; v && i < b->n_requests; i++)
        if (read_request(s, b->requests[i], warmup, m, &v[i]))
            return NULL;
    return v;
}
