/* encoder_spec.h - a vision tower as data: how patches become rows of the text model's width.
 *
 * The transformer itself is a decoder_spec with bidirectional attention; this header describes what
 * comes before and after it. A family fills a spec from config.json (family/<name>.c). A plain
 * value; sizes are those of the whole model, not of a rank. */
#ifndef MODEL_SERVER_ENCODER_ENCODER_SPEC_H
#define MODEL_SERVER_ENCODER_ENCODER_SPEC_H
#include "model-server/encoder/conv_spec.h"
#include "model-server/model/arch.h"

/* Learned positions that are added to patches, independent of rotations. */
enum encoder_positions {
    POSITIONS_NONE,
    POSITIONS_TABLE,     /* one row for each place of a `side` x `side` grid */
    POSITIONS_AXES,      /* one row for each of `side` columns, and one for each of `side` rows */
    POSITIONS_WOVEN,     /* the same; the row of a column precedes that of the row of its number */
    POSITIONS_STRETCHED, /* the grid, interpolated bilinearly, corners aligned (Qwen3-VL) */
    POSITIONS_CUBIC,     /* the grid, by cubic convolution, edges aligned (MoonViT, GLM-4.1V) */
    POSITIONS_LINEAR,    /* the grid, bilinear without antialiasing, edges aligned (PaddleOCR-VL) */
    POSITIONS_TRANSPOSED, /* the same with zeros outside, of the transposed grid (Muse Glimmer) */
    POSITIONS_SQUARE,     /* as LINEAR, for a square as long as the patches' longer side (RADIO) */
    POSITIONS_SMOOTHED,   /* the grid, bilinear with antialiasing, edges aligned (SigLIP 2) */
    POSITIONS_FITTED,     /* the same, by cubic convolution (DeepSeek-OCR) */
    POSITIONS_BUCKETS,    /* the element of the grid in which a patch begins (NaViT; Idefics 2) */
    POSITIONS_DIVIDED     /* the same, rounded otherwise (MiniCPM-V 4.6) */
};

enum {
    ENCODER_MAX_LINEARS = 4,
    ENCODER_MAX_LEVELS = 8,
    ENCODER_MAX_TAPS = 8,
    ENCODER_MAX_SAMPLERS = 8,
    ENCODER_MAX_CONV_LAYERS = 4 /* sizes of heads in steps of encoder_spec.conv */
};
#define ENCODER_INPUT UINT32_MAX

/* A matrix after the transformer. */
struct encoder_linear {
    enum role role;
    uint32_t rows; /* outputs */
    bool bias;
    bool act_before; /* the projection's activation is applied to its input */
    bool plain_name; /* the tensor has the role's name without a suffix, and is stored [in, out] */
    /* The first half of its rows are values, the second gates. The output is gate_act(gate) *
     * value, of half the rows. Never the last matrix; no activation precedes the next one. */
    bool gated;
    enum role gate;      /* role of the gates if they are a separate tensor; 0: they are not */
    bool channels_first; /* its columns are [channel][patch of the cell], not [patch][channel] */
    bool convolution;    /* of one place: its tensor has more dimensions than two */
    /* Not 0: it is stored [in, out], with this many rows, of which the first ones are used. */
    uint32_t table;
    bool softmax_before; /* its inputs become probabilities, after the norm */
    bool norm_before;    /* a layer norm (W_MIDDLE_NORM) precedes it, before the activation */
    /* Not 0: this many outputs of the matrix before, of patches that are adjacent, are one input.
     * Never of the first matrix, and no norm or softmax precedes it. */
    uint32_t join;
};

/* From rows of the transformer to features: a norm, concatenation of `join` neighbours, matrices.
 * Without matrices a feature is the row. */
struct encoder_projection {
    bool norm, norm_joined; /* a norm precedes the matrices; it is one of the concatenated rows */
    struct norm_spec norm_spec;
    bool norm_bias;
    enum role norm_role;
    uint32_t join; /* patches of a cell that are concatenated to one row; 1: no concatenation */
    struct encoder_linear linear[ENCODER_MAX_LINEARS];
    uint32_t n_linears;
    enum act act, gate_act;
    uint32_t sines;       /* not 0: positions of a grid of this many features a side, of sines and
                           * cosines, are added to the first matrix' output; crops are such grids */
    float after_eps;      /* not 0: of an RMS norm of the features */
    enum role after_role; /* its weights; 0: it has none */
    bool after_layer;     /* it is a layer norm, with biases */
    bool plus_mean; /* the mean of the concatenated rows is added; they have the features' width */
};

/* Rows that matrix `i` computes for one feature; patches of one feature. */
static inline uint32_t encoder_rows_of(const struct encoder_projection *p, uint32_t i)
{
    uint32_t n = 1;
    while (++i < p->n_linears)
        n *= p->linear[i].join ? p->linear[i].join : 1;
    return n;
}
static inline uint32_t encoder_patches_of(const struct encoder_projection *p)
{
    return p->join * encoder_rows_of(p, 0);
}

/* A perceiver resampler (arXiv 2204.14198) after the projection. Each crop becomes `latents`
 * features, which attend to its projected patches and to each other in `depth` layers. Each layer
 * has a gated MLP of four times the width. */
struct encoder_resample {
    uint32_t latents; /* 0: no resampler */
    uint32_t depth, heads, kv_heads, head_dim;
    float eps; /* of its RMS norms */
    enum act act;
};

/* Learned rows that follow the patches of a crop and become its features, one for each patch
 * (DeepSeek-OCR 2). Patches attend to patches, a query to patches and to the queries up to it. */
enum { ENCODER_MAX_QUERIES = 2 };
struct encoder_queries {
    uint32_t n;                          /* tables; 0: patches become features */
    uint32_t rows[ENCODER_MAX_QUERIES];  /* of a table: that of crops with as many patches */
    enum role role[ENCODER_MAX_QUERIES]; /* without a suffix ".weight" */
};

/* Attention over all tiles of a picture: see tower_joint.c. */
struct encoder_joint {
    uint32_t tiles; /* of every picture, including empty ones; 0: a crop attends to itself only */
    uint32_t unit;  /* the rows of a tile are padded to a multiple of it */
    uint32_t tap_at[ENCODER_MAX_TAPS], n_taps; /* layers whose outputs are part of the features */
    uint32_t token, embeds; /* id of the picture token, and the number of embeddings in its table */
};

struct encoder_spec {
    struct decoder_spec blocks; /* hidden, heads, ffn ...; embed_norm: the norm of the patches */
    uint32_t patch, frames;     /* pixels per side of a patch; copies of the picture in its row */
    /* It reads the features of a tower before it instead of patches: encoder_family.before. Each is
     * a patch of one pixel, and as wide as the blocks. */
    bool of_features;
    uint32_t cell; /* patches per side of a cell, whose patches are adjacent */
    bool patch_bias;
    bool pixel_norm;          /* a norm of a patch's pixels, before the patches' matrix */
    bool patch_norm;          /* a norm between the patches' matrix and the positions */
    bool patch_channels_last; /* columns of the patches' matrix are [row][column][3] of a patch */
    bool patch_frames_first;  /* they are [frames][3][row][column] */
    bool class_token;         /* precedes the patches of a crop; dropped after the transformer */
    bool keeps_class; /* it becomes a feature before the others; then crops have one size, cell 1 */
    bool class_alone; /* it is the only feature of a crop (CLIP); not beside keeps_class */
    /* The feature is the vector of an image, as wide as those of texts: it is no row of the text
     * model (vision_alone()). */
    bool vectors;
    bool class_last; /* its learned position is the last row of the table, not the first */
    /* Learned rows without positions (class tokens, registers) that precede the patches of a crop;
     * dropped after the transformer. Not beside class_token. */
    uint32_t registers;
    /* A file may lack the vectors of blocks.sub_scale, which are 1 then. */
    bool may_lack_scales;
    bool class_unused;   /* the table begins with its row, although the tower has no such token */
    uint32_t first_turn; /* row and column of the first patch in rotations; class token: 0 */
    enum encoder_positions positions;
    float position_part;  /* LINEAR, CUBIC: the patches and this part of one more cover the grid */
    bool plain_positions; /* their tensor has the role's name without a suffix */
    uint32_t side;        /* rows and columns of the grid of learned positions */
    uint32_t windows;     /* cells per side of an attention window; 0: none (layer_spec.mutual) */
    uint32_t pool;        /* not 0: the patches of a cell are averaged before the projection */
    float pool_scale;     /* multiplies the means; 0: no scaling */
    bool pool_standard;   /* then (x - bias) * scale, with vectors of the checkpoint */
    bool mean_features;   /* a feature is the mean of the projected patches of a cell */
    bool leaves_rest;     /* patches outside whole cells come last and become no feature */
    bool tiles_joined; /* LLaVA-NeXT: tiles form one grid, with a learned vector after each row */
    /* The whole image comes after its tiles, if there are any, and its rows end with the vector,
     * too (DeepSeek-OCR, HunyuanOCR). */
    bool whole_joined;
    bool image_end, image_begin; /* other vectors follow and precede the features of an image */
    /* Not 0: image_begin is this row of the table of the projection's last matrix, and image_end
     * the next one. */
    uint32_t ends_row;
    /* The vector after a row is an input of the projection's last matrix. All features pass the
     * norm after the projection, these vectors included. */
    bool ends_projected;
    struct encoder_projection project;
    struct encoder_joint joint;
    struct encoder_resample resample;
    struct encoder_queries queries; /* the blocks' layers have MUTUAL_ALONE; cell is 1 */
    /* Instead of the transformer; then `patch` is 1, and blocks.hidden is the channels of its
     * result, grid 0, whose places are the patches. */
    struct conv_spec conv;
    /* Outputs of these layers have projections of their own, whose results are added to the first
     * layers of the text model (DeepStack). */
    uint32_t level_at[ENCODER_MAX_LEVELS], n_levels;
    struct encoder_projection level;
    /* Layers whose results stand side by side before the projection, in this order: then its
     * `join` is their number. 0: those of the last layer alone. ENCODER_INPUT: the rows that the
     * first layer is made from, before positions and norms. */
    uint32_t side_at[ENCODER_MAX_TAPS], n_sides;
    float feature_scale; /* of features, without those of levels; 0: none */
    uint32_t width;      /* of a feature: the text model's hidden size */
};

/* Rows before the patches of a crop. */
static inline uint32_t encoder_leading(const struct encoder_spec *s)
{
    return s->class_token + s->registers;
}

/* Pixels per side of a feature. */
static inline uint32_t encoder_unit(const struct encoder_spec *s)
{
    return s->conv.n ? s->conv.unit : s->patch * s->cell;
}

/* A family of towers. */
struct encoder_family {
    const char *const *types; /* model_type of the whole model's config.json; ends with NULL */
    struct arch names;        /* tensor names only */
    /* Fills the spec. `c` is open at vision_config; errors are recorded in it. */
    void (*configure)(struct config *c, struct encoder_spec *s);
    /* required model_type of vision_config, or model_name where it has one, if one type has several
     * towers; otherwise NULL */
    const char *tower;
    /* The tower whose features this one reads (encoder_spec.of_features), with the same files, and
     * `width` of this one's blocks; its `types` are not used. NULL: pixels are read. */
    const struct encoder_family *before;
};

/* Reads the config.json at `path`. *family is NULL, without an error, if the model takes no
 * pictures or its tower is unknown. ERR_VALIDATION: an unsupported value. */
int encoder_configure(const char *path, const struct encoder_family **family,
                      struct encoder_spec *out, struct err *e);
/* The same for a family that is known. */
int encoder_configure_as(const char *path, const struct encoder_family *family,
                         struct encoder_spec *out, struct err *e);
#endif
