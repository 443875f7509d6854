/* codes_made.h - random matrices of codes (struct mat_codes) for tests, of every format there is
 * and of such as a checkpoint chooses, beside the numbers that they are. */
#ifndef TESTS_CHECK_CODES_MADE_H
#define TESTS_CHECK_CODES_MADE_H
#include "model-server/backend/backend.h"
#include "model-server/backend/numbers.h"
#include "tests/check/random.h"
#include "tests/unit/test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* e4m3 with scales of blocks, which codes of a matrix of any width may be (fill_codes()). */
static const struct format e4m3_of_blocks = {"e4m3", ELEMENT_E4M3, SCALE_F32, 8, 0, 128, 0};

/* Random codes of e4m3, with a scale for each row or block, and the numbers that they are. */
static inline void fill_e4m3(struct rng *rng, struct mat_codes *c, uint32_t rows, uint32_t cols,
                             float *numbers)
{
    enum { NOT_A_NUMBER = 0x7f };
    const uint32_t n = rows * cols, blocks = format_blocks(&c->format, cols);
    c->codes = malloc(n), c->scales = malloc(sizeof(float) * rows * blocks);
    assert_true(c->codes && c->scales);
    for (uint32_t i = 0; i < rows * blocks; i++)
        c->scales[i] = rng_unit(rng) * ldexpf(1, -6 - (int)rng_below(rng, 6));
    for (uint32_t i = 0; i < n; i++) {
        c->codes[i] = (uint8_t)rng_u32(rng);
        c->codes[i] ^= (c->codes[i] & NOT_A_NUMBER) == NOT_A_NUMBER;
        numbers[i] =
            f32_of_e4m3(c->codes[i]) *
            c->scales[i / cols * blocks + (c->format.block ? i % cols / c->format.block : 0)];
    }
}

/* Random codes, and the numbers that they are. */
static inline void fill_codes(struct rng *rng, struct mat_codes *c, uint32_t rows, uint32_t cols,
                              float *numbers)
{
    const uint32_t n = rows * cols;
    *c = (struct mat_codes){.format = c->format};
    if (c->format.element == ELEMENT_E4M3) {
        fill_e4m3(rng, c, rows, cols, numbers);
        return;
    }
    c->codes = malloc(n), c->scale = malloc((size_t)n), c->offset = malloc((size_t)n);
    c->by = malloc(n), c->less = malloc(n);
    c->factor = malloc(rows * sizeof(*c->factor));
    assert_true(c->codes && c->scale && c->offset && c->by && c->less && c->factor);
    for (uint32_t i = 0; i < rows; i++) /* a power of two keeps the bits of a sum */
        c->factor[i] = ldexpf(1, -(int)rng_below(rng, 6));
    const struct format *f = &c->format;
    for (uint32_t i = 0; i < n; i++)
        c->codes[i] = (uint8_t)rng_below(rng, 1u << f->bits);
    for (uint32_t i = 0; i < n / f->block; i++) {
        c->scale[i] = f16_of_f32(((float)(int)rng_below(rng, 8001) * 0.001f - 4.0f));
        c->offset[i] = f16_of_f32(((float)(int)rng_below(rng, 8001) * 0.001f - 4.0f));
    }
    for (uint32_t i = 0; f->table && f->zero == 12 && i < n / f->block; i++)
        c->scale[i] = f16_of_f32(ldexpf(1, (int)rng_below(rng, 20) - 14)); /* of MXFP4 */
    for (uint32_t i = 0; i < n / f->group; i++) {
        c->by[i] = (int8_t)(f->offsets ? rng_below(rng, 64) : rng_below(rng, 256));
        c->less[i] = (int8_t)rng_below(rng, f->zeros ? (1u << f->bits) + 1 : 64);
    }
    for (uint32_t i = 0; i < n; i++) {
        const float scale =
            f32_of_f16(c->scale[i / f->block]) * (f->nested ? (float)c->by[i / f->group] : 1.0f);
        const float less =
            f32_of_f16(c->offset[i / f->block]) * (f->nested ? (float)c->less[i / f->group] : 1.0f);
        const int zero = f->zeros ? c->less[i / f->group] : (int)f->zero;
        const int code = f->table ? f->table[c->codes[i]] : c->codes[i];
        numbers[i] = scale * (float)(code - zero);
        numbers[i] -= f->offsets ? less : 0.0f;
        numbers[i] *= f->factors ? c->factor[i / cols] : 1.0f;
    }
}

static inline void free_codes(struct mat_codes *c)
{
    free(c->codes), free(c->scale), free(c->offset), free(c->by), free(c->less), free(c->factor);
    free(c->scales);
}

/* Codes with a scale, and some with a zero point for 32 columns, as keep.c and rounded.c make them.
 */
static const struct format with_zeros[] = {
    {"2 bits", ELEMENT_INT, SCALE_F16, 2, 32, 32, .zeros = true},
    {"4 bits", ELEMENT_INT, SCALE_F16, 4, 32, 32, .zeros = true},
    {"3 bits", ELEMENT_INT, SCALE_F16, 3, 32, 32, 4},
    {"128 columns", ELEMENT_INT, SCALE_F16, 4, 32, 128, 8},
    {"64 columns", ELEMENT_INT, SCALE_F16, 4, 32, 64, .zeros = true},
    {"16 columns", ELEMENT_INT, SCALE_F16, 8, 16, 16, 128, .factors = true},
    {"6 bits", ELEMENT_INT, SCALE_F16, 6, 32, 32, 32, .factors = true},
};
enum { WITH_ZEROS = sizeof(with_zeros) / sizeof(with_zeros[0]) };
enum { FORMS = FORMAT_N - FORMAT_Q4_0 + WITH_ZEROS };

static inline const struct format *any_format(uint32_t i)
{
    return i < WITH_ZEROS ? &with_zeros[i] : &formats[FORMAT_Q4_0 + i - WITH_ZEROS];
}

/* One that fits `cols`. */
static inline const struct format *drawn_format(struct rng *rng, uint32_t cols)
{
    const struct format *f = any_format(rng_below(rng, FORMS));
    while (cols % f->block)
        f = any_format(rng_below(rng, FORMS));
    return f;
}
#endif
