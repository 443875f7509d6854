/* taps.h - a convolution over the tokens of each text: y[t] = sum over j of w[j] x[t + j - n / 2],
 * plus a bias, where x outside of the text is 0.
 *
 * One product for each j, of the rows that have such a neighbour. The bits of a row depend on its
 * text alone. One thread. */
#ifndef MODEL_SERVER_MODEL_TAPS_H
#define MODEL_SERVER_MODEL_TAPS_H
#include "model-server/backend/backend.h"

struct decoder; /* decoder.h */

enum { TAPS_MOST = 63 };
struct taps {
    uint32_t n, in, out;         /* tokens, an odd number; widths of x and y */
    struct weight *w[TAPS_MOST]; /* [n] of [out, in] */
    float *bias;                 /* [out] */
    uint32_t cap;                /* of the next two */
    uint32_t *rows;              /* rows of a step that are read */
    const float **marks;         /* not NULL: rows that are written */
};

/* Within the step `b` of whole texts: y [tokens][out] of x [tokens][in]. `some` [tokens][in] and
 * `part` [tokens][out] are scratch memory. -1: an error. */
int taps_run(struct decoder *d, struct taps *c, const struct ragged *b, float *y, const float *x,
             float *some, float *part, struct err *e);
void taps_free(struct decoder *d, struct taps *c); /* what it points to */
#endif
