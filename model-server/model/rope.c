#include "model-server/model/rope.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_MAX_BYTES = 128 << 20, TABLE_UNBOUNDED = 32768 };

/* The dimension of a head that makes `rotations` rotations within the original length. */
static double yarn_dim(const struct rope_spec *s, double rotations)
{
    return s->dim * log(s->original / (rotations * 2 * M_PI)) / (2 * log(s->theta));
}

/* Long wavelengths are interpolated (divided by the factor), short ones kept, a ramp between. */
static void yarn(const struct rope_spec *s, float *inv)
{
    double low = yarn_dim(s, s->beta_fast), high = yarn_dim(s, s->beta_slow);
    if (s->truncate)
        low = floor(low), high = ceil(high);
    low = fmax(low, 0);
    high = fmin(high, s->dim - 1);
    if (low == high)
        high += 0.001;
    for (uint32_t i = 0; i < s->dim / 2; i++) {
        float ramp = (float)fmin(fmax((i - low) / (high - low), 0), 1);
        inv[i] = inv[i] / (float)s->factor * ramp + inv[i] * (1 - ramp);
    }
}

static void llama3(const struct rope_spec *s, float *inv)
{
    double low = s->original / s->low_freq, high = s->original / s->high_freq;
    for (uint32_t i = 0; i < s->dim / 2; i++) {
        double wavelength = 2 * M_PI / inv[i];
        double smooth = (s->original / wavelength - s->low_freq) / (s->high_freq - s->low_freq);
        if (wavelength > low)
            inv[i] = (float)(inv[i] / s->factor);
        else if (wavelength >= high)
            inv[i] = (float)((1 - smooth) * inv[i] / s->factor + smooth * inv[i]);
    }
}

void rope_inv_freq(const struct rope_spec *s, uint32_t length, float *inv)
{
    double base = s->theta;
    if (s->kind == ROPE_DYNAMIC && length > s->original)
        base *= pow(s->factor * length / s->original - (s->factor - 1), s->dim / (s->dim - 2.0));
    for (uint32_t i = 0; i < s->dim / 2; i++)
        inv[i] = 1 / (float)pow(base, 2 * (float)i / (float)s->dim);
    for (uint32_t i = 0; s->kind == ROPE_GRID && i < s->dim / 2; i++) {
        const uint32_t nth = i % (s->dim / (2 * s->runs));
        inv[i] = 1 / (float)pow(base, (float)(2 * s->runs * nth) / (float)s->dim);
    }
    for (uint32_t i = 0; s->kind == ROPE_GRID_TURNS && i < s->dim / 2; i++) {
        const uint32_t each = s->dim / 4, nth = 2 * (i % each) + i / each;
        inv[i] = 1 / (float)pow(base, 2 * (float)nth / (float)s->dim);
    }
    for (uint32_t i = 0; s->kind == ROPE_GRID_WOVEN && i < s->dim / 2; i++) {
        const uint32_t nth = i / 2;
        inv[i] = 1 / (float)pow(base, 4 * (float)nth / (float)s->dim);
    }
    if (s->kind == ROPE_YARN)
        yarn(s, inv);
    else if (s->kind == ROPE_LLAMA3)
        llama3(s, inv);
    for (uint32_t i = s->turning / 2; s->kind == ROPE_PARTIAL && i < s->dim / 2; i++)
        inv[i] = 0;
    for (uint32_t i = 0; i < s->dim / 2; i++) {
        if (s->kind == ROPE_LINEAR)
            inv[i] /= (float)s->factor;
        else if (s->kind == ROPE_LONGROPE)
            inv[i] /= length > s->original ? s->long_factor[i] : s->short_factor[i];
    }
}

bool rope_by_length(const struct rope_spec *s, uint32_t max_positions)
{
    return (s->kind == ROPE_DYNAMIC || s->kind == ROPE_LONGROPE) &&
           (max_positions == 0 || max_positions > s->original);
}

/* The angle is rounded to fp32 as in the reference: at position 10^5 the difference is
 * visible. */
static void row(const struct rope_spec *s, const float *inv, uint32_t pos, float *out)
{
    uint32_t half = s->dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        double angle = (float)pos * inv[i];
        out[i] = (float)(cos(angle) * s->attention_factor);
        out[half + i] = (float)(sin(s->backwards ? -angle : angle) * s->attention_factor);
    }
}

/* The row of `pos`, or NULL if the table does not contain it. */
static const float *lookup(const struct rope *r, struct rope_table *t, uint32_t pos)
{
    size_t dim = r->spec->dim;
    if (pos >= t->cap)
        return NULL;
    for (; t->n <= pos; t->n++)
        row(r->spec, t->inv, t->n, t->rows + t->n * dim);
    return t->rows + pos * dim;
}

/* Allocated once, so that no step allocates; its pages are not touched before they are filled. */
static void reserve(struct rope_table *t, size_t dim, uint32_t positions)
{
    size_t most = TABLE_MAX_BYTES / (dim * sizeof(float));
    t->cap = positions < most ? positions : (uint32_t)most;
    t->rows = malloc(t->cap * dim * sizeof(float));
    if (!t->rows)
        t->cap = 0;
}

void rope_init(struct rope *r, const struct rope_spec *spec, uint32_t max_positions)
{
    *r = (struct rope){.spec = spec};
    if (spec->kind == ROPE_NONE)
        return;
    rope_inv_freq(spec, 0, r->shorter.inv);
    rope_inv_freq(spec, UINT32_MAX, r->longer.inv);
    max_positions = max_positions ? max_positions : TABLE_UNBOUNDED;
    reserve(&r->shorter, spec->dim, max_positions);
    if (spec->kind == ROPE_LONGROPE)
        reserve(&r->longer, spec->dim, max_positions);
}

void rope_multiply(struct rope *r, const float *by)
{
    assert(r->spec->kind != ROPE_DYNAMIC && !r->shorter.n && !r->longer.n);
    for (uint32_t i = 0; i < r->spec->dim / 2; i++)
        r->shorter.inv[i] *= by[i], r->longer.inv[i] *= by[i];
}

void rope_free(struct rope *r)
{
    free(r->shorter.rows);
    free(r->longer.rows);
    *r = (struct rope){0};
}

/* The row of `pos`, from the table if it contains it. */
static void put_row(struct rope *r, struct rope_table *t, const float *inv, uint32_t pos,
                    float *out)
{
    const float *known = inv == t->inv ? lookup(r, t, pos) : NULL;
    if (known)
        memcpy(out, known, r->spec->dim * sizeof(float));
    else
        row(r->spec, inv, pos, out);
}

/* Each angle from the row of its axis' position. */
static void put_axes(struct rope *r, struct rope_table *t, const float *inv, const uint32_t axes[3],
                     uint32_t place, float *out)
{
    const struct rope_spec *s = r->spec;
    const uint32_t half = s->dim / 2, pos[] = {axes[0], axes[1], axes[2], place};
    const int n = s->by_place ? 4 : 3;
    float of[4][ROPE_MAX_DIM];
    bool same = true;
    for (int a = 1; a < n; a++)
        same &= pos[a] == pos[0];
    put_row(r, t, inv, pos[0], out);
    if (same)
        return;
    for (int a = 1; a < n; a++)
        put_row(r, t, inv, pos[a], of[a]);
    for (uint32_t i = 0; i < half; i++)
        if (s->axis[i]) {
            out[i] = of[s->axis[i]][i];
            out[half + i] = of[s->axis[i]][half + i];
        }
}

static void span_rows(struct rope *r, const struct ragged *b, const struct span *sp, float *out)
{
    const struct rope_spec *s = r->spec;
    float grown[ROPE_MAX_DIM / 2];
    uint32_t length = sp->seq_len > sp->kv_len ? sp->seq_len : sp->kv_len;
    bool longer = s->kind == ROPE_LONGROPE && length > s->original;
    struct rope_table *t = longer ? &r->longer : &r->shorter;
    const float *inv = t->inv;
    if (s->kind == ROPE_DYNAMIC &&
        length > s->original) { /* another base for every length: not stored */
        rope_inv_freq(s, length, grown);
        inv = grown;
    }
    for (uint32_t i = sp->first; i < sp->first + sp->n; i++) {
        float *dst = out + (size_t)i * s->dim;
        if (s->has_axes && b->axes)
            put_axes(r, t, inv, b->axes[i], b->pos[i], dst);
        else
            put_row(r, t, inv, b->pos[i] > s->behind ? b->pos[i] - s->behind : 0, dst);
    }
}

void rope_rows(struct rope *r, const struct ragged *b, float *out)
{
    for (uint32_t i = 0; i < b->n_spans; i++)
        span_rows(r, b, &b->spans[i], out);
}
