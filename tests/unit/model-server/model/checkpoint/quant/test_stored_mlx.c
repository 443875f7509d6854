/* MLX's packing against its definition, in all modes, with groups and bits that the tensors show.
 */
#include "tests/unit/model-server/model/checkpoint/quant/stored_rig.h"
#include <math.h>

enum { ROWS = 50, COLS = 128 };
static float want[ROWS][COLS];
static const struct stored how = {
    .format = &stored_mlx, .method = "mlx", .row_block = 1, .varies = true};

static void put_mlx_codes(int bits)
{
    uint8_t *q = tensor(STORED_CODES, "q.weight", T_U32, 4, ROWS, COLS * bits / 32);
    for (int o = 0; o < ROWS; o++)
        for (int i = 0; i < COLS * bits; i++) {
            const uint32_t bit = (uint32_t)truth.code[o][i / bits] >> i % bits & 1;
            put_u32(q, o * (COLS * bits / 32) + i / 32, bit << i % 32, true);
        }
}

/* A bfloat16 that half precision holds, too. */
static float put_number(struct rng *r, uint8_t *p, int at)
{
    const float v = ((float)rng_below(r, 200) - 100) / 128;
    const uint16_t h = bf16_of_f32(v);
    memcpy(p + 2 * at, &h, 2);
    return f32_of_bf16(h);
}

static void put_affine(struct rng *r, int bits, int group)
{
    make(r, ROWS, COLS, group, bits, 0);
    put_mlx_codes(bits);
    uint8_t *scales = tensor(STORED_SCALES, "q.scales", T_BF16, 2, ROWS, COLS / group);
    uint8_t *biases = tensor(STORED_FURTHER, "q.biases", T_BF16, 2, ROWS, COLS / group);
    for (int o = 0; o < ROWS; o++)
        for (int g = 0; g < COLS / group; g++) {
            const float scale = put_number(r, scales, o * (COLS / group) + g);
            const float bias = put_number(r, biases, o * (COLS / group) + g);
            for (int c = g * group; c < (g + 1) * group; c++)
                want[o][c] = (float)truth.code[o][c] * scale + bias;
        }
}

static void assert_wanted(bool kept)
{
    static float out[ROWS * COLS];
    const struct backend_ops ops = {.name = "none", .weight_takes = takes_all};
    const struct stored_slice s = {3, ROWS - 3, 1, 32, COLS - 32};
    struct stored keep = how;
    struct stored_matrix m;
    struct mat_codes c;
    struct err e = ERR_INIT;
    keep.keep = true;
    if (stored_open(&m, &keep, "q", ROWS, COLS, find, NULL, &e))
        fail_msg("%s", e.msg);
    stored_numbers(&m, 1, ROWS - 1, 5, COLS - 5, DT_F32, out, &ops, NULL);
    for (int o = 1; o < ROWS; o++)
        for (int i = 5; i < COLS; i++)
            assert_true(out[(o - 1) * (COLS - 5) + i - 5] == want[o][i]);
    assert_int_equal(stored_codes(&m, &s, &c, &ops, NULL), kept);
    for (int64_t i = 0; kept && i < s.rows * s.cols; i++) {
        const float less = c.format.offsets ? f32_of_f16(c.offset[i / c.format.block]) : 0;
        assert_true(number_kept(&c, i, s.cols) - less == want[3 + i / s.cols][32 + i % s.cols]);
    }
    if (kept)
        free(c.codes);
}

TEST(affine)
{
    struct rng r = rng_new();
    for (int bits = 2; bits <= 8; bits += bits == 6 ? 2 : 1)
        for (int group = 32; group <= COLS; group *= 2) {
            put_affine(&r, bits, group);
            assert_wanted(true);
        }
    const float small = 0x1.8p-30F; /* half precision cannot hold it */
    uint16_t h = bf16_of_f32(small);
    memcpy(bytes[STORED_SCALES] + 1 + (size_t)(5 * (COLS / 128)) * 2, &h, 2);
    for (int c = 0; c < COLS; c++) {
        uint16_t b;
        memcpy(&b, bytes[STORED_FURTHER] + 1 + (size_t)(5 * (COLS / 128)) * 2, 2);
        want[5][c] = (float)truth.code[5][c] * small + f32_of_bf16(b);
    }
    assert_wanted(false);
}

TEST(floats)
{
    static const float e2m1[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    static const struct {
        int bits, group;
    } modes[] = {{4, 32}, {4, 16}, {8, 32}};
    struct rng r = rng_new();
    for (int k = 0; k < 3; k++) {
        const int bits = modes[k].bits, group = modes[k].group;
        make(&r, ROWS, COLS, group, bits, 0);
        for (int o = 0; o < ROWS && bits == 8; o++)
            for (int c = 0; c < COLS; c++)
                truth.code[o][c] &= 0xbf; /* no NaN */
        put_mlx_codes(bits);
        uint8_t *scales = tensor(STORED_SCALES, "q.scales", T_U8, 1, ROWS, COLS / group);
        for (int i = 0; i < ROWS * (COLS / group); i++)
            scales[i] = (uint8_t)(group == 16 ? rng_below(&r, 120) : 118 + rng_below(&r, 12));
        for (int o = 0; o < ROWS; o++)
            for (int c = 0; c < COLS; c++) {
                const int code = truth.code[o][c];
                const uint8_t s = scales[o * (COLS / group) + c / group];
                const float n = bits == 8 ? f32_of_e4m3((uint8_t)code)
                                          : (code & 8 ? -1.0F : 1.0F) * e2m1[code & 7];
                want[o][c] = n * (group == 16 ? f32_of_e4m3(s) : ldexpf(1, s - 127));
            }
        assert_wanted(bits == 4);
    }
}

static void refused(const char *says)
{
    struct stored_matrix m;
    struct err e = ERR_INIT;
    assert_int_equal(stored_open(&m, &how, "q", ROWS, COLS, find, NULL, &e), -1);
    if (!strstr(e.msg, says))
        fail_msg("`%s` does not say `%s`", e.msg, says);
}

TEST(malformed)
{
    struct rng r = rng_new();
    put_affine(&r, 4, 64);
    tensors[STORED_FURTHER].name = NULL;
    refused("tensor `q.weight` has no `.biases` beside it");
    put_affine(&r, 4, 64);
    tensors[STORED_FURTHER].dims[1] = 1;
    refused("tensor `q.biases` has shape [50, 1]");
    put_affine(&r, 4, 64);
    tensors[STORED_SCALES].dims[1] = 3;
    refused("tensor `q.scales` has shape");
    put_affine(&r, 4, 64);
    tensors[STORED_CODES].dims[1] = 4; /* of one bit */
    refused("1 bits in groups of 64 are not supported (MLX)");
    put_affine(&r, 4, 64);
    tensors[STORED_CODES].type = T_I8;
    refused("tensor `q.weight` has dtype I8; it must be U32");
}

int main(void) { return tests_run(NULL, NULL); }
