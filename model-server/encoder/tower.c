#include "model-server/encoder/tower.h"
#include "model-server/encoder/arrange.h"
#include "model-server/encoder/tower_conv.h"
#include "model-server/model/checkpoint/checkpoint.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- before and after the blocks */

static void embed(void *arg, float *x, uint32_t first, uint32_t n)
{
    struct tower *t = arg;
    const uint32_t hidden = t->spec.blocks.hidden;
    float *patches = t->patches + (size_t)first * tower_patch_floats(&t->spec);
    if (t->spec.pixel_norm)
        t->d.ops->norm(t->d.dev, patches, patches, n, tower_patch_floats(&t->spec), &t->pixel_norm);
    if (t->spec.of_features)
        t->d.ops->beside(t->d.dev, x, patches, NULL, n, hidden);
    else
        t->d.ops->linear(t->d.dev, x, patches, n, t->patch, t->normed_bias);
    tower_side(t, ENCODER_INPUT, x, first, n);
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
    else if (!t->spec.pool && !t->spec.n_sides)
        tower_project(t, &t->project, rows, first, n, t->features[0]);
}

/* ---------------------------------------------------------------- a pass */

static uint32_t crop_tokens(const struct tower *t, const struct vision_plan *p, uint32_t crop)
{
    if (t->spec.joint.tiles) /* the whole picture */
        return tower_joint_tokens(&t->spec);
    const struct arrange_grid g = arrange_grid(&t->spec, p, crop);
    uint32_t table;
    return g.rows * g.cols + arrange_queries(&t->spec, g, &table) + encoder_leading(&t->spec);
}

uint32_t tower_tokens(const struct tower *t, const struct vision_plan *plan)
{
    struct vision_plan before, own = *plan;
    uint32_t n = 0;
    if (t->before.tower) {
        tower_before_plans(t, plan, &before, &own);
        n = tower_tokens(t->before.tower, &before);
    }
    for (uint32_t i = 0; i < (t->spec.joint.tiles ? 1 : plan->n_crops); i++)
        n += crop_tokens(t, &own, i);
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

/* Writes the rows before the patches of a crop: no pixels, and their vectors as what is added. */
static void fill_leading(struct tower *t, uint32_t at, float *patches, float *added)
{
    const struct encoder_spec *s = &t->spec;
    const size_t hidden = s->blocks.hidden, n = encoder_leading(s);
    memset(patches, 0, n * tower_patch_floats(s) * sizeof(*patches));
    memset(t->axes[at], 0, n * sizeof(*t->axes));
    memcpy(added, t->leading, n * hidden * sizeof(*added));
    const size_t own = s->class_last ? (size_t)s->side * s->side : 0;
    for (size_t i = 0; s->class_token && i < hidden; i++)
        added[i] += t->positions[own * hidden + i];
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
    const uint32_t leading = encoder_leading(s);
    if (leading) {
        fill_leading(t, at, patches, added);
        patches += leading * each, added += leading * hidden, at += leading;
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
    uint32_t table;
    const size_t n = arrange_queries(s, g, &table);
    if (n)
        memcpy(patches + n * each, t->queries[table], n * each * sizeof(*patches));
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
    const struct arrange_grid g = arrange_grid(s, p, crop);
    uint32_t table;
    const uint32_t first = at + encoder_leading(s) + arrange_queries(s, g, &table);
    const uint32_t n = arrange_whole(s, g);
    const bool drops = encoder_leading(s) && !s->keeps_class;
    if (s->class_alone) {
        t->out_rows[n_out] = at;
        return n_out + 1;
    }
    if (s->joint.tiles || (!drops && !s->leaves_rest && !s->queries.n))
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
            t->slots[at + k] = block * TOWER_BLOCK + k;
        }
        at += n;
        block += tower_blocks_of(n);
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
                           .mutual = t->spec.windows || t->spec.queries.n ? t->mutual : NULL};
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
        return tower_reserve_pass(t, tokens, 1, e) || tower_conv_begin(t, image, w->next.crop, e)
                   ? -1
                   : 0;
    }
    w->crops = pass_crops(t, w->next, tower_most_tokens(t), &tokens);
    if (tower_reserve_pass(t, tokens, w->crops, e))
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
    const uint32_t rows = tower_feature_rows(s, patches);
    const size_t floats = (size_t)patches * s->blocks.hidden;
    if (s->conv.n && tower_conv_project(t, e))
        return -1;
    if (s->pool &&
        (t->d.ops->download(t->d.dev, t->host, w->walk.rows, floats * sizeof(float), e) ||
         tower_project_means(t, patches, e)))
        return -1;
    if (s->n_sides && tower_project_sides(t, e))
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
    for (uint32_t i = 0; i < n; i++)
        if (tower_check(t, images[i].plan, e))
            return -1;
    if (t->before.tower && tower_before_begin(t, images, n, &images, e))
        return -1;
    for (uint32_t i = 0; i < n; i++)
        tower_start_features(t, &images[i]);
    t->work = (struct tower_work){.next = {images, n, 0, 0, t->spec.joint.tiles > 0}};
    return 0;
}

bool tower_busy(const struct tower *t) { return t->work.next.image < t->work.next.n; }

void tower_stop(struct tower *t)
{
    t->work = (struct tower_work){0};
    tower_before_end(t);
}

/* A part of a pass, or with TOWER_ALL a whole one, if it is of a transformer. */
static int go_on_pass(struct tower *t, uint64_t most, uint64_t *done, struct err *e)
{
    struct tower_work *w = &t->work;
    int rc = 0;
    if (!w->crops) {
        rc = begin_pass(t, e);
        if (t->spec.conv.n) {
            /* its steps are parts */
        } else if (rc == 0 && most == TOWER_ALL) {
            rc = whole_pass(t, e);
            *done = 1;
        } else if (rc == 0) {
            rc = decoder_walk_begin(&t->d, &w->batch, t->spec.cell * t->spec.cell, &w->walk, e);
        }
    }
    if (rc == 0 && w->crops)
        rc = t->spec.conv.n ? tower_conv_on(t, most, done, &w->walk.over, e)
                            : decoder_walk_on(&t->d, &w->walk, most, done, e);
    if (rc == 0 && w->crops && w->walk.over)
        rc = end_pass(t, e);
    return rc;
}

int tower_go_on(struct tower *t, uint64_t most, uint64_t *done, struct err *e)
{
    struct tower *before = t->before.tower;
    *done = 0;
    while (tower_busy(t) && *done < most) {
        const uint64_t left = most == TOWER_ALL ? most : most - *done;
        uint64_t some = 0;
        const int rc = before && tower_busy(before) ? tower_go_on(before, left, &some, e)
                                                    : go_on_pass(t, left, &some, e);
        if (rc) {
            tower_stop(t);
            return -1;
        }
        *done += some;
    }
    if (!tower_busy(t))
        tower_before_end(t);
    return 0;
}

int tower_encode(struct tower *t, const struct tower_image *images, uint32_t n, struct err *e)
{
    uint64_t done;
    return tower_begin(t, images, n, e) || tower_go_on(t, TOWER_ALL, &done, e) ? -1 : 0;
}

int tower_check(const struct tower *t, const struct vision_plan *plan, struct err *e)
{
    struct vision_plan before, own;
    if (!t->before.tower)
        return arrange_check(&t->spec, plan, e);
    tower_before_plans(t, plan, &before, &own);
    return tower_check(t->before.tower, &before, e) || arrange_check(&t->spec, &own, e) ? -1 : 0;
}

uint32_t tower_row(const struct tower *t) { return t->spec.width * (1 + t->spec.n_levels); }
const float *tower_token(const struct tower *t) { return t->joint.token; }
uint32_t tower_most_features(const struct tower *t)
{
    return t->spec.joint.tiles * (t->spec.side * t->spec.side + 1);
}
uint64_t tower_weight_bytes(const struct tower *t)
{
    return t->d.weights.bytes + (t->before.tower ? tower_weight_bytes(t->before.tower) : 0);
}

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

/* With products that round to 16 bits, keys and values are rounded, too, and heads get zeros up to
 * a size that matrix units multiply: the 72 elements of many towers are none. */
static void choose_heads(struct tower *t, const struct checkpoint *c)
{
    struct decoder_spec *s = &t->d.spec;
    enum kv_dtype rounded;
    const uint32_t size =
        t->d.ops->head_size ? t->d.ops->head_size(t->d.dev, t->d.dtype, s->head_dim, &rounded) : 0;
    const uint32_t pad = size ? size - s->head_dim : 0;
    const bool plain = !(c && c->gguf.set.n) && s->qk_norm == QK_NORM_NONE && !s->v_dim &&
                       (s->qkv == QKV_SEPARATE || s->qkv == QKV_STACKED) && !s->kv_interleaved &&
                       !s->rope[0].halves;
    t->kv = KV_F32;
    if (size && (plain || !pad)) {
        t->kv = rounded;
        s->head_dim += pad;
        s->head_pad = pad;
    }
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
    choose_heads(t, c);
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
    if (checkpoint_open_tower(&c, dir, names, e))
        return -1;
    int rc = take(t, names, text, &c, e);
    checkpoint_close(&c);
    return rc;
}

/* Loads the tower before. */
static int load_before(struct tower *t, const char *dir, const char *path,
                       const struct encoder_family *family, const struct decoder *text,
                       struct err *e)
{
    struct tower *b = t->before.tower = calloc(1, sizeof(*b));
    if (!b)
        return err_nomem(e);
    b->d.ops = text->ops;
    if (encoder_configure_as(path, family, &b->spec, e))
        return -1;
    return load(b, dir, &family->names, text, e);
}

static int load_all(struct tower *t, const char *dir, const char *path,
                    const struct encoder_family *family, const struct decoder *text, struct err *e)
{
    const bool fits = t->spec.vectors || t->spec.width == text->spec.hidden;
    if (!fits || t->spec.n_levels != text->spec.n_added)
        return err_set(e, ERR_VALIDATION,
                       "%s: the tower's features of %u numbers do not go with a text model of %u",
                       dir, t->spec.width, text->spec.hidden);
    if (family->before && load_before(t, dir, path, family->before, text, e))
        return -1;
    return load(t, dir, &family->names, text, e);
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
        (family && load_all(t, dir, path, family, text, e))) {
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
    tower_before_end(t);
    tower_free(t->before.tower);
    tower_free_memory(t);
    tower_conv_free(t);
    tower_release_weights(t);
    free(t);
}
