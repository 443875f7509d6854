/* Apple's MLX (mlx.core.quantize): codes of 2 to 8 bits in words of 32, low bits first, without
 * gaps, so that codes of 3, 5 and 6 bits may span two words. A number is code * scale + bias, both
 * of a group of columns ("affine"). Scales in bytes are those of mxfp4 and mxfp8 (powers of two) or
 * nvfp4 (e4m3), whose codes are e2m1 or e4m3. */
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/quant/stored.h"
#include <math.h>

enum { STORED_BIASES = STORED_FURTHER, COLUMNS = 32, NV_GROUP = 16 };

static void vary(struct stored_matrix *m)
{
    const struct tensor *codes = m->t[STORED_CODES], *scales = m->t[STORED_SCALES];
    const uint64_t cols = (uint64_t)m->cols;
    if (codes->n_dims == 2 && codes->dims[1] * 32 % cols == 0 && codes->dims[1] * 32 / cols <= 8)
        m->how.bits = (uint32_t)(codes->dims[1] * 32 / cols);
    stored_vary_group(m, scales->n_dims == 2 ? scales->dims[1] : 0);
    m->how.is_float = scales->type == T_U8;
}

static bool known_bits(const struct stored_matrix *m)
{
    const uint32_t bits = m->how.bits;
    if (m->how.is_float)
        return bits == 8 ? m->group == COLUMNS
                         : bits == 4 && (m->group == COLUMNS || m->group == NV_GROUP);
    return bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8;
}

static int check(struct stored_matrix *m, struct err *e)
{
    const struct tensor *codes = m->t[STORED_CODES], *biases = m->t[STORED_BIASES];
    const uint64_t rows = (uint64_t)m->rows, bits = m->how.bits;
    m->scale_row = m->groups;
    m->scale_group = 1;
    if (!known_bits(m))
        return err_set(e, ERR_VALIDATION,
                       "%s: tensor `%s`: %u bits in groups of %u are not supported (MLX)",
                       codes->file, codes->name, m->how.bits, m->group);
    if (m->cols % COLUMNS)
        return stored_not_multiple(m, "columns", m->cols, COLUMNS, e);
    if (stored_expect(codes, T_U32, rows, (uint64_t)m->cols * bits / 32, e))
        return -1;
    if (m->how.is_float)
        return stored_expect(m->t[STORED_SCALES], T_U8, rows, m->groups, e);
    if (!biases)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` has no `.biases` beside it", codes->file,
                       codes->name);
    if (stored_expect_scales(m, false, e))
        return -1;
    return stored_expect(biases, m->t[STORED_SCALES]->type, rows, m->groups, e);
}

static uint32_t code_at(const struct stored_matrix *m, int64_t row, int64_t col)
{
    const uint32_t bits = m->how.bits;
    const int64_t bit = col * bits, word = row * (m->cols * bits / 32) + bit / 32;
    const uint32_t shift = (uint32_t)(bit % 32);
    uint32_t code = stored_u32(m->t[STORED_CODES], word) >> shift;
    if (shift + bits > 32)
        code |= stored_u32(m->t[STORED_CODES], word + 1) << (32 - shift);
    return code & ((1u << bits) - 1);
}

/* Of the modes whose scales are bytes. */
static float float_scale(const struct stored_matrix *m, int64_t at)
{
    const uint8_t byte = ((const uint8_t *)m->t[STORED_SCALES]->data)[at];
    return m->group == NV_GROUP ? f32_of_e4m3(byte) : byte == 255 ? NAN : ldexpf(1, byte - 127);
}

static float float_number(const struct stored_matrix *m, uint32_t code)
{
    const struct format *f = &formats[FORMAT_MXFP4];
    return m->how.bits == 8 ? f32_of_e4m3((uint8_t)code)
                            : 0.5f * (float)(f->table[code] - (int)f->zero);
}

static void numbers(const struct stored_matrix *m, int64_t row, int64_t col, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t code = code_at(m, row, col + i);
        const int64_t at = row * m->groups + (col + i) / m->group;
        out[i] = m->how.is_float ? float_number(m, code) * float_scale(m, at)
                                 : (float)code * stored_number(m->t[STORED_SCALES], at) +
                                       stored_number(m->t[STORED_BIASES], at);
    }
}

/* Codes of bytes (mxfp8) have no such format. */
static bool form(const struct stored_matrix *m, const struct stored_slice *s, struct format *f)
{
    if (s->col % COLUMNS || s->cols % COLUMNS || s->cols > QUANT_MAX_COLS)
        return false;
    if (m->how.is_float) {
        *f = formats[m->group == NV_GROUP ? FORMAT_NVFP4 : FORMAT_MXFP4];
        return m->how.bits == 4;
    }
    *f = (struct format){.name = m->how.method,
                         .element = ELEMENT_INT,
                         .scale = SCALE_F16,
                         .bits = m->how.bits,
                         .group = COLUMNS,
                         .block = COLUMNS,
                         .offsets = true};
    return m->group % COLUMNS == 0;
}

/* A number in half precision, if that can hold it. */
static bool half_of(float f, uint16_t *h)
{
    *h = f16_of_f32(f);
    return f32_of_f16(*h) == f;
}

static bool codes_rows(const struct stored_matrix *m, int64_t row, uint32_t n_rows,
                       const struct stored_slice *s, const struct mat_codes *c, int64_t to)
{
    const uint32_t block = c->format.block;
    for (uint32_t r = 0; r < n_rows; r++) {
        const int64_t first = (to + r) * s->cols;
        for (int64_t k = 0; k < s->cols; k++)
            c->codes[first + k] = (uint8_t)code_at(m, row + r, s->col + k);
        for (int64_t k = 0; k < s->cols; k += block) {
            const int64_t at = (row + r) * m->groups + (s->col + k) / m->group;
            const int64_t b = (first + k) / block;
            const float scale = m->how.is_float ? 0.5f * float_scale(m, at)
                                                : stored_number(m->t[STORED_SCALES], at);
            if (!half_of(scale, &c->scale[b]))
                return false;
            if (c->format.offsets &&
                !half_of(-stored_number(m->t[STORED_BIASES], at), &c->offset[b]))
                return false;
        }
    }
    return true;
}

const struct stored_format stored_mlx = {
    .words = (const char *const[]){NULL},
    .suffix = {".weight", ".scales", [STORED_BIASES] = ".biases"},
    .check = check,
    .vary = vary,
    .numbers = numbers,
    .form = form,
    .codes_rows = codes_rows,
};
