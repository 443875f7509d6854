/* tower_load.c - loads the weights of a tower, and frees them. */
#include "model-server/backend/numbers.h"
#include "model-server/encoder/tower_conv.h"
#include "model-server/model/loader/loader.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Copies a small tensor to host memory as floats; NULL after an error. */
static float *host_vector(struct loader *l, struct mat_part p)
{
    const int64_t n = p.rows * p.cols;
    float *v = l->failed ? NULL : calloc((size_t)n, sizeof(*v));
    if (!v && !l->failed)
        loader_nomem(l);
    for (int64_t i = 0; v && i < n; i++)
        v[i] = number_at(p.data, p.dtype, i);
    loader_drop(l);
    return v;
}

/* A copy with columns [outer][inner][each] reordered to [inner][outer][each]. NULL: out of memory.
 */
static void *turned_columns(const struct mat_part *p, uint32_t inner, uint32_t each)
{
    const size_t size = each * dtype_size(p->dtype), cols = (size_t)p->cols / each;
    const size_t outer = cols / inner;
    char *out = malloc((size_t)p->rows * cols * size);
    for (size_t r = 0; out && r < (size_t)p->rows; r++)
        for (size_t c = 0; c < cols; c++)
            memcpy(out + (r * cols + c % inner * outer + c / inner) * size,
                   (const char *)p->data + (r * cols + c) * size, size);
    return out;
}

/* Packs the part with its columns reordered. */
static struct weight *pack_turned(struct loader *l, struct mat_part part, uint32_t inner,
                                  uint32_t each)
{
    void *turned = NULL;
    if (part.data && !l->failed) {
        if (!(turned = turned_columns(&part, inner, each)))
            loader_nomem(l);
        part.data = turned;
    }
    struct weight *w = loader_pack(l, &part, 1, l->d->dtype, QUANT_NONE);
    free(turned);
    return w;
}

/* The parts of a gated matrix, gates first. They are the second and the first half of a tensor's
 * rows, or two tensors. Returns the number of parts. */
static int gates_first(struct loader *l, const struct encoder_linear *m, int layer, bool bias,
                       uint32_t cols, struct mat_part parts[2])
{
    if (m->gate) {
        parts[1] = loader_part(l, m->role, layer, NO_EXPERT, bias, m->rows / 2, cols);
        parts[0] = loader_part(l, m->gate, layer, NO_EXPERT, bias, m->rows / 2, cols);
        return 2;
    }
    parts[0] = loader_part(l, m->role, layer, NO_EXPERT, bias, m->rows, cols);
    const uint32_t half = (uint32_t)(parts[0].rows / 2);
    parts[1] = loader_rows(parts[0], 0, half);
    parts[0] = loader_rows(parts[0], half, half);
    return 2;
}

static float *load_linear_bias(struct loader *l, const struct encoder_linear *m, int layer)
{
    struct mat_part parts[2];
    if (m->gated)
        return loader_vector(l, parts, gates_first(l, m, layer, true, 1, parts), 0);
    return loader_bias(l, m->role, layer, m->rows);
}

static struct weight *load_linear(struct loader *l, const struct encoder_projection *p,
                                  const struct encoder_linear *m, int layer, uint32_t cols)
{
    struct mat_part parts[2];
    int n = 1;
    if (m->channels_first) /* may be a convolution, of four dimensions */
        return pack_turned(l, loader_table(l, m->role, layer, ".weight", m->rows, cols), p->join,
                           1);
    if (m->gated)
        n = gates_first(l, m, layer, false, cols, parts);
    else if (m->table)
        parts[0] = loader_turned(loader_rows(
            loader_part(l, m->role, layer, NO_EXPERT, false, m->table, m->rows), 0, cols));
    else if (m->convolution)
        parts[0] = loader_table(l, m->role, layer, ".weight", m->rows, cols);
    else if (m->plain_name)
        parts[0] = loader_turned(loader_plain_matrix(l, m->role, layer, cols, m->rows));
    else
        parts[0] = loader_part(l, m->role, layer, NO_EXPERT, false, m->rows, cols);
    return loader_pack(l, parts, n, l->d->dtype, QUANT_NONE);
}

static float *norm_weights(struct loader *l, const struct encoder_projection *p, int layer,
                           uint32_t n)
{
    const struct mat_part w = loader_table(l, p->norm_role, layer, ".weight", n, 1);
    return loader_vector(l, &w, 1, p->norm_spec.plus);
}

static struct norm middle_norm(struct loader *l, int layer, uint32_t n)
{
    const struct mat_part w = loader_table(l, W_MIDDLE_NORM, layer, ".weight", n, 1);
    struct norm norm = {.kind = NORM_LAYER, .eps = 1e-5F, .w = loader_vector(l, &w, 1, 0)};
    norm.b = loader_bias(l, W_MIDDLE_NORM, layer, n);
    return norm;
}

/* The matrix [n, n * join] that computes the mean of `join` rows side by side, in fp32. */
static struct weight *mean_matrix(struct loader *l, uint32_t n, uint32_t join)
{
    const size_t cols = (size_t)n * join;
    float *numbers = l->failed ? NULL : calloc(n * cols, sizeof(*numbers));
    if (!numbers && !l->failed)
        loader_nomem(l);
    for (size_t r = 0; numbers && r < n; r++)
        for (size_t i = 0; i < join; i++)
            numbers[r * cols + i * n + r] = 1 / (float)join;
    struct mat_part p = {.data = numbers,
                         .dtype = DT_F32,
                         .rows = n,
                         .cols = (int64_t)cols,
                         .row_stride = (int64_t)cols,
                         .col_stride = 1};
    struct weight *w = loader_pack(l, &p, 1, DT_F32, QUANT_NONE);
    free(numbers);
    return w;
}

/* Row `n` of the positions of encoder_projection.sines: sines and cosines of the column, then of
 * the row (https://arxiv.org/abs/1706.03762, in two dimensions). */
static void sines_of(uint32_t side, uint32_t n, uint32_t cols, float *out)
{
    const uint32_t each = cols / 4, at[] = {n % side, n / side % side};
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t i = 0; i < each; i++) {
            const double angle = at[k] / pow(10000, (double)i / each);
            out[2 * k * each + i] = (float)sin(angle);
            out[(2 * k + 1) * each + i] = (float)cos(angle);
        }
}

static float *load_places(struct loader *l, const struct encoder_projection *p)
{
    const struct tower *t = l->d->front.arg;
    const uint32_t cols = p->linear[0].rows, n = tower_project_rows(t) + p->sines * p->sines;
    const size_t bytes = (size_t)n * cols * sizeof(float);
    float *host = l->failed ? NULL : malloc(bytes), *places = NULL;
    if (!host && !l->failed)
        loader_nomem(l);
    for (uint32_t r = 0; host && r < n; r++)
        sines_of(p->sines, r % (p->sines * p->sines), cols, host + (size_t)r * cols);
    if (host && !(places = l->d->ops->alloc(l->d->dev, bytes, l->e)))
        l->failed = true;
    if (places && l->d->ops->upload(l->d->dev, places, host, bytes, l->e))
        l->failed = true;
    free(host);
    return places;
}

static struct norm norm_after_projection(struct loader *l, const struct encoder_projection *p,
                                         int layer, uint32_t n)
{
    struct mat_part w = {0};
    if (p->after_role)
        w = loader_table(l, p->after_role, layer, ".weight", n, 1);
    struct norm after = {.kind = p->after_layer ? NORM_LAYER : NORM_RMS,
                         .w = w.data ? loader_vector(l, &w, 1, 0) : loader_ones(l, n),
                         .eps = p->after_eps};
    if (p->after_layer)
        after.b = loader_bias(l, p->after_role, layer, n);
    return after;
}

static void load_projection(struct loader *l, struct tower_projection *t,
                            const struct encoder_projection *p, int layer)
{
    uint32_t cols = l->d->spec.hidden * p->join;
    t->spec = p;
    if (p->norm) {
        const uint32_t n = p->norm_joined ? cols : l->d->spec.hidden;
        t->norm = (struct norm){.kind = p->norm_spec.kind, .eps = p->norm_spec.eps};
        t->norm.w = p->norm_spec.bare ? loader_ones(l, n) : norm_weights(l, p, layer, n);
        t->norm.b = p->norm_bias ? loader_bias(l, p->norm_role, layer, n) : NULL;
    }
    for (uint32_t i = 0; i < p->n_linears; i++) {
        cols *= p->linear[i].join ? p->linear[i].join : 1;
        if (p->linear[i].norm_before)
            t->middle_norm = middle_norm(l, layer, cols);
        t->w[i] = load_linear(l, p, &p->linear[i], layer, cols);
        cols = p->linear[i].rows / (p->linear[i].gated ? 2 : 1);
        t->bias[i] = p->linear[i].bias ? load_linear_bias(l, &p->linear[i], layer) : NULL;
    }
    if (p->plus_mean)
        t->mean = mean_matrix(l, cols, p->join);
    if (p->after_eps != 0)
        t->after = norm_after_projection(l, p, layer, cols);
    if (p->sines)
        t->places = load_places(l, p);
}

/* Its elements in the order of a patch's pixels. */
static float *pixel_vector(struct loader *l, const char *suffix, uint32_t n, bool channels_last)
{
    struct mat_part p = loader_table(l, W_PIXEL_NORM, NO_LAYER, suffix, n, 1), parts[3];
    if (!channels_last || !p.data)
        return loader_vector(l, &p, 1, 0);
    for (int c = 0; c < 3; c++) {
        parts[c] = p;
        parts[c].data = (const char *)p.data + (size_t)c * dtype_size(p.dtype);
        parts[c].rows = n / 3;
        parts[c].row_stride = 3;
    }
    return loader_vector(l, parts, 3, 0);
}

static void load_pixel_norm(struct loader *l, struct tower *t)
{
    const struct encoder_spec *s = &t->spec;
    const uint32_t n = tower_patch_floats(s);
    t->pixel_norm = (struct norm){.kind = s->blocks.norm.kind, .eps = s->blocks.norm.eps};
    t->pixel_norm.w = pixel_vector(l, ".weight", n, s->patch_channels_last);
    if (s->blocks.bias.norm)
        t->pixel_norm.b = pixel_vector(l, ".bias", n, s->patch_channels_last);
}

/* The vector around an image of this role, or with encoder_spec.ends_row row `row` of the table. */
static float *load_end(struct loader *l, const struct encoder_spec *s, enum role role, uint32_t row)
{
    const struct encoder_linear *last = &s->project.linear[s->project.n_linears - 1];
    if (!s->ends_row)
        return host_vector(l, loader_table(l, role, NO_LAYER, "", s->width, 1));
    return host_vector(
        l, loader_rows(loader_table(l, last->role, NO_LAYER, ".weight", last->table, s->width), row,
                       1));
}

static void load_front(struct loader *l, struct tower *t)
{
    const struct encoder_spec *s = &t->spec;
    const uint32_t hidden = s->blocks.hidden;
    if (!s->of_features) {
        struct mat_part p =
            loader_table(l, W_PATCH, NO_LAYER, ".weight", hidden, tower_patch_floats(s));
        t->patch = s->patch_channels_last  ? pack_turned(l, p, 3, 1)
                   : s->patch_frames_first ? pack_turned(l, p, 3, s->patch * s->patch)
                                           : loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
    }
    if (s->pixel_norm)
        load_pixel_norm(l, t);
    if (s->patch_norm)
        t->patch_norm = loader_norm(l, W_PATCH_NORM, NO_LAYER);
    if (s->patch_norm && s->patch_bias)
        t->normed_bias = loader_bias(l, W_PATCH, NO_LAYER, hidden);
    else if (s->patch_bias)
        t->patch_bias = host_vector(l, loader_table(l, W_PATCH, NO_LAYER, ".bias", hidden, 1));
    if (s->positions)
        t->positions = host_vector(l, loader_table(l, W_PATCH_POSITIONS, NO_LAYER,
                                                   s->plain_positions ? "" : ".weight",
                                                   tower_position_rows(s), hidden));
    if (encoder_leading(s))
        t->leading = host_vector(l, loader_table(l, W_CLASS_TOKEN, NO_LAYER, "",
                                                 (int64_t)encoder_leading(s) * hidden, 1));
    if (s->pool_standard) {
        t->pool_bias = host_vector(l, loader_table(l, W_POOL_BIAS, NO_LAYER, "", hidden, 1));
        t->pool_scale = host_vector(l, loader_table(l, W_POOL_SCALE, NO_LAYER, "", hidden, 1));
    }
    for (uint32_t i = 0; i < s->queries.n; i++)
        t->queries[i] = host_vector(l, loader_table(l, s->queries.role[i], NO_LAYER, ".weight",
                                                    s->queries.rows[i], hidden));
    if (s->image_end)
        t->image_end = load_end(l, s, W_IMAGE_END, s->ends_row + 1);
    if (s->image_begin)
        t->image_begin = load_end(l, s, W_IMAGE_BEGIN, s->ends_row);
    if (s->tiles_joined && !s->ends_projected)
        t->row_end = host_vector(l, loader_table(l, W_ROW_END, NO_LAYER, "", s->width, 1));
}

/* The norm after the projection, of one vector in host memory. */
static void norm_after(const struct encoder_projection *p, const float *w, float *x, uint32_t n)
{
    double squares = 0;
    for (uint32_t i = 0; i < n; i++)
        squares += (double)x[i] * x[i];
    const double by = 1 / sqrt(squares / n + p->after_eps);
    for (uint32_t i = 0; i < n; i++)
        x[i] = (float)(x[i] * by) * w[i];
}

/* The last matrix' output for the vector that stands for the end of a row. */
static float *project_end(struct loader *l, const struct tower *t)
{
    const struct encoder_projection *p = &t->spec.project;
    const struct encoder_linear *m = &p->linear[p->n_linears - 1];
    const uint32_t rows = t->spec.width, cols = m[-1].rows;
    float *w = host_vector(l, loader_table(l, m->role, NO_LAYER, ".weight", rows, cols));
    float *out = host_vector(l, loader_table(l, m->role, NO_LAYER, ".bias", rows, 1));
    float *end = host_vector(l, loader_table(l, W_ROW_END, NO_LAYER, "", cols, 1));
    for (size_t r = 0; w && out && end && r < rows; r++) {
        double sum = out[r];
        for (size_t i = 0; i < cols; i++)
            sum += (double)w[r * cols + i] * end[i];
        out[r] = (float)sum;
    }
    free(w), free(end);
    return out;
}

/* encoder_spec.ends_projected: computed once, since they are the same in every picture. */
static void load_ends(struct loader *l, struct tower *t)
{
    const struct encoder_projection *p = &t->spec.project;
    const uint32_t n = t->spec.width;
    t->row_end = project_end(l, t);
    float *w = host_vector(l, loader_table(l, p->after_role, NO_LAYER, ".weight", n, 1));
    float *const ends[] = {t->row_end, t->image_begin, t->image_end};
    for (int i = 0; w && i < 3; i++)
        if (ends[i])
            norm_after(p, w, ends[i], n);
    free(w);
}

int tower_take_weights(struct tower *t, const struct arch *names, const struct checkpoint *c,
                       struct err *e)
{
    struct stored how = {
        0}; /* quantised checkpoints store towers plain; projectors may be packed */
    if (c && c->gguf.set.n && stored_read(&how, c->dir, e))
        return -1;
    struct loader l = {.d = &t->d, .a = names, .c = c, .how = &how, .e = e};
    if (t->spec.conv.n) {
        tower_conv_load(&l, t);
    } else {
        if (t->spec.may_lack_scales && c)
            t->d.spec.sub_scale = loader_has_named(&l, W_ATTN_SCALE, 0);
        if (decoder_load(&t->d, names, c, &how, e))
            return -1;
        load_front(&l, t);
    }
    if (t->spec.joint.tiles)
        tower_joint_load(&l, t);
    else
        load_projection(&l, &t->project, &t->spec.project, NO_LAYER);
    if (t->spec.resample.latents)
        tower_resample_load(&l, t);
    if (t->spec.ends_projected)
        load_ends(&l, t);
    for (uint32_t i = 0; i < t->spec.n_levels; i++)
        load_projection(&l, &t->level[i], &t->spec.level, (int)i);
    loader_drop(&l);
    return l.failed ? -1 : 0;
}

static void free_projection(struct decoder *d, struct tower_projection *p)
{
    layer_free_norm(d, &p->norm);
    layer_free_norm(d, &p->middle_norm);
    layer_free_norm(d, &p->after);
    layer_free_weight(d, p->mean);
    d->ops->free(d->dev, p->places);
    for (int i = 0; i < ENCODER_MAX_LINEARS; i++) {
        layer_free_weight(d, p->w[i]);
        d->ops->free(d->dev, p->bias[i]);
    }
}

void tower_release_weights(struct tower *t)
{
    layer_free_weight(&t->d, t->patch);
    layer_free_norm(&t->d, &t->pixel_norm);
    layer_free_norm(&t->d, &t->patch_norm);
    t->d.ops->free(t->d.dev, t->normed_bias);
    free_projection(&t->d, &t->project);
    for (int i = 0; i < ENCODER_MAX_LEVELS; i++)
        free_projection(&t->d, &t->level[i]);
    free(t->patch_bias), free(t->positions), free(t->leading), free(t->row_end);
    free(t->pool_bias), free(t->pool_scale), free(t->image_end), free(t->image_begin);
    for (int i = 0; i < ENCODER_MAX_QUERIES; i++)
        free(t->queries[i]);
    tower_joint_free(t);
    tower_resample_free(t);
    tower_conv_free_weights(t);
    decoder_free(&t->d);
}
