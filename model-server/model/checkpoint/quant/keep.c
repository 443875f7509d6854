/* Codes minus zero points times scales (GPTQ, AWQ, pack-quantized), kept as codes. Groups of any
 * multiple of 32 columns: a scale covers the largest power of two of them that divides the groups
 * of the slice, a zero point 32. */
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/quant/stored.h"
#include <math.h>
#include <string.h>

enum { COLUMNS = 32 };

/* The common zero point of all groups of the slice; -1: they differ. */
static int common_zero(const struct stored_matrix *m, const struct stored_slice *s)
{
    const struct stored_format *f = m->how.format;
    const uint32_t first = (uint32_t)(s->col / m->group),
                   last = (uint32_t)((s->col + s->cols - 1) / m->group);
    const int zero = f->zero ? (int)f->zero(m, s->row, first) : 0;
    for (int64_t r = 0; f->zero && r < s->rows; r++)
        for (uint32_t g = first; g <= last; g++)
            if ((int)f->zero(m, s->row + r * s->step, g) != zero)
                return -1;
    return zero;
}

static uint32_t columns_of(const struct stored_matrix *m, uint32_t group)
{
    uint32_t n = 0;
    for (int64_t i = 0; i < m->cols; i++)
        n += stored_u32(m->t[STORED_GROUPS], i) == group;
    return n;
}

/* Columns of arbitrary groups can be sorted by group: whole rows, and groups with multiples of 32
 * columns. */
static bool can_be_sorted(const struct stored_matrix *m, const struct stored_slice *s)
{
    bool whole = s->col == 0 && s->cols == m->cols;
    for (uint32_t g = 0; whole && g < m->groups; g++)
        whole = columns_of(m, g) % COLUMNS == 0;
    return whole;
}

/* The greatest power of two, at most `most`, that divides the number of columns of each group. */
static uint32_t sorted_block(const struct stored_matrix *m, uint32_t most)
{
    uint32_t block = most;
    for (uint32_t g = 0; g < m->groups; g++)
        for (const uint32_t n = columns_of(m, g); n % block;)
            block /= 2;
    return block;
}

/* Columns that share a scale. Sorted ones begin a group where the one before ends. */
static uint32_t block_of(const struct stored_matrix *m, const struct stored_slice *s)
{
    enum { MOST = 256 };
    uint32_t block = MOST;
    if (m->t[STORED_GROUPS])
        return sorted_block(m, MOST);
    while (block > COLUMNS &&
           (s->cols % block || (m->groups > 1 && (m->group % block || s->col % block))))
        block /= 2;
    return block;
}

void keep_order(const struct stored_matrix *m, const struct stored_slice *s, uint32_t *order)
{
    (void)s;
    for (uint32_t g = 0; g < m->groups; g++)
        for (int64_t i = 0; i < m->cols; i++)
            if (stored_u32(m->t[STORED_GROUPS], i) == g)
                *order++ = (uint32_t)i;
}

bool keep_form(const struct stored_matrix *m, const struct stored_slice *s, struct format *f)
{
    const struct stored *how = &m->how;
    const uint32_t middle = 1u << (how->bits - 1);
    if (how->is_float || m->row_block != 1 || how->bits < 2 || how->bits > 8 || s->col % COLUMNS ||
        s->cols % COLUMNS || (m->groups > 1 && m->group % COLUMNS) || s->cols > QUANT_MAX_COLS ||
        (m->t[STORED_GROUPS] && !can_be_sorted(m, s)))
        return false;
    *f = (struct format){.name = how->method,
                         .element = ELEMENT_INT,
                         .scale = SCALE_F16,
                         .bits = how->bits,
                         .group = COLUMNS,
                         .block = block_of(m, s),
                         .zero = middle,
                         .ordered = m->t[STORED_GROUPS] != NULL};
    if (common_zero(m, s) == (int)middle)
        return true;
    f->zero = 0;
    f->zeros = true;
    return how->bits < 8; /* otherwise zero points would exceed signed 8 bits */
}

/* The scale in half precision, if that can hold it. */
static bool half_of(float f, uint16_t *h)
{
    *h = f16_of_f32(f);
    return fabsf(f) <= 256.0f && f32_of_f16(*h) == f;
}

static bool keep_terms(const struct stored_matrix *m, int64_t row, const struct stored_slice *s,
                       const struct mat_codes *c, int64_t to)
{
    int64_t known = -1;
    uint16_t scale = 0;
    int8_t zero = 0;
    for (int64_t k = 0; k < s->cols; k += COLUMNS) {
        const int64_t at = to * s->cols + k;
        const int64_t group =
            c->order ? stored_u32(m->t[STORED_GROUPS], c->order[k]) : (s->col + k) / m->group;
        if (group != known) {
            if (!half_of(stored_scale(m, row, (uint32_t)group), &scale))
                return false;
            if (c->format.zeros)
                zero = (int8_t)m->how.format->zero(m, row, (uint32_t)group);
            known = group;
        }
        c->scale[at / c->format.block] = scale;
        if (c->format.zeros)
            c->less[at / COLUMNS] = zero;
    }
    return true;
}

/* From the order of the matrix to that of the sorted columns. */
static void sort_row(const struct mat_codes *c, uint8_t *row, int64_t cols)
{
    enum { MOST = QUANT_MAX_COLS };
    uint8_t was[MOST];
    memcpy(was, row, (size_t)cols);
    for (int64_t k = 0; k < cols; k++)
        row[k] = was[c->order[k]];
}

bool keep_rows(const struct stored_matrix *m, int64_t row, uint32_t n_rows,
               const struct stored_slice *s, const struct mat_codes *c, int64_t to)
{
    stored_tile t;
    for (int64_t k = 0; k < s->cols; k += STORED_TILE) {
        const int64_t left = s->cols - k;
        const uint32_t n = (uint32_t)(left < STORED_TILE ? left : STORED_TILE);
        m->how.format->codes(m, row, n_rows, s->col + k, n, t);
        for (uint32_t r = 0; r < n_rows; r++)
            for (uint32_t i = 0; i < n; i++)
                c->codes[(to + r) * s->cols + k + i] = (uint8_t)t[i][r];
    }
    for (uint32_t r = 0; c->order && r < n_rows; r++)
        sort_row(c, c->codes + (to + r) * s->cols, s->cols);
    for (uint32_t r = 0; r < n_rows; r++)
        if (!keep_terms(m, row + r, s, c, to + r))
            return false;
    return true;
}
