/* text_head.c - pooling and stages, computed for one text. */
#include "model-server/model/text/text_head.h"
#include <math.h>
#include <string.h>

enum { LANES = 16 };

/* ---------------------------------------------------------------- pooling */

unsigned text_head_row(const struct text_head *h)
{
    return h->pooling == POOL_CLS || h->pooling == POOL_LAST ? h->pooling : 0;
}

static void copy_row(float *y, const float *x, uint32_t hidden)
{
    memcpy(y, x, hidden * sizeof(*y));
}

/* y = sum of rows from `skip` on, each times its position from 1 on if `weighted`, over
 * `divisor`. */
static void sum_rows(float *y, const float *rows, uint32_t n, uint32_t skip, uint32_t hidden,
                     bool weighted, float divisor)
{
    memset(y, 0, hidden * sizeof(*y));
    for (uint32_t i = skip; i < n; i++) {
        const float *x = rows + (size_t)i * hidden, w = weighted ? (float)(i + 1) : 1;
        for (uint32_t k = 0; k < hidden; k++)
            y[k] += x[k] * w;
    }
    for (uint32_t k = 0; k < hidden; k++)
        y[k] /= divisor;
}

static void max_rows(float *y, const float *rows, uint32_t n, uint32_t skip, uint32_t hidden)
{
    copy_row(y, rows + (size_t)skip * hidden, hidden);
    for (uint32_t i = skip + 1; i < n; i++)
        for (uint32_t k = 0; k < hidden; k++) {
            const float x = rows[(size_t)i * hidden + k];
            y[k] = x > y[k] ? x : y[k];
        }
}

static void pool(const struct text_head *h, unsigned mode, const float *rows, uint32_t n,
                 uint32_t skip, float *y)
{
    const uint32_t hidden = h->hidden;
    const bool one = text_head_row(h) != 0; /* rows is it */
    const float count = (float)(n - skip);
    if (mode == POOL_CLS || mode == POOL_LAST)
        copy_row(y, rows + (one ? 0 : (size_t)(mode == POOL_LAST ? n - 1 : skip) * hidden), hidden);
    else if (mode == POOL_MAX)
        max_rows(y, rows, n, skip, hidden);
    else if (mode == POOL_WEIGHTED)
        sum_rows(y, rows, n, skip, hidden, true,
                 ((float)n * (float)(n + 1) - (float)skip * (float)(skip + 1)) / 2);
    else
        sum_rows(y, rows, n, skip, hidden, false, mode == POOL_MEAN ? count : sqrtf(count));
}

/* ---------------------------------------------------------------- stages */

static float dot(const float *a, const float *b, uint32_t n)
{
    float lane[LANES] = {0}, sum = 0;
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t k = 0; k < LANES; k++)
            lane[k] += a[i + k] * b[i + k];
    for (uint32_t k = 0; k < LANES; k++)
        sum += lane[k];
    for (; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static float activate(float x, enum head_act act)
{
    switch (act) {
    case HEAD_TANH:
        return tanhf(x);
    case HEAD_GELU:
        return x * 0.5F * (1 + erff(x * 0.70710678F));
    case HEAD_GELU_TANH:
        return x * 0.5F * (1 + tanhf(0.79788456F * (x + 0.044715F * x * x * x)));
    case HEAD_RELU:
        return x > 0 ? x : 0;
    case HEAD_SIGMOID:
        return 1 / (1 + expf(-x));
    case HEAD_SILU:
        return x / (1 + expf(-x));
    case HEAD_ELU:
        return x > 0 ? x : expm1f(x);
    case HEAD_PLAIN:
        break;
    }
    return x;
}

static void layer_norm(float *x, const float *w, const float *b, uint32_t n, float eps)
{
    float mean = 0, square = 0;
    for (uint32_t i = 0; i < n; i++)
        mean += x[i];
    mean /= (float)n;
    for (uint32_t i = 0; i < n; i++)
        square += (x[i] - mean) * (x[i] - mean);
    const float scale = 1 / sqrtf(square / (float)n + eps);
    for (uint32_t i = 0; i < n; i++)
        x[i] = (x[i] - mean) * scale * w[i] + (b ? b[i] : 0);
}

/* As sentence-transformers' Normalize. */
static void to_unit(float *x, uint32_t n)
{
    const float length = sqrtf(dot(x, x, n));
    for (uint32_t i = 0; i < n; i++)
        x[i] /= length > 1e-12F ? length : 1e-12F;
}

static void run_stage(const struct head_stage *s, float *x, float *y)
{
    if (s->unit)
        to_unit(x, s->in);
    if (!s->w)
        copy_row(y, x, s->out);
    for (uint32_t i = 0; s->w && i < s->out; i++)
        y[i] = activate(dot(s->w + (size_t)i * s->in, x, s->in) + (s->b ? s->b[i] : 0), s->act);
    for (uint32_t i = 0; s->residual && i < s->out; i++)
        y[i] += s->r ? dot(s->r + (size_t)i * s->in, x, s->in) : x[i];
    if (s->norm)
        layer_norm(y, s->norm, s->norm_b, s->out, s->norm_eps);
}

static uint32_t widest(const struct text_head *h)
{
    const uint32_t rows = h->pooling ? (uint32_t)__builtin_popcount(h->pooling) : 1;
    uint32_t most = h->hidden * rows;
    for (uint32_t i = 0; i < h->n_stages; i++)
        most = h->stages[i].out > most ? h->stages[i].out : most;
    return most;
}

size_t text_head_work(const struct text_head *h) { return (size_t)2 * widest(h); }

/* The first n; x and y have room for the widest. */
static void run_stages(const struct text_head *h, uint32_t n, float *x, float *y, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        run_stage(&h->stages[i], x, y);
        float *was = x;
        x = y;
        y = was;
    }
    memcpy(out, x, (n ? h->stages[n - 1].out : h->width) * sizeof(*out));
}

void text_head_run(const struct text_head *h, const float *rows, uint32_t n, uint32_t skip,
                   float *out, float *work)
{
    const unsigned alone[POOL_MODES] = {h->pooling};
    const unsigned *mode = h->order[0] ? h->order : alone;
    float *x = work, *y = work + widest(h), *to = x;
    skip = skip < n ? skip : 0;
    for (int i = 0; i < POOL_MODES && mode[i]; i++, to += h->hidden)
        pool(h, mode[i], rows, n, skip, to);
    run_stages(h, h->n_stages, x, y, out);
}

void text_head_tokens(const struct text_head *h, const float *rows, uint32_t n, float *out,
                      float *work)
{
    for (uint32_t i = 0; i < n; i++) {
        copy_row(work, rows + (size_t)i * h->hidden, h->hidden);
        run_stages(h, h->row_stages, work, work + widest(h), out + (size_t)i * h->row_width);
    }
}

/* ---------------------------------------------------------------- sparse */

static float damped(const struct text_head *h, float x)
{
    x = x > 0 ? log1pf(x) : 0;
    return h->sparse_twice ? log1pf(x) : x;
}

/* The greatest of increasing functions is that of the greatest logit. */
void text_head_add_logits(const struct text_head *h, const float *logits, float *out)
{
    if (h->sparse == SPARSE_FILL)
        memcpy(out, logits, h->width * sizeof(*out));
    for (uint32_t k = 0; h->sparse == SPARSE_MAX && k < h->width; k++)
        out[k] = logits[k] > out[k] ? logits[k] : out[k];
    for (uint32_t k = 0; h->sparse == SPARSE_SUM && k < h->width; k++)
        out[k] += damped(h, logits[k]);
}

void text_head_end_logits(const struct text_head *h, float *out)
{
    for (uint32_t k = 0; h->sparse == SPARSE_MAX && k < h->width; k++)
        out[k] = damped(h, out[k]);
}

static bool is_special(const struct text_head *h, uint32_t id)
{
    for (uint32_t i = 0; i < h->n_special; i++)
        if (h->special[i] == id)
            return true;
    return false;
}

void text_head_lexical(const struct text_head *h, const float *rows, const uint32_t *ids,
                       uint32_t n, float *out)
{
    const struct head_stage *s = &h->stages[0];
    memset(out, 0, h->width * sizeof(*out));
    for (uint32_t i = 0; i < n; i++) {
        const float x = dot(s->w, rows + (size_t)i * h->hidden, h->hidden) + (s->b ? s->b[0] : 0);
        if (!is_special(h, ids[i]) && x > out[ids[i]])
            out[ids[i]] = x;
    }
}
