/* test_kernels.c - every variant of every kernel that this CPU can run, against the plain C
 * reference: bit for bit, on every length from 1 to 65 and on model shapes, with a canary behind
 * each result. SEED=n repeats a failure. QUICK=1: a few lengths, for an emulated CPU. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/mathf.h"
#include "tests/check/kernels_codes.h"
#include "tests/check/kernels_kv.h"
#include "tests/check/kernels_quads.h"
#include "tests/check/kernels_rig.h"
#include "tests/check/kernels_squares.h"
#include "tests/unit/test.h"
#include <string.h>

static const uint32_t model_shapes[] = {128, 576, 896, 1536, 2047, 2048, 4096};

/* ---------------------------------------------------------------- one check per kernel */

/* n outputs; columns, rows and stride at random. Weights are random bits that are no NaN. */
static bool check_tile(tile_f32_fn *ref, tile_f32_fn *fn, uint32_t n, enum dtype t)
{
    enum { MAX_K = 70, LDY = 200 };
    static float tx[MAX_K * TILE_ROWS], y0[TILE_ROWS * LDY + CANARY], y1[TILE_ROWS * LDY + CANARY];
    static _Alignas(64) uint16_t panels[LDY / LANES * 2 * MAX_K * LANES * 2];
    static float bias[LDY];
    if (n > LDY - 2 * LANES)
        return true; /* nothing depends on more panels */
    for (size_t i = 0; i < sizeof(panels) / 2; i++)
        panels[i] = t == DT_F16 ? f16_of_f32(rng_wide(&rng))
                    : t == DT_BF16
                        ? bf16_of_f32(rng_wide(&rng))
                        : (uint16_t)(i & 1 ? bf16_of_f32(rng_wide(&rng)) : rng_u32(&rng));
    for (uint32_t rows = 1; rows <= TILE_ROWS; rows++) {
        uint32_t k = 1 + rng_below(&rng, MAX_K), k_room = (k + 1) & ~1u;
        struct tile a = {.y = y0, .ldy = n + rng_below(&rng, 20), .x = tx, .w = panels};
        a.w_bytes = (size_t)k_room * LANES * dtype_size(t), a.rows = rows, a.n = n, a.k = k;
        a.add = rng_below(&rng, 2), a.ahead = 64 * rng_below(&rng, 20);
        a.pace = rng_below(&rng, 65), a.bias = rng_below(&rng, 2) ? bias : NULL;
        for (size_t i = 0; i < sizeof(tx) / 4; i++)
            tx[i] = rng_wide(&rng);
        for (size_t i = 0; i < LDY; i++)
            bias[i] = rng_wide(&rng);
        for (size_t i = 0; i < sizeof(y0) / 4; i++)
            y0[i] = y1[i] = rng_wide(&rng);
        ref(&a);
        a.y = y1;
        fn(&a);
        if (memcmp(y0, y1, sizeof(y0)))
            return false;
    }
    return true;
}

static bool check_tile_f32(void (*fn)(void), uint32_t n)
{
    return check_tile(k_tile_f32_ref, (tile_f32_fn *)fn, n, DT_F32);
}

static bool check_tile_f16(void (*fn)(void), uint32_t n)
{
    return check_tile(k_tile_f16_ref, (tile_f16_fn *)fn, n, DT_F16);
}

static bool check_tile_bf16(void (*fn)(void), uint32_t n)
{
    return check_tile(k_tile_bf16_ref, (tile_bf16_fn *)fn, n, DT_BF16);
}

/* The quantised tiles: any bytes are weights, any numbers are activations. */
enum { INT_MAX_K = 300, INT_LDY = 200, INT_PANEL_BYTES = (INT_MAX_K + 64) * LANES };
static _Alignas(64) uint8_t int_panels[INT_LDY / LANES * INT_PANEL_BYTES];

static bool check_tile_bytes(tile_int8_fn *ref, tile_int8_fn *fn, uint32_t n)
{
    static float tx[INT_MAX_K * TILE_ROWS], y0[TILE_ROWS * INT_LDY + CANARY],
        y1[TILE_ROWS * INT_LDY + CANARY];
    for (size_t i = 0; i < sizeof(int_panels); i++)
        int_panels[i] = (uint8_t)rng_u32(&rng);
    for (size_t i = 0; ref == k_tile_fp8_ref && i < sizeof(int_panels); i++)
        if ((int_panels[i] & 0x7f) == 0x7f)
            int_panels[i] ^= 1; /* weights are never NaN */
    float *factors = (float *)(void *)(int_panels + (size_t)(INT_MAX_K + 3) / 4 * STEP_BYTES);
    for (int p = 0; p < INT_LDY / LANES; p++)
        for (int i = 0; i < LANES; i++)
            factors[p * (INT_PANEL_BYTES / (int)sizeof(float)) + i] = rng_wide(&rng);
    for (uint32_t rows = 1; rows <= TILE_ROWS && n <= INT_LDY - 2 * LANES; rows++) {
        struct tile a = {.y = y0, .ldy = n + rng_below(&rng, 20), .x = tx, .w = int_panels};
        a.w_bytes = INT_PANEL_BYTES, a.rows = rows, a.n = n, a.k = 1 + rng_below(&rng, INT_MAX_K);
        a.add = rng_below(&rng, 2), a.ahead = 64 * rng_below(&rng, 20);
        a.factors = ref == k_tile_fp8_ref && rng_below(&rng, 2) ? factors : NULL;
        for (size_t i = 0; i < sizeof(tx) / 4; i++)
            tx[i] = rng_wide(&rng);
        for (size_t i = 0; i < sizeof(y0) / 4; i++)
            y0[i] = y1[i] = rng_wide(&rng);
        ref(&a);
        a.y = y1;
        fn(&a);
        if (memcmp(y0, y1, sizeof(y0)))
            return false;
    }
    return true;
}

static bool check_tile_int8(void (*fn)(void), uint32_t n)
{
    return check_tile_bytes(k_tile_int8_ref, (tile_int8_fn *)fn, n);
}

static bool check_tile_fp8(void (*fn)(void), uint32_t n)
{
    return check_tile_bytes(k_tile_fp8_ref, (tile_fp8_fn *)fn, n);
}

/* Activations as the product packs them: zero past column k, scale and correction behind. */
static void fill_row(int32_t *tx, uint32_t word, uint32_t k)
{
    int32_t sum = 0;
    const uint32_t quads = quads_of(k);
    const float scale = rng_wide(&rng);
    for (uint32_t i = 0; i < quads * 4; i++) {
        int extreme = rng_below(&rng, 2) ? 127 : -127;
        int v = rng_below(&rng, 3) ? (int)rng_below(&rng, 255) - 127 : extreme;
        v = i < k ? v : 0;
        ((int8_t *)&tx[(size_t)(i / 4) * word])[i % 4] = (int8_t)v;
        sum += v;
    }
    memcpy(&tx[(size_t)quads * word], &scale, sizeof(scale));
    tx[(size_t)(quads + 1) * word] = -128 * sum;
}

/* Weights are -127 .. 127; extremes are frequent. Some blocks of steps have smaller ones: four of
 * them are as large as fits_w8a8() allows, or more by one. */
static void fill_panels(void)
{
    uint8_t most = 0;
    for (size_t i = 0; i < sizeof(int_panels); i++) {
        if (i % (INT_FIT_STEPS * STEP_BYTES) == 0)
            most = (uint8_t)(rng_below(&rng, 2) ? 127 : 64 + rng_below(&rng, 2));
        const uint8_t top = (uint8_t)(most == 127 ? most : most + i % 2);
        const uint8_t extreme = (uint8_t)(rng_below(&rng, 2) ? 128 + top : 128 - top);
        int_panels[i] =
            rng_below(&rng, 4) ? (uint8_t)(128 - most + rng_below(&rng, 2u * most + 1)) : extreme;
    }
    /* a single weight is too large */
    if (rng_below(&rng, 2))
        int_panels[rng_below(&rng, sizeof(int_panels))] = 255;
}

static bool check_fits_w8a8(void (*fn)(void), uint32_t n)
{
    static uint8_t fits[2][INT_FIT_BYTES];
    for (uint32_t k = n; k <= INT_MAX_K; k += 40) {
        fill_panels();
        k_fits_w8a8_ref(fits[0], int_panels, k);
        memset(fits[1], 0xff, sizeof(fits[1]));
        ((fits_w8a8_fn *)fn)(fits[1], int_panels, k);
        if (memcmp(fits[0], fits[1], sizeof(fits[0])))
            return false;
    }
    return true;
}

static bool check_tile_w8a8(void (*fn)(void), uint32_t n)
{
    static int32_t tx[(INT_MAX_K / 4 + 40) * INT_TILE_ROWS];
    static float y0[INT_TILE_ROWS * INT_LDY + CANARY], y1[INT_TILE_ROWS * INT_LDY + CANARY];
    static uint8_t fits[INT_LDY / LANES + 1][INT_FIT_BYTES];
    for (uint32_t rows = 1; rows <= INT_TILE_ROWS && n <= INT_LDY - 2 * LANES; rows++) {
        struct int_tile a = {.y = y0, .ldy = n + rng_below(&rng, 20), .x = tx, .w = int_panels};
        fill_panels();
        a.w_bytes = INT_PANEL_BYTES, a.rows = rows, a.n = n, a.k = 1 + rng_below(&rng, INT_MAX_K);
        if (rng_below(&rng, 2))
            a.fetch = (char *)int_panels, a.fetch_step = rng_below(&rng, 65);
        for (uint32_t r = 0; r < rows; r++)
            fill_row(tx + r, rows, a.k);
        for (uint32_t i = 0; i < INT_LDY / LANES * LANES; i++) { /* scales must be numbers */
            uint8_t *panel = int_panels + i / LANES * (size_t)INT_PANEL_BYTES;
            const float f = rng_wide(&rng);
            memcpy(panel + ((size_t)quads_of(a.k) * LANES + i % LANES) * 4, &f, sizeof(f));
        }
        for (uint32_t p = 0; p * LANES < n; p++)
            k_fits_w8a8_ref(fits[p], int_panels + p * (size_t)INT_PANEL_BYTES, a.k);
        a.fits = rng_below(&rng, 3) ? fits[0] : NULL;
        for (size_t i = 0; i < sizeof(y0) / 4; i++)
            y0[i] = y1[i] = rng_wide(&rng);
        k_tile_w8a8_ref(&a);
        a.y = y1;
        ((tile_w8a8_fn *)fn)(&a);
        if (memcmp(y0, y1, sizeof(y0)))
            return false;
    }
    return true;
}

/* Ties, numbers next to nothing, all zeros, and such as are not finite. */
static bool check_quantise(void (*fn)(void), uint32_t n)
{
    static const float odd[] = {0x1p-121f, INFINITY, -INFINITY, NAN, 0x1p127f, -0.0f, 0x1p-149f};
    for (int round = 0; round < 12; round++) {
        int32_t sums[2] = {1, 2};
        size_t stride = 4 * (1 + rng_below(&rng, 3));
        uint32_t flip = round % 2 ? 0 : 0x80808080;
        fill(n);
        for (uint32_t i = 0; round > 6 && i < n; i++)
            x[i] = round == 7 ? ldexpf(x[i], -130) : (float)((int)rng_below(&rng, 255) - 127) / 2;
        if (round > 0 && round < 7)
            x[rng_below(&rng, n)] = odd[round - 1];
        if (round == 9)
            memset(x, 0, n * sizeof(*x));
        float scale = k_quantise_ref((uint8_t *)want, stride, x, n, flip, &sums[0]);
        float fast = CALL(quantise)((uint8_t *)got, stride, x, n, flip, &sums[1]);
        if (!same() || sums[0] != sums[1] || !(scale == fast || (isnan(scale) && isnan(fast))))
            return false;
    }
    return true;
}

static bool check_row_top(void (*fn)(void), uint32_t n)
{
    fill(n);
    const float plain = k_row_top_ref(x, n), fast = CALL(row_top)(x, n);
    x[n / 2] = -INFINITY;
    return plain == fast && CALL(row_top)(x, n) == INFINITY;
}

static bool check_quantise4(void (*fn)(void), uint32_t n)
{
    static const float odd[] = {0x1p-61f, INFINITY, -INFINITY, NAN, 0x1p60f, -0.0f, 0x1p-149f};
    for (int round = 0; round < 12; round++) {
        fill(INT4_GROUP);
        for (uint32_t i = 0; i < INT4_GROUP; i++)
            x[i] *= round == 9 ? 0 : round == 8 ? 0x1p-62f : 1 / (float)n;
        if (round > 0 && round < 8)
            x[rng_below(&rng, INT4_GROUP)] = odd[round - 1];
        float scale = k_quantise4_ref((int8_t *)want, x), fast = CALL(quantise4)((int8_t *)got, x);
        if (!same() || !(scale == fast || (isnan(scale) && isnan(fast))))
            return false;
    }
    return true;
}

/* Of all fp8 numbers the nearest; of two, the one whose last bit is 0. */
static uint8_t nearest_fp8(float f)
{
    uint8_t best = 0;
    for (uint8_t code = 0; code < 0x7f; code++) {
        double is = fabs(fabs((double)f) - f32_of_fp8(code));
        double was = fabs(fabs((double)f) - f32_of_fp8(best));
        if (is < was || (is == was && code % 2 == 0))
            best = code;
    }
    return (uint8_t)(best | (signbit(f) ? 0x80 : 0));
}

static bool check_quantise_fp8(void (*fn)(void), uint32_t n)
{
    static const float odd[] = {INFINITY, -INFINITY, NAN};
    uint8_t *bytes = (uint8_t *)got;
    for (int round = 0; round < 8 && n < 200; round++) {
        float top = 0;
        fill(n);
        for (uint32_t i = 0; i < n; i++) /* halves of steps, subnormal ones, next to nothing */
            x[i] = round == 3   ? (float)((int)rng_below(&rng, 57) - 28) / 16
                   : round == 4 ? ldexpf((float)rng_below(&rng, 33), -18) + (i == 0 ? 1.75f : 0)
                   : round == 5 ? ldexpf(rng_unit(&rng), -121)
                                : x[i];
        for (uint32_t i = 0; i < n; i++)
            top = fmaxf(top, fabsf(x[i]));
        if (round < 3)
            x[rng_below(&rng, n)] = odd[round];
        float scale = CALL(quantise_fp8)(bytes, x, n), to = FP8_TOP / top;
        bool zeros = round < 3 || top < 0x1p-120f;
        if (round < 3 ? !isnan(scale) : scale != (zeros ? 0 : top / FP8_TOP))
            return false;
        for (uint32_t i = 0; i < n; i++)
            if (bytes[i] != (zeros ? 0 : nearest_fp8(x[i] * to)))
                return false;
    }
    return true;
}

static bool check_widen(widen_f16_fn *ref, widen_f16_fn *fn, uint32_t n)
{
    fill(n);
    for (uint32_t i = 0; i < n; i++)
        x[i] = float_of(rng_u32(&rng));
    ref(want, (const uint16_t *)x, n);
    fn(got, (const uint16_t *)x, n);
    return same();
}

static bool check_widen_f16(void (*fn)(void), uint32_t n)
{
    return check_widen(k_widen_f16_ref, (widen_f16_fn *)fn, n);
}

static bool check_widen_bf16(void (*fn)(void), uint32_t n)
{
    return check_widen(k_widen_bf16_ref, (widen_bf16_fn *)fn, n);
}

/* The padding between the rows' numbers may be anything, what follows the last may not. */
static bool check_pack(void (*fn)(void), uint32_t n)
{
    n = n > 300 ? 300 : n;
    for (uint32_t rows = 1; rows <= TILE_ROWS; rows++) {
        const float *src[TILE_ROWS];
        uint32_t xs = tile_stride(rows);
        fill(n);
        for (uint32_t r = 0; r < rows; r++)
            src[r] = x + rng_below(&rng, n);
        CALL(pack)(got, src, rows, n, 0.3f);
        for (uint32_t k = 0; k < n; k++)
            for (uint32_t r = 0; r < rows; r++)
                if (got[k * xs + r] != 0.3f * src[r][k])
                    return false;
        if (got[n * xs] != 12345.0f)
            return false;
    }
    return true;
}

/* Of any bits; an odd last column is paired with zero. */
static bool check_pack_bf16x2(void (*fn)(void), uint32_t n)
{
    n = n > 300 ? 300 : n;
    for (uint32_t rows = 1; rows <= TILE_ROWS; rows++) {
        const float *src[TILE_ROWS];
        const uint32_t xs = tile_stride(rows), pairs = (n + 1) / 2;
        fill(n);
        for (uint32_t i = 0; i < 2 * n; i++)
            x[i] = float_of(rng_below(&rng, 4) ? rng_u32(&rng) : rng_u32(&rng) & 0xfffff000);
        for (uint32_t r = 0; r < rows; r++)
            src[r] = x + rng_below(&rng, n);
        k_pack_bf16x2_ref(want, src, rows, n);
        CALL(pack_bf16x2)(got, src, rows, n);
        for (uint32_t k = 0; k < pairs; k++) /* the padding may be anything */
            if (memcmp(got + (size_t)k * xs, want + (size_t)k * xs, rows * sizeof(float)) != 0)
                return false;
        if (got[pairs * xs] != 12345.0f)
            return false;
    }
    return true;
}

static bool check_narrow(narrow_f16_fn *ref, narrow_f16_fn *fn, uint32_t n)
{
    fill(n);
    for (uint32_t i = 0; i < n; i++) /* any bits: subnormals, infinities, NaN, ties */
        x[i] = float_of(rng_below(&rng, 4) ? rng_u32(&rng) : rng_u32(&rng) & 0xfffff000);
    ref((uint16_t *)want, x, n);
    fn((uint16_t *)got, x, n);
    return same();
}

static bool check_narrow_f16(void (*fn)(void), uint32_t n)
{
    return check_narrow(k_narrow_f16_ref, (narrow_f16_fn *)fn, n);
}

static bool check_narrow_bf16(void (*fn)(void), uint32_t n)
{
    return check_narrow(k_narrow_bf16_ref, (narrow_bf16_fn *)fn, n);
}

static bool check_norm(norm_rms_fn *ref, norm_rms_fn *fn, uint32_t n)
{
    fill(n);
    const float *bias = n & 1 ? b : NULL;
    ref(want, x, w, bias, n, 1e-5f);
    fn(got, x, w, bias, n, 1e-5f);
    return same();
}

static bool check_norm_rms(void (*fn)(void), uint32_t n)
{
    return check_norm(k_norm_rms_ref, (norm_rms_fn *)fn, n);
}

static bool check_norm_layer(void (*fn)(void), uint32_t n)
{
    return check_norm(k_norm_layer_ref, (norm_layer_fn *)fn, n);
}

static bool check_dot(void (*fn)(void), uint32_t n)
{
    fill(n);
    return k_dot_ref(x, w, n) == CALL(dot)(x, w, n);
}

static bool check_axpy(void (*fn)(void), uint32_t n)
{
    fill(n);
    start_from(x, n);
    k_axpy_ref(want, w, 0.7f, n);
    CALL(axpy)(got, w, 0.7f, n);
    return same();
}

static bool check_act(void (*fn)(void), uint32_t n)
{
    for (enum act a = ACT_SILU; a < ACT_N; a++) {
        fill(n);
        x[rng_below(&rng, n)] = 200.0f, x[rng_below(&rng, n)] = -200.0f;
        x[rng_below(&rng, n)] = INFINITY, x[rng_below(&rng, n)] = -0.0f;
        w[rng_below(&rng, n)] = 9.0f, w[rng_below(&rng, n)] = -INFINITY;
        x[rng_below(&rng, n)] = 7.5f, w[rng_below(&rng, n)] = NAN;
        k_act_ref(want, x, n & 1 ? w : NULL, n, a);
        CALL(act)(got, x, n & 1 ? w : NULL, n, a);
        for (uint32_t i = 0; i < n; i++) /* NaN (from 0 * infinity) is NaN, whatever its bits */
            if (isnan(want[i]) && isnan(got[i]))
                got[i] = want[i];
        if (!same())
            return false;
    }
    return true;
}

static bool check_soft_cap(void (*fn)(void), uint32_t n)
{
    for (int cap = 0; cap < 40; cap += 15) {
        fill(n);
        start_from(x, n);
        k_soft_cap_ref(want, n, 1.7f, (float)cap);
        CALL(soft_cap)(got, n, 1.7f, (float)cap);
        if (!same())
            return false;
    }
    return true;
}

static uint32_t lanes_up(uint32_t n) { return (n + LANES - 1) / LANES * LANES; }

static bool check_row_max(void (*fn)(void), uint32_t n)
{
    n = lanes_up(n);
    fill(n);
    for (uint32_t i = 0; i < n; i += 1 + rng_below(&rng, 5))
        x[i] = -INFINITY;
    return k_row_max_ref(x, n) == CALL(row_max)(x, n);
}

static bool check_exp_sum(void (*fn)(void), uint32_t n)
{
    n = lanes_up(n);
    fill(n);
    for (uint32_t i = 0; i < n; i += 1 + rng_below(&rng, 5))
        x[i] = -INFINITY;
    start_from(x, n);
    return k_exp_sum_ref(want, n, 16.0f) == CALL(exp_sum)(got, n, 16.0f) && same();
}

static bool check_merge(void (*fn)(void), uint32_t n)
{
    fill(n);
    start_from(x, n);
    k_merge_ref(want, w, 0.3f, 0.9f, n);
    CALL(merge)(got, w, 0.3f, 0.9f, n);
    return same();
}

static bool check_rotate(void (*fn)(void), uint32_t n)
{
    uint32_t rot = n * 2 > MAXN ? MAXN : n * 2;
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        fill(rot);
        start_from(x, rot + 3);
        k_rotate_ref(want, w, rot, interleaved);
        CALL(rotate)(got, w, rot, interleaved);
        if (!same())
            return false;
    }
    return true;
}

/* ---------------------------------------------------------------- recurrent layers */

static bool check_gate(void (*fn)(void), uint32_t n)
{
    bool good = true;
    for (int sigmoid = 0; sigmoid < 2; sigmoid++) {
        fill(n);
        start_from(x, n);
        k_gate_ref(want, w, n, sigmoid);
        CALL(gate)(got, w, n, sigmoid);
        good &= same();
    }
    return good;
}

static bool check_conv_row(void (*fn)(void), uint32_t n)
{
    const uint32_t width = 2 + n % (CONV_MOST - 1),
                   channels = n < MAXN / CONV_MOST ? n : MAXN / CONV_MOST;
    const float *rows[CONV_MOST];
    fill(MAXN);
    for (uint32_t j = 0; j < width; j++)
        rows[j] = x + j * (channels + 3);
    const float *bias = n % 3 ? b : NULL;
    k_conv_row_ref(want, rows, w, channels, bias, width, channels);
    CALL(conv_row)(got, rows, w, channels, bias, width, channels);
    return same();
}

enum { MOST_KEYS = 256, STATE = RECUR_PANELS * MOST_KEYS * LANES };

/* A few tokens, of which the first reads another state than it writes. */
static bool recur_tokens(void (*fn)(void), const struct recur_step *how, uint32_t keys, uint32_t n)
{
    static float from[STATE], s[2][STATE];
    memset(from, 0, sizeof(from));
    for (uint32_t at = 0; at < keys * RECUR_PANELS * LANES; at++)
        if (at / (keys * LANES) * LANES + at % LANES < n)
            from[at] = rng_wide(&rng);
    memset(s, 0, sizeof(s));
    for (uint32_t t = 0; t < 3; t++) {
        struct recur_step r = *how;
        fill(MOST_KEYS);
        r.k = x, r.q = w, r.v = b;
        r.from = t ? s[0] : from, r.s = s[0], r.o = want;
        k_recur_ref(&r);
        r.from = t ? s[1] : from, r.s = s[1], r.o = got;
        CALL(recur)(&r);
        if (!same() || memcmp(s[0], s[1], sizeof(s[0])) != 0)
            return false;
    }
    return true;
}

static bool check_recur(void (*fn)(void), uint32_t n)
{
    const uint32_t keys = n < MOST_KEYS ? n : MOST_KEYS, values = 1 + n % (RECUR_PANELS * LANES);
    const float skip = 0.7f;
    const struct recur_step delta = {.panel = (size_t)keys * LANES,
                                     .keys = keys,
                                     .n = values,
                                     .decay = 0.9f,
                                     .beta = 0.3f,
                                     .delta = true};
    struct recur_step plain = delta;
    plain.delta = false;
    plain.skip = &skip;
    static float decays[MOST_KEYS];
    for (uint32_t i = 0; i < keys; i++)
        decays[i] = 0.5f + 0.5f * (float)(i % 7) / 7;
    struct recur_step by_key = delta;
    by_key.decays = decays;
    by_key.decay = NAN; /* unused */
    struct recur_step rwkv = by_key;
    static float put[MOST_KEYS];
    for (uint32_t i = 0; i < keys; i++)
        put[i] = 0.1f * (float)(i % 5);
    rwkv.delta = false;
    rwkv.beta = NAN; /* unused */
    rwkv.erase = decays, rwkv.put = put;
    return recur_tokens(fn, &delta, keys, values) && recur_tokens(fn, &plain, keys, values) &&
           recur_tokens(fn, &by_key, keys, values) && recur_tokens(fn, &rwkv, keys, values);
}

/* ---------------------------------------------------------------- all of them */

TEST(every_variant_gives_the_bits_of_the_reference)
{
    const unsigned have = cpu_detect();
    const bool quick = getenv("QUICK"); /* NOLINT(concurrency-mt-unsafe): it is never written */
    for (const struct kernel_row *r = kernel_rows; r->op; r++) {
        check_fn *check = NULL;
#define X(OP, ret, args)                                                                           \
    if (!strcmp(r->op, #OP))                                                                       \
        check = check_##OP;
        KERNELS(X)
#undef X
        assert_non_null(check);
        if ((r->needs & have) != r->needs) {
            printf("skipped: 1 cases (no %s for %s on this CPU)\n", r->variant, r->op);
            continue;
        }
        if (!r->needs)
            continue; /* the reference itself */
        for (uint32_t n = 1; n <= 65; n += quick && n >= 2 && n < 62 ? 15 : 1)
            if (!check(r->fn, n))
                fail_msg("%s, %s: n = %u", r->op, r->variant, n);
        for (size_t i = 0; i < sizeof(model_shapes) / sizeof(*model_shapes) && !quick; i++)
            if (!check(r->fn, model_shapes[i]))
                fail_msg("%s, %s: n = %u", r->op, r->variant, model_shapes[i]);
    }
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
