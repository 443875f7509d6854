/* recurrent.h - shared by the recurrent mixers: matrices whose rows belong to heads, the short
 * convolution, the gated norm. Private to mixer/. */
#ifndef MODEL_SERVER_MODEL_MIXER_RECURRENT_H
#define MODEL_SERVER_MODEL_MIXER_RECURRENT_H
#include "model-server/model/decoder.h"
#include "model-server/model/loader/loader.h"
#include "model-server/model/short_conv.h"

/* This rank's elements of a token's keys, and of its values. */
static inline uint32_t recur_keys(const struct decoder *d)
{
    return d->split.mix_keys.n * d->spec.recur.key_dim;
}
static inline uint32_t recur_values(const struct decoder *d)
{
    return d->split.mix_heads.n * d->spec.recur.value_dim;
}

/* Reserves the state of this rank's heads, key_dim x value_dim numbers each: layer_take_state(). */
uint64_t recur_take_state(struct decoder *d);

/* Rows of matrices, collected until they are packed; adjacent rows become one part. */
struct rows {
    struct mat_part *v;
    int n, cap;
    uint32_t source, end; /* matrix and end of the last rows */
};
/* Adds rows `s` of matrix number `source`. False: out of memory, which the loader records. */
bool rows_add(struct loader *l, struct rows *r, uint32_t source, struct mat_part whole,
              struct slice s);
/* Packed and freed. */
struct weight *rows_pack(struct loader *l, struct rows *r, enum dtype dtype, enum quant quant);
float *rows_vector(struct loader *l, struct rows *r);

/* `s` in units of `each` elements, after `before`. */
static inline struct slice scaled(struct slice s, uint32_t each, uint32_t before)
{
    return (struct slice){before + s.first * each, s.n * each};
}

/* This rank's channels are those parts, at most 3, without a bias. */
void short_conv_load_parts(struct loader *l, struct short_conv *c, int layer,
                           const struct conv_part *parts, int n);
/* This rank's channels are those of all `channels` in of[0 .. n). */
void short_conv_load(struct loader *l, struct short_conv *c, int layer, uint32_t channels,
                     const struct slice *of, int n);
/* [hidden, columns `s` of `cols`] of W_MIX_OUT (with recur_spec.apart: of W_O), and on the first
 * rank its bias, if any. */
struct out_projection {
    struct weight *w;
    float *bias;
};
void out_projection_load(struct loader *l, struct out_projection *o, int layer, uint32_t cols,
                         struct slice s);
void out_projection_run(struct decoder *d, const struct out_projection *o, const struct sub_step *s,
                        const float *x, uint32_t width);
void out_projection_free(struct decoder *d, struct out_projection *o);
#endif
