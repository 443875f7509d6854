#include "model-server/engine/step/memory.h"
#include <stdlib.h>
#include <string.h>

int stepper_init(struct stepper *st, struct model *m, const struct backend_ops *ops,
                 struct device *dev, const struct tokenizer *tok, uint32_t block_size,
                 struct err *e)
{
    *st = (struct stepper){
        .model = m, .ops = ops, .dev = dev, .tok = tok, .block_size = block_size, .threads = 1};
    st->vocab = model_info(m)->vocab;
    st->by_length = model_info(m)->by_length;
    st->draws = ops->draw && st->vocab <= DRAW_MOST_VOCAB;
    st->enqueues = model_info(m)->enqueues;
    if (ops->host_run)
        st->threads = ops->host_threads(dev);
    st->filter = calloc((size_t)st->threads, sizeof(*st->filter));
    st->mask_words = (st->vocab + (size_t)31) / 32;
    st->mask = malloc((size_t)st->threads * st->mask_words * sizeof(*st->mask));
    if (!st->filter || !st->mask)
        return err_nomem(e);
    for (int i = 0; i < st->threads; i++)
        if (filter_mem_init(&st->filter[i], st->vocab, e))
            return -1;
    return 0;
}

void stepper_free(struct stepper *st)
{
    free(st->ids), free(st->pos), free(st->slots), free(st->out_rows), free(st->drawn);
    free(st->window_slots), free(st->hidden), free(st->hidden_ahead);
    free(st->given), free(st->axes), free(st->mutual), free(st->sees), free(st->sight);
    draws_free(&st->rows);
    free(st->spans), free(st->logits), free(st->gen), free(st->top_id), free(st->top_logprob);
    for (int i = 0; st->filter && i < st->threads; i++)
        filter_mem_free(&st->filter[i]);
    free(st->filter);
    free(st->mask);
    buf_free(&st->text);
    buf_free(&st->piece);
    *st = (struct stepper){0};
}

uint64_t step_row_bytes(const struct stepper *st) { return (uint64_t)st->vocab * sizeof(float); }

/* Replaces *p by an array of n elements, aligned as the memory of a device; contents are lost. */
static int renew(void *p, size_t n, size_t size)
{
    enum { ALIGNED = 64 };
    free(*(void **)p);
    *(void **)p = aligned_alloc(ALIGNED, (n * size + ALIGNED - 1) / ALIGNED * ALIGNED);
    return *(void **)p ? 0 : -1;
}

/* Of a token. */
static size_t hidden_bytes(const struct stepper *st)
{
    return st->heads ? st->heads->of.width * sizeof(float) : 0;
}

static uint32_t grown(uint32_t cap, uint32_t n) { return n > cap + cap / 2 ? n : cap + cap / 2; }

float *stepper_rows(const struct stepper *st, bool ahead)
{
    return st->logits + (ahead ? 0 : (size_t)st->ahead_rows * st->vocab);
}

int step_reserve_logits(struct stepper *st, uint32_t rows, struct err *e)
{
    const size_t kept = st->ahead_rows * step_row_bytes(st);
    float *fresh = NULL;
    if (rows <= st->cap_rows - st->ahead_rows)
        return 0;
    const uint32_t cap = grown(st->cap_rows, st->ahead_rows + rows);
    if (!kept) {
        free(st->logits);
        st->logits = NULL;
        st->cap_rows = 0;
    }
    if (renew(&fresh, cap, step_row_bytes(st)))
        return err_nomem(e);
    if (kept)
        memcpy(fresh, st->logits, kept);
    free(st->logits);
    st->logits = fresh;
    st->cap_rows = cap;
    return 0;
}

/* Only steps with images need it. */
static int reserve_pictures(struct stepper *st, struct err *e)
{
    if (st->cap_pictures == st->cap_tokens)
        return 0;
    st->cap_pictures = 0;
    if (renew(&st->given, st->cap_tokens, sizeof(*st->given)) ||
        renew(&st->axes, st->cap_tokens, sizeof(*st->axes)) ||
        renew(&st->mutual, st->cap_tokens, sizeof(*st->mutual)) ||
        renew(&st->sees, st->cap_tokens, sizeof(*st->sees)))
        return err_nomem(e);
    st->cap_pictures = st->cap_tokens;
    return 0;
}

int step_reserve_media(struct stepper *st, struct seq *const *v, uint32_t n, struct err *e)
{
    for (uint32_t i = 0; i < n; i++)
        if (v[i]->media && seq_live(v[i]))
            return reserve_pictures(st, e);
    return 0;
}

/* If the device samples, only logits of prompts are copied to the host. */
int stepper_reserve(struct stepper *st, uint32_t tokens, uint32_t rows, struct err *e)
{
    if (tokens > st->cap_tokens) {
        uint32_t n = grown(st->cap_tokens, tokens);
        st->cap_tokens = 0;
        if (renew(&st->ids, n, 4) || renew(&st->pos, n, 4) || renew(&st->slots, n, 4) ||
            renew(&st->out_rows, n, 4) || renew(&st->drawn, n, 4) ||
            renew(&st->window_slots, n, 4) ||
            (model_info(st->model)->sight && renew(&st->sight, n, sizeof(*st->sight))) ||
            (st->heads && renew(&st->hidden, n, hidden_bytes(st))))
            return err_nomem(e);
        st->cap_tokens = n;
    }
    return st->draws ? 0 : step_reserve_logits(st, rows, e);
}

int step_reserve_lists(struct stepper *st, struct seq **v, uint32_t n, struct err *e)
{
    uint64_t top = 0, spans = n, gens = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t rows = 1 + v[i]->drafted + v[i]->sibling.on;
        top += (uint64_t)v[i]->top_n * rows;
        gens += rows;
        spans += v[i]->sibling.on;
        spans += st->by_length ? v[i]->step : 0; /* see step_put() */
    }
    if (gens > st->cap_gen) {
        st->cap_gen = 0;
        if (gens > UINT32_MAX || renew(&st->gen, gens, sizeof(*st->gen)))
            return err_nomem(e);
        st->cap_gen = (uint32_t)gens;
    }
    if (spans > st->cap_spans) {
        st->cap_spans = 0;
        if (spans > UINT32_MAX || renew(&st->spans, spans, sizeof(*st->spans)))
            return err_nomem(e);
        st->cap_spans = (uint32_t)spans;
    }
    if (top > UINT32_MAX)
        return err_set(e, ERR_VALIDATION, "too many alternatives are asked for");
    if (top > st->cap_top) {
        st->cap_top = 0;
        if (renew(&st->top_id, top, sizeof(*st->top_id)) ||
            renew(&st->top_logprob, top, sizeof(*st->top_logprob)))
            return err_nomem(e);
        st->cap_top = (uint32_t)top;
    }
    return 0;
}

int stepper_reserve_ahead(struct stepper *st, uint32_t rows, struct err *e)
{
    if (st->heads && rows > st->cap_hidden_ahead) {
        st->cap_hidden_ahead = st->ahead_no = 0;
        if (renew(&st->hidden_ahead, rows, hidden_bytes(st)))
            return err_nomem(e);
        st->cap_hidden_ahead = rows;
    }
    return st->draws ? 0 : step_reserve_logits(st, rows, e);
}
