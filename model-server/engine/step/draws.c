#include "model-server/engine/step/draws.h"
#include <assert.h>
#include <stdlib.h>

void draws_free(struct draws *d)
{
    free(d->v);
    free(d->masks);
    free(d->never);
    *d = (struct draws){0};
}

static uint32_t masks_of(struct seq *const *v, uint32_t n)
{
    uint32_t masks = 0;
    for (uint32_t i = 0; i < n; i++)
        masks += v[i]->constraint != NULL;
    return masks;
}

/* Upper bound of the tokens in the rows' lists of forbidden tokens. */
static size_t never_of(struct seq *const *v, uint32_t n)
{
    size_t never = 0;
    for (uint32_t i = 0; i < n; i++)
        if (v[i]->bad_words.n)
            never += (v[i]->bad_words.n + v[i]->stop.rules.n_tokens) * (1 + (size_t)v[i]->drafted);
    return never;
}

int draws_begin(struct draws *d, struct seq *const *v, uint32_t n, uint32_t rows, uint32_t vocab,
                struct err *e)
{
    const uint32_t masks = masks_of(v, n);
    const size_t never = never_of(v, n);
    d->n = d->n_masks = d->n_top = d->n_fetched = 0;
    d->n_never = 0;
    d->mask_words = (vocab + (size_t)31) / 32;
    if (rows > d->cap) {
        free(d->v);
        d->cap = 0;
        if (!(d->v = malloc(rows * sizeof(*d->v))))
            return err_nomem(e);
        d->cap = rows;
    }
    if (never > d->cap_never) {
        free(d->never);
        d->cap_never = 0;
        if (!(d->never = malloc(never * sizeof(*d->never))))
            return err_nomem(e);
        d->cap_never = never;
    }
    if (masks > d->cap_masks) {
        free(d->masks);
        d->cap_masks = 0;
        if (!(d->masks = malloc(masks * d->mask_words * sizeof(*d->masks))))
            return err_nomem(e);
        d->cap_masks = masks;
    }
    return 0;
}

/* With penalties or a constraint, the tokens allowed after a draft depend on it. */
static bool draws_fetch(const struct seq *s)
{
    return (s->drafted && (s->constraint || penalties_on(&s->sampling.penalties))) ||
           sampling_on_host(&s->sampling) || s->sampling.watermark.delta != 0 ||
           s->top_n > DRAW_MOST_TOP || s->sampling.bias.n + s->bad_words.n > DRAW_MOST_BIASES ||
           s->tally.n > DRAW_MOST_COUNTS;
}

bool draws_wait(const struct seq *s)
{
    return s->constraint || s->bad_words.looks_back || draws_fetch(s);
}

struct draw draws_rules(const struct sampling *p)
{
    return (struct draw){.sample = p->sample,
                         .raw_logprobs = p->raw_logprobs,
                         .temperature = p->temperature,
                         .top_p = p->top_p,
                         .min_p = p->min_p,
                         .typical_p = p->typical_p,
                         .top_k = p->top_k,
                         .seed = p->seed,
                         .repetition = p->penalties.repetition,
                         .frequency = p->penalties.frequency,
                         .openai_presence = p->penalties.openai_presence,
                         .openai_frequency = p->penalties.openai_frequency,
                         .bias_id = p->bias.id,
                         .bias = p->bias.value,
                         .n_bias = p->bias.n,
                         .last = DRAW_KNOWN};
}

static struct draw of(const struct seq *s, uint32_t more, uint32_t last)
{
    const struct sampling *p = &s->sampling;
    struct draw d = draws_rules(p);
    d.position = (uint64_t)s->n + more;
    d.n_top = s->top_n;
    d.last = last;
    if (penalties_on(&p->penalties)) {
        d.counts = s->tally.v;
        d.n_counts = s->tally.cap;
        d.length = s->tally.length;
    }
    return d;
}

/* A row with bad words gets a combined list; other rows use that of the stop rules. */
static void forbid(struct draws *d, const struct seq *s, uint32_t more, struct draw *v)
{
    if (!s->constraint) /* with a constraint only the constraint decides when the answer ends */
        stop_forbidden(&s->stop, s->stop.generated + more, v->forbid);
    if (!s->bad_words.n)
        return;
    assert(!s->bad_words.looks_back || v->last == DRAW_KNOWN); /* draws_wait() saw to it */
    uint32_t *list = d->never + d->n_never;
    size_t n = 0;
    for (; n < v->forbid[1].n; n++)
        list[n] = v->forbid[1].id[n];
    n += bad_words_next(&s->bad_words, s->ids + s->n_prompt, s->n + more - s->n_prompt, list + n);
    v->forbid[1] = (struct id_list){list, n};
    d->n_never += n;
    assert(d->n_never <= d->cap_never);
}

struct draw_place draws_place(const struct draw_place *first, const struct seq *s, uint32_t j)
{
    struct draw_place at = *first;
    assert(j <= s->drafted + 1);
    at.row += j;
    if (at.fetch)
        at.fetched += j;
    else
        at.top += j * s->top_n;
    return at;
}

struct draw_place draws_add(struct draws *d, const struct seq *s, uint32_t more, uint32_t last)
{
    struct err why = ERR_INIT;
    assert(d->n < d->cap);
    struct draw *v = &d->v[d->n];
    struct draw_place at = {.row = d->n, .top = d->n_top, .fetched = d->n_fetched};
    *v = of(s, more, last);
    forbid(d, s, more, v);
    if (draws_fetch(s)) {
        *v = (struct draw){.fetch = true, .last = DRAW_KNOWN};
    } else if (s->constraint) {
        assert(d->n_masks < d->cap_masks);
        uint32_t *mask = d->masks + d->n_masks++ * d->mask_words;
        v->mask = mask;
        if (constraint_mask(s->constraint, s->grammar_state, grammars_tokens(s->grammars), mask,
                            &why)) /* the host finds the same error, and reports it */
            *v = (struct draw){.fetch = true, .last = DRAW_KNOWN};
    }
    at.fetch = v->fetch;
    d->n++;
    d->n_top += v->n_top;
    d->n_fetched += v->fetch;
    return at;
}

const char *draws_take(const struct draw_results *r, const struct draw_place *at,
                       struct sampled *out, uint32_t vocab, float **row)
{
    *row = NULL;
    if (at->fetch) {
        *row = r->rows + (size_t)at->fetched * vocab;
        return NULL;
    }
    const struct drawn *d = &r->v[at->row];
    assert(d->n_top <= out->n_top);
    out->id = d->id;
    out->logprob = d->logprob;
    out->n_top = d->n_top;
    for (uint32_t i = 0; i < d->n_top; i++) {
        out->top_id[i] = r->top[at->top + i].id;
        out->top_logprob[i] = r->top[at->top + i].logprob;
    }
    return draw_failure(d->status);
}
