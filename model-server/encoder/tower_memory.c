/* tower_memory.c - working memory of a tower's passes. */
#include "model-server/encoder/tower_conv.h"
#include <stdlib.h>

enum { PASS_TOKENS = 16384 };

void tower_free_memory(struct tower *t)
{
    free(t->ids), free(t->pos), free(t->slots), free(t->out_rows), free(t->blocks), free(t->axes);
    free(t->mutual), free(t->spans), free(t->places), free(t->host), free(t->side_rows);
    t->ids = t->pos = t->slots = t->out_rows = t->blocks = t->side_rows = NULL;
    t->axes = NULL;
    t->mutual = NULL;
    t->spans = NULL;
    t->places = NULL;
    t->host = NULL;
    t->d.ops->free(t->d.dev, t->device);
    t->device = NULL;
    t->cap_tokens = t->cap_crops = 0;
}

/* Lays out the device memory of a pass of `tokens`, each area on a 64-byte boundary. Returns its
 * size in floats. `base` NULL: the size only. */
static size_t layout(struct tower *t, float *base, size_t tokens)
{
    const struct encoder_spec *s = &t->spec;
    const uint32_t a = tower_widest(&s->project), b = s->n_levels ? tower_widest(&s->level) : 0;
    const size_t rows = tower_feature_rows(s, (uint32_t)tokens) + 1, mid = a > b ? a : b;
    const size_t some = rows < tower_project_rows(t) ? rows : tower_project_rows(t);
    const size_t taps = s->joint.tiles ? (size_t)TOWER_TAP_ROWS * s->width : 0;
    const size_t later = s->joint.tiles ? tokens * s->blocks.hidden : 0;
    const size_t joined = some * s->n_sides;
    const size_t sizes[] = {tokens * tower_patch_floats(s),
                            tokens * s->blocks.hidden,
                            (tokens > joined ? tokens : joined) * s->blocks.hidden,
                            taps ? taps : some * mid,
                            some * mid,
                            later,
                            tokens * s->n_sides * s->blocks.hidden,
                            joined * s->blocks.hidden};
    float **const areas[] = {&t->patches,   &t->added,       &t->normed, &t->middle[0],
                             &t->middle[1], &t->joint.later, &t->sides,  &t->joined};
    size_t at = 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        *areas[i] = base ? base + at : NULL;
        at += (sizes[i] + 15) & ~(size_t)15;
    }
    for (uint32_t i = 0; i <= s->n_levels; i++) {
        t->features[i] = base ? base + at : NULL;
        at += (rows * s->width + 15) & ~(size_t)15;
    }
    return at;
}

/* Floats of the largest upload or download. */
static size_t host_floats(const struct tower *t, size_t tokens)
{
    const struct encoder_spec *s = &t->spec;
    const size_t rows = tower_feature_rows(s, (uint32_t)tokens) + 1;
    const size_t stacks = s->joint.tiles ? 2 : 1;
    const size_t in = tokens * (tower_patch_floats(s) + stacks * s->blocks.hidden);
    const size_t out = rows * s->width * (1 + (size_t)s->n_levels);
    return in > out ? in : out;
}

int tower_reserve_pass(struct tower *t, uint32_t tokens, uint32_t crops, struct err *e)
{
    tokens = tokens > t->cap_tokens ? tokens : t->cap_tokens;
    crops = crops > t->cap_crops ? crops : t->cap_crops;
    const size_t blocks = (size_t)tower_blocks_of(tokens) + crops;
    if (!t->spec.conv.n &&
        decoder_kv_reserve(&t->d, (uint32_t)blocks, TOWER_BLOCK, t->kv, &t->n_blocks, e))
        return -1;
    if (tokens == t->cap_tokens && crops == t->cap_crops)
        return 0;
    tower_free_memory(t);
    const size_t floats = layout(t, NULL, tokens);
    t->ids = calloc(tokens, sizeof(*t->ids));
    t->pos = malloc(tokens * sizeof(*t->pos));
    t->slots = malloc(tokens * sizeof(*t->slots));
    t->out_rows = malloc(tokens * sizeof(*t->out_rows));
    t->axes = malloc(tokens * sizeof(*t->axes));
    t->mutual = calloc(tokens, sizeof(*t->mutual));
    t->places = malloc(tokens * sizeof(*t->places));
    t->blocks = malloc(blocks * sizeof(*t->blocks));
    t->spans = malloc(2 * (size_t)crops * sizeof(*t->spans)); /* a joint picture has two */
    t->host = malloc(host_floats(t, tokens) * sizeof(*t->host));
    t->side_rows =
        calloc((size_t)tower_project_rows(t) * t->spec.n_sides + 1, sizeof(*t->side_rows));
    if (!t->side_rows || !t->ids || !t->pos || !t->slots || !t->out_rows || !t->axes ||
        !t->mutual || !t->places || !t->blocks || !t->spans || !t->host)
        return err_nomem(e);
    if (!(t->device = t->d.ops->alloc(t->d.dev, floats * sizeof(float), e)))
        return -1;
    layout(t, t->device, tokens);
    for (size_t i = 0; i < blocks; i++)
        t->blocks[i] = (uint32_t)i;
    t->cap_tokens = tokens;
    t->cap_crops = crops;
    return 0;
}

uint32_t tower_most_tokens(const struct tower *t)
{
    const uint32_t most = decoder_pass_tokens(&t->d);
    return most < PASS_TOKENS ? most : PASS_TOKENS;
}

static uint32_t reserved_tokens(const struct tower *t, uint32_t features)
{
    const uint64_t rows = t->spec.queries.n ? 2 : 1; /* of a patch */
    const uint64_t tokens = features * rows * t->spec.cell * t->spec.cell;
    struct conv_shape shape[CONV_GRIDS];
    if (t->spec.conv.n) { /* of one picture */
        const struct conv_shape in = conv_reserved(&t->spec.conv);
        conv_shapes(&t->spec.conv, t->spec.conv.n, in.height, in.width, shape);
        return (uint32_t)conv_rows(shape[0]);
    }
    const uint32_t most = tower_most_tokens(t);
    if (t->spec.joint.tiles) /* one picture */
        return tower_joint_tokens(&t->spec);
    if (t->spec.resample.latents) /* the largest crop */
        return t->spec.side * t->spec.side < most ? t->spec.side * t->spec.side : most;
    return tokens < most ? (uint32_t)tokens : most;
}

int tower_reserve(struct tower *t, uint32_t features, struct err *e)
{
    const uint32_t n = reserved_tokens(t, features);
    const struct conv_shape in = conv_reserved(&t->spec.conv);
    if (tower_reserve_pass(t, n, 1, e))
        return -1;
    if (t->spec.conv.n && t->before.tower &&
        tower_reserve(t->before.tower, (uint32_t)conv_rows(in), e))
        return -1;
    if (t->spec.conv.n)
        return tower_conv_reserve(t, in.height, in.width, e);
    if (t->before.tower && tower_reserve(t->before.tower, n, e))
        return -1;
    if (decoder_reserve(&t->d, n, 0, e))
        return -1;
    return t->spec.resample.latents ? tower_resample_reserve(t, n, e) : 0;
}

uint64_t tower_reserve_bytes(const struct tower *t, uint32_t features)
{
    struct tower sketch = *t; /* layout() sets pointers */
    const uint64_t n = reserved_tokens(t, features);
    const uint64_t rows = (layout(&sketch, NULL, n) + host_floats(t, n)) * sizeof(float);
    const struct conv_shape in = conv_reserved(&t->spec.conv);
    const uint64_t read = t->spec.conv.n ? conv_rows(in) : n; /* features of the tower before */
    const uint64_t before =
        t->before.tower ? tower_reserve_bytes(t->before.tower, (uint32_t)read) : 0;
    if (t->spec.conv.n)
        return before + rows + tower_conv_bytes(t, in.height, in.width);
    const struct kv_layer *kv = &t->d.kv_layers[0];
    const uint64_t keys = (uint64_t)(tower_blocks_of((uint32_t)n) + 1) * TOWER_BLOCK * kv->n_heads *
                          (kv->k_dim + kv->v_dim) * sizeof(float);
    return before + rows + keys + decoder_scratch_bytes(&t->d, (uint32_t)n, 0) +
           tower_resample_bytes(t, (uint32_t)n);
}
