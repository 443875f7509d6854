/* MXFP4: numbers of four bits (e2m1), low nibble first, with a power of two for each 32 columns.
 * gpt-oss's layout of experts: `_blocks` [..., rows, groups, 16] and `_scales` [..., rows, groups];
 * dimensions before the rows (experts) multiply them. compressed-tensors: `.weight_packed`
 * [rows, cols / 2] and `.weight_scale` [rows, groups]. Open Compute Project, Microscaling Formats
 * (MX) v1.0. Every number is a bfloat16. */
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/quant/stored.h"
#include <math.h>
#include <stdio.h>

enum { GROUP = 32, GROUP_BYTES = GROUP / 2 };

/* The last dimensions are groups and, for blocks, their bytes; the others are the rows. */
static int expect(const struct stored_matrix *m, const struct tensor *t, int inner, struct err *e)
{
    const int at = t->n_dims - inner; /* of the groups */
    uint64_t rows = at >= 1;
    char want[64];
    if (t->type != T_U8 && !(inner == 1 && t->type == T_F8_E8M0))
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` has dtype %s; it must be U8", t->file,
                       t->name, tensor_type_name(t->type));
    for (int i = 0; i < at; i++)
        rows *= t->dims[i]; /* bytes were checked: no overflow */
    if (rows == (uint64_t)m->rows && t->dims[at] == m->groups &&
        (inner == 1 || t->dims[at + 1] == GROUP_BYTES))
        return 0;
    snprintf(want, sizeof(want), "%lld rows, %u%s", (long long)m->rows, m->groups,
             inner == 1 ? "" : ", 16");
    return tensor_wrong_shape(t, want, e);
}

static int check(struct stored_matrix *m, struct err *e)
{
    if (m->cols % GROUP)
        return stored_not_multiple(m, "columns", m->cols, GROUP, e);
    m->scale_row = m->groups;
    m->scale_group = 1;
    return expect(m, m->t[STORED_CODES], 2, e) || expect(m, m->t[STORED_SCALES], 1, e) ? -1 : 0;
}

static int check_packed(struct stored_matrix *m, struct err *e)
{
    if (m->cols % GROUP)
        return stored_not_multiple(m, "columns", m->cols, GROUP, e);
    m->scale_row = m->groups;
    m->scale_group = 1;
    return stored_expect(m->t[STORED_CODES], T_U8, (uint64_t)m->rows, (uint64_t)m->cols / 2, e) ||
                   expect(m, m->t[STORED_SCALES], 1, e)
               ? -1
               : 0;
}

static void codes(const struct stored_matrix *m, int64_t row, uint32_t n_rows, int64_t col,
                  uint32_t n_cols, stored_tile t)
{
    static const float e2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                   -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    for (uint32_t r = 0; r < n_rows; r++) {
        const uint8_t *p = (const uint8_t *)m->t[STORED_CODES]->data + (row + r) * (m->cols / 2);
        for (uint32_t c = 0; c < n_cols; c++)
            t[c][r] = e2m1[p[(col + c) / 2] >> (col + c) % 2 * 4 & 15];
    }
}

static bool form(const struct stored_matrix *m, const struct stored_slice *s, struct format *f)
{
    (void)m;
    *f = formats[FORMAT_MXFP4];
    return s->col % GROUP == 0 && s->cols % GROUP == 0;
}

/* The scale of doubled numbers in half precision, which has powers from 2^-24 on; larger ones
 * than 2^8 are not needed. A group of zeros needs no scale. */
static bool half_scale(uint8_t power, const uint8_t *pairs, uint16_t *out)
{
    enum { LEAST = 127 + 1 - 24, MOST = 127 + 1 + 8 };
    bool zeros = true;
    for (int i = 0; i < GROUP_BYTES; i++)
        zeros &= (pairs[i] & 0x77) == 0;
    *out = zeros ? 0 : f16_of_f32(ldexpf(1, power - 128));
    return zeros ? power != 255 : power >= LEAST && power <= MOST;
}

static bool codes_rows(const struct stored_matrix *m, int64_t row, uint32_t n_rows,
                       const struct stored_slice *s, const struct mat_codes *c, int64_t to)
{
    for (uint32_t r = 0; r < n_rows; r++)
        for (int64_t k = 0; k < s->cols; k += GROUP) {
            const int64_t group = (row + r) * m->groups + (s->col + k) / GROUP;
            const uint8_t *pairs = (const uint8_t *)m->t[STORED_CODES]->data + group * GROUP_BYTES;
            const int64_t at = (to + r) * s->cols + k;
            if (!half_scale(((const uint8_t *)m->t[STORED_SCALES]->data)[group], pairs,
                            &c->scale[at / GROUP]))
                return false;
            for (int i = 0; i < GROUP; i++)
                c->codes[at + i] = pairs[i / 2] >> i % 2 * 4 & 15;
        }
    return true;
}

const struct stored_format stored_mxfp4 = {
    .words = (const char *const[]){NULL},
    .suffix = {"_blocks", "_scales", NULL, NULL},
    .check = check,
    .codes = codes,
    .form = form,
    .codes_rows = codes_rows,
};
#define IN_ROWS(codes_name)                                                                        \
    {                                                                                              \
        .words = (const char *const[]){"compressed-tensors", NULL},                                \
        .suffix = {codes_name, ".weight_scale"}, .check = check_packed, .codes = codes,            \
        .form = form, .codes_rows = codes_rows                                                     \
    }
const struct stored_format stored_mxfp4_packed = IN_ROWS(".weight_packed");
/* AMD's Quark and NVIDIA's modelopt. */
const struct stored_format stored_mxfp4_bytes = IN_ROWS(".weight");
