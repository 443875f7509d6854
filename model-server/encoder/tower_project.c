/* tower_project.c - the projection of the transformer's rows to features, and the averages that
 * some towers compute before it. */
#include "model-server/encoder/tower_impl.h"
#include <assert.h>

/* Most rows that are projected at once, and numbers of a matrix' outputs for them. */
enum { PROJECT_ROWS = 1024, PROJECT_FLOATS = 1 << 23 };

uint32_t tower_widest(const struct encoder_projection *p)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i + 1 < p->n_linears; i++) {
        const uint32_t n = p->linear[i].rows * encoder_rows_of(p, i);
        most = n > most ? n : most;
    }
    return p->plus_mean && p->linear[p->n_linears - 1].rows > most
               ? p->linear[p->n_linears - 1].rows
               : most;
}

uint32_t tower_project_rows(const struct tower *t)
{
    const uint32_t a = tower_widest(&t->spec.project);
    const uint32_t b = t->spec.n_levels ? tower_widest(&t->spec.level) : 0, most = a > b ? a : b;
    const uint32_t rows = PROJECT_FLOATS / (most ? most : 1);
    return rows > PROJECT_ROWS ? PROJECT_ROWS : rows > 16 ? rows : 16;
}

/* Projects `tokens` patches, at most tower_project_rows() rows, to features from number `nth` of
 * the pass on. */
static void project_some(struct tower *t, const struct tower_projection *p, const float *x,
                         uint32_t tokens, uint32_t nth, float *y)
{
    const struct encoder_projection *s = p->spec;
    const struct backend_ops *ops = t->d.ops;
    const uint32_t hidden = t->spec.blocks.hidden;
    const float *joined = x;
    uint32_t cols = hidden * s->join, rows = tokens / s->join;
    if (s->norm) {
        ops->norm(t->d.dev, t->normed, x, s->norm_joined ? rows : tokens,
                  s->norm_joined ? cols : hidden, &p->norm);
        x = t->normed;
    }
    if (!s->n_linears)
        ops->beside(t->d.dev, y, x, NULL, rows, cols);
    for (uint32_t i = 0; i < s->n_linears; i++) {
        float *to = i + 1 == s->n_linears ? y : t->middle[i & 1];
        if (s->linear[i].join) {
            rows /= s->linear[i].join;
            cols *= s->linear[i].join;
        }
        if (s->linear[i].norm_before) /* x is the output of the matrix before */
            ops->norm(t->d.dev, t->middle[(i - 1) & 1], x, rows, cols, &p->middle_norm);
        if (s->linear[i].softmax_before)
            ops->softmax(t->d.dev, t->middle[(i - 1) & 1], rows, cols);
        if (s->linear[i].act_before)
            ops->act(t->d.dev, t->middle[(i - 1) & 1], rows, cols, s->act);
        ops->linear(t->d.dev, to, x, rows, p->w[i], p->bias[i]);
        x = to;
        cols = s->linear[i].rows;
        if (s->sines && i == 0)
            ops->add_norm(t->d.dev, NULL, to,
                          p->places + (size_t)(nth % (s->sines * s->sines)) * cols, 1, rows, cols,
                          NULL);
        if (s->linear[i].gated) {
            cols /= 2;
            ops->act_mul(t->d.dev, t->middle[(i + 1) & 1], to, rows, cols, s->gate_act);
            x = t->middle[(i + 1) & 1];
        }
    }
    if (s->plus_mean) {
        ops->linear(t->d.dev, t->middle[0], joined, rows, p->mean, NULL);
        ops->add_norm(t->d.dev, NULL, y, t->middle[0], 1, rows, cols, NULL);
    }
    if (s->after_eps != 0)
        ops->norm(t->d.dev, y, y, rows, cols, &p->after);
}

void tower_project(struct tower *t, const struct tower_projection *p, const float *x,
                   uint32_t first, uint32_t tokens, float *y)
{
    const uint32_t join = encoder_patches_of(p->spec), most = tower_project_rows(t) * join;
    assert(first % join == 0 && tokens % join == 0);
    for (uint32_t at = 0, some; at < tokens; at += some) {
        some = tokens - at < most ? tokens - at : most;
        project_some(t, p, x + (size_t)at * t->spec.blocks.hidden, some, (first + at) / join,
                     y + (size_t)((first + at) / join) * t->spec.width);
    }
}

void tower_side(struct tower *t, uint32_t layer, const float *x, uint32_t first, uint32_t n)
{
    const struct encoder_spec *s = &t->spec;
    const size_t hidden = s->blocks.hidden, each = t->work.batch.n_tokens * hidden;
    for (uint32_t i = 0; i < s->n_sides; i++)
        if (s->side_at[i] == layer)
            t->d.ops->beside(t->d.dev, t->sides + i * each + first * hidden, x, NULL, n,
                             s->blocks.hidden);
}

/* Brings the layers' results of `n` rows of features, from the one numbered `first`, side by side,
 * and projects them. No layer runs in the step, so that out_rows need no order. */
static int project_some_sides(struct tower *t, uint32_t first, uint32_t n, struct err *e)
{
    const struct encoder_spec *s = &t->spec;
    const struct ragged *pass = &t->work.batch;
    const struct span span = {.n = n, .kv_len = n, .blocks = t->blocks};
    const struct ragged b = {.n_tokens = n,
                             .n_spans = 1,
                             .n_out = n * s->n_sides,
                             .ids = t->ids,
                             .pos = t->pos,
                             .slots = t->slots,
                             .spans = &span,
                             .out_rows = t->side_rows};
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t row = pass->n_out ? pass->out_rows[first + i] : first + i;
        for (uint32_t k = 0; k < s->n_sides; k++)
            t->side_rows[i * s->n_sides + k] = k * pass->n_tokens + row;
    }
    if (t->d.ops->step_begin(t->d.dev, &b, e))
        return -1;
    t->d.ops->gather_out(t->d.dev, t->joined, t->sides, s->blocks.hidden);
    project_some(t, &t->project, t->joined, b.n_out, first,
                 t->features[0] + (size_t)first * s->width);
    return t->d.ops->step_end(t->d.dev, e);
}

int tower_project_sides(struct tower *t, struct err *e)
{
    const struct ragged *pass = &t->work.batch;
    const uint32_t rows = pass->n_out ? pass->n_out : pass->n_tokens;
    const uint32_t most = tower_project_rows(t);
    for (uint32_t at = 0, some; at < rows; at += some) {
        some = rows - at < most ? rows - at : most;
        if (project_some_sides(t, at, some, e))
            return -1;
    }
    return 0;
}

/* Replaces the `each` rows of n floats of every cell by their mean; the results are rows[cells]. */
static void average(float *rows, uint32_t cells, uint32_t each, uint32_t n)
{
    for (uint32_t c = 0; c < cells; c++)
        for (uint32_t i = 0; i < n; i++) {
            float sum = 0;
            for (uint32_t k = 0; k < each; k++)
                sum += rows[((size_t)c * each + k) * n + i];
            rows[(size_t)c * n + i] = sum / (float)each;
        }
}

/* Scales and standardises the means (pool_scale, pool_standard). */
static void standardise(const struct tower *t, float *rows, uint32_t n)
{
    const uint32_t hidden = t->spec.blocks.hidden;
    for (uint32_t r = 0; t->spec.pool_scale != 0 && r < n; r++)
        for (uint32_t i = 0; i < hidden; i++) {
            float *x = rows + (size_t)r * hidden + i;
            *x *= t->spec.pool_scale;
            if (t->pool_bias)
                *x = (*x - t->pool_bias[i]) * t->pool_scale[i];
        }
}

int tower_project_means(struct tower *t, uint32_t tokens, struct err *e)
{
    struct decoder *d = &t->d;
    const uint32_t each = t->spec.cell * t->spec.cell, n = tokens / each;
    const struct span span = {.n = n, .kv_len = n, .blocks = t->blocks};
    const struct ragged b = {.n_tokens = n,
                             .n_spans = 1,
                             .ids = t->ids,
                             .pos = t->pos,
                             .slots = t->slots,
                             .spans = &span};
    average(t->host, n, each, t->spec.blocks.hidden);
    standardise(t, t->host, n);
    if (d->ops->upload(d->dev, t->added, t->host, (size_t)n * t->spec.blocks.hidden * sizeof(float),
                       e) ||
        d->ops->step_begin(d->dev, &b, e))
        return -1;
    tower_project(t, &t->project, t->added, 0, n, t->features[0]);
    return d->ops->step_end(d->dev, e);
}
