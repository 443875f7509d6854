/* prompt_logprobs.c - vLLM's `prompt_logprobs`: for each prompt token a map by token id, with the
 * log-probabilities of the token itself and of the most likely ones. */
#include "router/api/openai/openai.h"
#include <math.h>

void openai_prompt_logprobs_read(struct body *b, struct openai *o)
{
    struct object root = body_root(b);
    struct opt_i64 n = body_i32(b, root, "prompt_logprobs");
    if (!n.set || b->failed)
        return;
    if (n.v < 0)
        body_fail(b, root, "prompt_logprobs", "`prompt_logprobs` must be >= 0");
    else if (o->stream)
        body_fail(b, root, "prompt_logprobs",
                  "`prompt_logprobs` is not available with `stream`: the prompt comes first");
    o->prompt_logprobs = true;
    o->prompt_tops = (uint32_t)n.v;
    for (uint32_t i = 0; o->asks && i < o->n_asks; i++) {
        struct ask *q = &o->asks[i];
        q->decoder_input_details = true;
        o->answer_tops = (uint32_t)q->top_n_tokens.v;
        if (n.v > (int64_t)q->top_n_tokens.v) {
            q->top_n_tokens = (struct opt_u64){true, (uint64_t)n.v};
            q->top_name = "prompt_logprobs";
        }
    }
}

uint32_t openai_tops(const struct openai *o, uint32_t n)
{
    return o->prompt_logprobs && n > o->answer_tops ? o->answer_tops : n;
}

/* `rank` 0: it is not among the returned alternatives. */
static void entry(struct buf *out, const struct gen_token *t, uint32_t rank)
{
    buf_fmt(out, "\"%u\":{\"logprob\":", t->id);
    buf_json_f32(out, t->logprob);
    if (rank)
        buf_fmt(out, ",\"rank\":%u,\"decoded_token\":", rank);
    else
        buf_str(out, ",\"rank\":null,\"decoded_token\":");
    buf_json_str(out, t->text ? t->text : "", t->text ? t->text_len : 0);
    buf_ch(out, '}');
}

void openai_prompt_logprobs_take(struct openai *o, const struct generation *g,
                                 const struct gen_event *ev)
{
    struct buf *out = &o->seq[g->index].prompt_logprobs;
    for (uint32_t i = 0; o->prompt_logprobs && i < ev->n_prefill; i++) {
        const struct gen_token *t = &ev->prefill[i];
        uint32_t k = ev->n_top / ev->n_prefill, rank = 0;
        const struct gen_token *top = k ? ev->top + (size_t)i * k : NULL;
        if (out->len)
            buf_ch(out, ',');
        if (isnan(t->logprob)) { /* the first token has no context */
            buf_str(out, "null");
            continue;
        }
        for (uint32_t j = 0; j < k && !rank; j++)
            rank = top[j].id == t->id ? j + 1 : 0;
        buf_ch(out, '{');
        entry(out, t, rank);
        for (uint32_t j = 0; j < k && j < o->prompt_tops; j++)
            if (top[j].id != t->id) {
                buf_ch(out, ',');
                entry(out, &top[j], j + 1);
            }
        buf_ch(out, '}');
    }
}

void openai_prompt_logprobs(struct buf *out, const struct openai *o, const struct generation *g)
{
    const struct buf *list = &o->seq[g->index].prompt_logprobs;
    if (!o->prompt_logprobs)
        return;
    buf_str(out, ",\"prompt_logprobs\":[");
    buf_add(out, list->p ? list->p : "", list->len);
    buf_ch(out, ']');
    out->oom |= list->oom;
}
