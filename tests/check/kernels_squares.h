/* kernels_squares.h - the kernels of matrix units and of pairs of 16-bit numbers, and those that
 * prepare their operands and read their sums, against the plain C reference. */
#ifndef TESTS_CHECK_KERNELS_SQUARES_H
#define TESTS_CHECK_KERNELS_SQUARES_H
#include "model-server/backend/numbers.h"
#include "tests/check/kernels_rig.h"
#include <math.h>

/* Random bits with every sort of bf16, but sums that stay finite mostly. */
static void random_bf16(uint16_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t kind = rng_below(&rng, 100);
        p[i] = kind < 1   ? rng_u32(&rng) & 0x807f
               : kind < 2 ? (uint16_t)((rng_u32(&rng) & 0x80ff) | 0x80)
               : kind < 4 ? (uint16_t)(rng_u32(&rng) & 0xbfff)
                          : bf16_of_f32(rng_wide(&rng));
    }
}

/* Up to 5 x 7 squares: every part of a kernel that takes some at a time. */
static bool check_squares(squares_bf16_fn *ref, squares_bf16_fn *fn, uint32_t n, bool bf16)
{
    enum { TALL = 5, WIDE = 7, STEPS = 4, LD = (WIDE + 1) * SQUARE };
    static _Alignas(64) char xs[TALL * STEPS * SQUARE_PARTS * SQUARE_BYTES],
        ws[WIDE * STEPS * SQUARE_PARTS * SQUARE_BYTES];
    static _Alignas(64) float y0[TALL * SQUARE * LD + CANARY], y1[TALL * SQUARE * LD + CANARY];
    if (n > 65)
        return true; /* nothing depends on more */
    random_bf16((uint16_t *)(void *)xs, sizeof(xs) / 2);
    random_bf16((uint16_t *)(void *)ws, sizeof(ws) / 2);
    for (size_t i = 0; i < sizeof(y0) / 4; i++)
        y0[i] = y1[i] = bf16 && i % 9 ? rng_wide(&rng) : float_of(rng_u32(&rng) & 0x00ffffff);
    struct squares t = {.sums = y0, .sums_bytes = LD * sizeof(float), .x = xs, .w = ws};
    t.tall = 1 + n % TALL, t.wide = 1 + n % WIDE, t.steps = 1 + rng_below(&rng, STEPS);
    t.parts = bf16 && n / 2 % 2 ? SQUARE_PARTS : 1;
    t.split = t.parts > 1 && n % 8 > 5;
    t.rows = t.tall == 1 ? 1 + rng_below(&rng, SQUARE) : SQUARE;
    t.x_bytes = (size_t)t.steps * t.parts * t.rows * SQUARE_STEP_BYTES;
    const size_t step = (t.split ? SQUARE_PARTS : 1) * (size_t)SQUARE_BYTES;
    t.w_bytes = t.steps * step + (n % 2 ? 0 : 64);
    if (t.w_bytes * t.wide > sizeof(ws))
        t.w_bytes = t.steps * step;
    const char *listed[WIDE + SQUARE_AHEAD];
    for (uint32_t i = 0; i < WIDE + SQUARE_AHEAD; i++)
        listed[i] = ws + rng_below(&rng, WIDE) * STEPS * step;
    if (n % 4 == 1)
        t.panels = listed;
    t.add = n % 3, t.next = ws, t.next_bytes = 64 * (n % 5);
    t.fetch = 64 * rng_below(&rng, 17);
    t.ahead = t.panels || t.split ? 0 : SQUARE_BYTES * rng_below(&rng, 4);
    ref(&t);
    t.sums = y1;
    fn(&t);
    return !memcmp(y0, y1, sizeof(y0));
}

static bool check_squares_bf16(void (*fn)(void), uint32_t n)
{
    return check_squares(k_squares_bf16_ref, (squares_bf16_fn *)fn, n, true);
}

static bool check_squares_i8(void (*fn)(void), uint32_t n)
{
    return check_squares(k_squares_i8_ref, (squares_i8_fn *)fn, n, false);
}

static bool check_scale_sums(void (*fn)(void), uint32_t n)
{
    static int32_t sums[MAXN];
    fill(MAXN);
    for (uint32_t i = 0; i < n; i++)
        sums[i] = (int32_t)rng_u32(&rng);
    const size_t apart = 64 * (n % 2);
    k_scale_sums_ref(want, sums, w, apart, b[0], (int32_t)rng.state, n);
    CALL(scale_sums)(got, sums, w, apart, b[0], (int32_t)rng.state, n);
    return same();
}

/* Quads of any bytes; `number` may change one. */
static bool check_square_bytes(square_fp8_fn *ref, square_fp8_fn *fn, uint32_t n,
                               char (*number)(char))
{
    static _Alignas(64) char quads[sizeof(want) / 2];
    if ((size_t)n * 2 * STEP_BYTES > sizeof(want) - CANARY * sizeof(*want))
        return true; /* nothing depends on more */
    fill(1);
    for (size_t i = 0; i < (size_t)n * STEP_BYTES; i++)
        quads[i] = number((char)(n < 5 ? i + n : rng_u32(&rng)));
    ref((char *)want, quads, n);
    fn((char *)got, quads, n);
    return same();
}

static char any_byte(char c) { return c; }
static char no_nan(char c) { return (c & 0x7f) == 0x7f ? (char)(c ^ 1) : c; }

static bool check_square_int8(void (*fn)(void), uint32_t n)
{
    return check_square_bytes(k_square_int8_ref, (square_int8_fn *)fn, n, any_byte);
}

static bool check_square_fp8(void (*fn)(void), uint32_t n)
{
    return check_square_bytes(k_square_fp8_ref, (square_fp8_fn *)fn, n, no_nan);
}

/* Columns of a panel in three parts, of any numbers. */
static bool check_square_f32(void (*fn)(void), uint32_t n)
{
    static _Alignas(64) float panel[65 * LANES];
    if (n > 65)
        return true; /* nothing depends on more */
    fill(1);
    for (size_t i = 0; i < (size_t)n * LANES; i++)
        panel[i] = i % 50 ? rng_wide(&rng) : float_of(rng_u32(&rng));
    k_square_f32_ref((char *)want, panel, n);
    CALL(square_f32)((char *)got, panel, n);
    return same();
}

/* Up to 16 rows with up to six panels of quads, with scales for some of their steps or none. */
static bool check_byte_squares(squares_fp8_fn *ref, squares_fp8_fn *fn, uint32_t n,
                               char (*number)(char))
{
    enum { STEPS = 7, WIDE = 6, LD = (WIDE + 1) * SQUARE, SCALES = STEPS * LANES * 4 };
    enum { QUAD_BYTES = STEPS * SQUARE_BYTES / 2, PANEL_BYTES = QUAD_BYTES + SCALES };
    static _Alignas(64) char xs[STEPS * SQUARE_PARTS * SQUARE_BYTES], ws[WIDE * PANEL_BYTES];
    static _Alignas(64) float y0[SQUARE * LD + CANARY], y1[SQUARE * LD + CANARY];
    if (n > 65)
        return true; /* nothing depends on more */
    random_bf16((uint16_t *)(void *)xs, sizeof(xs) / 2);
    for (size_t i = 0; i < sizeof(ws); i++)
        ws[i] = number((char)rng_u32(&rng));
    for (size_t i = 0; i < WIDE * STEPS * (size_t)LANES; i++)
        ((float *)(void *)(ws + i / (SCALES / 4) * PANEL_BYTES + QUAD_BYTES))[i % (SCALES / 4)] =
            rng_wide(&rng);
    for (size_t i = 0; i < sizeof(y0) / 4; i++)
        y0[i] = y1[i] = rng_wide(&rng);
    struct byte_squares t = {.of = {.sums = y0, .sums_bytes = LD * sizeof(float), .tall = 1}};
    t.quads = 1 + rng_below(&rng, STEPS * 8), t.scaled = n % 3 ? 1u << n % 4 : 0;
    t.of.steps = (t.quads + 7) / 8, t.of.rows = 1 + n % SQUARE, t.of.wide = 1 + n % WIDE;
    t.of.parts = n / 2 % 2 ? SQUARE_PARTS : 1;
    t.of.x = xs, t.of.w = t.of.next = ws, t.of.w_bytes = PANEL_BYTES, t.scales = ws + QUAD_BYTES;
    t.of.fetch = 64 * (n % 9), t.of.ahead = 512 * (n % 5);
    ref(&t);
    t.of.sums = y1;
    fn(&t);
    return !memcmp(y0, y1, sizeof(y0));
}

static bool check_squares_int8(void (*fn)(void), uint32_t n)
{
    return check_byte_squares(k_squares_int8_ref, (squares_int8_fn *)fn, n, any_byte);
}

static bool check_squares_fp8(void (*fn)(void), uint32_t n)
{
    return check_byte_squares(k_squares_fp8_ref, (squares_fp8_fn *)fn, n, no_nan);
}

static bool check_scale_squares(void (*fn)(void), uint32_t n)
{
    struct square_scales t = {.to = want, .sums = x, .scales = (const char *)w};
    t.wide = 1 + n % 5, t.rows = 1 + n % 33, t.add = n % 2;
    t.bytes = (t.wide + n % 3) * SQUARE_STEP_BYTES, t.scale_bytes = 64 * (1 + n % 4);
    fill(MAXN);
    for (uint32_t i = 0; i < 2 * MAXN; i++)
        want[i] = got[i] = rng_wide(&rng);
    k_scale_squares_ref(&t);
    t.to = got;
    CALL(scale_squares)(&t);
    return same();
}

static bool check_split_bf16(void (*fn)(void), uint32_t n)
{
    uint16_t *const p = (uint16_t *)want, *const q = (uint16_t *)got;
    const size_t apart = MAXN / 2 * 2 / 3;
    if (n > apart)
        return true;
    fill(n);
    for (uint32_t i = 0; i < n; i++)
        x[i] = float_of(rng_u32(&rng));
    k_split_bf16_ref((uint16_t *const[]){p, p + apart, p + 2 * apart}, x, n);
    ((split_bf16_fn *)fn)((uint16_t *const[]){q, q + apart, q + 2 * apart}, x, n);
    for (uint32_t i = 0; i < n; i++) { /* the parts add up to the number */
        const float sum =
            f32_of_bf16(p[i]) + f32_of_bf16(p[apart + i]) + f32_of_bf16(p[2 * apart + i]);
        if (fabsf(x[i]) > 0x1p-100f && isfinite(x[i]) && sum != x[i])
            return false;
    }
    return same();
}

/* Pairs of 16-bit numbers: `panels` are the weights, and what x is drawn from. */
struct pair_test {
    tile_bf16x2_fn *ref, *fn;
    const uint16_t *panels;
    uint32_t n_panels, max_k;
};
enum { PAIR_COLS = 300, PAIR_OUT = 200 };

static bool same_pair_tile(const struct pair_test *t, uint32_t n, uint32_t rows)
{
    enum { N_X = PAIR_COLS / 2 * TILE_ROWS, N_Y = PAIR_OUT * TILE_ROWS + CANARY };
    static float tx[N_X], y0[N_Y], y1[N_Y];
    const uint32_t k = 1 + rng_below(&rng, t->max_k);
    struct tile a = {.y = y0, .ldy = n + rng_below(&rng, 20), .x = tx, .w = t->panels};
    a.w_bytes = ((k + 1) & ~1u) * LANES * sizeof(uint16_t), a.rows = rows, a.n = n, a.k = k;
    a.add = rng_below(&rng, 2), a.ahead = 64 * rng_below(&rng, 20);
    a.pace = rng_below(&rng, 65), a.bias = t->ref == k_tile_bf16x2_ref && a.k % 2 ? x : NULL;
    for (uint32_t i = 0; i < N_X; i++)
        tx[i] = float_of((uint32_t)t->panels[rng_below(&rng, t->n_panels)] << 16 |
                         t->panels[rng_below(&rng, t->n_panels)]);
    for (uint32_t i = 0; i < N_Y; i++)
        y0[i] = y1[i] = rng_wide(&rng);
    t->ref(&a);
    a.y = y1;
    t->fn(&a);
    return !memcmp(y0, y1, sizeof(y0));
}

/* Weights and x are pairs of any bfloat16 that are no NaN, subnormal ones too. */
static bool check_tile_bf16x2(void (*fn)(void), uint32_t n)
{
    enum { MAX_K = 70, MAX_N = PAIR_OUT - 2 * LANES, N = PAIR_OUT * MAX_K };
    static _Alignas(64) uint16_t panels[N];
    const struct pair_test t = {k_tile_bf16x2_ref, (tile_bf16x2_fn *)fn, panels, N, MAX_K};
    bool same = true;
    if (n > MAX_N)
        return true; /* nothing depends on more panels */
    fill(PAIR_OUT);  /* a bias */
    for (uint32_t i = 0; i < N; i++)
        panels[i] = rng_below(&rng, 50) ? bf16_of_f32(rng_wide(&rng)) : rng_u32(&rng) & 0x807f;
    for (uint32_t rows = 1; same && rows <= TILE_ROWS; rows++)
        same = same_pair_tile(&t, n, rows);
    return same;
}

/* Chains of magnitudes that overflow, vanish and cancel. */
static bool check_tile_f16x2(void (*fn)(void), uint32_t n)
{
    enum { MAX_K = PAIR_COLS, MAX_N = 88, N = 120 * MAX_K };
    static _Alignas(64) uint16_t panels[N];
    const struct pair_test t = {k_tile_f16x2_ref, (tile_f16x2_fn *)fn, panels, N, MAX_K};
    const int spread = (int)(n % 3) * 4;
    bool same = true;
    if (n > MAX_N)
        return true; /* nothing depends on more panels */
    for (uint32_t i = 0; i < N; i++)
        panels[i] = f16_of_f32(ldexpf(rng_wide(&rng), (int)rng_below(&rng, 9) - spread));
    for (uint32_t rows = 1; same && rows <= TILE_ROWS; rows += 1 + n % 3)
        same = same_pair_tile(&t, n, rows);
    return same;
}
#endif
