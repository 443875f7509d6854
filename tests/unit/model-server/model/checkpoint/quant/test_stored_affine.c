/* Numbers that are code * scale - less (HQQ, torchao's 4 bits), and torchao's bytes, against their
 * definitions. */
#include "tests/unit/model-server/model/checkpoint/quant/stored_rig.h"
#include <math.h>

enum { ROWS = 40, COLS = 128, TILED = 1024, GROUPS = 4, GROUP = 32 };
static float want[ROWS][COLS];
static const struct stored ao = {
    .format = &stored_torchao, .method = "torchao", .row_block = 1, .varies = true};
static const struct stored hqq = {
    .format = &stored_hqq, .method = "hqq", .row_block = 1, .varies = true};

static float any_number(struct rng *r) { return ((float)rng_below(r, 200) - 100) / 128; }

static void put_half(uint8_t *p, int64_t at, float v)
{
    const uint16_t h = bf16_of_f32(v);
    memcpy(p + 2 * at, &h, 2);
}

/* `off`: the greatest error of a number that is kept as a code; less than 0: none may be kept. */
static void assert_wanted(const struct stored *how, float off)
{
    static float out[ROWS * COLS];
    const struct backend_ops ops = {.name = "none", .weight_takes = takes_all};
    const struct stored_slice s = {3, ROWS - 3, 1, 32, COLS - 32};
    struct stored keep = *how;
    struct stored_matrix m;
    struct mat_codes c;
    struct err e = ERR_INIT;
    keep.keep = true;
    if (stored_open(&m, &keep, "q", ROWS, COLS, find, NULL, &e))
        fail_msg("%s", e.msg);
    stored_numbers(&m, 1, ROWS - 1, 5, COLS - 5, DT_F32, out, &ops, NULL);
    for (int o = 1; o < ROWS; o++)
        for (int i = 5; i < COLS; i++)
            if (fabsf(out[(o - 1) * (COLS - 5) + i - 5] - want[o][i]) > 1e-6f)
                fail_msg("(%d, %d): %g, not %g", o, i, (double)out[(o - 1) * (COLS - 5) + i - 5],
                         (double)want[o][i]);
    assert_int_equal(stored_codes(&m, &s, &c, &ops, NULL), off >= 0);
    for (int64_t i = 0; off >= 0 && i < s.rows * s.cols; i++) {
        const float less = c.format.offsets ? f32_of_f16(c.offset[i / c.format.block]) : 0;
        const float kept = number_kept(&c, i, s.cols) - less;
        assert_true(fabsf(kept - want[3 + i / s.cols][32 + i % s.cols]) <= off);
    }
    if (off >= 0)
        free(c.codes);
}

static void refused(const struct stored *how, const char *says)
{
    struct stored_matrix m;
    struct err e = ERR_INIT;
    assert_int_equal(stored_open(&m, how, "q", ROWS, COLS, find, NULL, &e), -1);
    if (!strstr(e.msg, says))
        fail_msg("%s", e.msg);
}

/* ---------------------------------------------------------------- torchao */

static void bytes_of(struct rng *r, int bits, int groups, bool asymmetric)
{
    const int half = 1 << (bits - 1), group = COLS / groups;
    make(r, ROWS, COLS, group, bits, 0);
    uint8_t *q = tensor(STORED_CODES, "q._weight_qdata", T_I8, 1, ROWS, COLS);
    uint8_t *s = tensor(STORED_SCALES, "q._weight_scale", T_BF16, 2, ROWS, groups);
    uint8_t *z = tensor(STORED_ZEROS, "q._weight_zero_point", T_I8, 1, ROWS, groups);
    for (int o = 0; o < ROWS; o++)
        for (int i = 0; i < COLS; i++) {
            const int g = i / group, zero = asymmetric ? o % 3 - 1 : 0;
            const float scale = (float)(1 + (o + g) % 7) / 256;
            q[o * COLS + i] = (uint8_t)(truth.code[o][i] - half);
            z[o * groups + g] = (uint8_t)zero;
            put_half(s, o * groups + g, scale);
            want[o][i] = (float)(truth.code[o][i] - half - zero) * scale;
        }
}

TEST(torchao_bytes)
{
    struct rng r = rng_new();
    for (int groups = 1; groups <= GROUPS; groups *= 4)
        for (int bits = 4; bits <= 8; bits += 4)
            for (int asymmetric = 0; asymmetric < 2; asymmetric++) {
                bytes_of(&r, bits, groups, asymmetric);
                assert_wanted(&ao, bits == 8 && asymmetric ? -1 : 0);
            }
    tensor(STORED_FURTHER, "q._weight_act_pre_scale", T_BF16, 2, COLS, 0);
    refused(&ao, "scaled inputs are not supported");
}

TEST(torchao_pairs)
{
    struct rng r = rng_new();
    make(&r, ROWS, COLS, GROUP, 4, 0);
    uint8_t *q = tensor(STORED_CODES, "q._weight_qdata", T_I8, 1, ROWS, COLS / 2);
    uint8_t *s = tensor(STORED_SCALES, "q._weight_scale", T_BF16, 2, GROUPS, ROWS);
    uint8_t *z = tensor(STORED_ZEROS, "q._weight_zero_point", T_BF16, 2, GROUPS, ROWS);
    for (int o = 0; o < ROWS; o++)
        for (int i = 0; i < COLS; i++)
            q[o * (COLS / 2) + i / 2] |= (uint8_t)((truth.code[o][i] ^ 8) << i % 2 * 4);
    for (int o = 0; o < ROWS; o++)
        for (int g = 0; g < GROUPS; g++) {
            const float scale = (float)(1 + (o + g) % 7) / 256, plus = any_number(&r);
            put_half(s, g * ROWS + o, scale);
            put_half(z, g * ROWS + o, plus);
            for (int i = g * GROUP; i < (g + 1) * GROUP; i++)
                want[o][i] = (float)(truth.code[o][i] - 8) * scale + f32_of_bf16(bf16_of_f32(plus));
        }
    assert_wanted(&ao, 5e-4f);
    tensors[STORED_CODES].type = T_I32;
    refused(&ao, "must be I8");
}

/* Lane t of a tile has row t / 4; word w has, of columns 32 w + 2 (t % 4) on, 0, 8, 16, 24, then 1,
 * 9, 17, 25. */
TEST(torchao_tiles)
{
    enum { PADDED = TILED / GROUP, TILES = ROWS / 8 * (TILED / 128) };
    static uint8_t q[TILES * 32 * 4 * 4 + 1], s[PADDED * ROWS * 4 + 1];
    struct rng r = rng_new();
    make(&r, ROWS, COLS, GROUP, 4, 0);
    for (int o = 0; o < ROWS; o++)
        for (int t = 0; t < 4; t++)
            for (int w = 0; w < 4; w++)
                for (int n = 0; n < 8; n++) {
                    const int col = 32 * w + 2 * t + n % 4 * 8 + n / 4;
                    const int lane = o % 8 * 4 + t, tile = o / 8 * (TILED / 128);
                    put_u32(q + 1, (tile * 32 + lane) * 4 + w,
                            (uint32_t)truth.code[o][col] << 4 * n, true);
                }
    for (int o = 0; o < ROWS; o++)
        for (int g = 0; g < GROUPS; g++) {
            const float scale = (float)(1 + (o + g) % 7) / 256, plus = any_number(&r);
            put_half(s + 1, (g * ROWS + o) * 2, scale);
            put_half(s + 1, (g * ROWS + o) * 2 + 1, plus);
            for (int i = g * GROUP; i < (g + 1) * GROUP; i++)
                want[o][i] = (float)(truth.code[o][i] - 8) * scale + f32_of_bf16(bf16_of_f32(plus));
        }
    tensors[STORED_CODES] = (struct tensor){.name = "q._weight_qdata",
                                            .file = "w",
                                            .type = T_I32,
                                            .n_dims = 4,
                                            .dims = {ROWS / 8, TILED / 128, 32, 4},
                                            .bytes = sizeof(q) - 1,
                                            .data = q + 1};
    tensors[STORED_SCALES] = (struct tensor){.name = "q._weight_scale_and_zero",
                                             .file = "w",
                                             .type = T_BF16,
                                             .n_dims = 3,
                                             .dims = {PADDED, ROWS, 2},
                                             .bytes = sizeof(s) - 1,
                                             .data = s + 1};
    assert_wanted(&ao, 5e-4f);
    tensors[STORED_CODES].dims[1]--;
    refused(&ao, "tiles of 8 rows and 128 columns");
}

/* ---------------------------------------------------------------- HQQ */

static void put_hqq(struct rng *r, int n_bits, int group, int axis)
{
    const int per = n_bits == 3 ? 10 : n_bits > 4 ? 1 : 8 / n_bits, bits = per == 1 ? 8 : n_bits;
    const int n = ROWS * COLS / group, rows = axis ? n : group, wide = axis ? group : n;
    const int packed = (rows + per - 1) / per;
    make(r, ROWS, COLS, 0, n_bits, 0);
    uint8_t *q =
        tensor(STORED_CODES, "q.W_q", bits == 3 ? T_I32 : T_U8, bits == 3 ? 4 : 1, packed, wide);
    uint8_t *s = tensor(STORED_SCALES, "q.scale", T_BF16, 2, axis ? n : 1, axis ? 1 : n);
    uint8_t *z = tensor(STORED_ZEROS, "q.zero", T_BF16, 2, axis ? n : 1, axis ? 1 : n);
    const int values[] = {n_bits, group, axis};
    static const char *const names[] = {"q.nbits", "q.group_size", "q.axis"};
    for (int i = 0; i < 3; i++)
        put_u32(tensor(STORED_FURTHER + i, names[i], T_I32, 4, 1, 0), 0, (uint32_t)values[i],
                false);
    for (int g = 0; g < n; g++) {
        put_half(s, g, (float)(1 + g % 7) / 256);
        put_half(z, g, (float)(g % 13) / 8);
    }
    for (int i = 0; i < ROWS * COLS; i++) {
        const int row = i / wide, g = axis ? i / group : i % wide,
                  code = truth.code[i / COLS][i % COLS];
        const int at = row % packed * wide + i % wide, shift = (per - 1 - row / packed) * bits;
        if (bits == 3)
            put_u32(q, at, (uint32_t)code << shift, true);
        else
            q[at] |= (uint8_t)(code << shift);
        want[i / COLS][i % COLS] = ((float)code - (float)(g % 13) / 8) * (float)(1 + g % 7) / 256;
    }
}

TEST(hqq_packings)
{
    static const int bits[] = {1, 2, 3, 4, 5, 6, 8};
    struct rng r = rng_new();
    for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++)
        for (int axis = 0; axis < 2; axis++)
            for (int group = 16; group <= 64; group *= 2) {
                put_hqq(&r, bits[i], group, axis);
                assert_wanted(&hqq, axis && group >= GROUP && bits[i] > 1 ? 1e-4f : -1);
            }
    put_u32((uint8_t *)(uintptr_t)tensors[STORED_FURTHER + 1].data, 0, 0, false);
    refused(&hqq, "`.group_size` that divides the matrix");
    put_hqq(&r, 4, 32, 1);
    put_u32((uint8_t *)(uintptr_t)tensors[STORED_FURTHER].data, 0, 3, false);
    refused(&hqq, "has dtype U8; it must be I32");
    put_hqq(&r, 4, 32, 1);
    tensors[STORED_ZEROS].bytes -= 2;
    refused(&hqq, "one number for each group");
}

int main(void) { return tests_run(NULL, NULL); }
