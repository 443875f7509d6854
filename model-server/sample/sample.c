#include "model-server/sample/sample.h"
#include "common/params.h"
#include "model-server/sample/noise.h"
#include "model-server/sample/rows.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* True if it changes which token is sampled. */
static bool reshapes(const struct sampling *p)
{
    bool any = false;
#define PARAM(kind, type, name, member, neutral, ...)                                              \
    any |= PARAM_CUTS_##kind && p->member != (PARAM_C_##type)neutral;
#include "common/params.def"
    return any;
}

struct sampling sampling_neutral(void)
{
    struct sampling p = {0};
#define PARAM(kind, type, name, member, neutral, ...) p.member = neutral;
#include "common/params.def"
    return p;
}

/* Any positive number is a temperature (some clients send 1e-8 for greedy). Beyond these limits
 * only infinities would differ. */
static float tame(float v) { return v > 0 ? fminf(fmaxf(v, 1e-6f), 1e6f) : v; }

static void mend(struct sampling *p)
{
#define PARAM(kind, type, name, member, neutral, low, ...)                                         \
    if (p->member == 0 && low > 0)                                                                 \
        p->member = neutral;
#include "common/params.def"
    p->temperature = tame(p->temperature);
    p->penalties.repetition = tame(p->penalties.repetition);
}

int sampling_normalise(struct sampling *p, struct err *e)
{
    mend(p);
#define PARAM(kind, type, name, member, neutral, low, high, ...)                                   \
    if (!((double)p->member >= (double)low && (double)p->member <= (double)high))                  \
        return err_set(e, ERR_VALIDATION, "`%s` must be between %g and %g", #name, (double)low,    \
                       (double)high);
#include "common/params.def"
    p->sample |= reshapes(p);
    return 0;
}

int report_copy(struct report *out, const struct report *from, size_t vocab, struct err *e)
{
    *out = (struct report){0};
    if (from->n > MOST_LOGPROB_IDS)
        return err_set(e, ERR_VALIDATION, "`logprob_token_ids` may have at most %d entries",
                       MOST_LOGPROB_IDS);
    for (size_t i = 0; i < from->n; i++)
        if (from->id[i] >= vocab)
            return err_set(e, ERR_VALIDATION,
                           "`logprob_token_ids`: %u is outside the vocabulary of %zu", from->id[i],
                           vocab);
    if (!from->n)
        return 0;
    out->id = malloc(from->n * sizeof(*out->id));
    if (!out->id)
        return err_nomem(e);
    memcpy(out->id, from->id, from->n * sizeof(*out->id));
    out->n = from->n;
    return 0;
}

void report_free(struct report *r)
{
    free(r->id);
    *r = (struct report){0};
}

bool sampling_on_host(const struct sampling *p)
{
    bool host = p->report.n > 0;
#define PARAM(kind, type, name, member, neutral, low, high, taken, words, tgi, openai, lmtp,       \
              number, where)                                                                       \
    host |= PARAM_HOST_##where && PARAM_ACTS_##kind && p->member != (PARAM_C_##type)neutral;
#include "common/params.def"
    return host;
}

/* Kirchenbauer et al., "A watermark for large language models", 2023: the previous token
 * determines the preferred part of the vocabulary. */
static void prefer_green(const struct watermark *m, uint32_t last, float *row, size_t vocab)
{
    const uint64_t hash_key = 15485863;
    double share = (double)m->gamma * 4294967296.0;
    uint32_t bits[256];
    for (size_t i = 0; i < vocab; i += 256) {
        size_t n = vocab - i < 256 ? vocab - i : 256;
        noise_bits(hash_key * last, 0, NOISE_GREEN_LIST, (uint32_t)i, bits, n);
        for (size_t j = 0; j < n; j++)
            row[i + j] += bits[j] < share ? m->delta : 0;
    }
}

/* Whether XTC is applied at this position depends only on seed and position, like the token. */
static bool xtc_cuts(const struct sampling *p, uint64_t position)
{
    uint32_t bits;
    if (p->xtc_probability <= 0)
        return false;
    noise_bits(p->seed, position, NOISE_XTC, 0, &bits, 1);
    return noise_unit(bits) < p->xtc_probability;
}

static void filter(const struct sampling *p, uint64_t position, struct cands *c,
                   struct filter_mem *x)
{
    if (p->top_n_sigma > 0)
        cut_top_n_sigma(c, x, p->top_n_sigma);
    if (p->top_k)
        cut_top_k(c, x, p->top_k);
    cands_weigh(c, x);
    if (p->top_p < 1)
        cut_top_p(c, x, p->top_p);
    if (p->min_p > 0)
        cut_min_p(c, x, p->min_p);
    if (p->typical_p < 1)
        cut_typical(c, x, p->typical_p);
    if (xtc_cuts(p, position))
        cut_xtc(c, x, p->xtc_threshold);
}

/* The candidate of token `id`; SIZE_MAX: it was removed. If there is a list, it is short. */
static size_t cand_of(const struct cands *c, uint32_t id)
{
    if (!c->id)
        return id < c->n ? id : SIZE_MAX;
    for (size_t i = 0; i < c->n; i++)
        if (c->id[i] == id)
            return i;
    return SIZE_MAX;
}

static void report_ids(const struct report *r, const struct cands *c, struct sampled *out)
{
    const double log_sum = log(c->sum);
    assert(out->n_top == r->n);
    out->n_top = 0;
    for (size_t i = 0; i < r->n; i++) {
        const size_t at = cand_of(c, r->id[i]);
        if (at == SIZE_MAX || c->s[at] == -INFINITY)
            continue;
        out->top_id[out->n_top] = r->id[i];
        out->top_logprob[out->n_top++] = (float)((double)(c->s[at] - c->max) - log_sum);
    }
}

static void report_top(const struct sampling *p, const struct cands *c, struct filter_mem *x,
                       struct sampled *out)
{
    double log_sum = log(c->sum);
    if (p->report.n) {
        report_ids(&p->report, c, out);
        return;
    }
    out->n_top = (uint32_t)cands_best(c, x, out->n_top, out->top_id);
    for (uint32_t i = 0; i < out->n_top; i++) {
        uint32_t at = out->top_id[i];
        out->top_id[i] = cand_id(c, at);
        out->top_logprob[i] = (float)((double)(c->s[at] - c->max) - log_sum);
    }
}

/* The row before temperature and filters: saved in x->raw, weighed as `c`. */
static int report_raw(const struct sampling *p, const float *row, size_t vocab,
                      struct filter_mem *x, struct sampled *out, struct cands *c, struct err *e)
{
    memcpy(x->raw, row, vocab * sizeof(*row));
    if (cands_begin(c, x->raw, vocab, e))
        return -1;
    cands_weigh(c, x);
    report_top(p, c, x, out);
    return 0;
}

static size_t choose(const struct sampling *p, const struct cands *c, uint64_t position)
{
    if (p->sample) {
        size_t i = noise_draw(c->w, c->id, c->n, p->seed, position);
        if (i != SIZE_MAX)
            return i;
    } /* every weight underflowed (typical_p kept only improbable tokens): the best of them */
    float best = row_max(c->s, c->n);
    size_t i = 0;
    while (c->s[i] != best)
        i++;
    return i;
}

int sample_row(const struct sampling *p, const struct tally *t, uint32_t last, const uint32_t *mask,
               uint64_t position, float *row, size_t vocab, struct filter_mem *x,
               struct sampled *out, struct err *e)
{
    struct cands c, plain;
    bool raw = p->raw_logprobs && reshapes(p);
    assert(vocab <= x->vocab);
    bias_apply(&p->bias, row);
    if (p->watermark.delta != 0)
        prefer_green(&p->watermark, last, row, vocab);
    if (penalties_on(&p->penalties))
        penalties_apply(&p->penalties, t, row, vocab);
    if (p->repeats)
        repeats_penalise(p->repeats, &p->dry, row, vocab, x->key);
    if (mask)
        row_mask(row, mask, vocab);
    if (raw && report_raw(p, row, vocab, x, out, &plain, e))
        return -1;
    if (p->temperature != 1)
        row_divide(row, p->temperature, vocab);
    if (cands_begin(&c, row, vocab, e))
        return -1;
    filter(p, position, &c, x);

    size_t chosen = choose(p, &c, position);
    out->id = cand_id(&c, chosen);
    if (raw) {
        out->logprob = (float)((double)(plain.s[out->id] - plain.max) - log(plain.sum));
        return 0;
    }
    double log_sum = log(c.sum);
    out->logprob = (float)((double)(c.s[chosen] - c.max) - log_sum);
    report_top(p, &c, x, out);
    return 0;
}

void row_best(float *row, size_t vocab, uint32_t n, struct filter_mem *x, uint32_t *id,
              float *logprob)
{
    struct cands c;
    struct err ignored = ERR_INIT;
    size_t found = 0;
    if (cands_begin(&c, row, vocab, &ignored) == 0) {
        cands_weigh(&c, x);
        found = cands_best(&c, x, n, id);
    }
    for (size_t i = 0; i < n; i++) {
        bool there = i < found;
        logprob[i] = there ? (float)((double)(c.s[id[i]] - c.max) - log(c.sum)) : NAN;
        id[i] = there ? id[i] : 0;
    }
}

float row_logprob(const float *row, size_t vocab, uint32_t id, struct filter_mem *x)
{
    float max = row_max(row, vocab);
    return (float)((double)(row[id] - max) - log(row_exp(row, max, x->w, vocab)));
}
