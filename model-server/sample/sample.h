/* sample.h - from one row of logits to one token: the whole chain, in TGI's order.
 *
 * bias, watermark, repetition, frequency (ours: OpenAI's two), DRY, grammar mask, temperature,
 * top_n_sigma, top_k, top_p, min_p, typical_p, XTC, choice, log-probabilities. All in fp32 on this
 * row alone: what else is in the batch, or which rank asks, changes nothing.
 * docs/decisions/sampling.md says where this departs from TGI and why. */
#ifndef MODEL_SERVER_SAMPLE_SAMPLE_H
#define MODEL_SERVER_SAMPLE_SAMPLE_H
#include "common/err.h"
#include "model-server/sample/bias.h"
#include "model-server/sample/filter.h"
#include "model-server/sample/repeats.h"
#include "model-server/sample/tally.h"
#include <stdbool.h>
#include <stdint.h>

struct watermark {
    float gamma,
        delta; /* share of the vocabulary that is preferred, and by how much; delta 0: off */
};

/* Tokens whose log-probabilities are the alternatives, in this order. n 0: the likeliest are. */
struct report {
    uint32_t *id;
    size_t n;
};
/* A copy whose ids are all below `vocab`, MOST_LOGPROB_IDS at most; freed by report_free().
 * ERR_VALIDATION. */
int report_copy(struct report *out, const struct report *from, size_t vocab, struct err *e);
void report_free(struct report *r);

struct sampling { /* common/params.def has a row for each number; see sampling_neutral() */
    float temperature, top_p, typical_p, min_p, top_n_sigma, xtc_probability, xtc_threshold;
    uint32_t top_k;
    bool sample;       /* false: greedy */
    bool raw_logprobs; /* reported: those before temperature and filters, which only choose */
    uint64_t seed;
    struct penalties penalties;
    struct watermark watermark;
    struct bias bias;
    struct report report;
    struct dry dry;
    struct repeats *repeats; /* of the context; NULL: no DRY. Lent */
};
struct sampling sampling_neutral(void);
/* Mend what a peer leaves at zero (temperature, top_p, typical_p, repetition: off) and turn
 * sampling on where a parameter asks for it, as TGI does. Extreme temperatures and
 * repetition penalties are brought into range; NaN and out-of-range values: ERR_VALIDATION. */
int sampling_normalise(struct sampling *p, struct err *e);
/* Is there something that struct draw has no place for, so that only the host can choose? */
bool sampling_on_host(const struct sampling *p);

struct sampled {
    uint32_t id;
    float logprob;
    uint32_t n_top; /* best first, or sampling.report's that may be drawn; the caller's arrays */
    uint32_t *top_id;
    float *top_logprob;
};

/* `row` [vocab] is used up. `t`: the context so far (read only if a penalty is on). `last`: the
 * token before (read by the watermark only). `mask`: bit per token, clear = forbidden; NULL: all
 * allowed. `position`: absolute position of the token that is chosen. out->n_top: how many
 * alternatives are wanted (room for as many; with p->report its n); on return, how many there
 * are. */
int sample_row(const struct sampling *p, const struct tally *t, uint32_t last, const uint32_t *mask,
               uint64_t position, float *row, size_t vocab, struct filter_mem *x,
               struct sampled *out, struct err *e);

/* The n tokens that log_softmax(row) puts first, best first. `row` is used up. NaN throughout if
 * the row holds one. */
void row_best(float *row, size_t vocab, uint32_t n, struct filter_mem *x, uint32_t *id,
              float *logprob);
/* log_softmax(row)[id]: of prompt tokens. NaN if the row holds one. `row` is kept. */
float row_logprob(const float *row, size_t vocab, uint32_t id, struct filter_mem *x);
#endif
