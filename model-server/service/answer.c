/* Converts the engine's answers to messages. */
#include "model-server/service/impl.h"
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* A protobuf-c string ends at its first NUL, so a generated NUL character is shown as U+FFFD. */
static char *wire_text(struct rpc_mem *m, const char *p, size_t n)
{
    size_t nuls = 0;
    for (const char *q = p; n && (q = memchr(q, 0, n - (size_t)(q - p))); q++)
        nuls++;
    if (!nuls)
        return rpc_mem_strdup(m, n ? p : "", n);
    char *out = rpc_mem_alloc(m, n + 2 * nuls + 1), *at = out;
    for (size_t i = 0; out && i < n; i++) {
        size_t len = p[i] ? 1 : 3;
        memcpy(at, p[i] ? p + i : replacement, len);
        at += len;
    }
    return out;
}

Generate__V3__CachedBatch *write_batch(const struct service *s, const struct batch *b,
                                       struct rpc_mem *m)
{
    Generate__V3__CachedBatch *w = RPC_NEW(m, Generate__V3__CachedBatch, 1);
    uint64_t *ids = RPC_NEW(m, uint64_t, b->n);
    if (!w || !ids)
        return NULL;
    generate__v3__cached_batch__init(w);
    for (uint32_t i = 0; i < b->n; i++)
        ids[i] = b->v[i]->id;
    w->id = b->id;
    w->request_ids = ids;
    w->n_request_ids = b->n;
    w->size = b->n;
    w->max_tokens = batch_max_tokens(b, s->o.block_size);
    w->current_tokens = batch_current_tokens(b);
    return w;
}

/* Allocates n tokens, without `is_special` if the list has none. */
static Generate__V3__Tokens *new_tokens(struct rpc_mem *m, uint32_t n, bool special)
{
    Generate__V3__Tokens *t = RPC_NEW(m, Generate__V3__Tokens, 1);
    if (!t)
        return NULL;
    generate__v3__tokens__init(t);
    t->ids = RPC_NEW(m, uint32_t, n);
    t->logprobs = RPC_NEW(m, float, n);
    t->texts = RPC_NEW(m, char *, n);
    t->is_special = RPC_NEW(m, protobuf_c_boolean, n);
    t->n_ids = t->n_logprobs = t->n_texts = n;
    t->n_is_special = special ? n : 0;
    return t->ids && t->logprobs && t->texts && t->is_special ? t : NULL;
}

/* Each token decoded separately. */
static Generate__V3__Tokens *write_list(const struct service *s, struct rpc_mem *m,
                                        const uint32_t *id, const float *logprob, uint32_t n,
                                        bool special)
{
    Generate__V3__Tokens *t = new_tokens(m, n, special);
    struct buf text = BUF_INIT;
    for (uint32_t i = 0; t && i < n; i++) {
        buf_reset(&text);
        tokenizer_decode(s->o.tok, &id[i], 1, false, &text);
        t->ids[i] = id[i];
        t->logprobs[i] = logprob[i];
        t->is_special[i] = tokenizer_is_special(s->o.tok, id[i]);
        if (text.oom || !(t->texts[i] = wire_text(m, text.p, text.len)))
            t = NULL;
    }
    buf_free(&text);
    return t;
}

static int write_tokens(const struct stepper *st, const struct gen *g, uint32_t n,
                        struct rpc_mem *m, Generate__V3__Generation *w)
{
    Generate__V3__Tokens *t = w->tokens = new_tokens(m, n, true);
    for (uint32_t i = 0; t && i < n; i++, g++) {
        t->ids[i] = g->token.id;
        t->logprobs[i] = g->token.logprob;
        t->is_special[i] = g->special;
        if (!(t->texts[i] = wire_text(m, st->text.p + g->text, g->text_len)))
            return -1;
    }
    return t ? 0 : -1;
}

static int write_tops(const struct service *s, const struct gen *g, uint32_t n, struct rpc_mem *m,
                      Generate__V3__Generation *w)
{
    if (!(w->top_tokens = RPC_NEW(m, Generate__V3__Tokens *, n)))
        return -1;
    for (w->n_top_tokens = 0; w->n_top_tokens < n; w->n_top_tokens++, g++)
        if (!(w->top_tokens[w->n_top_tokens] =
                  write_list(s, m, g->token.top_id, g->token.top_logprob, g->token.n_top, true)))
            return -1;
    return 0;
}

static int write_whole(const struct stepper *st, const struct gen *g, struct rpc_mem *m,
                       Generate__V3__Generation *w)
{
    static const Generate__V3__FinishReason reasons[] = {
        [STOP_LENGTH] = GENERATE__V3__FINISH_REASON__FINISH_REASON_LENGTH,
        [STOP_EOS] = GENERATE__V3__FINISH_REASON__FINISH_REASON_EOS_TOKEN,
        [STOP_TOKEN] = GENERATE__V3__FINISH_REASON__FINISH_REASON_EOS_TOKEN,
        [STOP_SEQUENCE] = GENERATE__V3__FINISH_REASON__FINISH_REASON_STOP_SEQUENCE,
    };
    Generate__V3__GeneratedText *t = RPC_NEW(m, Generate__V3__GeneratedText, 1);
    if (!t)
        return -1;
    generate__v3__generated_text__init(t);
    t->text = wire_text(m, st->text.p + g->whole, g->whole_len);
    t->generated_tokens = g->seq->stop.generated;
    t->finish_reason = reasons[g->reason];
    if (g->seq->sampling.sample) {
        t->_seed_case = GENERATE__V3__GENERATED_TEXT___SEED_SEED;
        t->seed = g->seq->sampling.seed;
    }
    w->generated_text = t;
    return t->text ? 0 : -1;
}

/* Writes the n gens of one sequence. */
static int write_generation(const struct service *s, const struct stepper *st, const struct gen *g,
                            uint32_t n, struct rpc_mem *m, Generate__V3__Generation *w)
{
    struct seq *q = g->seq;
    const struct gen *last = g + n - 1;
    generate__v3__generation__init(w);
    w->request_id = q->id;
    w->drafted = g->drafts;
    if (q->error[0]) {
        w->error = wire_text(m, q->error, strlen(q->error));
        w->unservable = q->unservable;
        return w->error ? 0 : -1;
    }
    if (write_tokens(st, g, n, m, w) || (last->reason != STOP_NOT && write_whole(st, last, m, w)))
        return -1;
    if (g->first && q->prompt_logprob &&
        !(w->prefill_tokens = write_list(s, m, q->ids, q->prompt_logprob, q->n_prompt, false)))
        return -1;
    if (w->prefill_tokens && q->top_n &&
        !(w->prefill_top_tokens = write_list(s, m, q->prompt_top, q->prompt_top_logprob,
                                             q->n_prompt * q->top_n, false)))
        return -1;
    return q->top_n ? write_tops(s, g, n, m, w) : 0;
}

int write_generations(const struct service *s, const struct stepper *st, struct rpc_mem *m,
                      Generate__V3__Generation ***out, size_t *n)
{
    const uint32_t n_gen = s->o.rank == 0 ? st->n_gen : 0;
    *n = 0;
    *out = RPC_NEW(m, Generate__V3__Generation *, n_gen);
    Generate__V3__Generation *v = RPC_NEW(m, Generate__V3__Generation, n_gen);
    if (!*out || !v)
        return -1;
    for (uint32_t i = 0, k; i < n_gen; i += k, v++) {
        for (k = 1; i + k < n_gen && st->gen[i + k].seq == st->gen[i].seq; k++)
            ;
        (*out)[(*n)++] = v;
        if (write_generation(s, st, &st->gen[i], k, m, v))
            return -1;
    }
    return 0;
}
