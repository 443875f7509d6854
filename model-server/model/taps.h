/* taps.h - neighbours of the tokens of each text: rows that are moved by some tokens, and a
 * convolution, y[t] = sum over j of w[j] x[t + j - n / 2] plus a bias. What is outside of the text
 * is 0.
 *
 * gather_out() takes rows and give_rows() writes them, in steps of their own, so no backend has to
 * know of neighbours. The bits of a row depend on its text alone. One thread. */
#ifndef MODEL_SERVER_MODEL_TAPS_H
#define MODEL_SERVER_MODEL_TAPS_H
#include "model-server/backend/backend.h"

struct decoder; /* decoder.h */

/* Memory of a step with other rows; zero at first. */
struct neighbours {
    uint32_t cap;
    uint32_t *rows;      /* [cap] rows that are read */
    const float **marks; /* [cap] not NULL: rows that are written */
    struct ragged step;
};
/* Within the step `b` of whole texts: begins a step in which gather_out() takes the rows that are
 * `by` tokens after some row, and give_rows() writes the latter. *n: how many there are. Without
 * any, no step begins. neighbours_end() goes back to `b`. -1: an error. */
int neighbours_begin(struct decoder *d, struct neighbours *c, const struct ragged *b, int64_t by,
                     uint32_t *n, struct err *e);
int neighbours_end(struct decoder *d, const struct ragged *b, struct err *e);
void neighbours_free(struct neighbours *c); /* what it points to */

/* Within the step `b` of whole texts: sum[t] = sum over j < taps of by[j] * x[t + j - taps / 2],
 * number by number; rows of n. by: [taps] vectors [n] of the device. `part` [tokens][n] is scratch
 * memory. -1: an error. */
int neighbours_sum(struct decoder *d, struct neighbours *c, const struct ragged *b, float *sum,
                   const float *x, uint32_t n, float *const *by, uint32_t taps, float *part,
                   struct err *e);

enum { TAPS_MOST = 127 };
struct taps {
    uint32_t n, in, out;         /* tokens, an odd number; widths of x and y */
    struct weight *w[TAPS_MOST]; /* [n] of [out, in] */
    float *bias;                 /* [out] */
    struct neighbours rows;
};

/* Within the step `b` of whole texts: y [tokens][out] of x [tokens][in]. `some` [tokens][in] and
 * `part` [tokens][out] are scratch memory. -1: an error. */
int taps_run(struct decoder *d, struct taps *c, const struct ragged *b, float *y, const float *x,
             float *some, float *part, struct err *e);
void taps_free(struct decoder *d, struct taps *c); /* what it points to */
#endif
