/* tower_impl.h - private to tower*.c, arrange.c and positions.c. Rows are vectors of one token,
 * patch or feature; memory is the device's unless noted. */
#ifndef MODEL_SERVER_ENCODER_TOWER_IMPL_H
#define MODEL_SERVER_ENCODER_TOWER_IMPL_H
#include "model-server/encoder/conv.h"
#include "model-server/encoder/tower.h"
#include "model-server/model/decoder.h"

/* Weights of an encoder_projection. */
struct tower_projection {
    const struct encoder_projection *spec;
    struct norm norm, middle_norm, after;
    struct weight *mean; /* of encoder_projection.plus_mean */
    struct weight *w[ENCODER_MAX_LINEARS];
    float *bias[ENCODER_MAX_LINEARS];
    float *places; /* of encoder_projection.sines: of as many features as are projected at once, and
                    * of one crop, so that those of any crop's feature are followed by enough */
};

/* Weights of encoder_spec.resample (tower_resample.c): of a layer, and of all. */
struct tower_sampler {
    float *latent_norm, *context_norm, *mlp_norm; /* [width] */
    struct weight *q, *kv, *o, *gate_up, *down;
};
struct tower_resample {
    struct tower_sampler layer[ENCODER_MAX_SAMPLERS];
    float *norm;    /* [width] */
    float *latents; /* host memory: [latents][width] */
    /* Working memory, which grows to the largest crop. */
    struct kv_cache *kv;
    uint32_t cap, *zeros, *places, *blocks; /* cap: rows of patches and latents; host memory */
    float *device, *rows, *normed, *kv_rows, *q, *att, *mlp, *middle;
};

/* Weights of a step of encoder_spec.conv (tower_conv_load.c). */
enum { TOWER_CONV_HOST = 4 };
struct tower_conv_part {
    struct weight *w;
    float *bias;
    struct norm norm;
    /* Host memory. CONV_DEPTH: kernel and bias of conv_depth(). CONV_GATE: both matrices, each with
     * its bias. CONV_PLACES, CONV_RELATE: one and two tables; conv_step.fitted: then the same for
     * the grid of shape `fits`. */
    float *host[TOWER_CONV_HOST];
    struct conv_shape fits;
    float *head_norm[2]; /* conv_step.turns: weights of the norms of queries and keys */
    uint32_t layer;      /* CONV_ATTEND: of the cache */
};
/* A tower of convolutions (tower_conv.c). */
struct tower_conv {
    struct tower_conv_part *part;
    struct conv_kernels kernels;
    /* The current crop: the next step and row of it, and the shapes of the grids before it. */
    uint32_t step, row;
    struct conv_shape shape[CONV_GRIDS];
    /* Working memory, which grows to the largest picture. */
    uint32_t height, width; /* of this picture */
    float *grid[CONV_GRIDS];
    float *device;      /* one allocation, which contains the grids and: */
    float *cols, *rows; /* windows, and results that are added: of TOWER_CONV_ROWS rows */
    float *turns;       /* conv_step.turns: the angles of each place, those of shape `turned` */
    struct conv_shape turned;
    struct rope rope;    /* their frequencies */
    float *host[2];      /* host memory: the step's input, or its inputs; NULL: the device's is */
    float *host_out;     /* and what the host computes of it */
    float *gate;         /* host memory: of CONV_GATE */
    struct kv_cache *kv; /* NULL: no step attends */
    /* Host memory: of as many rows as a part or the cache has; sequences of a step. */
    uint32_t *zeros, *places, *slots, *blocks;
    struct span *spans;
};
enum { TOWER_CONV_ROWS = 1024 }; /* most rows of a part */

/* The tower whose features this one reads, and the pictures of the current call as each of the two
 * sees them (tower_before.c). Host memory. */
struct tower_before {
    struct tower *tower;        /* NULL: this one reads pixels */
    struct vision_plan *plans;  /* [2 n]: those of `tower`, then this one's */
    struct tower_image *images; /* [2 n]: the same */
    float *rows;                /* features of `tower`, picture by picture */
};

/* Position of a patch in its crop. */
struct tower_place {
    uint32_t row, col;
};

/* A position in the list of all crops of a call. */
struct tower_cursor {
    const struct tower_image *images;
    uint32_t n, image, crop; /* image == n: the end */
    bool joint;              /* a step is a picture, not a crop */
};

/* State of the current call. */
struct tower_work {
    struct tower_cursor next; /* the first crop that is not finished: the first of the pass */
    uint32_t crops;           /* crops of the current pass; 0: it has not begun */
    struct ragged batch;
    struct decoder_walk walk;
};

/* Rows in host memory in their stored type, and a factor. */
struct tower_table {
    void *data;
    enum dtype dtype;
    float by;
};
/* Weights of encoder_spec.joint (tower_joint.c). */
struct tower_joint {
    /* Added before the blocks, and after the first stack: [shapes][tiles][hidden]. `place` is of
     * every row of a tile: [shapes][tiles][rows][hidden]. */
    struct tower_table before, place, after;
    struct norm first_norm, middle_norm;
    struct weight *tap[ENCODER_MAX_TAPS]; /* [width, hidden] */
    float *token; /* host memory: [width] the embedding of the picture token */
    float *later; /* [tokens][hidden] added between the stacks */
};
enum { TOWER_TAP_ROWS = 256 }; /* rows of a product that is added to features at once */

struct tower {
    struct encoder_spec spec;
    struct tower_work work;
    struct decoder d; /* the blocks */
    enum kv_dtype kv; /* of its keys and values */
    struct weight *patch;
    struct norm pixel_norm, patch_norm;
    float *normed_bias; /* bias of the patches' matrix if a norm follows it */
    /* Host memory: bias of the patches' matrix, learned positions, the rows of encoder_leading(),
     * the vector after a row of joined tiles, those after and before an image,
     * encoder_spec.pool_standard's vectors, and tables of queries; NULL: the tower has none. */
    float *patch_bias, *positions, *leading, *row_end, *image_end, *image_begin;
    float *pool_bias, *pool_scale;
    float *queries[ENCODER_MAX_QUERIES];
    struct tower_projection project, level[ENCODER_MAX_LEVELS];
    struct tower_joint joint;
    struct tower_resample resample;
    struct tower_conv conv;
    struct tower_before before;

    /* Working memory of a pass, which grows to the largest pass. Host memory: */
    uint32_t cap_tokens, cap_crops, n_blocks;
    uint32_t *ids, *pos, *slots, *out_rows, *blocks, *side_rows, (*axes)[3];
    struct mutual *mutual;
    struct span *spans;
    struct tower_place *places;              /* of the patches of a crop */
    float *host;                             /* for uploads and downloads */
    float *device;                           /* one allocation, which contains: */
    float *patches;                          /* [tokens][3 * frames * patch^2] */
    float *added;                            /* [tokens][hidden] */
    float *normed;                           /* [tokens][hidden] */
    float *middle[2];                        /* [rows][widest matrix] */
    float *sides;                            /* [n_sides][tokens][hidden] */
    float *joined;                           /* [rows][n_sides][hidden] */
    float *features[1 + ENCODER_MAX_LEVELS]; /* [rows][width] */
};

/* Steps to the next crop, or picture if `joint`. False: it was the last one. */
static inline bool tower_next_crop(struct tower_cursor *c)
{
    if (c->joint || ++c->crop == c->images[c->image].plan->n_crops) {
        c->crop = 0;
        c->image++;
    }
    return c->image < c->n;
}

/* tower_memory.c: working memory of a pass of this many tokens and crops, whose keys and values are
 * in blocks, each crop's in its own. */
enum { TOWER_BLOCK = 16 }; /* tokens */
static inline uint32_t tower_blocks_of(uint32_t tokens)
{
    return (tokens + TOWER_BLOCK - 1) / TOWER_BLOCK;
}
/* Allocates memory for passes of that size; never shrinks. */
int tower_reserve_pass(struct tower *t, uint32_t tokens, uint32_t crops, struct err *e);
void tower_free_memory(struct tower *t);
/* Most tokens of a pass: larger ones are not faster. */
uint32_t tower_most_tokens(const struct tower *t);

/* tower_features.c: writes the features of `crops` crops from `c` on to their images. Their rows
 * are in t->host: [1 + levels][rows][width]. */
void tower_collect(struct tower *t, struct tower_cursor c, uint32_t crops, uint32_t rows);
/* Writes the rows between the features of joined tiles, and zeroes features that are sums. */
void tower_start_features(const struct tower *t, const struct tower_image *image);

/* tower_project.c */
/* Rows (outputs) of the widest matrix except the last. */
uint32_t tower_widest(const struct encoder_projection *p);
uint32_t tower_project_rows(const struct tower *t); /* most rows that are projected at once */
/* Projects rows [first, first + tokens) of the transformer, which are at `x`, and are whole cells.
 * `y` has the features of all rows of the pass: [rows][width]. */
void tower_project(struct tower *t, const struct tower_projection *p, const float *x,
                   uint32_t first, uint32_t tokens, float *y);
/* Keeps rows [first, first + n) of the pass after layer `layer`, or ENCODER_INPUT, if it is one of
 * spec.side_at. */
void tower_side(struct tower *t, uint32_t layer, const float *x, uint32_t first, uint32_t n);
/* Projects what tower_side() kept of the rows that become features to t->features[0]. Steps of
 * their own. */
int tower_project_sides(struct tower *t, struct err *e);
/* Averages the cells of the `tokens` rows in t->host, and projects the means to t->features[0]. A
 * step of its own. */
int tower_project_means(struct tower *t, uint32_t tokens, struct err *e);

/* tower_joint.c: towers with attention over all tiles of a picture. */
/* Rows of a picture in the transformer. */
uint32_t tower_joint_tokens(const struct encoder_spec *s);
/* Writes a picture's patches, what is added to them, and what is added between the stacks. */
void tower_joint_fill(struct tower *t, const struct tower_image *image, float *patches,
                      float *added, float *later);
/* The two spans of a picture whose rows begin at `first` of the pass. */
void tower_joint_spans(const struct tower *t, const struct vision_plan *p, uint32_t first,
                       const uint32_t *blocks, struct span out[2]);
/* Writes the features of a picture whose rows begin at `first` of t->host. */
void tower_joint_collect(const struct tower *t, const struct tower_image *image, uint32_t first);
/* The tower's part of struct decoder_front (model/decoder.h); rows [first, first + n) are at x. */
void tower_joint_enter(struct tower *t, float *x, uint32_t first, uint32_t n);
bool tower_joint_after(struct tower *t, uint32_t layer, float *x, uint32_t first, uint32_t n);
void tower_joint_finish(struct tower *t, const float *x, uint32_t first, uint32_t n);
void tower_joint_load(struct loader *l, struct tower *t);
void tower_joint_free(struct tower *t);

/* tower_before.c */
/* Writes how the tower before this one sees a picture, and how this one does. */
void tower_before_plans(const struct tower *t, const struct vision_plan *p,
                        struct vision_plan *before, struct vision_plan *own);
/* Begins the work of the tower before. *own: the pictures that this one will read, valid until
 * tower_before_end(). */
int tower_before_begin(struct tower *t, const struct tower_image *images, uint32_t n,
                       const struct tower_image **own, struct err *e);
void tower_before_end(struct tower *t);

/* tower_load.c: loads all weights; `c` NULL: random ones. After -1, too, they are freed by
 * tower_release_weights(). */
int tower_take_weights(struct tower *t, const struct arch *names, const struct checkpoint *c,
                       struct err *e);
void tower_release_weights(struct tower *t);

/* tower_resample.c: computes the features of a crop, out[latents][width] in host memory, from its
 * `n` projected patches, in steps of their own. */
int tower_resample(struct tower *t, const float *patches, uint32_t n, float *out, struct err *e);
/* Allocates working memory for crops of up to `patches` patches; how many bytes that takes. */
int tower_resample_reserve(struct tower *t, uint32_t patches, struct err *e);
uint64_t tower_resample_bytes(const struct tower *t, uint32_t patches);
void tower_resample_load(struct loader *l, struct tower *t);
void tower_resample_free(struct tower *t);

/* Floats of a patch with its copies, or of a row that stands for one. */
static inline uint32_t tower_patch_floats(const struct encoder_spec *s)
{
    return s->of_features ? s->blocks.hidden : 3 * s->frames * s->patch * s->patch;
}
/* Rows of features (t->features) that this many patches of a pass become. */
static inline uint32_t tower_feature_rows(const struct encoder_spec *s, uint32_t patches)
{
    return s->pool      ? patches / (s->cell * s->cell)
           : s->n_sides ? patches
                        : patches / encoder_patches_of(&s->project);
}
/* Rows of the table of learned positions, the class token's included. */
static inline uint32_t tower_position_rows(const struct encoder_spec *s)
{
    return s->positions == POSITIONS_AXES || s->positions == POSITIONS_WOVEN
               ? 2 * s->side
               : s->side * s->side + (s->class_token || s->class_unused);
}
#endif
