/* answer.h - what came of one generation, and which of several is best. Pure. */
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
    struct buf text; /* the whole text, when ended */
};

void answer_token(struct answer *a, const struct gen_event *ev); /* a TOKEN event */
double answer_mean_logprob(const struct answer *a);              /* -inf without tokens */
void answer_free(struct answer *a);
/* out[0 .. n): the indices by mean logprob, highest first; equals by index. */
void answer_rank(const struct answer *(*at)(void *arg, uint32_t i), void *arg, uint32_t n,
                 uint32_t *out);
/* Index of the highest mean logprob; the first of equals. `at(arg, i)` gives the i-th answer. */
uint32_t answer_best(const struct answer *(*at)(void *arg, uint32_t i), void *arg, uint32_t n);
#endif
