/* filter.h - the filters of sampling: top_n_sigma, top_k, top_p, min_p, typical_p, XTC.
 *
 * A candidate list starts as the whole row, and each filter shrinks it in place. A histogram of the
 * scores finds the bucket that contains the cut, so that only that bucket is sorted. */
#ifndef MODEL_SERVER_SAMPLE_FILTER_H
#define MODEL_SERVER_SAMPLE_FILTER_H
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Scratch memory for rows of up to `vocab` tokens. One thread at a time. */
struct filter_mem {
    uint32_t vocab;
    uint32_t *id;          /* [vocab] */
    float *w, *key, *raw;  /* [vocab]; `raw` is used by sample_row() only */
    uint64_t *sort, *swap; /* [vocab] */
};
int filter_mem_init(struct filter_mem *x, uint32_t vocab, struct err *e);
void filter_mem_free(struct filter_mem *x);

struct cands {
    const uint32_t *id; /* [n] ascending token ids; NULL: candidate i is token i */
    float *s;           /* [n] scores */
    float *w;           /* [n] exp(s - max); NULL before cands_weigh() */
    size_t n;
    float max;  /* maximum of the whole row; the scale of w even if that token was removed */
    double sum; /* of w */
};
static inline uint32_t cand_id(const struct cands *c, size_t i)
{
    return c->id ? c->id[i] : (uint32_t)i;
}

/* Starts a list with the whole row `s`, which later calls modify. ERR_GENERATION: no token can be
 * chosen, because the row has a NaN or +inf, or every score is -inf. */
int cands_begin(struct cands *c, float *s, size_t vocab, struct err *e);
void cands_weigh(struct cands *c, struct filter_mem *x); /* computes w and sum */

/* Keeps the k best scores and all that tie with the k-th. Cheaper before cands_weigh(). */
void cut_top_k(struct cands *c, struct filter_mem *x, uint32_t k);
/* Keeps the best tokens until their probability reaches p (Holtzman et al., arXiv 1904.09751).
 * Among equal scores the higher ids are kept. */
void cut_top_p(struct cands *c, struct filter_mem *x, double p);
/* Keeps tokens with at least p times the probability of the row's best (Nguyen et al.,
 * arXiv 2407.01082). */
void cut_min_p(struct cands *c, struct filter_mem *x, float p);
/* Keeps tokens whose -log p is nearest to the entropy, until their probability reaches p. Ties are
 * kept (Meister et al., "Locally typical sampling", arXiv 2202.00666). */
void cut_typical(struct cands *c, struct filter_mem *x, double p);
/* Keeps tokens within n standard deviations of the best score, taken over all finite scores. The
 * result does not depend on the temperature (Tang et al., "Top-n sigma", arXiv 2411.07641). Call it
 * before cands_weigh(). */
void cut_top_n_sigma(struct cands *c, struct filter_mem *x, float n);
/* XTC ("exclude top choices"): if two or more tokens have a probability of at least `threshold`,
 * all of them but the least likely are removed. Of equal ones the highest id is kept. */
void cut_xtc(struct cands *c, struct filter_mem *x, float threshold);

/* Writes the indices of the n best candidates to out[n], best first, lower ids first among equals.
 * Tokens with a score of -inf are skipped. Returns the count. */
size_t cands_best(const struct cands *c, struct filter_mem *x, size_t n, uint32_t *out);
#endif
