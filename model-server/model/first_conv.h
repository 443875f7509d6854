/* first_conv.h - a convolution of the first layer's input (DeBERTa 2, arXiv 2006.03654, appendix):
 * y[t] = sum over j of W_j x[t + j - half] + b, where tokens outside of the text are zeros. Its
 * activation is added to that layer's result, and a norm follows.
 *
 * Each W_j is one product of the rows of some tokens, and its result is added to the rows of
 * others: gather_out() takes the former and give_rows() writes the latter, in steps of their own.
 * So no backend has to know of neighbours. Every rank computes all of it. One thread. */
#ifndef MODEL_SERVER_MODEL_FIRST_CONV_H
#define MODEL_SERVER_MODEL_FIRST_CONV_H
#include "model-server/model/decoder.h"

struct first_conv;

/* Its weights; the caller frees them. NULL after an error, which the loader records. */
struct first_conv *first_conv_load(struct loader *l);
void first_conv_free(struct decoder *d, struct first_conv *c); /* NULL is fine */
/* Within the step `b` of whole texts, before the first layer: scratch.embedded = the activation;
 * scratch.n and .r are undefined. 0, or -1 with `e`: ERR_OVERLOADED, or an error of the device. */
int first_conv_run(struct decoder *d, struct first_conv *c, const struct ragged *b, struct err *e);
/* After that layer, of t rows: scratch.x = norm(scratch.x + scratch.embedded). */
void first_conv_add(struct decoder *d, const struct first_conv *c, uint32_t t);
#endif
