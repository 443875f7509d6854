/* other.c - ids whose embeddings are not in the text model's table: those of other media
 * have a narrower table, a norm, a matrix and a norm without weights (Gemma 3n), or are rows of the
 * tower's table (Ovis 2).
 *
 * They are the same for every token, so they are computed when the model is loaded. What is kept is
 * the difference from the row that the text model's table has for the id, which is added to it: so
 * ids that only the device has are looked up in the same way. Every rank has all of them. */
#include "model-server/backend/numbers.h"
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader/loader.h"
#include <math.h>
#include <stdlib.h>

static void to_numbers(struct loader *l, struct mat_part p, float *out)
{
    loader_numbers(l, &p);
    for (int64_t r = 0; p.data && r < p.rows; r++)
        for (int64_t i = 0; i < p.cols; i++)
            out[r * p.cols + i] = number_at(p.data, p.dtype, r * p.row_stride + i * p.col_stride);
    loader_drop(l);
}

/* x * w / rms(x); w NULL: without weights. */
static void rms_norm(float *x, const float *w, uint32_t n, float eps)
{
    double squares = 0;
    for (uint32_t i = 0; i < n; i++)
        squares += (double)x[i] * x[i];
    const double by = 1 / sqrt(squares / n + (double)eps);
    for (uint32_t i = 0; i < n; i++)
        x[i] = (float)(x[i] * by) * (w ? w[i] : 1);
}

static float dot(const float *a, const float *b, uint32_t n)
{
    enum { CHAINS = 8 };
    float sum[CHAINS] = {0}, all = 0;
    for (uint32_t i = 0; i + CHAINS <= n; i += CHAINS)
        for (int k = 0; k < CHAINS; k++)
            sum[k] += a[i + k] * b[i + k];
    for (uint32_t i = n - n % CHAINS; i < n; i++)
        all += a[i] * b[i];
    for (int k = 0; k < CHAINS; k++)
        all += sum[k];
    return all;
}

/* The rows of one table that threads share. */
struct rows_job {
    const struct other_embeds *of;
    float *table, *weights, *matrix; /* [n][width], [width], [hidden][width] */
    float *out;                      /* [n][hidden] */
    uint32_t hidden;
};

static void make_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct rows_job *j = arg;
    const uint32_t width = j->of->width;
    (void)thread;
    for (size_t r = begin; r < end; r++) {
        float *x = j->table + r * width, *y = j->out + r * j->hidden;
        rms_norm(x, j->weights, width, j->of->eps);
        for (uint32_t i = 0; i < j->hidden; i++)
            y[i] = dot(x, j->matrix + (size_t)i * width, width);
        rms_norm(y, NULL, j->hidden, j->of->eps);
    }
}

/* The embeddings of table `k`, which are its rows, to out[n][hidden]. */
static void load_bare(struct loader *l, int k, float *out)
{
    const struct other_embeds *of = &l->d->spec.other[k];
    if (of->vector) {
        const struct mat_part p = loader_table(l, W_SIGHT_EMBED, NO_LAYER, "", of->width, 1);
        if (!l->failed)
            to_numbers(l, p, out);
        return;
    }
    const struct mat_part p =
        loader_part(l, W_SIGHT_EMBED, NO_LAYER, NO_EXPERT, false, of->rows, of->width);
    if (!l->failed)
        to_numbers(l, loader_rows(p, of->skip, of->n), out);
}

/* The embeddings of table `k`, to out[n][hidden]. */
static void load_rows(struct loader *l, int k, float *out)
{
    enum { ROLES = W_SOUND_EMBED - W_SIGHT_EMBED };
    const struct decoder *d = l->d;
    const struct other_embeds *of = &d->spec.other[k];
    const size_t n = of->n, width = of->width, hidden = d->spec.hidden;
    float *const work = calloc((n + 1 + hidden) * width, sizeof(*work));
    if (!work) {
        loader_nomem(l);
        return;
    }
    struct rows_job j = {.of = of,
                         .table = work,
                         .weights = work + n * width,
                         .matrix = work + (n + 1) * width,
                         .out = out,
                         .hidden = d->spec.hidden};
    struct mat_part p =
        loader_part(l, W_SIGHT_EMBED + k * ROLES, NO_LAYER, NO_EXPERT, false, of->rows, of->width);
    if (!l->failed)
        to_numbers(l, loader_rows(p, of->skip, of->n), j.table);
    p = loader_table(l, W_SIGHT_NORM + k * ROLES, NO_LAYER, ".weight", of->width, 1);
    if (!l->failed)
        to_numbers(l, p, j.weights);
    p = loader_part(l, W_SIGHT_PROJECT + k * ROLES, NO_LAYER, NO_EXPERT, false, d->spec.hidden,
                    of->width);
    if (!l->failed)
        to_numbers(l, p, j.matrix);
    if (!l->failed && d->ops->host_run)
        d->ops->host_run(d->dev, make_rows, &j, n);
    else if (!l->failed)
        make_rows(&j, 0, 0, n);
    free(work);
}

/* A number of the text model's table as the device has it. */
static float stored_as(enum dtype t, float x)
{
    return t == DT_BF16 ? f32_of_bf16(bf16_of_f32(x)) : t == DT_F16 ? f32_of_f16(f16_of_f32(x)) : x;
}

void decoder_other_load(struct loader *l)
{
    struct decoder *d = l->d;
    const struct decoder_spec *s = &d->spec;
    if (!s->n_other || d->sample)
        return;
    const struct other_embeds *last = &s->other[s->n_other - 1];
    const uint32_t first = s->other[0].first, n = last->first + last->n - first;
    float *rows = calloc((size_t)n * s->hidden, sizeof(*rows));
    float *usual = calloc((size_t)n * s->hidden, sizeof(*usual));
    if (!rows || !usual) {
        free(rows), free(usual);
        loader_nomem(l);
        return;
    }
    for (uint32_t k = 0; k < s->n_other && !l->failed; k++) {
        float *const to = rows + (size_t)(s->other[k].first - first) * s->hidden;
        if (s->other[k].bare)
            load_bare(l, (int)k, to);
        else
            load_rows(l, (int)k, to);
    }
    struct mat_part p = loader_part(l, W_EMBED, NO_LAYER, NO_EXPERT, false, s->vocab, s->hidden);
    if (!l->failed)
        to_numbers(l, loader_rows(p, first, n), usual);
    for (size_t i = 0; !l->failed && i < (size_t)n * s->hidden; i++)
        rows[i] -= s->embed_scale * stored_as(d->dtype, usual[i]);
    d->other_embed = loader_host_matrix(l, rows, n, s->hidden);
    free(rows), free(usual);
}

void decoder_other_add(struct decoder *d, float *x, uint32_t t)
{
    if (!d->other_embed)
        return;
    d->ops->embed(d->dev, d->scratch.r, d->other_embed, d->spec.other[0].first, 1);
    d->ops->add_norm(d->dev, NULL, x, d->scratch.r, 1, t, d->spec.hidden, NULL);
}
