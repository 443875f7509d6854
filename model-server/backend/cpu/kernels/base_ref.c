/* base_ref.c - the reference of each kernel: plain C, one number at a time, in the guaranteed
 * order. This file is the specification and is never optimised; it also serves machines without
 * AVX2. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/cpu/kernels/ref.inc.h"
#include "model-server/backend/mathf.h"

/* ---------------------------------------------------------------- panels */

/* Element (i, k) of a panel. */
static float panel_at(const void *panel, enum dtype t, uint32_t i, uint32_t k)
{
    if (t == DT_BF16)
        return number_at(panel, t, (int64_t)(k / 2) * 2 * LANES + 2 * (int64_t)i + k % 2);
    return number_at(panel, t, (int64_t)k * LANES + i);
}

static void tile(const struct tile *t, enum dtype type)
{
    uint32_t xs = tile_stride(t->rows);
    for (uint32_t i = 0; i < t->n; i++) {
        const void *panel = (const char *)t->w + i / LANES * t->w_bytes;
        for (uint32_t r = 0; r < t->rows; r++) {
            float *y = &t->y[r * t->ldy + i], acc = t->add ? *y : 0.0f;
            for (uint32_t k = 0; k < t->k; k++)
                acc = fmaf(panel_at(panel, type, i % LANES, k), t->x[(size_t)k * xs + r], acc);
            *y = t->bias ? acc + t->bias[i] : acc;
        }
    }
}

void k_tile_f32_ref(const struct tile *t) { tile(t, DT_F32); }
void k_tile_f16_ref(const struct tile *t) { tile(t, DT_F16); }
void k_tile_bf16_ref(const struct tile *t) { tile(t, DT_BF16); }

void k_widen_codes_ref(float *dst, const char *panel, const struct code_layout *l, uint32_t k,
                       uint32_t n)
{
    for (uint32_t i = 0; i < n * LANES; i++)
        dst[i] = code_at(l, panel, i % LANES, k + i / LANES);
}

void k_dot_codes_ref(float *y, const float *x, const char *w, size_t w_bytes,
                     const struct code_layout *l, uint32_t n, uint32_t k)
{
    for (uint32_t i = 0; i < n; i++) {
        y[i] = 0.0f;
        for (uint32_t c = 0; c < k; c++)
            y[i] = fmaf(code_at(l, w + i / LANES * w_bytes, i % LANES, c), x[c], y[i]);
    }
}

/* One number of a pair: x is any row of pairs. */
static float bf16_at(const void *pairs, size_t i)
{
    return no_subnormal(number_at(pairs, DT_BF16, (int64_t)i));
}

void k_tile_bf16x2_ref(const struct tile *t)
{
    size_t xs = tile_stride(t->rows);
    for (uint32_t i = 0; i < t->n; i++) {
        const void *panel = (const char *)t->w + i / LANES * t->w_bytes;
        for (uint32_t r = 0; r < t->rows; r++) {
            float *y = &t->y[r * t->ldy + i], acc = t->add ? no_subnormal(*y) : 0.0f;
            for (size_t pair = 0; pair < ((size_t)t->k + 1) / 2; pair++)
                for (size_t half = 2; half--;) {
                    float w = bf16_at(panel, (pair * LANES + i % LANES) * 2 + half);
                    float x = bf16_at(t->x, (pair * xs + r) * 2 + half);
                    acc = no_subnormal(fmaf(w, x, acc));
                }
            *y = t->bias ? acc + t->bias[i] : acc;
        }
    }
}

void k_pack_ref(float *dst, const float *const *src, uint32_t rows, uint32_t n, float scale)
{
    uint32_t xs = tile_stride(rows);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t k = 0; k < n; k++)
            dst[(size_t)k * xs + r] = scale * src[r][k];
}

void k_widen_f16_ref(float *dst, const uint16_t *src, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        dst[i] = f32_of_f16(src[i]);
}

void k_widen_bf16_ref(float *dst, const uint16_t *src, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        dst[i] = f32_of_bf16(src[i]);
}

void k_narrow_f16_ref(uint16_t *dst, const float *src, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        dst[i] = f16_of_f32(src[i]);
}

void k_narrow_bf16_ref(uint16_t *dst, const float *src, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        dst[i] = bf16_of_f32(src[i]);
}

void k_pack_bf16x2_ref(float *dst, const float *const *src, uint32_t rows, uint32_t n)
{
    const uint32_t xs = tile_stride(rows);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t k = 0; k < n; k += 2) {
            const uint16_t pair[2] = {bf16_of_f32(src[r][k]),
                                      k + 1 < n ? bf16_of_f32(src[r][k + 1]) : 0};
            memcpy(dst + (size_t)(k / 2) * xs + r, pair, sizeof(pair));
        }
}

void k_split_bf16_ref(uint16_t *const dst[3], const float *src, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const float high = f32_of_bf16((uint16_t)(bits_of(src[i]) >> 16)); /* toward zero */
        const float rest = src[i] - high, middle = f32_of_bf16((uint16_t)(bits_of(rest) >> 16));
        const bool finite = isfinite(src[i]);
        dst[2][i] = finite ? (uint16_t)(bits_of(high) >> 16) : bf16_of_f32(src[i]);
        dst[1][i] = finite ? (uint16_t)(bits_of(middle) >> 16) : 0;
        dst[0][i] = finite ? (uint16_t)(bits_of(rest - middle) >> 16) : 0;
    }
}

/* ---------------------------------------------------------------- rows */

/* Sums of a row: element i goes to lane i % 16, in ascending order; the lanes are then folded in
 * halves: i with i + 8, i + 4, i + 2, i + 1. */
static float lane_sum(const float lanes[LANES])
{
    float a[LANES];
    memcpy(a, lanes, sizeof(a));
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            a[i] += a[i + half];
    return a[0];
}

void k_norm_rms_ref(float *y, const float *x, const float *w, const float *b, uint32_t n, float eps)
{
    float sq[LANES] = {0};
    for (uint32_t i = 0; i < n; i++)
        sq[i % LANES] = fmaf(x[i], x[i], sq[i % LANES]);
    float s = 1.0f / sqrtf(lane_sum(sq) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++)
        y[i] = b ? fmaf(x[i] * s, w[i], b[i]) : x[i] * s * w[i];
}

void k_norm_layer_ref(float *y, const float *x, const float *w, const float *b, uint32_t n,
                      float eps)
{
    float sum[LANES] = {0}, sq[LANES] = {0};
    for (uint32_t i = 0; i < n; i++)
        sum[i % LANES] += x[i];
    float mean = lane_sum(sum) / (float)n;
    for (uint32_t i = 0; i < n; i++)
        sq[i % LANES] = fmaf(x[i] - mean, x[i] - mean, sq[i % LANES]);
    float s = 1.0f / sqrtf(lane_sum(sq) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++)
        y[i] = b ? fmaf((x[i] - mean) * s, w[i], b[i]) : (x[i] - mean) * s * w[i];
}

float k_dot_ref(const float *x, const float *w, uint32_t n)
{
    float sum[4][LANES] = {{0}};
    for (uint32_t i = 0; i < n; i++) {
        float *at = &sum[i / LANES % 4][i % LANES];
        *at = fmaf(x[i], w[i], *at);
    }
    for (int i = 0; i < LANES; i++)
        sum[0][i] = (sum[0][i] + sum[1][i]) + (sum[2][i] + sum[3][i]);
    return lane_sum(sum[0]);
}

void k_axpy_ref(float *x, const float *r, float a, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = fmaf(a, r[i], x[i]);
}

void k_act_ref(float *y, const float *x, const float *m, uint32_t n, enum act kind)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = m ? math_gate(x[i], m[i], kind) : math_act(x[i], kind);
}

void k_soft_cap_ref(float *x, uint32_t n, float scale, float cap)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = math_soft_cap(x[i], scale, cap);
}

/* ---------------------------------------------------------------- attention */

float k_row_max_ref(const float *x, uint32_t n)
{
    float m = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m;
}

float k_exp_sum_ref(float *x, uint32_t n, float max)
{
    float sum[LANES] = {0};
    for (uint32_t i = 0; i < n; i++) {
        x[i] = math_exp_neg(x[i] - max);
        sum[i % LANES] += x[i];
    }
    return lane_sum(sum);
}

void k_merge_ref(float *o, const float *p, float a, float b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        o[i] = fmaf(p[i], b, o[i] * a);
}

void k_rotate_ref(float *v, const float *rope, uint32_t rot, bool interleaved)
{
    uint32_t half = rot / 2;
    for (uint32_t i = 0; i < half; i++) {
        float *a = &v[interleaved ? 2 * i : i], *b = &v[interleaved ? 2 * i + 1 : i + half];
        float c = rope[i], s = rope[half + i], x = *a, y = *b;
        *a = fmaf(-y, s, x * c);
        *b = fmaf(x, s, y * c);
    }
}

/* ---------------------------------------------------------------- recurrent layers */

void k_gate_ref(float *x, const float *g, uint32_t n, bool sigmoid)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] *= sigmoid ? math_sigmoid(g[i]) : g[i];
}

void k_conv_row_ref(float *y, const float *const *x, const float *w, size_t stride,
                    const float *bias, uint32_t width, uint32_t n)
{
    for (uint32_t c = 0; c < n; c++) {
        float sum = bias ? bias[c] : 0.0f;
        for (uint32_t j = 0; j < width; j++)
            sum = fmaf(w[j * stride + c], x[j][c], sum);
        y[c] = sum;
    }
}

static void scan_ref(const struct recur_step *t)
{
    for (uint32_t j = 0; j < t->n; j++) {
        const size_t at = j / LANES * t->panel + j % LANES;
        const float d = t->steps[j], u = d * t->v[j];
        float o = 0.0f;
        for (uint32_t i = 0; i < t->keys; i++) {
            const float decay = math_exp(t->rates[i * t->rate_stride + j] * d);
            float *s = &t->s[at + (size_t)i * LANES];
            *s = fmaf(t->k[i], u, decay * t->from[at + (size_t)i * LANES]);
            o = fmaf(t->q[i], *s, o);
        }
        t->o[j] = fmaf(t->skip[j], t->v[j], o);
    }
}

/* With `erase`. */
static void rwkv_ref(const struct recur_step *t)
{
    for (uint32_t j = 0; j < t->n; j++) {
        const float *from = t->from + j / LANES * t->panel + j % LANES;
        float *s = t->s + j / LANES * t->panel + j % LANES, o = 0.0f, erased = 0.0f;
        for (uint32_t i = 0; i < t->keys; i++)
            erased = fmaf(t->erase[i], from[(size_t)i * LANES], erased);
        for (uint32_t i = 0; i < t->keys; i++) {
            const size_t at = (size_t)i * LANES;
            s[at] = fmaf(-t->put[i], erased, fmaf(t->k[i], t->v[j], t->decays[i] * from[at]));
            o = fmaf(t->q[i], s[at], o);
        }
        t->o[j] = o;
    }
}

void k_recur_ref(const struct recur_step *t)
{
    if (t->rates || t->erase) {
        if (t->rates)
            scan_ref(t);
        else
            rwkv_ref(t);
        return;
    }
    for (uint32_t j = 0; j < t->n; j++) {
        const size_t at = j / LANES * t->panel + j % LANES;
        float u = t->v[j], o = 0.0f, known = 0.0f;
        for (uint32_t i = 0; t->delta && i < t->keys; i++)
            known = fmaf(t->decays ? t->k[i] * t->decays[i] : t->k[i],
                         t->from[at + (size_t)i * LANES], known);
        if (t->delta)
            u = fmaf(t->decays ? -1.0f : -t->decay, known, u);
        u *= t->beta;
        for (uint32_t i = 0; i < t->keys; i++) {
            const float decay = t->decays ? t->decays[i] : t->decay;
            float *s = &t->s[at + (size_t)i * LANES];
            *s = fmaf(t->k[i], u, decay * t->from[at + (size_t)i * LANES]);
            o = fmaf(t->q[i], *s, o);
        }
        t->o[j] = t->skip ? fmaf(*t->skip, t->v[j], o) : o;
    }
}
