/* kernels_codes.h - checks of the kernels for panels of codes, for test_kernels.c: any layout of
 * a matrix, random codes and scales. */
#ifndef TESTS_CHECK_KERNELS_CODES_H
#define TESTS_CHECK_KERNELS_CODES_H
#include "model-server/backend/cpu/cpu.h"
#include "tests/check/kernels_rig.h"
#include <string.h>

enum { WIDE_K = 1024, CODES_MAX = WIDE_K / CODE_BLOCK * (4 * 256 + 512 * 16) };
static _Alignas(64) char codes[CODES_MAX];
static float wide_want[WIDE_K * LANES + CANARY], wide_got[WIDE_K * LANES + CANARY];

static bool same_widened(void) { return memcmp(wide_want, wide_got, sizeof(wide_want)) == 0; }

static void fill_widened(void)
{
    for (size_t i = 0; i < sizeof(codes); i++)
        codes[i] = (char)rng_u32(&rng);
    for (size_t i = 0; i < sizeof(wide_want) / 4; i++)
        wide_want[i] = wide_got[i] = rng_wide(&rng);
}

/* Any possible layout of a matrix. A table with offsets is looked up when codes are packed. */
static struct code_layout any_layout(void)
{
    static const enum format_id with_tables[] = {FORMAT_IQ4_NL, FORMAT_MXFP4, FORMAT_IQ2_S,
                                                 FORMAT_IQ3_XXS};
    const uint8_t *table =
        rng_below(&rng, 2) ? NULL : formats[with_tables[rng_below(&rng, 4)]].table;
    const struct mat_codes c = {
        .format = {.bits = table ? 4 : 2 + rng_below(&rng, 7),
                   .group = rng_below(&rng, 2) ? 16 : 32,
                   .block = (const uint32_t[]){16, 32, 64, 128, 256}[rng_below(&rng, 5)],
                   .offsets = rng_below(&rng, 2),
                   .nested = rng_below(&rng, 2),
                   .zeros = rng_below(&rng, 8) == 0,
                   .table = table}};
    struct code_layout l;
    code_layout_make(&l, &(struct mat_part){.codes = &c}, 1);
    return l;
}

/* Scales and offsets must be numbers. */
static void fill_scales(char *blocks, size_t bytes, const struct code_layout *l)
{
    for (size_t at = 0; at + l->bytes <= bytes; at += l->bytes)
        for (uint32_t i = 0; i < (l->offset ? 2 : 1) * l->scales * LANES; i++) {
            const uint16_t half = f16_of_f32(rng_wide(&rng));
            memcpy(blocks + at + (size_t)i * 2, &half, 2);
        }
}

static bool check_widen_codes(void (*fn)(void), uint32_t n)
{
    const struct code_layout l = any_layout();
    const uint32_t k = 32 * rng_below(&rng, WIDE_K / 32);
    const uint32_t cols = 32 * (1 + rng_below(&rng, (WIDE_K - k) / 32));
    (void)n;
    fill_widened();
    fill_scales(codes, sizeof(codes), &l);
    k_widen_codes_ref(wide_want, codes, &l, k, cols);
    ((widen_codes_fn *)fn)(wide_got, codes, &l, k, cols);
    return same_widened();
}

static bool check_dot_codes(void (*fn)(void), uint32_t n)
{
    enum { DOT_K = 512, DOT_N = 100 };
    static _Alignas(64) char panels[(DOT_N / LANES + 1) * CODES_MAX / (WIDE_K / DOT_K)];
    static float row[DOT_K], y0[DOT_N + CANARY], y1[DOT_N + CANARY];
    const struct code_layout l = any_layout();
    const uint32_t outputs = 1 + n % DOT_N, k = 32 * (1 + rng_below(&rng, DOT_K / 32));
    const size_t w_bytes = (size_t)(k + CODE_BLOCK - 1) / CODE_BLOCK * l.bytes;
    const size_t bytes = (outputs + LANES - 1) / LANES * w_bytes;
    for (size_t i = 0; i < bytes; i++)
        panels[i] = (char)rng_u32(&rng);
    fill_scales(panels, bytes, &l);
    for (uint32_t i = 0; i < k; i++)
        row[i] = rng_wide(&rng);
    for (size_t i = 0; i < DOT_N + CANARY; i++)
        y0[i] = y1[i] = rng_wide(&rng);
    k_dot_codes_ref(y0, row, panels, w_bytes, &l, outputs, k);
    ((dot_codes_fn *)fn)(y1, row, panels, w_bytes, &l, outputs, k);
    return memcmp(y0, y1, sizeof(y0)) == 0;
}

/* ---------------------------------------------------------------- activations in 8 bits */

/* Ties, tiny numbers, all zeros, and non-finite numbers. */
static bool check_round_x(void (*fn)(void), uint32_t n)
{
    static const float odd[] = {0x1p-121f, INFINITY, NAN, 0x1p127f, -0.0f, 0x1p-149f};
    (void)n;
    for (int round = 0; round < 8; round++) {
        const struct code_layout l = any_layout();
        int32_t expected[CODE_X_WORDS + 1] = {0}, actual[CODE_X_WORDS + 1] = {0};
        float row[CODE_COLS];
        for (int i = 0; i < CODE_COLS; i++)
            row[i] = round == 1 ? 0.0f : round == 2 ? 0.5f * (float)(i % 9) : rng_wide(&rng);
        if (round >= 4)
            row[rng_below(&rng, CODE_COLS)] = odd[rng_below(&rng, 6)];
        expected[CODE_X_WORDS] = actual[CODE_X_WORDS] = 12345;
        k_round_x_ref(expected, row, &l);
        ((round_x_fn *)fn)(actual, row, &l);
        if (memcmp(expected, actual, sizeof(expected)))
            return false;
    }
    return true;
}

enum { RECORD_MOST = 1024 + 2 * 64 };
_Static_assert(CODE_WIDE_BYTES <= 2 * RECORD_MOST, "check_panel() has too little room");

/* Some columns of a panel: the bytes that are written, at most 2 * RECORD_MOST for 32 columns, and
 * only these. */
static bool check_panel(unpack_fn *ref, unpack_fn *fn)
{
    enum { GROUPS = WIDE_K / CODE_COLS };
    static _Alignas(64) char expected[GROUPS * RECORD_MOST * 2 + 64], actual[sizeof(expected)];
    const struct code_layout l = any_layout();
    const uint32_t k = 32 * rng_below(&rng, GROUPS),
                   cols = 32 * (1 + rng_below(&rng, GROUPS - k / 32));
    fill_widened();
    fill_scales(codes, sizeof(codes), &l);
    memset(expected, 7, sizeof(expected)), memset(actual, 7, sizeof(actual));
    ref(expected, codes, &l, k, cols);
    fn(actual, codes, &l, k, cols);
    return memcmp(expected, actual, sizeof(expected)) == 0;
}

static bool check_unpack(void (*fn)(void), uint32_t n)
{
    (void)n;
    return check_panel(k_unpack_ref, (unpack_fn *)fn);
}

/* Rows as round_x() leaves them; extremes are frequent. */
static void fill_rounded(int32_t *to, uint32_t rows, uint32_t k, const struct code_layout *l)
{
    for (uint32_t i = 0; i < rows * k / CODE_COLS; i++, to += CODE_X_WORDS) {
        float f[CODE_COLS];
        for (int c = 0; c < CODE_COLS; c++)
            f[c] = rng_below(&rng, 3) ? rng_unit(&rng) : rng_below(&rng, 2) ? 1.0f : -1.0f;
        k_round_x_ref(to, f, l);
    }
}

enum { CODE_K = 512, CODE_N = 70, CODE_LDY = CODE_N + 20 };
static int32_t code_x[CODE_TILE_ROWS * CODE_K / CODE_COLS * CODE_X_WORDS];
static float code_want[CODE_TILE_ROWS * CODE_LDY + CANARY],
    code_got[CODE_TILE_ROWS * CODE_LDY + CANARY];

static bool same_tile(tile_codes_fn *ref, tile_codes_fn *fn, struct code_tile *t)
{
    for (size_t i = 0; i < sizeof(code_want) / 4; i++)
        code_want[i] = code_got[i] = rng_wide(&rng);
    t->x = code_x;
    t->y = code_want;
    ref(t);
    t->y = code_got;
    fn(t);
    return memcmp(code_want, code_got, sizeof(code_want)) == 0;
}

static bool check_tile_codes(void (*fn)(void), uint32_t n)
{
    static _Alignas(64) char panels[(CODE_N / LANES + 1) * (CODES_MAX / (WIDE_K / CODE_K))];
    for (uint32_t rows = 1; rows <= CODE_TILE_ROWS; rows++) {
        const struct code_layout l = any_layout();
        const uint32_t k = 32 * (1 + rng_below(&rng, CODE_K / 32));
        const size_t w_bytes = (size_t)(k + CODE_BLOCK - 1) / CODE_BLOCK * l.bytes;
        struct code_tile t = {.ldy = CODE_LDY,
                              .w = panels,
                              .w_bytes = w_bytes,
                              .layout = &l,
                              .rows = rows,
                              .n = 1 + n % CODE_N,
                              .k = k};
        for (size_t i = 0; i < sizeof(panels); i++)
            panels[i] = (char)rng_u32(&rng);
        fill_scales(panels, sizeof(panels), &l);
        for (size_t p = 0; p * LANES < t.n; p++)
            fill_scales(panels + p * w_bytes, w_bytes, &l);
        fill_rounded(code_x, rows, k, &l);
        if (!same_tile(k_tile_codes_ref, (tile_codes_fn *)fn, &t))
            return false;
    }
    return true;
}

static bool check_tile_wide(void (*fn)(void), uint32_t n)
{
    static _Alignas(64) char wide[CODE_K / CODE_COLS * CODE_WIDE_BYTES];
    for (uint32_t rows = 1; rows <= CODE_TILE_ROWS; rows++) {
        const struct code_layout l = any_layout();
        const uint32_t k = 32 * (1 + rng_below(&rng, CODE_K / 32));
        const struct code_tile of = {.ldy = CODE_LDY,
                                     .w = wide,
                                     .layout = &l,
                                     .rows = rows,
                                     .n = 1 + n % LANES,
                                     .k = k,
                                     .add = rng_below(&rng, 2),
                                     .fetch = wide,
                                     .fetch_step = 64 * rng_below(&rng, 3)};
        struct code_tile t = of;
        fill_widened();
        fill_scales(codes, sizeof(codes), &l);
        k_unpack_ref(wide, codes, &l, 0, k);
        fill_rounded(code_x, rows, k, &l);
        if (!same_tile(k_tile_wide_ref, (tile_wide_fn *)fn, &t))
            return false;
    }
    return true;
}

/* ---------------------------------------------------------------- on matrix units */

enum { SQUARE_TALL = 3, SQUARE_WIDE = 3, SQUARE_STEPS = 8 };

static bool check_square_x(void (*fn)(void), uint32_t n)
{
    static const float odd[] = {0x1p-121f, INFINITY, NAN, 0x1p127f, -0.0f, 0x1p-149f};
    static char expected[RECORD_MOST * 2 + 64], actual[sizeof(expected)];
    for (int round = 0; round < 8; round++) {
        const struct code_layout l = any_layout();
        float row[CODE_COLS];
        for (int i = 0; i < CODE_COLS; i++)
            row[i] = round == 1 ? 0.0f : round == 2 ? 0.5f * (float)(i % 9) : rng_wide(&rng);
        if (round >= 4)
            row[rng_below(&rng, CODE_COLS)] = odd[rng_below(&rng, 6)];
        memset(expected, 7, sizeof(expected)), memset(actual, 7, sizeof(actual));
        k_square_x_ref(expected, row, &l, n % SQUARE);
        ((square_x_fn *)fn)(actual, row, &l, n % SQUARE);
        if (memcmp(expected, actual, sizeof(expected)) != 0)
            return false;
    }
    return true;
}

static bool check_square_w(void (*fn)(void), uint32_t n)
{
    (void)n;
    return check_panel(k_square_w_ref, (unpack_fn *)fn);
}

/* Records of rows and of outputs: extremes are frequent. */
static void fill_records(char *xs, char *ws, const struct code_squares *t)
{
    const struct code_layout *l = t->layout;
    const uint32_t groups = t->steps * term_columns(l) / CODE_COLS;
    const size_t group = record_bytes(l) * (CODE_COLS / term_columns(l));
    for (uint32_t i = 0; i < t->tall * SQUARE * groups; i++) {
        float f[CODE_COLS];
        for (int c = 0; c < CODE_COLS; c++)
            f[c] = rng_below(&rng, 3) ? rng_unit(&rng) : rng_below(&rng, 2) ? 1.0f : -1.0f;
        k_square_x_ref(xs + i / SQUARE * group, f, l, i % SQUARE);
    }
    for (uint32_t i = 0; i < t->wide; i++) {
        fill_widened();
        fill_scales(codes, sizeof(codes), l);
        k_square_w_ref(ws + i * groups * group, codes, l, 0, groups * CODE_COLS);
    }
}

static bool check_squares_codes(void (*fn)(void), uint32_t n)
{
    enum { SUMS = SQUARE_TALL * SQUARE_WIDE * SQUARE * SQUARE + CANARY };
    static _Alignas(64) char xs[SQUARE_TALL * SQUARE_STEPS * RECORD_MOST];
    static _Alignas(64) char ws[SQUARE_WIDE * SQUARE_STEPS * RECORD_MOST];
    static _Alignas(64) float y0[SUMS], y1[SUMS];
    const struct code_layout l = any_layout();
    struct code_squares t = {.sums = y0, .x = xs, .w = ws, .layout = &l, .fetch = ws};
    t.tall = 1 + n % SQUARE_TALL, t.wide = 1 + rng_below(&rng, SQUARE_WIDE);
    t.steps = 2 + 2 * rng_below(&rng, SQUARE_STEPS / 2);
    t.add = rng_below(&rng, 2);
    t.fetch_step = 64 * rng_below(&rng, 3), t.fetch_panel = 64 * rng_below(&rng, 3);
    if (n > 65)
        return true; /* nothing depends on more */
    for (size_t i = 0; i < SUMS; i++)
        y0[i] = y1[i] = rng_below(&rng, 9) ? rng_wide(&rng) : -0.0f;
    fill_records(xs, ws, &t);
    k_squares_codes_ref(&t);
    t.sums = y1;
    ((squares_codes_fn *)fn)(&t);
    return memcmp(y0, y1, sizeof(y0)) == 0;
}
#endif
