/* apart.h - the distance terms of disentangled attention (DeBERTa, arXiv 2006.03654).
 *
 * Both terms are products of a head's q or k with vectors that are the same for every text: they
 * are computed once, while a layer is loaded. */
#ifndef MODEL_SERVER_MODEL_MIXER_APART_H
#define MODEL_SERVER_MODEL_MIXER_APART_H
#include "model-server/model/loader/loader.h"

struct apart {
    struct weight **of; /* [3 * heads] by head of a row of q, k and v: [buckets, head_dim]; those of
                           v repeat the first, and their results are not used */
    uint32_t heads;     /* on this rank */
    uint32_t *at;       /* [2 * most + 1] on the device: see struct attn */
};
/* NULL after an error, which the loader records. */
struct apart *apart_load(struct loader *l, uint32_t layer);
void apart_free(struct decoder *d, struct apart *a); /* NULL is fine */
/* Floats per token of apart_tables(): 3 * heads * buckets. */
uint32_t apart_width(const struct decoder *d);
/* y [rows, apart_width()] from rows of q, k and v. */
void apart_tables(struct decoder *d, const struct apart *a, float *y, const float *qkv,
                  uint32_t rows);
#endif
