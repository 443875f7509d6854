/* encoder_spec.h - a vision tower as data: patches to rows of embeddings of the text model.
 *
 * The transformer itself is a decoder_spec whose tokens see each other both ways; what stands
 * before and behind it is here. A family fills one from config.json (family/<name>.c). A plain
 * value, whole-model sizes. */
#ifndef MODEL_SERVER_ENCODER_ENCODER_SPEC_H
#define MODEL_SERVER_ENCODER_ENCODER_SPEC_H
#include "model-server/model/arch.h"

/* What a patch is told of its place, beside rotations. */
enum encoder_positions {
    POSITIONS_NONE,
    POSITIONS_TABLE,     /* a learned row for each place of a `side` x `side` grid */
    POSITIONS_AXES,      /* one for each of `side` columns, and one for each of as many rows */
    POSITIONS_STRETCHED, /* the same grid, bilinearly stretched to the picture's (Qwen3-VL) */
    POSITIONS_CUBIC,     /* by cubic convolution: edges of the grids, not their corners, meet */
    POSITIONS_SMOOTHED,  /* so, but linearly, over all elements that a patch covers (SigLIP 2) */
    POSITIONS_BUCKETS    /* the element of the grid where a patch begins (NaViT; Idefics 2) */
};

enum {
    ENCODER_MAX_LINEARS = 4,
    ENCODER_MAX_LEVELS = 8,
    ENCODER_MAX_TAPS = 8,
    ENCODER_MAX_SAMPLERS = 8
};

/* A matrix behind the transformer. */
struct encoder_linear {
    enum role role;
    uint32_t rows;
    bool bias;
    bool act_before; /* the projection's activation stands before it */
    bool plain_name; /* its tensor's name is the role's, and it is stored [in, out] */
    /* Its rows are values, then as many gates: gate_act(gate) * value is what goes on. Not the
     * last; nothing stands before the next. */
    bool gated;
    enum role gate;      /* of gates in a tensor of their own; 0: none */
    bool channels_first; /* its columns are the join's with the cell's patches innermost */
    bool norm_before;    /* a layer norm stands before it and the activation: W_MIDDLE_NORM */
};

/* Rows of the transformer to features: a norm, `join` neighbours side by side, matrices. */
struct encoder_projection {
    bool norm, norm_joined; /* there is one; of what is joined */
    struct norm_spec norm_spec;
    bool norm_bias;
    enum role norm_role;
    uint32_t join; /* patches of a cell that become one row; 1: none */
    struct encoder_linear linear[ENCODER_MAX_LINEARS];
    uint32_t n_linears;
    enum act act, gate_act;
};

/* A perceiver resampler (arXiv 2204.14198) behind the projection: each crop becomes `latents`
 * features, which attend to its projected patches and to each other in `depth` layers, each with a
 * gated MLP of four times the width. */
struct encoder_resample {
    uint32_t latents; /* 0: there is none */
    uint32_t depth, heads, kv_heads, head_dim;
    float eps; /* of its RMS norms */
    enum act act;
};

/* All tiles of a picture see each other: see tower_joint.c. */
struct encoder_joint {
    uint32_t tiles; /* of every picture, with empty ones; 0: each crop sees itself alone */
    uint32_t unit;  /* rows of a tile are filled up to multiples of it */
    uint32_t tap_at[ENCODER_MAX_TAPS], n_taps; /* layers whose results are part of the features */
    uint32_t token, embeds; /* the token that stands for a picture, of so many embeddings */
};

struct encoder_spec {
    struct decoder_spec blocks; /* hidden, heads, ffn ...; embed_norm: of the patches */
    uint32_t patch, frames;     /* pixels a side; how often a row of a patch holds the picture */
    uint32_t cell;              /* patches of cell x cell neighbours stand next to each other */
    bool patch_bias;
    bool patch_norm; /* of the blocks' kind, between the patches' matrix and their places */
    bool patch_channels_last; /* columns of its matrix are [rows][columns][3] of a patch */
    bool class_token;         /* before the patches of a crop; left out behind the transformer */
    /* Its learned position is the last of the table, not the first. */
    bool class_last;
    uint32_t
        first_turn; /* rotations count rows and columns from here on; the class token's from 0 */
    enum encoder_positions positions;
    bool plain_positions; /* the whole name of their tensor is the role's */
    uint32_t side;        /* of the grid of learned positions */
    uint32_t windows;     /* cells a side of a window; 0: none. See layer_spec.mutual */
    uint32_t pool;        /* cell * cell patches are averaged before the projection, where set */
    float pool_scale;     /* of the means; 0: none */
    bool pool_standard;   /* then (x - bias) * scale, by vectors of the checkpoint */
    bool tiles_joined;    /* LLaVA-NeXT: tiles become one grid, with a vector behind each row */
    struct encoder_projection project;
    struct encoder_joint joint;
    struct encoder_resample resample;
    /* Behind these layers there is a projection of their own, whose results are added to the first
     * layers of the text model. */
    uint32_t level_at[ENCODER_MAX_LEVELS], n_levels;
    struct encoder_projection level;
    uint32_t width; /* of a feature: the text model's hidden size */
};

/* A family: model_type words of the whole model's config.json, names of tensors, and what the file
 * means. `c` is open at the file's vision_config; faults stay in it. */
struct encoder_family {
    const char *const *types;
    struct arch names; /* names alone */
    void (*configure)(struct config *c, struct encoder_spec *s);
    /* What the tower's own model_type has to be, where files of one type have several; or NULL. */
    const char *tower;
};

/* Of the config.json at `path`. *family is NULL, without an error, for one that shows no pictures
 * or whose tower is not known. */
int encoder_configure(const char *path, const struct encoder_family **family,
                      struct encoder_spec *out, struct err *e);
#endif
