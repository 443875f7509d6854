/* sample.h - the sampling chain: one row of logits to one token, in TGI's order.
 *
 * bias, watermark, repetition and frequency penalties, OpenAI's two penalties, DRY, grammar mask,
 * temperature, top_n_sigma, top_k, top_p, min_p, typical_p, XTC, choice, log-probabilities. All of
 * it is fp32 arithmetic on this row alone: neither the batch nor the rank changes the result.
 * docs/decisions/sampling.md lists the differences from TGI. */
#ifndef MODEL_SERVER_SAMPLE_SAMPLE_H
#define MODEL_SERVER_SAMPLE_SAMPLE_H
#include "common/err.h"
#include "model-server/sample/bias.h"
#include "model-server/sample/filter.h"
#include "model-server/sample/repeats.h"
#include "model-server/sample/tally.h"
#include <stdbool.h>
#include <stdint.h>

struct watermark { /* Kirchenbauer et al., arXiv 2301.10226 */
    float gamma,   /* fraction of the vocabulary on the green list */
        delta;     /* added to the logits of that list; 0: off */
};

/* Tokens whose log-probabilities are reported, in this order. n == 0: the most likely ones. */
struct report {
    uint32_t *id;
    size_t n;
};
/* Copies `from` into `out`, which report_free() frees. ERR_VALIDATION: an id is not below `vocab`,
 * or there are more than MOST_LOGPROB_IDS. */
int report_copy(struct report *out, const struct report *from, size_t vocab, struct err *e);
void report_free(struct report *r);

struct sampling { /* common/params.def describes the numbers; sampling_neutral() turns all off */
    float temperature, top_p, typical_p, min_p, top_n_sigma, xtc_probability, xtc_threshold;
    uint32_t top_k;
    bool sample;       /* false: greedy */
    bool raw_logprobs; /* report log-probabilities before temperature and filters */
    uint64_t seed;
    struct penalties penalties;
    struct watermark watermark;
    struct bias bias;
    struct report report;
    struct dry dry;
    struct repeats *repeats; /* DRY's context, borrowed; NULL: off */
};
struct sampling sampling_neutral(void);
/* Replaces zeros that mean "off" on the wire (temperature, top_p, typical_p, repetition) by neutral
 * values, and turns sampling on if a parameter requires it, as TGI does. Extreme temperatures and
 * repetition penalties are clamped. ERR_VALIDATION: a value is NaN or out of range. */
int sampling_normalise(struct sampling *p, struct err *e);
/* True if a parameter has no field in struct draw, so that the host has to sample. */
bool sampling_on_host(const struct sampling *p);

struct sampled {
    uint32_t id;
    float logprob;
    uint32_t n_top; /* entries of the caller's arrays below: best first, or those of
                       sampling.report that are not masked */
    uint32_t *top_id;
    float *top_logprob;
};

/* Samples one token. row[vocab] is overwritten. `t`: counts of the context (read only if a penalty
 * is on). `last`: the previous token (read by the watermark only). `mask`: a bit per token, clear =
 * masked; NULL: none is. `position`: absolute position of the sampled token. out->n_top: capacity
 * of the caller's arrays, with p->report its n; on return the number of entries. ERR_GENERATION: no
 * token can be chosen. */
int sample_row(const struct sampling *p, const struct tally *t, uint32_t last, const uint32_t *mask,
               uint64_t position, float *row, size_t vocab, struct filter_mem *x,
               struct sampled *out, struct err *e);

/* Writes the n most likely tokens of log_softmax(row), best first. row[vocab] is overwritten. All
 * log-probabilities are NaN if the row has a NaN. */
void row_best(float *row, size_t vocab, uint32_t n, struct filter_mem *x, uint32_t *id,
              float *logprob);
/* Returns log_softmax(row)[id], for prompt tokens. NaN if the row has a NaN. */
float row_logprob(const float *row, size_t vocab, uint32_t id, struct filter_mem *x);
#endif
