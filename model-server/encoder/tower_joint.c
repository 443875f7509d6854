/* tower_joint.c - towers whose tiles attend to each other (Llama 3.2 Vision, arXiv 2407.21783).
 *
 * Every image has the largest number of tiles. Rows of the sequence: the class token and patches of
 * each real tile; the same of missing tiles, which are empty; rows that pad each tile to a multiple
 * of 8, zero after the first norm. The last two groups are padding: as in training, real rows
 * attend to all rows, and padding attends to real rows. After a first stack of layers come a norm
 * and embeddings of tiles, then a second stack. The projection reads the second stack's result and
 * the results of some layers of the first stack; its matrix is divided accordingly. */
#include "model-server/backend/numbers.h"
#include "model-server/encoder/arrange.h"
#include "model-server/model/loader/loader.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows of a tile: a class token and its patches. */
static uint32_t tile_rows(const struct encoder_spec *s) { return s->side * s->side + 1; }

static uint32_t pad_rows(const struct encoder_spec *s)
{
    return (s->joint.unit - tile_rows(s) % s->joint.unit) % s->joint.unit;
}

uint32_t tower_joint_tokens(const struct encoder_spec *s)
{
    return s->joint.tiles * (tile_rows(s) + pad_rows(s));
}

/* ---------------------------------------------------------------- additions to patches */

/* The number of a grid of tiles, from 1, in the order of its rows, then columns. */
static uint32_t shape_id(const struct encoder_spec *s, uint32_t rows, uint32_t cols)
{
    uint32_t id = 0;
    for (uint32_t r = 1; r <= rows; r++)
        for (uint32_t c = 1; c <= s->joint.tiles / r && (r < rows || c <= cols); c++)
            id++;
    return id;
}

static void add_table(const struct tower_table *t, size_t row, uint32_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] += t->by * number_at(t->data, t->dtype, (int64_t)(row * n + i));
}

/* Writes what is added to row `at` of a tile; row 0 is the class token. */
static void fill_row(const struct tower *t, uint32_t id, uint32_t tile, uint32_t at, float *added)
{
    const struct encoder_spec *s = &t->spec;
    const uint32_t hidden = s->blocks.hidden;
    const size_t nth = (size_t)id * s->joint.tiles + tile;
    const float *place = t->positions + (size_t)at * hidden;
    memset(added, 0, hidden * sizeof(*added));
    if (at)
        add_table(&t->joint.before, nth, hidden, added);
    else
        memcpy(added, t->leading, hidden * sizeof(*added));
    for (uint32_t i = 0; i < hidden; i++)
        added[i] += (1 - t->joint.place.by) * place[i];
    add_table(&t->joint.place, nth * tile_rows(s) + at, hidden, added);
}

void tower_joint_fill(struct tower *t, const struct tower_image *image, float *patches,
                      float *added, float *later)
{
    const struct encoder_spec *s = &t->spec;
    const struct vision_plan *p = image->plan;
    const struct arrange_grid g = arrange_grid(s, p, 0);
    const uint32_t hidden = s->blocks.hidden, rows = tile_rows(s), n = tower_joint_tokens(s);
    const uint32_t id = shape_id(s, p->rows, p->cols);
    const size_t each = tower_patch_floats(s);
    memset(patches, 0, n * each * sizeof(*patches));
    memset(added, 0, (size_t)n * hidden * sizeof(*added));
    memset(later, 0, (size_t)n * hidden * sizeof(*later));
    for (uint32_t tile = 0, at = 0; tile < s->joint.tiles; tile++)
        for (uint32_t i = 0; i < rows; i++, at++) {
            if (i && tile < p->n_crops)
                arrange_patch(s, image, tile, g,
                              (struct tower_place){(i - 1) / g.cols, (i - 1) % g.cols},
                              patches + at * each);
            fill_row(t, id, tile, i, added + (size_t)at * hidden);
        }
    for (uint32_t at = 0; at < n; at++) {
        const uint32_t whole = s->joint.tiles * rows;
        const uint32_t tile = at < whole ? at / rows : (at - whole) / pad_rows(s);
        add_table(&t->joint.after, (size_t)id * s->joint.tiles + tile, hidden,
                  later + (size_t)at * hidden);
    }
}

void tower_joint_spans(const struct tower *t, const struct vision_plan *p, uint32_t first,
                       const uint32_t *blocks, struct span out[2])
{
    const uint32_t own = p->n_crops * tile_rows(&t->spec), all = tower_joint_tokens(&t->spec);
    out[0] = (struct span){.first = first, .n = own, .kv_len = all, .blocks = blocks};
    out[1] = (struct span){.first = first + own, .n = all - own, .kv_len = own, .blocks = blocks};
}

void tower_joint_collect(const struct tower *t, const struct tower_image *image, uint32_t first)
{
    memcpy(image->out, t->host + (size_t)first * t->spec.width,
           (size_t)image->plan->n_features * t->spec.width * sizeof(float));
}

/* ---------------------------------------------------------------- around and between the stacks */

void tower_joint_enter(struct tower *t, float *x, uint32_t first, uint32_t n)
{
    const struct encoder_spec *s = &t->spec;
    const uint32_t hidden = s->blocks.hidden, all = tower_joint_tokens(s);
    const uint32_t whole = s->joint.tiles * tile_rows(s);
    t->d.ops->norm(t->d.dev, x, x, n, hidden, &t->joint.first_norm);
    for (uint32_t at = first; at < first + n;) { /* padding at the end of each image */
        const uint32_t in = at % all, end = at - in + all, zeros = at - in + whole;
        const uint32_t from = at > zeros ? at : zeros, to = end < first + n ? end : first + n;
        if (from < to)
            t->d.ops->logit_scale(t->d.dev, x + (size_t)(from - first) * hidden, to - from, hidden,
                                  0, 0);
        at = end;
    }
}

/* y = x W^T + bias, or y += x W^T + bias, for n rows. */
static void product(struct tower *t, float *y, const float *x, uint32_t n, const struct weight *w,
                    const float *bias, bool add)
{
    const uint32_t width = t->spec.width, hidden = t->spec.blocks.hidden;
    for (uint32_t i = 0, some; i < n; i += some) {
        some = n - i < TOWER_TAP_ROWS ? n - i : TOWER_TAP_ROWS;
        float *to = add ? t->middle[0] : y + (size_t)i * width;
        t->d.ops->linear(t->d.dev, to, x + (size_t)i * hidden, some, w, bias);
        if (add)
            t->d.ops->add_norm(t->d.dev, NULL, y + (size_t)i * width, to, 1, some, width, NULL);
    }
}

bool tower_joint_after(struct tower *t, uint32_t layer, float *x, uint32_t first, uint32_t n)
{
    const struct encoder_spec *s = &t->spec;
    const uint32_t hidden = s->blocks.hidden;
    float *y = t->features[0] + (size_t)first * s->width;
    for (uint32_t i = 0; i < s->joint.n_taps; i++)
        if (s->joint.tap_at[i] == layer)
            product(t, y, x, n, t->joint.tap[i], NULL, i > 0);
    if (layer + 1 != s->blocks.second_stack)
        return false;
    t->d.ops->norm(t->d.dev, x, x, n, hidden, &t->joint.middle_norm);
    t->d.ops->add_norm(t->d.dev, NULL, x, t->joint.later + (size_t)first * hidden, 1, n, hidden,
                       NULL);
    return true;
}

void tower_joint_finish(struct tower *t, const float *x, uint32_t first, uint32_t n)
{
    product(t, t->features[0] + (size_t)first * t->spec.width, x, n, t->project.w[0],
            t->project.bias[0], t->spec.joint.n_taps > 0);
}

/* ---------------------------------------------------------------- loading */

/* Loads a table [rows][n] to host memory in its stored type, and tanh of the gate. */
static void load_table(struct loader *l, struct tower_table *t, enum role role, enum role gate,
                       int64_t rows, int64_t cols)
{
    const struct mat_part p = loader_table(l, role, NO_LAYER, ".weight", rows, cols);
    const size_t bytes = (size_t)(rows * cols) * dtype_size(p.dtype);
    t->dtype = p.dtype;
    if (!l->failed && !(t->data = malloc(bytes + 1))) /* not 0 bytes */
        loader_nomem(l);
    else if (!l->failed)
        memcpy(t->data, p.data, bytes);
    loader_count(l->d, (uint64_t)(rows * cols), bytes);
    loader_drop(l);
    const struct mat_part by = loader_table(l, gate, NO_LAYER, "", 1, 1);
    t->by = l->failed ? 0 : tanhf(number_at(by.data, by.dtype, 0));
    loader_drop(l);
}

/* The columns of the projection that multiply one input: every nth from `first` on. */
static struct weight *load_columns(struct loader *l, const struct encoder_spec *s, uint32_t first,
                                   uint32_t each)
{
    const int64_t hidden = s->blocks.hidden;
    struct mat_part p = loader_part(l, W_PROJECT_OUT, NO_LAYER, NO_EXPERT, false, s->width,
                                    hidden * (1 + (int64_t)s->joint.n_taps));
    p = loader_cut(p, 0, s->width, first, 1);
    p.cols = hidden;
    p.col_stride *= each;
    return loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
}

static struct norm load_norm(struct loader *l, enum role role)
{
    struct norm n = loader_norm(l, role, NO_LAYER);
    n.eps = 1e-5F; /* norm_eps of the file is for the layers only */
    return n;
}

void tower_joint_load(struct loader *l, struct tower *t)
{
    const struct encoder_spec *s = &t->spec;
    const int64_t ids = shape_id(s, s->joint.tiles, 1) + 1, hidden = s->blocks.hidden;
    const int64_t tiles = s->joint.tiles;
    load_table(l, &t->joint.before, W_TILE_BEFORE, W_TILE_BEFORE_GATE, ids, tiles * hidden);
    load_table(l, &t->joint.place, W_TILE_PLACE, W_TILE_PLACE_GATE, ids,
               tiles * tile_rows(s) * hidden);
    load_table(l, &t->joint.after, W_TILE_AFTER, W_TILE_AFTER_GATE, ids, tiles * hidden);
    t->joint.first_norm = load_norm(l, W_EMBED_NORM);
    t->joint.middle_norm = load_norm(l, W_MIDDLE_NORM);
    t->project.spec = &s->project;
    t->project.w[0] = load_columns(l, s, 0, 1);
    t->project.bias[0] = loader_bias(l, W_PROJECT_OUT, NO_LAYER, s->width);
    for (uint32_t i = 0; i < s->joint.n_taps; i++)
        t->joint.tap[i] = load_columns(l, s, s->blocks.hidden + i, s->joint.n_taps);
    const struct mat_part token =
        loader_table(l, W_EMBED, NO_LAYER, ".weight", s->joint.embeds, s->width);
    if (!l->failed && !(t->joint.token = malloc(s->width * sizeof(float))))
        loader_nomem(l);
    for (uint32_t i = 0; !l->failed && t->joint.token && i < s->width; i++)
        t->joint.token[i] =
            number_at(token.data, token.dtype, (int64_t)s->joint.token * s->width + i);
    loader_drop(l);
}

void tower_joint_free(struct tower *t)
{
    layer_free_norm(&t->d, &t->joint.first_norm);
    layer_free_norm(&t->d, &t->joint.middle_norm);
    for (int i = 0; i < ENCODER_MAX_TAPS; i++)
        layer_free_weight(&t->d, t->joint.tap[i]);
    free(t->joint.before.data), free(t->joint.place.data), free(t->joint.after.data);
    free(t->joint.token);
}
