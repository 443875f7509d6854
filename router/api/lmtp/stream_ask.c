/* Converts a message to the scheduler's request. */
#include "router/api/lmtp/lmtp_in.h"
#include <string.h>

/* Values that LMTP allows and validate() refuses mean off. Without a temperature filters have no
 * effect. */
static void put_params(const struct lmtp_message *m, struct ask *q)
{
#define PARAM(kind, type, name, member, neutral, low, high, taken, ...)                            \
    {                                                                                              \
        const PARAM_V_##type v = m->name.v;                                                        \
        if (m->name.set && (taken) && (q->do_sample || !PARAM_CUTS_##kind))                        \
            q->name = m->name;                                                                     \
    }
#include "common/params.def"
}

static struct ask ask_of(const struct lmtp_message *m, const uint32_t *ids, uint32_t n_ids)
{
    struct ask q = {.style = ASK_LMTP,
                    .input_name = "prompt",
                    .length_name = "max_tokens",
                    .ids = ids,
                    .n_ids = n_ids,
                    .max_new_tokens = {true, 1}};
    if (m->type == LMTP_SCORE) {
        q.decoder_input_details = true;
        return q;
    }
    q.max_new_tokens.v = m->max_tokens;
    q.bias_ids = m->bias_ids;
    q.bias = m->bias;
    q.n_bias = m->n_bias;
    /* The best alternative of a greedy stream is the token itself. */
    if (m->top_logprobs > 1 || m->temperature.v > 0)
        q.top_n_tokens = (struct opt_u64){true, m->top_logprobs};
    q.do_sample = m->temperature.v > 0;
    if (q.do_sample)
        q.seed = m->seed;
    put_params(m, &q);
    return q;
}

static uint32_t *put(uint32_t *at, const uint32_t *ids, uint32_t n)
{
    if (n)
        memcpy(at, ids, n * sizeof(*ids));
    return at + n;
}

const uint32_t *stream_ids(const struct lmtp_message *m, const struct buffers *b, struct arena *a,
                           uint32_t *n, struct err *e)
{
    const struct token_buffer *t = m->buffer ? buffers_find(b, m->buffer) : NULL;
    if (m->buffer && !t) {
        err_set(e, ERR_VALIDATION, "unknown buffer `%s`", m->buffer);
        return NULL;
    }
    uint32_t head = !t ? 0 : t->n < m->buffer_length ? t->n : m->buffer_length;
    uint64_t sum = (uint64_t)head + m->n_prompt + m->n_scored;
    uint32_t *all = sum < UINT32_MAX ? ARENA_NEW(a, uint32_t, sum + 1) : NULL;
    if (!all) {
        err_nomem(e);
        return NULL;
    }
    put(put(put(all, t ? t->ids : NULL, head), m->prompt, m->n_prompt), m->scored, m->n_scored);
    *n = (uint32_t)sum;
    return all;
}

/* Last step: the reservation is released at the end of the stream. */
static int reserve(struct stream *s, const struct lmtp_message *m, struct buffers *b, struct err *e)
{
    uint32_t answer = s->score ? 0 : s->r.params.max_new_tokens;
    if (buffers_reserve(b, m->save, s->r.n_ids + answer, e) != 0)
        return -1;
    s->reserved = s->r.n_ids + answer;
    s->save = m->save;
    return 0;
}

int stream_ask(struct stream *s, const struct lmtp_message *m, struct buffers *b, struct err *e)
{
    struct validator v = edge_validator(s->edge);
    uint32_t n = 0;
    const struct token_buffer *t = m->buffer ? buffers_find(b, m->buffer) : NULL;
    s->r.arena.limit += t ? t->n * sizeof(*t->ids) : 0;
    const uint32_t *ids = stream_ids(m, b, &s->r.arena, &n, e);
    if (!ids)
        return -1;
    struct ask q = ask_of(m, ids, n);
    q.adapter_id = edge_adapter(s->edge, m->model);
    v.max_top_n_tokens = LMTP_TOP_MAX;
    if (q.top_n_tokens.v > v.max_top_n_tokens)
        return err_set(e, ERR_VALIDATION, "`top_logprobs` must be at most %d", LMTP_TOP_MAX);
    if (v.has_encoder && (m->type == LMTP_SCORE || m->save || m->buffer))
        return err_set(e, ERR_VALIDATION,
                       "an encoder reads the prompts of this model: their tokens have no scores, "
                       "and buffers cannot continue them");
    if (m->type == LMTP_SCORE && m->n_scored == 0)
        return err_set(e, ERR_VALIDATION, "`scored_text` has no tokens");
    if (validate(&v, &q, NULL, &s->r.arena, &s->r, e) != 0)
        return -1;
    s->r.params.raw_logprobs = true;
    s->n_prompt = n - m->n_scored;
    s->score = m->type == LMTP_SCORE;
    s->r.params.logprobs_from = s->score ? s->n_prompt : 0;
    s->r.wants_place = m->status;
    s->return_text = m->return_text;
    s->status = m->status;
    return m->save ? reserve(s, m, b, e) : 0;
}
