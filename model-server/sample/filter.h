/* filter.h - which tokens stay in the race: top_n_sigma, top_k, top_p, min_p,
 * typical_p, XTC.
 *
 * A candidate list starts as the whole row and shrinks in place. Nothing is sorted but the few
 * candidates around a cut: a histogram of the scores finds the bucket in which the cut lies. */
#ifndef MODEL_SERVER_SAMPLE_FILTER_H
#define MODEL_SERVER_SAMPLE_FILTER_H
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Working memory for rows of up to `vocab` tokens; one thread. */
struct filter_mem {
    uint32_t vocab;
    uint32_t *id;          /* [vocab] */
    float *w, *key, *raw;  /* [vocab]; raw is sample_row()'s */
    uint64_t *sort, *swap; /* [vocab] */
};
int filter_mem_init(struct filter_mem *x, uint32_t vocab, struct err *e);
void filter_mem_free(struct filter_mem *x);

struct cands {
    const uint32_t *id; /* ascending; NULL: the whole row, token i at i */
    float *s;           /* scores */
    float *w;           /* exp(s - max); NULL until weigh() */
    size_t n;
    float max;  /* of the row: the scale of w, whether the best token is still there or not */
    double sum; /* of w */
};
static inline uint32_t cand_id(const struct cands *c, size_t i)
{
    return c->id ? c->id[i] : (uint32_t)i;
}

/* The whole row `s` (used in place from now on). ERR_GENERATION when no token can be chosen: NaN,
 * infinite, or everything excluded. */
int cands_begin(struct cands *c, float *s, size_t vocab, struct err *e);
void cands_weigh(struct cands *c, struct filter_mem *x); /* fill w and sum */

/* The k best; all that tie with the k-th stay. Before cands_weigh(): cheaper. */
void cut_top_k(struct cands *c, struct filter_mem *x, uint32_t k);
/* The best, until their probability reaches p; among equal scores the higher ids stay. */
void cut_top_p(struct cands *c, struct filter_mem *x, double p);
/* Those with at least p times the probability of the row's best. */
void cut_min_p(struct cands *c, struct filter_mem *x, float p);
/* Those whose -log p is nearest to the entropy, until their probability reaches p; ties stay
 * (Meister et al., "Locally typical sampling", 2022). */
void cut_typical(struct cands *c, struct filter_mem *x, double p);
/* Those within n standard deviations (of all scores that are not -inf) of the best one's score.
 * A temperature changes nothing about it (Tang et al., "Top-n sigma", 2024). Before cands_weigh().
 */
void cut_top_n_sigma(struct cands *c, struct filter_mem *x, float n);
/* XTC: of the tokens with a probability of at least `threshold`, if there are two or more, only the
 * least likely one stays (of equals the one with the highest id), and all below the threshold. */
void cut_xtc(struct cands *c, struct filter_mem *x, float threshold);

/* The n best of the list, best first, lower ids first among equals; out: indices into the list.
 * Tokens that are not allowed (-inf) never appear. Returns how many. */
size_t cands_best(const struct cands *c, struct filter_mem *x, size_t n, uint32_t *out);
#endif
