/* answer.h - the result of one generation, and the choice of the best among several. Pure. */
#ifndef ROUTER_REQUEST_ANSWER_H
#define ROUTER_REQUEST_ANSWER_H
#include "common/buf.h"
#include "router/request/request.h"

struct answer {
    uint32_t n_tokens;
    double logprob_sum;
    bool ended;
    enum gen_finish finish;
    uint32_t generated_tokens;
    struct buf text; /* the whole text, once ended */
};

void answer_token(struct answer *a, const struct gen_event *ev); /* adds a TOKEN event */
double answer_mean_logprob(const struct answer *a);              /* -inf if there are no tokens */
void answer_free(struct answer *a);
/* Fills out[0 .. n) with indices by descending mean logprob; equal ones by index. `at(arg, i)`
 * returns the i-th answer. */
void answer_rank(const struct answer *(*at)(void *arg, uint32_t i), void *arg, uint32_t n,
                 uint32_t *out);
/* Index of the highest mean logprob; the first among equals. */
uint32_t answer_best(const struct answer *(*at)(void *arg, uint32_t i), void *arg, uint32_t n);
#endif
