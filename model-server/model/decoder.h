/* decoder.h - a transformer on a device: its weights, its scratch memory, its forward pass.
 *
 * decoder_forward() is the whole model: it reads the spec and calls ops, nothing else. Widths are
 * those of this rank (struct split). One thread. */
#ifndef MODEL_SERVER_MODEL_DECODER_H
#define MODEL_SERVER_MODEL_DECODER_H
#include "model-server/comm/comm.h"
#include "model-server/model/adapters.h"
#include "model-server/model/checkpoint.h"
#include "model-server/model/draft/draft.h"
#include "model-server/model/layer.h"
#include "model-server/model/rope.h"
#include "model-server/model/stage.h"

struct loader; /* loader.h */
struct stored; /* quant/stored.h */

/* Device memory of a pass over T tokens with O rows of logits. */
struct scratch {
    uint32_t max_tokens, max_out;
    void *memory;
    float *x, *n, *r;  /* [T, hidden] residual stream, its norm, what is added to it */
    float *embedded;   /* [T, hidden] with spec.per_layer: the embedding */
    float *crossed;    /* [T, hidden] with layers of MIXER_CROSS: rows that see pictures */
    void *mixer, *ffn; /* what the sublayer that needs most of it takes */
    float *rope[SPEC_MAX_ROPES]; /* [T, dim] */
    float *q_scale;              /* [T] with spec.q_growth */
    float *hidden;               /* [T, draft.width] what a draft head gets */
    float *out;                  /* [O, hidden] */
    float *logits;               /* [O, vocabulary slice] */
    float *gathered;             /* [world][O, largest slice]; one rank: unused */
    float *host;                 /* host memory: rope rows going up, gathered logits coming down */
    /* Rows that are given, on the device and where they are gathered: [1 + spec.n_added][n_given]
     * [hidden]. Not part of `memory`: taken by the first step that has some. */
    float *given, *given_host;
    uint32_t n_given, cap_given;
    uint32_t *ids;      /* [T] */
    struct span *spans; /* [T] of a pass, see pass.h */
    uint32_t *out_rows; /* [O] */
};

struct amount {
    uint64_t bytes, elements;
};

/* What takes the place of embeddings where there is no table of them, looks at what layers leave
 * behind, and gets the last rows of decoder_encode(): see encoder/tower.h. All enqueue ops, between
 * step_begin() and step_end(). */
struct decoder_front {
    /* Of rows [first, first + n) of all: `x` is the first of these. embed NULL: ids are looked up
     */
    void (*embed)(void *arg, float *x, uint32_t first, uint32_t n);
    /* true: x is changed */
    bool (*after)(void *arg, uint32_t layer, float *x, uint32_t first, uint32_t n);
    void (*finish)(void *arg, const float *rows, uint32_t first, uint32_t n);
    void *arg;
};

/* What a step asks of the layers that look at pictures (decoder_cross.c): the step with the rows
 * marked that see one, and these rows as a step of their own, whose sequences are the pictures'
 * rows. */
struct crossing {
    struct kv_cache *kv; /* keys and values of pictures, of these layers of this stage; or NULL */
    uint32_t n, cap;     /* rows that see a picture */
    struct ragged marked, alone;
    uint32_t *rows, *zeros;
    struct mutual *sees;
    struct span *spans;
    const float **marks; /* [tokens of the step] */
    uint32_t cap_tokens;
};

/* Matrices that are kept in a format, or were widened to a type. */
enum { MATRIX_KINDS = 16 };
struct matrix_count {
    const char *name; /* NULL: the list ends */
    bool widened;
    uint32_t n;
};
/* A watch of matrices as they are packed (loader_pack()): `before` may give parts other data of
 * the same shape, which it owns; `after` learns what they became. Both may be NULL. */
struct pack_watch {
    void (*before)(void *arg, struct mat_part *parts, int n);
    void (*after)(void *arg, const struct weight *w, const struct mat_part *parts, int n);
    void *arg;
};

struct decoder {
    const struct backend_ops *ops;
    struct device *dev;
    struct comm *comm;   /* the ranks that share each layer */
    struct comm *stages; /* those of its place in all stages; NULL: one stage holds all layers */
    struct stage stage;  /* of all layers where the caller leaves it 0 */
    enum dtype dtype;    /* of the matrices on the device that are not quantised */
    enum quant quant;    /* of the linear layers */
    struct decoder_spec spec;
    struct split split;

    struct weight *embed;         /* [vocabulary slice, hidden] */
    struct weight *positions;     /* [positions, hidden], of each type of token */
    struct weight *embed_project; /* [hidden, embed_dim], or NULL */
    float *embed_bias;            /* [hidden], with embed_project */
    struct norm embed_norm, final_norm;
    struct weight *head; /* [vocabulary slice, hidden]; == embed when tied and not quantised */
    float *head_bias;
    struct layer *layers; /* [spec_all_layers()] */
    float *capture;       /* where rows for a draft head go, of passes to come; NULL: nowhere */
    struct draft draft;   /* zero: the model has no draft head, or it is not wanted */
    uint32_t mixer_width, ffn_width; /* most floats a token that a sublayer takes */
    void (*progress)(void *arg, uint64_t done, uint64_t total); /* NULL, or after each layer */
    void *progress_arg;
    bool sample;           /* weights are sized, not kept: see model_options.measure */
    struct amount weights; /* all of it; of these: */
    struct amount drafts;  /* of a draft head, experts too */
    struct amount tables;  /* looked up, never multiplied with */
    struct amount experts;
    struct matrix_count became[MATRIX_KINDS]; /* of the matrices that the checkpoint holds packed */

    struct rope rope[SPEC_MAX_ROPES];
    struct adapters *adapters; /* NULL: none; the model's */
    struct decoder_front front;
    struct pack_watch watch;
    struct packed *packed; /* the caller's, where packed weights are found and kept; or NULL */
    bool encodes;          /* there is no head; `kv` holds the layer at hand alone */
    struct kv_cache *kv;
    struct kv_cache *windows; /* of layers that see a window; NULL: these are in `kv` as well */
    struct crossing cross;    /* of layers of MIXER_CROSS */
    float *state;             /* [n_cells][state_floats]; NULL: none yet */
    uint64_t state_floats;    /* of a cell; 0: no layer is recurrent */
    uint32_t n_cells;
    uint32_t kv_window_most; /* of the layers of all stages: tokens that those see at most that do
                                not see all; 0: there are none */
    struct kv_layer *kv_layers;   /* [n_kv_layers] what this stage's layers keep, in their order */
    uint32_t n_kv_layers, *kv_at; /* kv_at: [all layers] which of them a layer reads */
    uint32_t *kv_window;          /* [n_kv_layers] tokens that it sees at most; 0: all */
    uint32_t *kv_in;              /* [n_kv_layers] its number in the cache that it is in */
    struct scratch scratch;
    _Atomic int64_t *busy_ns; /* set anew at each layer, for a watchdog; NULL: not wanted */
    uint32_t rehearsed;       /* while a step is rehearsed: 1 + its collectives so far */
};

/* Take this rank's slices of every weight, random ones where `c` is NULL; `how` is with `c`. ops,
 * dev, comm, stages, dtype, spec and split are set by the caller; decoder_free() after a failure
 * too. With several stages every matrix is looked at first, to cut them by their bytes. */
int decoder_load(struct decoder *d, const struct arch *a, const struct checkpoint *c,
                 const struct stored *how, struct err *e);
void decoder_free(struct decoder *d);

/* The same in steps, for walks through a model layer by layer (walk.h): everything but the layers;
 * then a layer at a time, as often as it is wanted. `l` has d, a, c, how and e; a fault is kept in
 * it. */
void decoder_load_outer(struct loader *l);
void decoder_load_layer(struct loader *l, uint32_t layer);
void decoder_free_layer(struct decoder *d, uint32_t layer);
/* One sequence from its beginning, whose rows are in the caller's memory [n_tokens][hidden]: as it
 * enters the first layer; through a layer that is loaded; through the last norm and the head. There
 * is a cache. ERR_VALIDATION: a token that is none. */
int decoder_walk_embed(struct decoder *d, const struct ragged *b, float *x, struct err *e);
int decoder_walk_layer(struct decoder *d, uint32_t layer, const struct ragged *b, float *x,
                       struct err *e);
int decoder_walk_head(struct decoder *d, const struct ragged *b, const float *x, float *logits,
                      struct err *e);

/* See model_forward() and model_reserve(). Steps that are larger than the backend likes
 * (step_bytes) are walked through in passes. */
int decoder_forward(struct decoder *d, const struct ragged *b, float *logits, struct err *e);
int decoder_draw(struct decoder *d, const struct ragged *b, const struct draw *v, int set,
                 struct err *e); /* model_draw() */
int decoder_reserve(struct decoder *d, uint32_t max_tokens, uint32_t max_out, struct err *e);
/* Tokens that are best computed together, or UINT32_MAX: see step_bytes of backend.h. */
uint32_t decoder_pass_tokens(const struct decoder *d);
/* Hidden states of a step, behind the last norm, into the caller's memory (NULL: not wanted): of
 * b->out_rows [n_out][hidden], or of all tokens where n_out is 0. One pass, whatever it takes: no
 * sequence goes on from an earlier one. `encodes` is set. *at (NULL: not wanted): where they lie on
 * the device until the next call. */
int decoder_encode(struct decoder *d, const struct ragged *b, float *out, const float **at,
                   struct err *e);
/* The same in parts, between which other decoders of the device may work: for decoder_front's
 * finish(), which gets multiples of `unit` rows at a time, as after() does. `b` stays valid and the
 * decoder does nothing else until `over`. The bits are those of decoder_encode(). */
struct decoder_walk {
    bool over;
    const struct ragged *b;
    uint32_t unit;
    uint32_t phase, layer, row; /* what comes next */
    const float *rows;          /* for finish() */
};
int decoder_walk_begin(struct decoder *d, const struct ragged *b, uint32_t unit,
                       struct decoder_walk *w, struct err *e);
/* On for `most` multiplications and additions (of all ranks), or a little more where that is very
 * little; *done: how many it were. What that comes to depends on sizes alone: ranks stay in step.
 */
int decoder_walk_on(struct decoder *d, struct decoder_walk *w, uint64_t most, uint64_t *done,
                    struct err *e);
/* Pictures' rows in device memory, as long as their readers need them: decoder_cross.c.
 * Layers of this stage that read them; bytes of a block of them on this rank, 0: none. */
uint32_t decoder_cross_layers(const struct decoder *d);
uint64_t decoder_cross_block_bytes(const struct decoder *d, enum kv_dtype dtype);
/* Replaces the cache, whose contents are lost. n_blocks 0: frees it. */
int decoder_cross_resize(struct decoder *d, uint32_t n_blocks, enum kv_dtype dtype, struct err *e);
/* Keys and values of rows [n][hidden] in host memory, to places [first, first + n) of `blocks`. */
int decoder_cross_store(struct decoder *d, const float *rows, const uint32_t *blocks,
                        uint32_t first, uint32_t n, struct err *e);

/* The backend's own memory for a step like `b`, of which nothing is computed. There is a cache. */
int decoder_rehearse(struct decoder *d, const struct ragged *b, struct err *e);
uint64_t decoder_scratch_bytes(const struct decoder *d, uint32_t max_tokens, uint32_t max_out);
#endif
