/* conv_spec.h - a tower of convolutions as data: a list of steps over a few grids.
 *
 * A grid has rows [height * width][channels] (conv.h). A step reads one or two grids and writes
 * one; grid 0 begins as the picture, with 3 channels. Then come a norm, an activation, and with
 * `add` a sum with what the grid had. A plain value. */
#ifndef MODEL_SERVER_ENCODER_CONV_SPEC_H
#define MODEL_SERVER_ENCODER_CONV_SPEC_H
#include "model-server/encoder/conv_shape.h"
#include "model-server/model/spec/decoder_spec.h"

enum { CONV_GRIDS = 6, CONV_MAX_STEPS = 512 };

enum conv_kind {
    CONV_DENSE, /* a convolution over all channels; of size and stride 1: a product */
    CONV_DEPTH, /* depthwise; several outputs of a channel are adjacent */
    CONV_MEAN,  /* means of squares, so that `size` places a side are left */
    CONV_NORM,  /* its norm alone */
    CONV_JOIN,  /* the channels of `from` and of `with` side by side; `with` may be smaller */
    /* Attention over the grid with heads of head_dim. `from` has queries, `with` the keys,
     * then the values, of kv_heads; the same grid: queries, keys and values. */
    CONV_ATTEND,
    /* Each channel times a factor of its own: a sigmoid of an MLP of the channels' means (squeeze
     * and excitation, arXiv 1709.01507), whose `out` inner numbers go through a ReLU. Names:
     * weight, and norm for the second matrix. */
    CONV_GATE,
    CONV_PLACES, /* plus a table [size * size] with the whole name `weight` */
    CONV_SPLIT,  /* into windows of `size` places a side: conv_split(); the result has a row of
                    places for each */
    CONV_MERGE,  /* and back, to the places of grid `with` */
    /* Relative positions in squares of `size` places a side: conv_relate(), with kv_heads for the
     * numbers of a head, and head_dim for the wide one. Whole names: weight, norm. */
    CONV_RELATE,
    /* Attention over the channels of `heads` groups: conv_channels(). */
    CONV_CHANNELS,
    CONV_APPEND, /* the rows of `from`, then those of `with` */
    /* Positions by column and row, and one for all: conv_axes(). Whole names: weight and the next
     * two; tables have `rows` rows, and the last, of which the first row is used, `stored`.
     * Without names they are sines, then cosines, of the column and the row, and none for all. */
    CONV_AXES,
    CONV_ROWS, /* `rows` learned rows of `out` numbers, whole name `weight`; nothing is read */
    CONV_TIMES /* the product of two grids of one shape, number by number */
};

struct conv_step {
    enum conv_kind kind;
    uint8_t from, with, to; /* grids; `to` may be `from` only for CONV_NORM and CONV_GATE */
    uint8_t size, stride;
    bool same; /* padding: see conv_over() */
    bool bias, add;
    bool plus_self; /* CONV_DEPTH of one output a channel: plus the channel */
    /* CONV_PLACES and CONV_RELATE over a grid of any size: the tables of `size` places a side are
     * fitted to it (conv_fit_places(), conv_fit_rows()). Then a relation is over the whole grid,
     * which is a square of at most `size` places a side. */
    bool fitted;
    /* CONV_ATTEND over one grid with queries, keys and values: a head of queries or keys has an RMS
     * norm (names: weight and the next one), then rotates by row and column of its place, as
     * encoder_spec.blocks.rope[0] says. */
    bool turns;
    bool places_first; /* CONV_DENSE: its tensor is [out][place of the window][in] */
    bool layer_norm;   /* its norm is one, whatever conv_spec.norm is */
    enum act act;      /* ACT_N: none */
    /* Names of tensors, numbers of conv_spec.names; 0: there is none. `scale`: the whole name of a
     * vector that multiplies each channel of the result (LayerScale, arXiv 2103.17239), folded
     * into the norm or, in fp32, into weight and bias. `batch`: a batch norm after the
     * convolution, whose statistics are folded as well. */
    uint8_t weight, norm, scale, batch;
    uint16_t at[2]; /* the numbers in the names */
    uint32_t out;   /* channels of the result */
    /* CONV_DENSE and CONV_ROWS: the tensor has `stored` rows, of which those from `first` on are
     * used; 0: all of them. CONV_DENSE of this many tensors, named `weight` and the numbers behind
     * it, one under the other: `stacked`; 0: of one. They have equally many rows, or with `heads`
     * those of queries, and of keys and values with kv_heads. */
    uint32_t stored, first, rows;
    uint8_t stacked;
    float eps; /* of its norm; 0: that of conv_spec */
    uint32_t heads, kv_heads, head_dim;
    /* CONV_ATTEND. Of values, if they are narrower than keys; then queries are scaled already.
     * `size`: each window is a sequence; 0: the grid is one. */
    uint32_t v_dim;
};

struct conv_spec {
    uint32_t n;        /* 0: the tower has no convolutions, but patches */
    uint32_t side;     /* of the picture for which memory is reserved, in pixels */
    uint32_t list;     /* not 0: the input is this many rows, not a square of `side` */
    uint32_t channels; /* of grid 0 at the beginning; 0: 3, the picture's */
    /* The result is of learned rows (CONV_ROWS), as many for each crop, and has no places. */
    bool queries;
    uint32_t unit; /* of that, pixels for each place a side of the result; encoder_configure() */
    /* Of the tensors without ".weight" and ".bias", * for at[0] and at[1]. A name that ends with _
     * is followed by "weight" or "bias". The first is not used; ends with NULL. */
    const char *const *names;
    struct norm_spec norm;
    float batch_eps;
    struct conv_step step[CONV_MAX_STEPS];
};

/* The shape of each grid after the first `n` steps over a picture of height x width. False: the
 * picture is too small, or its sides do not divide into the means. */
bool conv_shapes(const struct conv_spec *s, uint32_t n, uint32_t height, uint32_t width,
                 struct conv_shape shape[CONV_GRIDS]);
/* The input for which memory is reserved. */
struct conv_shape conv_reserved(const struct conv_spec *s);
/* The shape of a step's result. */
struct conv_shape conv_result(const struct conv_step *c, const struct conv_shape *shape,
                              struct conv_window *w);
/* Steps with the usual fields: the product of each place, without a bias or an activation; the same
 * with a bias; it as a depthwise convolution; a norm alone; attention of one grid to another, of
 * heads with keys of their own. */
struct conv_step conv_product(uint8_t from, uint8_t to, uint32_t out, uint8_t weight);
struct conv_step conv_linear(uint8_t from, uint8_t to, uint32_t out, uint8_t weight);
struct conv_step conv_depthwise(struct conv_step product, uint8_t size, uint8_t stride);
struct conv_step conv_norm(uint8_t from, uint8_t to, uint8_t norm);
struct conv_step conv_attend(uint8_t queries, uint8_t keys, uint8_t to, uint32_t heads,
                             uint32_t dim);
/* Appends a step; beyond CONV_MAX_STEPS it is counted only. */
void conv_add(struct conv_spec *s, struct conv_step c);
#endif
