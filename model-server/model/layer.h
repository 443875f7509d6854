/* layer.h - a decoder layer: a mixer, which relates the tokens of a sequence, then a feed-forward,
 * which works on each token alone.
 *
 * Both are sublayers: one file of mixer/ or ffn/ loads its weights, runs it and frees it. Norms,
 * sums over ranks and the residual stream are the decoder's (decoder.c, residual.h), so that a
 * sublayer is the same code in every arrangement of norms. Sublayers call backend ops, nothing
 * else. One thread. */
#ifndef MODEL_SERVER_MODEL_LAYER_H
#define MODEL_SERVER_MODEL_LAYER_H
#include "common/err.h"
#include "model-server/backend/backend.h"
#include "model-server/model/lora/lora.h"
#include <stdint.h>

struct decoder; /* decoder.h */
struct loader;  /* loader.h */

/* Scratch memory of one sublayer in one step, assigned in areas at 64-byte boundaries. */
struct work {
    char *at;
};
enum { WORK_ALIGN = 64, WORK_MAX_AREAS = 12 };
/* The next area of rows x width floats. A sublayer takes at most WORK_MAX_AREAS of them; the sum
 * of their widths is its width(). */
static inline float *work_take(struct work *w, size_t rows, size_t width)
{
    float *p = (float *)(void *)w->at;
    w->at += (rows * width * sizeof(float) + WORK_ALIGN - 1) & ~(size_t)(WORK_ALIGN - 1);
    return p;
}

/* An update of a product y = w x that belongs to the model: y += up down x. */
struct low_rank {
    struct weight *down, *up; /* [rank, x], [y, rank] */
    uint32_t rank;
};

/* The gate of a norm: decoder_spec.norm_gate. */
struct norm_gate {
    struct weight *down, *up; /* [rank, hidden], [hidden, rank]; NULL: none */
};

/* One input of a sublayer: the rows of a step, or `tokens` of them from row `first` on. Pointers
 * are those of row `first`, except `work`, which is that of all rows. */
struct sub_step {
    uint32_t layer, tokens;
    uint32_t first, total;         /* total: all rows of the step */
    struct kv_cache *cache;        /* the cache of its keys and values, or of those that it reads */
    uint32_t kv;                   /* which layer of that */
    const float *stream;           /* [tokens, hidden] the residual stream; `in` is its norm */
    const float *router_in;        /* [tokens, hidden] the router's input, or NULL: `in` */
    const float *embedded;         /* [tokens, hidden] the embedding; with spec_reads_embedding() */
    const float *in;               /* [tokens, hidden]; of attention spec_attn_in() */
    const struct low_rank *update; /* of the first product, or NULL */
    float *out;       /* [tokens, hidden] this rank's share of the result; with `whole` all of it */
    struct work work; /* total x width() floats; see in_tiles */
};

/* A kind of sublayer. */
struct sublayer_ops {
    const char *name; /* for logs and errors: "attention", "dense", "moe" */
    /* Floats of scratch memory per token of this layer on this rank. */
    uint32_t (*width)(const struct decoder *d, uint32_t layer);
    /* Loads this rank's slices of the layer's weights. NULL after an error, which the loader
     * records; a partly loaded value is returned and freed like any other. */
    void *(*load)(struct loader *l, uint32_t layer);
    void (*free)(struct decoder *d, void *self); /* never NULL */
    /* Enqueues out = f(in). 0, or -1 with `e` if a collective of its own failed. */
    int (*forward)(struct decoder *d, const void *self, struct sub_step *s, struct err *e);
    /* What the layer caches per token on this rank; false or NULL: nothing. Of a layer that reads
     * the keys of another one: its index keys. */
    bool (*kv)(const struct decoder *d, uint32_t layer, struct kv_layer *out);
    /* True if layers of this kind keep nothing in cells of recurrent state: load() never calls
     * layer_take_state(). NULL: they may. Models with one that may have cells on all stages. */
    bool (*stateless)(const struct decoder *d);
    bool whole; /* every rank computes the whole result: there is no sum over ranks */
    /* forward() goes over its rows in tiles of decoder_tile_rows(), so `work` is for so many. */
    bool in_tiles;
    /* NULL, or the part of f that must precede forward() of other rows of the step: writes keys
     * and values of these rows to the cache. Data for its own forward() stays in `work`. */
    int (*store)(struct decoder *d, const void *self, struct sub_step *s, struct err *e);
};

extern const struct sublayer_ops mixer_attention, mixer_mla, mixer_delta, mixer_mamba, mixer_mamba2,
    mixer_conv, mixer_fixed, mixer_gated, mixer_pair, mixer_shared, mixer_cross, mixer_entries,
    mixer_cca, mixer_difference, mixer_rwkv, mixer_narrow, mixer_relative, mixer_span_conv,
    mixer_value_conv, mixer_fourier, mixer_profiles, ffn_dense, ffn_moe, ffn_embedded, ffn_beside,
    ffn_shortcut, ffn_shifted, ffn_sight;

/* Bounds of the inputs and the results of a product; NULL: none. */
struct clip {
    float *in_low, *in_high, *out_low, *out_high;
};

/* A sublayer of a loaded layer. */
struct sublayer {
    const struct sublayer_ops *ops;
    void *self;
    struct short_conv *conv; /* of its result: decoder_spec.result_convs; NULL: none */
};

struct layer {
    struct norm mixer_norm, post_mixer_norm, ffn_norm, post_ffn_norm; /* [hidden] */
    struct sublayer mixer, ffn; /* ops NULL: the layer has none */
    struct sublayer tail;       /* x + n(tail(x)) after the others; ops NULL: none */
    struct norm post_tail_norm;
    struct norm_gate mixer_gate, ffn_gate; /* of mixer_norm and ffn_norm */
    void *residual;                        /* parts of residual_ops; or NULL */
    struct ngrams_layer *ngrams;           /* with layer_spec.ngrams (ngrams.h); else NULL */
    float scale;                           /* factor of the stream after the layer; 0: none */
    float mixer_by, ffn_by;                /* factors of the sublayers' results */
};

/* Helpers of sublayers (layer.c). y[rows, y_width] = x[rows, x_width] W^T + bias, with the update
 * of each row's adapter; `site` is the adapter's name for this matrix. */
struct projection {
    const struct weight *w;
    const float *bias; /* or NULL */
    enum lora_site site;
    uint32_t width;          /* outputs on this rank */
    const struct clip *clip; /* or NULL */
    float *clipped;          /* destination of clipped x: [rows, x_width] */
};
void layer_project(struct decoder *d, uint32_t layer, const struct projection *p, float *y,
                   const float *x, uint32_t x_width, uint32_t rows);
/* y[rows, width] += the update. */
void layer_update(struct decoder *d, const struct low_rank *r, struct work *w, float *y,
                  uint32_t width, const float *x, uint32_t rows);
/* x[i] *= by[i] in each of `rows` rows of n elements. */
void layer_times(struct decoder *d, float *x, uint32_t rows, uint32_t n, const float *by);
/* gate_norm() of rows of which this rank has n of p.all elements: the norm is over all of them.
 * `squares`: rows x SQUARES floats of scratch memory. */
int layer_norm_parts(struct decoder *d, float *x, uint32_t rows, uint32_t n, struct gate_norm p,
                     float *squares, struct err *e);
/* That of the inputs of the last matrices: decoder_spec.sub_norms. `w`: this rank's weights. */
int layer_sub_norm(struct decoder *d, float *x, uint32_t rows, uint32_t n, uint32_t all,
                   const float *w, float *squares, struct err *e);
/* Sums x[0 .. n) over ranks, n a multiple of 4; a rehearsal allocates its memory at most once. */
int layer_sum(struct decoder *d, float *x, size_t n, struct err *e);
/* Reserves `floats` numbers in each cell of recurrent state, while a layer is loaded; and returns
 * their address in a step. */
uint64_t layer_take_state(struct decoder *d, uint64_t floats);
bool layer_stateless(const struct decoder *d); /* true: for sublayer_ops.stateless */
struct state_ref layer_state(const struct decoder *d, uint64_t at);
void layer_free_weight(struct decoder *d, struct weight *w); /* NULL is fine */
void layer_free_norm(struct decoder *d, struct norm *n);
void layer_free_clip(struct decoder *d, struct clip *c);
#endif
