/* simd.inc.h - the kernels in vectors of 16 lanes, once for all instruction sets. The
 * including file defines the vector (v16, i16 and their operations), ISA(op) for the names, and
 * how many sums fit its registers: ROWS_MAX rows of x by PANELS(rows) panels. Each operation
 * computes the same as in base_ref.c: only exactly rounded steps, in the same order. */
#include <string.h>

/* ---------------------------------------------------------------- panels */

enum panel { PANEL_F32, PANEL_F16, PANEL_BF16, PANEL_INT8, PANEL_FP8, PANEL_BF16X2 };

/* Byte `which` of each lane minus 128: the byte becomes the integer part of a number whose
 * fraction bits are zero. */
INLINE v16 from_int8(i16 quad, int which)
{
    if (which >= 2)
        quad = i_shr(quad, 16);
    if (which % 2)
        return v_sub(i_float(i_and_or(quad, i_set(0xff00), i_set(0x47000000))),
                     v_set(0x1p15f + 128.0f));
    return v_sub(i_float(i_and_or(quad, i_set(0xff), i_set(0x4b000000))), v_set(0x1p23f + 128.0f));
}

/* Byte `which` of each lane: its exponent and mantissa become those of the wider type, a. The least
 * exponent means 2 a - 2^-6, which is less than a only there. No step makes a subnormal number,
 * for which Intel's CPUs need an assist. */
INLINE v16 from_fp8(i16 quad, int which)
{
    if (which == 0)
        quad = i_shl(quad, 24);
    else if (which == 1)
        quad = i_shl(quad, 16);
    else if (which == 2)
        quad = i_shl(quad, 8);
    const i16 mag = i_and(i_shr(quad, 4), i_set(0x07f00000));
    const v16 a = i_float(i_add(mag, i_set(120u << 23)));
    const v16 value = v_min(a, v_fma(a, v_set(2.0f), v_set(-0x1p-6f)));
    return i_float(i_and_or(quad, i_set(0x80000000), v_bits(value)));
}

INLINE v16 step_weights(const char *at, enum panel type, int which)
{
    if (type == PANEL_F32)
        return v_load((const float *)at);
    if (type == PANEL_F16)
        return v_from_f16((const uint16_t *)at + which * LANES);
    if (type == PANEL_INT8)
        return from_int8(i_load(at), which);
    if (type == PANEL_FP8)
        return from_fp8(i_load(at), which);
    i16 pair = i_load(at);
    return i_float(which ? i_and(pair, i_set(0xffff0000)) : i_shl(pair, 16));
}

/* Where gcc's own allocation is bad: it is good, and faster, with other numbers of rows. */
INLINE v16 tile_fma(v16 w, v16 x, v16 sum, const uint32_t rows)
{
    return rows == 4 || rows == 5 ? v_fma_sum(w, x, sum) : v_fma(w, x, sum);
}

#define TILE_FMA tile_fma
#include "model-server/backend/cpu/kernels/bf16_bits.inc.h"
#include "model-server/backend/cpu/kernels/tile.inc.h"
#include "model-server/backend/cpu/kernels/widen.inc.h"

TILE_KERNEL(tile_f32, PANEL_F32)
TILE_KERNEL(tile_f16, PANEL_F16)
TILE_KERNEL(tile_bf16, PANEL_BF16)
TILE_KERNEL(tile_int8, PANEL_INT8)
TILE_KERNEL(tile_fp8, PANEL_FP8)

/* Four rows of x, four columns at a time: a 4 x 4 transposition in registers. The rows of `next`
 * are fetched meanwhile: a run of a row is too short for the CPU to do so. */
static void pack4(float *dst, uint32_t xs, const float *const *src, const float *const *next,
                  uint32_t n, float scale)
{
    uint32_t k = 0;
    for (; k + 4 <= n; k += 4) {
        if (k % LANES == 0)
            for (int r = 0; r < 4; r++)
                __builtin_prefetch(next[r] + k);
        const float *at[4] = {src[0] + k, src[1] + k, src[2] + k, src[3] + k};
        v_transpose4(dst + k * (size_t)xs, xs, at, scale);
    }
    for (; k < n; k++)
        for (int r = 0; r < 4; r++)
            dst[k * (size_t)xs + r] = scale * src[r][k];
}

void ISA(pack)(float *dst, const float *const *src, uint32_t rows, uint32_t n, float scale)
{
    uint32_t xs = tile_stride(rows), r = 0;
    for (; r + 4 <= xs && rows > 2; r += 4) {
        const float *four[4], *next[4]; /* the padding of a last group repeats a row */
        for (uint32_t i = 0; i < 4; i++) {
            four[i] = src[r + i < rows ? r + i : rows - 1];
            next[i] =
                r + 4 < rows ? src[r + 4 + i < rows ? r + 4 + i : rows - 1] : src[i % rows] + n;
        }
        pack4(dst + r, xs, four, next, n, scale);
    }
    for (; r < rows; r++)
        for (uint32_t k = 0; k < n; k++)
            dst[(size_t)k * xs + r] = scale * src[r][k];
}

/* ---------------------------------------------------------------- storage */

void ISA(widen_f16)(float *dst, const uint16_t *src, uint32_t n)
{
    uint16_t last[LANES] = {0};
    for (; n >= LANES; n -= LANES, src += LANES, dst += LANES)
        v_store(dst, v_from_f16(src));
    memcpy(last, src, n * sizeof(*src));
    v_store_n(dst, v_from_f16(last), n);
}

void ISA(widen_bf16)(float *dst, const uint16_t *src, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        dst[i] = f32_of_bf16(src[i]);
}

void ISA(narrow_f16)(uint16_t *dst, const float *src, uint32_t n)
{
    uint16_t last[LANES];
    for (; n >= LANES; n -= LANES, src += LANES, dst += LANES)
        v_to_f16(dst, v_load(src));
    v_to_f16(last, v_load_n(src, n));
    memcpy(dst, last, n * sizeof(*dst));
}

void ISA(narrow_bf16)(uint16_t *dst, const float *src, uint32_t n)
{
    uint16_t last[LANES];
    for (; n >= LANES; n -= LANES, src += LANES, dst += LANES)
        i_store_u16(dst, bf16_bits(v_load(src)));
    i_store_u16(last, bf16_bits(v_load_n(src, n)));
    memcpy(dst, last, n * sizeof(*dst));
}

void ISA(split_bf16)(uint16_t *const dst[3], const float *src, uint32_t n)
{
    uint16_t last[LANES];
    i16 part[3];
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        bf16_split(part, v_load(src + i));
        UNROLL for (int p = 0; p < 3; p++) i_store_u16(dst[p] + i, part[p]);
    }
    bf16_split(part, v_load_n(src + i, n - i));
    for (int p = 0; p < 3; p++) {
        i_store_u16(last, part[p]);
        memcpy(dst[p] + i, last, (n - i) * sizeof(*last));
    }
}

/* ---------------------------------------------------------------- rows */

/* For i = 0, 16, ..: `m` is the number of lanes from x + i on that belong to the row. */
#define FOR_LANES(i, m, n)                                                                         \
    for (uint32_t i = 0, m; i < (n) && (m = (n)-i < LANES ? (n)-i : LANES); i += LANES)

INLINE void scale_row(float *y, const float *x, const float *w, const float *b, uint32_t n,
                      float mean, float s)
{
    v16 ms = v_set(mean), ss = v_set(s);
    FOR_LANES(i, m, n)
    {
        v16 z = v_mul(v_sub(v_load_n(x + i, m), ms), ss), wi = v_load_n(w + i, m);
        v_store_n(y + i, b ? v_fma(z, wi, v_load_n(b + i, m)) : v_mul(z, wi), m);
    }
}

void ISA(norm_rms)(float *y, const float *x, const float *w, const float *b, uint32_t n, float eps)
{
    v16 sq = v_set(0.0f);
    FOR_LANES(i, m, n)
    {
        v16 v = v_load_n(x + i, m);
        sq = v_fma(v, v, sq);
    }
    scale_row(y, x, w, b, n, 0.0f, 1.0f / sqrtf(v_sum(sq) / (float)n + eps));
}

void ISA(norm_layer)(float *y, const float *x, const float *w, const float *b, uint32_t n,
                     float eps)
{
    v16 sum = v_set(0.0f), sq = sum;
    FOR_LANES(i, m, n) sum = v_add(sum, v_load_n(x + i, m));
    float mean = v_sum(sum) / (float)n;
    FOR_LANES(i, m, n)
    {
        v16 v = v_keep_n(v_sub(v_load_n(x + i, m), v_set(mean)), m);
        sq = v_fma(v, v, sq);
    }
    scale_row(y, x, w, b, n, mean, 1.0f / sqrtf(v_sum(sq) / (float)n + eps));
}

float ISA(dot)(const float *x, const float *w, uint32_t n)
{
    v16 sum[4] = {v_set(0.0f), v_set(0.0f), v_set(0.0f), v_set(0.0f)};
    uint32_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        UNROLL for (uint32_t c = 0; c < 4; c++) sum[c] =
            v_fma(v_load(x + i + c * LANES), v_load(w + i + c * LANES), sum[c]);
    for (uint32_t c = 0; i < n; i += LANES, c++) {
        uint32_t m = n - i < LANES ? n - i : LANES;
        sum[c] = v_fma(v_load_n(x + i, m), v_load_n(w + i, m), sum[c]);
    }
    return v_sum(v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3])));
}

float ISA(row_top)(const float *x, uint32_t n)
{
    i16 most = i_set(0);
    FOR_LANES(i, m, n)
    most = i_max(most, i_and(v_bits(v_load_n(x + i, m)), i_set(0x7fffffff)));
    return float_of((uint32_t)i_top(most));
}

void ISA(scale_sums)(float *y, const int32_t *sums, const float *sw, size_t sw_bytes, float sx,
                     int32_t plus, uint32_t n)
{
    const char *scales = (const char *)sw;
    const i16 more = i_set((uint32_t)plus);
    const v16 x = v_set(sx);
    FOR_LANES(i, m, n)
    {
        const i16 sum = v_bits(v_load_n((const float *)(const void *)(sums + i), m));
        const v16 scale = v_mul(v_load((const float *)(const void *)scales), x);
        v_store_n(y + i, v_mul(v_from_int(i_add(sum, more)), scale), m);
        scales += sw_bytes;
    }
}

void ISA(axpy)(float *x, const float *r, float a, uint32_t n)
{
    FOR_LANES(i, m, n)
    v_store_n(x + i, v_fma(v_set(a), v_load_n(r + i, m), v_load_n(x + i, m)), m);
}

/* ---------------------------------------------------------------- functions: see mathf.h */

INLINE v16 v_neg(v16 v) { return i_float(i_xor(v_bits(v), i_set(0x80000000))); }
INLINE v16 v_abs(v16 v) { return i_float(i_and(v_bits(v), i_set(0x7fffffff))); }
INLINE v16 v_copysign(v16 v, v16 sign)
{
    return i_float(i_or(v_bits(v_abs(v)), i_and(v_bits(sign), i_set(0x80000000))));
}

/* One step of Horner's scheme. */
INLINE v16 v_next(v16 p, v16 x, float c) { return v_fma(p, x, v_set(c)); }

INLINE v16 v_exp(v16 x)
{
    x = v_max(v_set(EXP_LO), v_min(v_set(EXP_HI), x));
    v16 t = v_fma(x, v_set(EXP_LOG2E), v_set(EXP_ROUND)), n = v_sub(t, v_set(EXP_ROUND));
    v16 r = v_fma(n, v_set(-EXP_LN2_LO), v_fma(n, v_set(-EXP_LN2_HI), x)), p = v_set(EXP_P4);
    p = v_next(p, r, EXP_P3), p = v_next(p, r, EXP_P2);
    p = v_next(p, r, EXP_P1), p = v_next(p, r, EXP_P0);
    p = v_add(v_fma(v_mul(r, r), p, r), v_set(1.0f));
    i16 e = i_sub(v_bits(t), v_bits(v_set(EXP_ROUND))), half = i_sar(e, 1);
    p = v_mul(p, i_float(i_shl(i_add(half, i_set(127)), 23)));
    return v_mul(p, i_float(i_shl(i_add(i_sub(e, half), i_set(127)), 23)));
}

INLINE v16 v_exp_neg(v16 x)
{
    v16 t = v_fma(x, v_set(EXP_LOG2E), v_set(EXP_NEG_ROUND)), n = v_sub(t, v_set(EXP_NEG_ROUND));
    v16 r = v_fma(n, v_set(-EXP_LN2_LO), v_fma(n, v_set(-EXP_LN2_HI), x)), p = v_set(EXP_P4);
    p = v_next(p, r, EXP_P3), p = v_next(p, r, EXP_P2), p = v_next(p, r, EXP_P1);
    p = v_next(p, r, EXP_P0), p = v_next(p, r, 1.0f), p = v_next(p, r, 1.0f);
    p = v_mul(p, i_float(i_shl(v_bits(t), 23)));
    return v_below(x, v_set(EXP_NEG_LO), v_set(0.0f), p);
}

INLINE v16 v_tanh(v16 x)
{
    v16 s = v_mul(x, x), a = v_abs(x), p = v_set(TANH_P5), one = v_set(1.0f);
    p = v_next(p, s, TANH_P4), p = v_next(p, s, TANH_P3), p = v_next(p, s, TANH_P2);
    p = v_next(p, s, TANH_P1), p = v_next(p, s, TANH_P0);
    v16 small = v_fma(v_mul(x, s), p, x);
    v16 large = v_sub(one, v_div(v_set(2.0f), v_add(v_exp(v_add(a, a)), one)));
    return v_below(a, v_set(TANH_SPLIT), small, v_copysign(large, x));
}

INLINE v16 v_erf(v16 x)
{
    v16 s = v_mul(x, x), p = v_set(ERF_P5), q = v_set(ERF_Q6);
    v16 t = v_min(v_set(ERF_ONE), v_abs(x));
    p = v_next(p, s, ERF_P4), p = v_next(p, s, ERF_P3), p = v_next(p, s, ERF_P2);
    p = v_next(p, s, ERF_P1), p = v_next(p, s, ERF_P0);
    q = v_next(q, t, ERF_Q5), q = v_next(q, t, ERF_Q4), q = v_next(q, t, ERF_Q3);
    q = v_next(q, t, ERF_Q2), q = v_next(q, t, ERF_Q1), q = v_next(q, t, ERF_Q0);
    v16 large = v_sub(v_set(1.0f), v_exp(v_fma(t, q, v_neg(t))));
    return v_below(t, v_set(ERF_SPLIT), v_fma(x, p, x), v_copysign(large, x));
}

INLINE v16 v_act(v16 x, const enum act kind)
{
    v16 one = v_set(1.0f), u;
    switch (kind) {
    case ACT_SILU:
        return v_div(x, v_add(one, v_exp(v_neg(x))));
    case ACT_GELU:
        return v_mul(v_mul(v_set(0.5f), x), v_add(one, v_erf(v_mul(x, v_set(SQRT_HALF)))));
    case ACT_GELU_TANH:
        u = v_fma(v_mul(v_mul(v_set(GELU_CUBIC), x), x), x, x);
        return v_div(x, v_add(one, v_exp(v_mul(v_set(-GELU_TWO_C), u))));
    case ACT_RELU2:
        u = v_max(v_set(0.0f), x);
        return v_mul(u, u);
    case ACT_QUICK_GELU:
        return v_div(x, v_add(one, v_exp(v_mul(v_set(-QUICK_GELU_ALPHA), x))));
    case ACT_SIGMOID:
        return v_div(one, v_add(one, v_exp(v_neg(x))));
    case ACT_RELU:
    case ACT_SWIGLU_CLAMPED:
    case ACT_SILU_CLAMPED:
    case ACT_SILU_CAPPED:
    case ACT_SILU_SOFT:
    case ACT_N:
    case ACT_LIMIT:
        break;
    }
    return v_max(v_set(0.0f), x);
}

INLINE v16 v_capped(v16 x, const float cap)
{
    return v_mul(v_set(cap), v_tanh(v_div(x, v_set(cap))));
}

INLINE v16 v_gate(v16 x, v16 up, const enum act kind, float limit)
{
    if (!act_gated_only(kind))
        return v_mul(v_act(x, kind), up);
    if (kind == ACT_SILU_SOFT)
        return v_mul(v_mul(v_act(x, ACT_SIGMOID), v_capped(x, SOFT_GATE)), v_capped(up, SOFT_UP));
    up = v_max(v_set(-limit), v_min(v_set(limit), up));
    if (kind == ACT_SILU_CAPPED)
        return v_mul(v_min(v_set(limit), v_act(x, ACT_SILU)), up);
    x = v_min(v_set(limit), x);
    if (kind == ACT_SILU_CLAMPED)
        return v_mul(v_act(x, ACT_SILU), up);
    v16 one = v_set(1.0f), e = v_exp(v_mul(v_set(-SWIGLU_ALPHA), x));
    return v_mul(v_div(x, v_add(one, e)), v_add(up, one));
}

/* `kind` without a limit. */
INLINE void act_row(float *y, const float *x, const float *m, uint32_t n, const enum act kind,
                    float limit)
{
    FOR_LANES(i, lanes, n)
    {
        v16 a = v_load_n(x + i, lanes);
        a = m ? v_gate(a, v_load_n(m + i, lanes), kind, limit) : v_act(a, kind);
        v_store_n(y + i, a, lanes);
    }
}

void ISA(act)(float *y, const float *x, const float *m, uint32_t n, enum act kind)
{
    const float limit = act_limit(kind);
    switch (act_kind(kind)) {
    case ACT_SILU:
        act_row(y, x, m, n, ACT_SILU, limit);
        break;
    case ACT_GELU:
        act_row(y, x, m, n, ACT_GELU, limit);
        break;
    case ACT_GELU_TANH:
        act_row(y, x, m, n, ACT_GELU_TANH, limit);
        break;
    case ACT_RELU:
        act_row(y, x, m, n, ACT_RELU, limit);
        break;
    case ACT_RELU2:
        act_row(y, x, m, n, ACT_RELU2, limit);
        break;
    case ACT_SWIGLU_CLAMPED:
        act_row(y, x, m, n, ACT_SWIGLU_CLAMPED, limit);
        break;
    case ACT_SILU_CLAMPED:
        act_row(y, x, m, n, ACT_SILU_CLAMPED, limit);
        break;
    case ACT_SILU_CAPPED:
        act_row(y, x, m, n, ACT_SILU_CAPPED, limit);
        break;
    case ACT_SILU_SOFT:
        act_row(y, x, m, n, ACT_SILU_SOFT, limit);
        break;
    case ACT_QUICK_GELU:
        act_row(y, x, m, n, ACT_QUICK_GELU, limit);
        break;
    case ACT_SIGMOID:
        act_row(y, x, m, n, ACT_SIGMOID, limit);
        break;
    case ACT_N:
    case ACT_LIMIT:
        break;
    }
}

void ISA(soft_cap)(float *x, uint32_t n, float scale, float cap)
{
    if (!(cap > 0.0f)) {
        FOR_LANES(i, m, n) v_store_n(x + i, v_mul(v_load_n(x + i, m), v_set(scale)), m);
        return;
    }
    FOR_LANES(i, m, n)
    {
        v16 v = v_div(v_mul(v_load_n(x + i, m), v_set(scale)), v_set(cap));
        v_store_n(x + i, v_mul(v_set(cap), v_tanh(v)), m);
    }
}

/* ---------------------------------------------------------------- attention */

float ISA(row_max)(const float *x, uint32_t n)
{
    v16 m = v_set(-INFINITY);
    for (uint32_t i = 0; i < n; i += LANES)
        m = v_max(v_load(x + i), m);
    return v_top(m);
}

float ISA(exp_sum)(float *x, uint32_t n, float max)
{
    v16 sum = v_set(0.0f);
    for (uint32_t i = 0; i < n; i += LANES) {
        v16 e = v_exp_neg(v_sub(v_load(x + i), v_set(max)));
        v_store(x + i, e);
        sum = v_add(sum, e);
    }
    return v_sum(sum);
}

void ISA(merge)(float *o, const float *p, float a, float b, uint32_t n)
{
    FOR_LANES(i, m, n)
    {
        v16 scaled = v_mul(v_load_n(o + i, m), v_set(a));
        v_store_n(o + i, v_fma(v_load_n(p + i, m), v_set(b), scaled), m);
    }
}

void ISA(rotate)(float *v, const float *rope, uint32_t rot, bool interleaved)
{
    uint32_t half = rot / 2;
    for (uint32_t i = 0; interleaved && i < half; i++) {
        float c = rope[i], s = rope[half + i], x = v[2 * i], y = v[2 * i + 1];
        v[2 * i] = fmaf(-y, s, x * c);
        v[2 * i + 1] = fmaf(x, s, y * c);
    }
    FOR_LANES(i, m, interleaved ? 0 : half)
    {
        v16 c = v_load_n(rope + i, m), s = v_load_n(rope + half + i, m);
        v16 x = v_load_n(v + i, m), y = v_load_n(v + half + i, m);
        v_store_n(v + i, v_fma(v_neg(y), s, v_mul(x, c)), m);
        v_store_n(v + half + i, v_fma(x, s, v_mul(y, c)), m);
    }
}

#include "model-server/backend/cpu/kernels/state.inc.h"
