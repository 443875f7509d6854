/* codes.c - packs codes (struct mat_codes) for the device: chooses the layout of a matrix (enum
 * packed in stored.h), and converts its rows.
 *
 * A format's number, ((n(code) - zero) * scale * by - offset * less) * factor, becomes (m * s -
 * o) * f. m is a small integer, which 16 bits hold exactly. s and o are rounded to float16: scale
 * * by and the subtracted terms have more bits. A row's factor contains the power of two that
 * brings its greatest s or o close to 2^15, so that the others are normal numbers down to 2^-29
 * of that. So the error of s and o is at most 2^-11 of their value, while x is rounded to 2^-8
 * (bfloat16) or 2^-11 (float16). They are exact in formats without nested scales, offsets and
 * zero points. */
#include "model-server/backend/cuda/cuda.h"
#include "model-server/backend/numbers.h"
#include <math.h>

/* ---------------------------------------------------------------- which layout */

/* n(code), without what is subtracted. */
static int number_of(const struct format *f, uint32_t code)
{
    return f->table ? f->table[code] : (int)code;
}

/* The n(code) where m is 0. For integers with offsets or zero points it is the middle, which
 * minimises the offsets. */
static int middle_of(const struct format *f)
{
    return f->offsets || f->zeros ? 1 << (f->bits - 1) : (int)f->zero;
}

/* Every m of the format is in [low, high]. */
static bool fits(const struct format *f, int low, int high)
{
    for (uint32_t code = 0; code < 1u << f->bits; code++) {
        const int m = number_of(f, code) - middle_of(f);
        if (m < low || m > high)
            return false;
    }
    return true;
}

static uint32_t columns_alike(const struct format *f)
{
    const bool own = f->nested || f->zeros;
    return own && f->group < f->block ? f->group : f->block;
}

/* Scales of e4m3 are stored for each step of 64 columns. */
static enum take e4m3_take(const struct format *f, enum arith a)
{
    const uint32_t step = group_columns(PACKED_E4M3);
    const bool fits = f->scale == SCALE_F32 && f->block % step == 0;
    return a == ARITH_INT8 ? TAKE_NO : fits ? TAKE_NATIVE : TAKE_WIDEN;
}

enum take cuda_codes_take(const struct format *f, enum arith a)
{
    if (f->element == ELEMENT_E4M3)
        return e4m3_take(f, a);
    const uint32_t columns = columns_alike(f);
    const bool shaped =
        f->scale == SCALE_F16 && columns >= 16 && columns % 16 == 0 && !f->ordered && f->bits <= 8;
    return shaped && (!f->rounded || a == ARITH_INT8) && fits(f, INT8_MIN, INT8_MAX) ? TAKE_NATIVE
                                                                                     : TAKE_WIDEN;
}

/* True if the 4-bit codes of all parts have the same table. */
static bool same_table(const struct mat_part *parts, int n)
{
    const struct format *f = &parts[0].codes->format;
    for (int i = 1; i < n; i++) {
        const struct format *o = &parts[i].codes->format;
        if (o->table != f->table || o->zero != f->zero)
            return false;
    }
    return f->table;
}

static uint32_t table_word(const struct format *f, uint32_t i)
{
    uint32_t word = 0;
    for (uint32_t j = 0; j < 4; j++)
        word |= (uint32_t)(uint8_t)(number_of(f, 4 * i + j) - middle_of(f)) << 8 * j;
    return word;
}

/* The numbers of e2m1 in halves, as table_word() has them. */
static const int8_t e2m1_halves[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static uint32_t e4m3_layout(const struct mat_part *parts, int n)
{
    bool blocks = false;
    for (int i = 0; i < n; i++)
        blocks |= parts[i].codes->format.block != 0;
    return blocks ? PACKED_E4M3 : QUANT_FP8;
}

void cuda_codes_layout(struct stored *m, const struct mat_part *parts, int n)
{
    if (parts[0].codes->format.element == ELEMENT_E4M3) {
        m->quant = e4m3_layout(parts, n);
        return;
    }
    bool four = true, wide = true;
    m->offsets = false;
    for (int i = 0; i < n; i++) {
        const struct format *f = &parts[i].codes->format;
        wide &= columns_alike(f) % group_columns(PACKED_4) == 0;
        four &= fits(f, -8, 7);
        m->offsets |= f->offsets || f->zeros;
    }
    const bool table = wide && !four && same_table(parts, n) && parts[0].codes->format.bits <= 4;
    m->quant = wide && four ? PACKED_4 : table ? PACKED_TABLE : PACKED_8;
    for (uint32_t i = 0; table && i < 4; i++)
        m->table[i] = table_word(&parts[0].codes->format, i);
    if (table && m->dtype != DT_F16 && memcmp(m->table, e2m1_halves, sizeof(e2m1_halves)) == 0)
        m->quant = PACKED_FP4;
}

/* ---------------------------------------------------------------- a row */

struct group_scale {
    double scale, offset;
};

/* Scales of the columns from element `at` of the part on. All exact. */
static struct group_scale scale_of(const struct mat_codes *c, size_t at)
{
    const struct format *f = &c->format;
    const size_t group = at / f->group, block = at / f->block;
    const double scale = f32_of_f16(c->scale[block]);
    struct group_scale g = {.scale = f->nested ? scale * c->by[group] : scale};
    const int zero = f->offsets || f->zeros ? 0 : (int)f->zero;
    if (f->zeros)
        g.offset = scale * c->less[group];
    else if (f->offsets)
        g.offset = f32_of_f16(c->offset[block]) * (f->nested ? (double)c->less[group] : 1.0);
    g.offset += g.scale * (zero - middle_of(f));
    return g;
}

/* The power of two that makes the greatest scale or offset of a row less than 2^15. */
static double row_power(const struct mat_codes *c, size_t first, uint32_t cols, uint32_t step)
{
    double most = 0;
    int power = 0;
    for (uint32_t k = 0; k < cols; k += step) {
        const struct group_scale g = scale_of(c, first + k);
        most = fmax(most, fmax(fabs(g.scale), fabs(g.offset)));
    }
    if (most > 0 && isfinite(most))
        frexp(most, &power), power -= 15;
    return ldexp(1, power);
}

void cuda_codes_row(const struct stored *w, char *dst, void *scales, uint32_t row,
                    const struct mat_codes *c, size_t part_row)
{
    const struct format *f = &c->format;
    const uint32_t step = group_columns(w->quant);
    const size_t first = part_row * w->cols, groups = groups_bytes(w->rows, w->cols, w->quant);
    const double power = row_power(c, first, w->cols, step);
    uint16_t *scale = scales, *offset = scale + groups / sizeof(*scale);
    float *factor =
        (float *)((char *)scales + factors_at(w) - scales_at(w->rows, w->cols, w->quant));
    memset(dst, 0, row_bytes(w->cols, w->dtype, w->quant));
    for (uint32_t k = 0; k < w->cols; k++) {
        const uint32_t code = c->codes[first + k];
        const int m = number_of(f, code) - middle_of(f);
        store_code(dst, k, w->quant,
                   w->quant == PACKED_4   ? (uint32_t)(m + 8)
                   : w->quant == PACKED_8 ? (uint8_t)m
                                          : code);
    }
    for (uint32_t k = 0; k < w->cols; k += step) {
        const struct group_scale g = scale_of(c, first + k);
        const size_t at = group_at(row, k, w->cols, w->quant);
        scale[at] = f16_of_f32((float)(g.scale / power));
        if (w->offsets)
            offset[at] = f16_of_f32((float)(g.offset / power));
    }
    factor[row] = (float)power * (f->factors ? c->factor[part_row] : 1.0f);
}
