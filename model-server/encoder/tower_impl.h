/* tower_impl.h - private to tower*.c. */
#ifndef MODEL_SERVER_ENCODER_TOWER_IMPL_H
#define MODEL_SERVER_ENCODER_TOWER_IMPL_H
#include "model-server/encoder/tower.h"
#include "model-server/model/decoder.h"

/* Matrices behind the transformer, on the device. */
struct tower_projection {
    const struct encoder_projection *spec;
    struct norm norm, middle_norm;
    struct weight *w[ENCODER_MAX_LINEARS];
    float *bias[ENCODER_MAX_LINEARS];
};

/* Of encoder_spec.resample (tower_resample.c). */
struct tower_sampler {
    float *latent_norm, *context_norm, *mlp_norm; /* [width] */
    struct weight *q, *kv, *o, *gate_up, *down;
};
struct tower_resample {
    struct tower_sampler layer[ENCODER_MAX_SAMPLERS];
    float *norm;    /* [width] */
    float *latents; /* host: [latents][width] */
    /* Working memory, which grows to the largest crop. */
    struct kv_cache *kv;
    uint32_t cap, *zeros, *places, *blocks; /* rows of patches and latents */
    float *device, *rows, *normed, *kv_rows, *q, *att, *mlp, *middle;
};

/* Where a patch is. */
struct tower_place {
    uint32_t row, col;
};

/* Crops of the pictures of a call, from the next one on. */
struct tower_cursor {
    const struct tower_image *images;
    uint32_t n, image, crop;
    bool joint; /* all crops of a picture at once */
};

/* The call at hand: what is left of it, and its pass. */
struct tower_work {
    struct tower_cursor next; /* from the first crop of the pass on */
    uint32_t crops;           /* of the pass; 0: it is not begun */
    struct ragged batch;
    struct decoder_walk walk;
};

/* Rows in host memory as they are stored, and what multiplies them. */
struct tower_table {
    void *data;
    enum dtype dtype;
    float by;
};
/* Of encoder_spec.joint. */
struct tower_joint {
    struct tower_table before, place, after; /* [shapes][tiles][hidden], `place` of each row */
    struct norm first_norm, middle_norm;
    struct weight *tap[ENCODER_MAX_TAPS]; /* [width, hidden] */
    float *token;                         /* [width] the embedding of the picture's token */
    float *later; /* device: [tokens][hidden] what is added between the stacks */
};
enum { TOWER_TAP_ROWS = 256 }; /* of a product that is added to features */

struct tower {
    struct encoder_spec spec;
    struct tower_work work;
    struct decoder d; /* the blocks */
    struct weight *patch;
    struct norm patch_norm;
    float *normed_bias; /* the patches' where a norm follows; on the device */
    /* Host memory: what is added to patches, the class token, what follows a row of tiles. */
    float *patch_bias, *positions, *class_token, *row_end, *pool_bias, *pool_scale;
    struct tower_projection project, level[ENCODER_MAX_LEVELS];
    struct tower_joint joint;
    struct tower_resample resample;

    /* Working memory of a pass, which grows to the largest. */
    uint32_t cap_tokens, cap_crops, n_blocks;
    uint32_t *ids, *pos, *slots, *out_rows, *blocks, (*axes)[3];
    struct mutual *mutual;
    struct span *spans;
    struct tower_place *places;              /* of the patches of a crop */
    float *host;                             /* what goes up and comes down */
    float *device;                           /* all of these: */
    float *patches;                          /* [tokens][3 * frames * patch^2] */
    float *added;                            /* [tokens][hidden] */
    float *normed;                           /* [tokens][hidden] */
    float *middle[2];                        /* [rows][widest matrix] */
    float *features[1 + ENCODER_MAX_LEVELS]; /* [rows][width] */
};

static inline bool tower_next_crop(struct tower_cursor *c)
{
    if (c->joint || ++c->crop == c->images[c->image].plan->n_crops) {
        c->crop = 0;
        c->image++;
    }
    return c->image < c->n;
}

/* Where features go (tower_features.c): those of `crops` crops from `c` on, whose [1 +
 * levels][rows] [width] are in t->host; and the rows that stand between features of joined tiles.
 */
void tower_collect(struct tower *t, struct tower_cursor c, uint32_t crops, uint32_t rows);
void tower_end_rows(const struct tower *t, const struct tower_image *image);
/* Projections (tower_project.c). The rows of the widest matrix but the last; rows [first, first +
 * n) of the transformer, of which `x` is the first: whole cells, whose features go to y[rows],
 * where those of all rows have their place; and the projection behind an average of the rows in
 * t->host, as a step of its own. */
enum { TOWER_PROJECT_ROWS = 1024 }; /* that are projected at once */
uint32_t tower_widest(const struct encoder_projection *p);
void tower_project(struct tower *t, const struct tower_projection *p, const float *x,
                   uint32_t first, uint32_t tokens, float *y);
int tower_project_means(struct tower *t, uint32_t tokens, struct err *e);
/* Towers whose tiles see each other (tower_joint.c). Rows of a picture; its inputs, what is added
 * to them and between the stacks; its two spans from row `first` of the pass on; its features. */
uint32_t tower_joint_tokens(const struct encoder_spec *s);
void tower_joint_fill(struct tower *t, const struct tower_image *image, float *patches,
                      float *added, float *later);
void tower_joint_spans(const struct tower *t, const struct vision_plan *p, uint32_t first,
                       const uint32_t *blocks, struct span out[2]);
void tower_joint_collect(const struct tower *t, const struct tower_image *image, uint32_t first);
/* See struct decoder_front. */
void tower_joint_enter(struct tower *t, float *x, uint32_t first, uint32_t n);
bool tower_joint_after(struct tower *t, uint32_t layer, float *x, uint32_t first, uint32_t n);
void tower_joint_finish(struct tower *t, const float *x, uint32_t first, uint32_t n);
void tower_joint_load(struct loader *l, struct tower *t);
void tower_joint_free(struct tower *t);
/* Weights (tower_load.c). 0, or -1 with what is there to be freed by tower_release_weights(). */
int tower_take_weights(struct tower *t, const struct arch *names, const struct checkpoint *c,
                       struct err *e);
void tower_release_weights(struct tower *t);

/* The features of a crop, out[latents][width] in host memory, from its `n` projected patches on the
 * device: steps of their own. */
int tower_resample(struct tower *t, const float *patches, uint32_t n, float *out, struct err *e);
int tower_resample_reserve(struct tower *t, uint32_t patches, struct err *e);
uint64_t tower_resample_bytes(const struct tower *t, uint32_t patches);
void tower_resample_load(struct loader *l, struct tower *t);
void tower_resample_free(struct tower *t);

static inline uint32_t tower_patch_floats(const struct encoder_spec *s)
{
    return 3 * s->frames * s->patch * s->patch;
}
/* Positions of crops are rows of the table behind the class token's. */
static inline uint32_t tower_position_rows(const struct encoder_spec *s)
{
    return s->positions == POSITIONS_AXES ? 2 * s->side : s->side * s->side + s->class_token;
}
#endif
