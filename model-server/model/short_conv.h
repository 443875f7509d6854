/* short_conv.h - a causal convolution of each channel over a few tokens (struct conv), whose inputs
 * of earlier tokens are in a cell: of recurrent mixers (mixer/recurrent.h has those with
 * W_MIX_CONV), of keys and values, and of sublayers' results. One thread. */
#ifndef MODEL_SERVER_MODEL_SHORT_CONV_H
#define MODEL_SERVER_MODEL_SHORT_CONV_H
#include "model-server/model/decoder.h"
#include "model-server/model/loader/loader.h"

/* Depthwise, of the tokens of a sequence. */
struct short_conv {
    struct conv conv;
    uint64_t at; /* in a cell */
};
/* The tensor of a role [channels][1][width], of which `of` is on this rank. */
struct conv_part {
    enum role role;
    uint32_t channels;
    struct slice of;
};
/* This rank's channels are `channels`, and all weights, [width][channels], are the host's. Takes
 * and frees `taps`; NULL: an error that the loader knows. */
void short_conv_take(struct loader *l, struct short_conv *c, float *taps, uint32_t width,
                     uint32_t channels);
/* As short_conv_load_parts(), where the convolution's input is added to its result, and
 * the sum may have a factor. */
void short_conv_load_kept(struct loader *l, struct short_conv *c, int layer,
                          const struct conv_part *parts, int n);
void short_conv_free(struct decoder *d, struct short_conv *c);
void short_conv_run(struct decoder *d, const struct short_conv *c, float *y, const float *x,
                    uint32_t x_stride);
#endif
