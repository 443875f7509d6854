#include "model-server/encoder/tower.h"
#include "model-server/encoder/arrange.h"
#include "model-server/encoder/tower_conv.h"
#include "model-server/model/checkpoint.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16, PASS_TOKENS = 16384 };

static uint32_t blocks_of(uint32_t tokens) { return (tokens + BLOCK - 1) / BLOCK; }

/* ---------------------------------------------------------------- memory */

static void free_memory(struct tower *t)
{
    free(t->ids), free(t->pos), free(t->slots), free(t->out_rows), free(t->blocks), free(t->axes);
    free(t->mutual), free(t->spans), free(t->places), free(t->host);
    t->ids = t->pos = t->slots = t->out_rows = t->blocks = NULL;
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
    const size_t rows = tokens / s->project.join + 1, mid = a > b ? a : b;
    const size_t some = rows < TOWER_PROJECT_ROWS ? rows : TOWER_PROJECT_ROWS;
    const size_t taps = s->joint.tiles ? (size_t)TOWER_TAP_ROWS * s->width : 0;
    const size_t later = s->joint.tiles ? tokens * s->blocks.hidden : 0;
    const size_t sizes[] = {tokens * tower_patch_floats(s),
                            tokens * s->blocks.hidden,
                            tokens * s->blocks.hidden,
                            taps ? taps : some * mid,
                            some * mid,
                            later,
                            s->n_sides ? rows * s->width : 0};
    float **const areas[] = {&t->patches,   &t->added,       &t->normed, &t->middle[0],
                             &t->middle[1], &t->joint.later, &t->sums};
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

static int reserve_kv(struct tower *t, uint32_t n_blocks, struct err *e)
{
    struct decoder *d = &t->d;
    const struct kv_desc k = {.n_layers = 1,
                              .n_blocks = n_blocks,
                              .block_size = BLOCK,
                              .dtype = KV_F32,
                              .each = d->kv_layers[0]};
    if (d->kv && n_blocks <= t->n_blocks)
        return 0;
    if (d->kv)
        d->ops->kv_free(d->dev, d->kv);
    t->n_blocks = 0;
    if (!(d->kv = d->ops->kv_new(d->dev, &k, e)))
        return -1;
    t->n_blocks = n_blocks;
    return 0;
}

/* Floats of the largest upload or download. */
static size_t host_floats(const struct tower *t, size_t tokens)
{
    const struct encoder_spec *s = &t->spec;
    const size_t rows = tokens / s->project.join + 1;
    const size_t stacks = s->joint.tiles ? 2 : 1;
    const size_t in = tokens * (tower_patch_floats(s) + stacks * s->blocks.hidden);
    const size_t out = rows * s->width * (1 + (size_t)s->n_levels);
    return in > out ? in : out;
}

static int reserve(struct tower *t, uint32_t tokens, uint32_t crops, struct err *e)
{
    tokens = tokens > t->cap_tokens ? tokens : t->cap_tokens;
    crops = crops > t->cap_crops ? crops : t->cap_crops;
    const size_t blocks = (size_t)blocks_of(tokens) + crops;
    if (!t->spec.conv.n && reserve_kv(t, (uint32_t)blocks, e))
        return -1;
    if (tokens == t->cap_tokens && crops == t->cap_crops)
        return 0;
    free_memory(t);
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
    if (!t->ids || !t->pos || !t->slots || !t->out_rows || !t->axes || !t->mutual || !t->places ||
        !t->blocks || !t->spans || !t->host)
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

/* Most tokens of a pass: larger ones are not faster. */
static uint32_t most_tokens(const struct tower *t)
{
    const uint32_t most = decoder_pass_tokens(&t->d);
    return most < PASS_TOKENS ? most : PASS_TOKENS;
}

static uint32_t reserved_tokens(const struct tower *t, uint32_t features)
{
    const uint64_t tokens = (uint64_t)features * t->spec.cell * t->spec.cell;
    struct conv_shape shape[CONV_GRIDS];
    if (t->spec.conv.n) { /* of one picture */
        conv_shapes(&t->spec.conv, t->spec.conv.n, t->spec.conv.side, t->spec.conv.side, shape);
        return (uint32_t)conv_rows(shape[0]);
    }
    const uint32_t most = most_tokens(t);
    if (t->spec.joint.tiles) /* one picture */
        return tower_joint_tokens(&t->spec);
    if (t->spec.resample.latents) /* the largest crop */
        return t->spec.side * t->spec.side < most ? t->spec.side * t->spec.side : most;
    return tokens < most ? (uint32_t)tokens : most;
}

int tower_reserve(struct tower *t, uint32_t features, struct err *e)
{
    const uint32_t n = reserved_tokens(t, features), side = t->spec.conv.side;
    if (reserve(t, n, 1, e))
        return -1;
    if (t->spec.conv.n)
        return tower_conv_reserve(t, side, side, e);
    if (decoder_reserve(&t->d, n, 0, e))
        return -1;
    return t->spec.resample.latents ? tower_resample_reserve(t, n, e) : 0;
}

uint64_t tower_reserve_bytes(const struct tower *t, uint32_t features)
{
    struct tower sketch = *t; /* layout() sets pointers */
    const uint64_t n = reserved_tokens(t, features);
    const uint64_t rows = (layout(&sketch, NULL, n) + host_floats(t, n)) * sizeof(float);
    if (t->spec.conv.n)
        return rows + tower_conv_bytes(t, t->spec.conv.side, t->spec.conv.side);
    const struct kv_layer *kv = &t->d.kv_layers[0];
    const uint64_t keys = (uint64_t)(blocks_of((uint32_t)n) + 1) * BLOCK * kv->n_heads *
                          (kv->k_dim + kv->v_dim) * sizeof(float);
    return rows + keys + decoder_scratch_bytes(&t->d, (uint32_t)n, 0) +
           tower_resample_bytes(t, (uint32_t)n);
}

/* ---------------------------------------------------------------- before and after the blocks */

static void embed(void *arg, float *x, uint32_t first, uint32_t n)
{
    struct tower *t = arg;
    const uint32_t hidden = t->spec.blocks.hidden;
    const float *patches = t->patches + (size_t)first * tower_patch_floats(&t->spec);
    t->d.ops->linear(t->d.dev, x, patches, n, t->patch, t->normed_bias);
    if (t->spec.patch_norm)
        t->d.ops->norm(t->d.dev, x, x, n, hidden, &t->patch_norm);
    if (t->spec.patch_bias || t->spec.positions)
        t->d.ops->add_norm(t->d.dev, x, x, t->added + (size_t)first * hidden, 1, n, hidden, NULL);
    if (t->spec.joint.tiles)
        tower_joint_enter(t, x, first, n);
}

static bool after(void *arg, uint32_t layer, float *x, uint32_t first, uint32_t n)
{
    struct tower *t = arg;
    if (t->spec.joint.tiles)
        return tower_joint_after(t, layer, x, first, n);
    tower_side(t, layer, x, first, n);
    for (uint32_t i = 0; i < t->spec.n_levels; i++)
        if (t->spec.level_at[i] == layer)
            tower_project(t, &t->level[i], x, first, n, t->features[1 + i]);
    return false;
}

static void finish(void *arg, const float *rows, uint32_t first, uint32_t n)
{
    struct tower *t = arg;
    if (t->spec.joint.tiles)
        tower_joint_finish(t, rows, first, n);
    else if (t->spec.n_sides)
        tower_join_sides(t, rows, first, n);
    else if (!t->spec.pool)
        tower_project(t, &t->project, rows, first, n, t->features[0]);
}

/* ---------------------------------------------------------------- a pass */

static uint32_t crop_tokens(const struct tower *t, const struct vision_plan *p, uint32_t crop)
{
    if (t->spec.joint.tiles) /* the whole picture */
        return tower_joint_tokens(&t->spec);
    const struct arrange_grid g = arrange_grid(&t->spec, p, crop);
    return g.rows * g.cols + t->spec.class_token;
}

uint32_t tower_tokens(const struct tower *t, const struct vision_plan *plan)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < (t->spec.joint.tiles ? 1 : plan->n_crops); i++)
        n += crop_tokens(t, plan, i);
    return n;
}

/* Number of crops of the next pass: as many as fit into `most` tokens, at least one. */
static uint32_t pass_crops(const struct tower *t, struct tower_cursor c, uint32_t most,
                           uint32_t *tokens)
{
    uint32_t crops = 0;
    *tokens = 0;
    do {
        const uint32_t n = crop_tokens(t, c.images[c.image].plan, c.crop);
        if (crops && (n > most || *tokens > most - n))
            break;
        *tokens += n;
        crops++;
    } while (tower_next_crop(&c));
    return crops;
}

/* Writes the patches of a crop to row `at` of the pass, and what is added to them. */
static void fill_crop(struct tower *t, const struct tower_image *image, uint32_t crop, uint32_t at,
                      uint32_t tokens)
{
    const struct encoder_spec *s = &t->spec;
    const struct arrange_grid g = arrange_grid(s, image->plan, crop);
    const size_t each = tower_patch_floats(s), hidden = s->blocks.hidden;
    float *patches = t->host + at * each, *added = t->host + tokens * each + at * hidden;
    if (s->joint.tiles) {
        tower_joint_fill(t, image, patches, added, added + tokens * hidden);
        return;
    }
    arrange_places(s, g, t->places, t->mutual + at);
    if (s->class_token) {
        memset(patches, 0, each * sizeof(*patches));
        const size_t own = s->class_last ? (size_t)s->side * s->side : 0;
        memcpy(added, t->positions + own * hidden, hidden * sizeof(*added));
        for (size_t i = 0; i < hidden; i++)
            added[i] += t->class_token[i];
        memcpy(t->axes[at], (uint32_t[3]){0}, sizeof(t->axes[at]));
        patches += each, added += hidden, at++;
    }
    for (uint32_t i = 0; i < g.rows * g.cols; i++) {
        const struct tower_place place = t->places[i];
        arrange_patch(s, image, crop, g, place, patches + i * each);
        if (s->patch_bias || s->positions)
            arrange_added(t, g, place, added + i * hidden);
        t->axes[at + i][0] = 0;
        t->axes[at + i][1] = s->first_turn + place.row;
        t->axes[at + i][2] = s->first_turn + place.col;
    }
}

static int upload(struct tower *t, uint32_t tokens, struct err *e)
{
    const struct encoder_spec *s = &t->spec;
    const size_t patches = (size_t)tokens * tower_patch_floats(s);
    const size_t added = (size_t)tokens * s->blocks.hidden;
    if (t->d.ops->upload(t->d.dev, t->patches, t->host, patches * sizeof(float), e))
        return -1;
    if (!s->patch_bias && !s->positions)
        return 0;
    if (t->d.ops->upload(t->d.dev, t->added, t->host + patches, added * sizeof(float), e))
        return -1;
    return s->joint.tiles ? t->d.ops->upload(t->d.dev, t->joint.later, t->host + patches + added,
                                             added * sizeof(float), e)
                          : 0;
}

/* Adds the rows of a crop, whose tokens begin at row `at`, that become features to out_rows, of
 * which n_out are known. Returns their new number; 0 if all rows of a pass become features. */
static uint32_t choose_rows(struct tower *t, const struct vision_plan *p, uint32_t crop,
                            uint32_t at, uint32_t n_out)
{
    const struct encoder_spec *s = &t->spec;
    const uint32_t first = at + s->class_token, n = arrange_whole(s, arrange_grid(s, p, crop));
    if (s->joint.tiles || (!s->class_token && !s->leaves_rest))
        return 0;
    for (uint32_t i = 0; i < n; i++)
        t->out_rows[n_out++] = first + i;
    return n_out;
}

/* A batch of the pass' crops, each of which is a sequence. */
static struct ragged fill(struct tower *t, struct tower_cursor c, uint32_t crops, uint32_t tokens)
{
    const bool joint = t->spec.joint.tiles;
    uint32_t at = 0, block = 0, n_out = 0;
    for (uint32_t i = 0; i < crops; i++, tower_next_crop(&c)) {
        const uint32_t n = crop_tokens(t, c.images[c.image].plan, c.crop);
        fill_crop(t, &c.images[c.image], c.crop, at, tokens);
        n_out = choose_rows(t, c.images[c.image].plan, c.crop, at, n_out);
        if (joint)
            tower_joint_spans(t, c.images[c.image].plan, at, t->blocks + block,
                              &t->spans[2 * (size_t)i]);
        else
            t->spans[i] =
                (struct span){.first = at, .n = n, .kv_len = n, .blocks = t->blocks + block};
        for (uint32_t k = 0; k < n; k++) {
            t->pos[at + k] = k;
            t->slots[at + k] = block * BLOCK + k;
        }
        at += n;
        block += blocks_of(n);
    }
    return (struct ragged){.n_tokens = at,
                           .n_spans = joint ? 2 * crops : crops,
                           .n_out = n_out, /* 0: all */
                           .ids = t->ids,
                           .pos = t->pos,
                           .slots = t->slots,
                           .spans = t->spans,
                           .out_rows = t->out_rows,
                           .axes = t->axes,
                           .mutual = t->spec.windows ? t->mutual : NULL};
}

/* Downloads features to t->host: [1 + levels][rows][width]. */
static int download(struct tower *t, uint32_t rows, struct err *e)
{
    const size_t n = (size_t)rows * t->spec.width;
    for (uint32_t i = 0; i <= t->spec.n_levels; i++)
        if (t->d.ops->download(t->d.dev, t->host + i * n, t->features[i], n * sizeof(float), e))
            return -1;
    return 0;
}

/* ---------------------------------------------------------------- all pictures of a call */

/* Fills and uploads the next pass. */
static int begin_pass(struct tower *t, struct err *e)
{
    struct tower_work *w = &t->work;
    const struct tower_image *image = &w->next.images[w->next.image];
    uint32_t tokens = crop_tokens(t, image->plan, w->next.crop);
    if (t->spec.conv.n) {
        w->crops = 1;
        w->batch = (struct ragged){.n_tokens = tokens};
        w->walk.over = false;
        return reserve(t, tokens, 1, e) || tower_conv_begin(t, image, w->next.crop, e) ? -1 : 0;
    }
    w->crops = pass_crops(t, w->next, most_tokens(t), &tokens);
    if (reserve(t, tokens, w->crops, e))
        return -1;
    w->batch = fill(t, w->next, w->crops, tokens);
    return upload(t, tokens, e);
}

/* The resampler's features of the pass' crops, one crop at a time. */
static int resample_pass(struct tower *t, struct err *e)
{
    const struct encoder_spec *s = &t->spec;
    const size_t each = (size_t)s->resample.latents * s->width;
    struct tower_cursor c = t->work.next;
    size_t at = 0;
    for (uint32_t i = 0; i < t->work.crops; i++, tower_next_crop(&c)) {
        const struct tower_image *image = &c.images[c.image];
        const uint32_t n = crop_tokens(t, image->plan, c.crop);
        if (tower_resample(t, t->features[0] + at * s->width, n, image->out + c.crop * each, e))
            return -1;
        at += n;
    }
    return 0;
}

/* Writes the features of the pass to their images, after the transformer. */
static int end_pass(struct tower *t, struct err *e)
{
    const struct encoder_spec *s = &t->spec;
    struct tower_work *w = &t->work;
    const uint32_t patches = w->batch.n_out ? w->batch.n_out : w->batch.n_tokens;
    const uint32_t rows = patches / (s->pool ? s->cell * s->cell : s->project.join);
    const size_t floats = (size_t)patches * s->blocks.hidden;
    if (s->conv.n && tower_conv_project(t, e))
        return -1;
    if (s->pool &&
        (t->d.ops->download(t->d.dev, t->host, w->walk.rows, floats * sizeof(float), e) ||
         tower_project_means(t, patches, e)))
        return -1;
    if (s->resample.latents ? resample_pass(t, e) : download(t, rows, e))
        return -1;
    if (!s->resample.latents)
        tower_collect(t, w->next, w->crops, rows);
    for (uint32_t i = 0; i < w->crops; i++)
        tower_next_crop(&w->next);
    w->crops = 0;
    return 0;
}

/* The whole pass in one step. */
static int whole_pass(struct tower *t, struct err *e)
{
    struct tower_work *w = &t->work;
    return decoder_encode(&t->d, &w->batch, NULL, &w->walk.rows, e) || end_pass(t, e) ? -1 : 0;
}

int tower_begin(struct tower *t, const struct tower_image *images, uint32_t n, struct err *e)
{
    for (uint32_t i = 0; i < n; i++) {
        if (arrange_check(&t->spec, images[i].plan, e))
            return -1;
        if (t->spec.tiles_joined)
            tower_end_rows(t, &images[i]);
    }
    t->work = (struct tower_work){.next = {images, n, 0, 0, t->spec.joint.tiles > 0}};
    return 0;
}

bool tower_busy(const struct tower *t) { return t->work.next.image < t->work.next.n; }
void tower_stop(struct tower *t) { t->work = (struct tower_work){0}; }

int tower_go_on(struct tower *t, uint64_t most, uint64_t *done, struct err *e)
{
    struct tower_work *w = &t->work;
    *done = 0;
    while (tower_busy(t) && *done < most) {
        uint64_t some = 0;
        int rc = 0;
        if (!w->crops) {
            rc = begin_pass(t, e);
            if (t->spec.conv.n) {
                /* its steps are parts */
            } else if (rc == 0 && most == TOWER_ALL) {
                rc = whole_pass(t, e);
                some = 1;
            } else if (rc == 0) {
                rc = decoder_walk_begin(&t->d, &w->batch, t->spec.cell * t->spec.cell, &w->walk, e);
            }
        }
        if (rc == 0 && w->crops)
            rc = t->spec.conv.n ? tower_conv_on(t, most - *done, &some, &w->walk.over, e)
                                : decoder_walk_on(&t->d, &w->walk, most - *done, &some, e);
        if (rc == 0 && w->crops && w->walk.over)
            rc = end_pass(t, e);
        if (rc) {
            tower_stop(t);
            return -1;
        }
        *done += some;
    }
    return 0;
}

int tower_encode(struct tower *t, const struct tower_image *images, uint32_t n, struct err *e)
{
    uint64_t done;
    return tower_begin(t, images, n, e) || tower_go_on(t, TOWER_ALL, &done, e) ? -1 : 0;
}

int tower_check(const struct tower *t, const struct vision_plan *plan, struct err *e)
{
    return arrange_check(&t->spec, plan, e);
}

uint32_t tower_row(const struct tower *t) { return t->spec.width * (1 + t->spec.n_levels); }
const float *tower_token(const struct tower *t) { return t->joint.token; }
uint32_t tower_most_features(const struct tower *t)
{
    return t->spec.joint.tiles * (t->spec.side * t->spec.side + 1);
}
uint64_t tower_weight_bytes(const struct tower *t) { return t->d.weights.bytes; }

/* ---------------------------------------------------------------- loading */

/* Splits the layers over ranks. Every rank computes all of them if their heads do not divide
 * evenly, or if sums over ranks would have to be clipped. */
static int share(struct tower *t, const struct decoder *text, struct err *e)
{
    struct err uneven = ERR_INIT;
    t->d.comm = text->comm;
    if (!t->d.spec.clips &&
        split_make(&t->d.split, &t->d.spec, text->comm->rank, text->comm->world, &uneven) == 0)
        return 0;
    t->d.comm = comm_solo();
    return split_make(&t->d.split, &t->d.spec, 0, 1, e);
}

static int take(struct tower *t, const struct arch *names, const struct decoder *text,
                const struct checkpoint *c, struct err *e)
{
    t->d.ops = text->ops;
    t->d.dev = text->dev;
    t->d.dtype = text->dtype;
    t->d.busy_ns = text->busy_ns;
    t->d.sample = text->sample;
    t->d.spec = t->spec.blocks;
    t->d.encodes = true;
    t->d.front = (struct decoder_front){embed, after, finish, t};
    if (!t->spec.conv.n && share(t, text, e))
        return -1;
    return tower_take_weights(t, names, c, e);
}

struct tower *tower_random(const struct encoder_spec *spec, const struct arch *names,
                           const struct decoder *text, struct err *e)
{
    struct tower *t = calloc(1, sizeof(*t));
    if (!t)
        return err_nomem(e), NULL;
    t->spec = *spec;
    if (take(t, names, text, NULL, e)) {
        tower_free(t);
        return NULL;
    }
    return t;
}

static int load(struct tower *t, const char *dir, const struct arch *names,
                const struct decoder *text, struct err *e)
{
    struct checkpoint c;
    if (t->spec.width != text->spec.hidden || t->spec.n_levels != text->spec.n_added)
        return err_set(e, ERR_VALIDATION,
                       "%s: the tower's features of %u numbers do not go with a text model of %u",
                       dir, t->spec.width, text->spec.hidden);
    if (checkpoint_open(&c, dir, names, e))
        return -1;
    int rc = take(t, names, text, &c, e);
    checkpoint_close(&c);
    return rc;
}

int tower_load(const char *dir, const struct decoder *text, struct tower **out, struct err *e)
{
    char path[PATH_MAX];
    const struct encoder_family *family;
    *out = NULL;
    if (snprintf(path, sizeof(path), "%s/config.json", dir) >= PATH_MAX)
        return err_set(e, ERR_VALIDATION, "%.200s...: path too long", dir);
    struct tower *t = calloc(1, sizeof(*t));
    if (!t)
        return err_nomem(e);
    t->d.ops = text->ops;
    if (encoder_configure(path, &family, &t->spec, e) ||
        (family && load(t, dir, &family->names, text, e))) {
        tower_free(t);
        return -1;
    }
    if (family)
        *out = t;
    else
        tower_free(t);
    return 0;
}

void tower_free(struct tower *t)
{
    if (!t)
        return;
    free_memory(t);
    tower_conv_free(t);
    tower_release_weights(t);
    free(t);
}
