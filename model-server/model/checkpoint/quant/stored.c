#include "model-server/model/checkpoint/quant/stored.h"
#include "model-server/backend/numbers.h"
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_LEN = 256 };

/* ---------------------------------------------------------------- what the file must hold */

int stored_expect(const struct tensor *t, enum tensor_type type, uint64_t a, uint64_t b,
                  struct err *e)
{
    char want[64];
    if (t->type != type)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` has dtype %s; it must be %s", t->file,
                       t->name, tensor_type_name(t->type), tensor_type_name(type));
    if (b ? t->n_dims == 2 && t->dims[0] == a && t->dims[1] == b
          : t->n_dims == 1 && t->dims[0] == a)
        return 0;
    if (b)
        snprintf(want, sizeof(want), "%llu, %llu", (unsigned long long)a, (unsigned long long)b);
    else
        snprintf(want, sizeof(want), "%llu", (unsigned long long)a);
    return tensor_wrong_shape(t, want, e);
}

int stored_not_multiple(const struct stored_matrix *m, const char *what, int64_t n, uint32_t of,
                        struct err *e)
{
    const struct tensor *t = m->t[STORED_CODES];
    return err_set(e, ERR_VALIDATION,
                   "%s: tensor `%s`: %lld %s are no multiple of %u and cannot be packed so",
                   t->file, t->name, (long long)n, what, of);
}

bool stored_in_four(const struct tensor *t)
{
    return t->n_dims == 4 && t->dims[1] == 1 && t->dims[3] == 1;
}

int stored_expect_scales(struct stored_matrix *m, bool by_column, struct err *e)
{
    const struct tensor *t = m->t[STORED_SCALES];
    const uint64_t of_turn =
        ((uint64_t)m->turn + m->row_block - 1) / (m->row_block ? m->row_block : 1);
    const uint64_t blocks = of_turn * (uint64_t)(m->turn ? m->rows / m->turn : 0);
    const uint64_t a = by_column ? m->groups : blocks, b = by_column ? blocks : m->groups;
    char want[64];
    m->scale_row = by_column ? 1 : m->groups;
    m->scale_group = by_column ? m->rows : 1;
    const bool power = m->how.is_float && (t->type == T_U8 || t->type == T_F8_E8M0);
    if (t->type != T_F32 && t->type != T_F16 && t->type != T_BF16 && !power)
        return err_set(e, ERR_VALIDATION,
                       "%s: tensor `%s` has dtype %s; scales must be F32, F16 or BF16%s", t->file,
                       t->name, tensor_type_name(t->type),
                       m->how.is_float ? ", or powers of two in U8 or F8_E8M0" : "");
    uint64_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        n *= t->dims[i]; /* bytes were checked: no overflow */
    /* one for all is written as [], [1] or [1, 1]; one a row as [rows] or [rows, 1] */
    if (n == a * b && (t->n_dims == 2 || stored_in_four(t) ? t->dims[0] == a : a == 1 || b == 1))
        return 0;
    snprintf(want, sizeof(want), "%llu, %llu", (unsigned long long)a, (unsigned long long)b);
    return tensor_wrong_shape(t, want, e);
}

int stored_no_zeros(const struct stored_matrix *m, struct err *e)
{
    const struct tensor *t = m->t[STORED_CODES];
    if (m->how.symmetric)
        return 0;
    return err_set(e, ERR_VALIDATION,
                   "%s: tensor `%s` has no zero points beside it (`%s`), and config.json does not "
                   "say that it is symmetric",
                   t->file, t->name, m->how.format->suffix[STORED_ZEROS]);
}

/* Columns of arbitrary groups; or all zeros, as in files before this tensor existed; or groups in
 * order, the usual case. In the last two cases the indices are dropped, so that slices are
 * possible. */
static int check_groups(struct stored_matrix *m, struct err *e)
{
    const struct tensor *t = m->t[STORED_GROUPS];
    bool all_zero = true, in_order = true;
    if (!t)
        return 0;
    if (stored_expect(t, T_I32, (uint64_t)m->cols, 0, e))
        return -1;
    for (int64_t i = 0; i < m->cols; i++) {
        uint32_t g = stored_u32(t, i);
        all_zero &= g == 0;
        in_order &= g == (uint32_t)(i / m->group);
        if (g >= m->groups)
            return err_set(e, ERR_VALIDATION,
                           "%s: tensor `%s`: column %lld is of group %d, and there are %u", t->file,
                           t->name, (long long)i, (int32_t)g, m->groups);
    }
    if (all_zero || in_order)
        m->t[STORED_GROUPS] = NULL;
    return 0;
}

int stored_open(struct stored_matrix *m, const struct stored *how, const char *base, int64_t rows,
                int64_t cols, stored_find *find, const void *ctx, struct err *e)
{
    char name[NAME_MAX_LEN];
    *m = (struct stored_matrix){.how = *how, .rows = rows, .cols = cols};
    const struct stored *own = &m->how;
    if (how->varies && how->format->choose)
        how->format->choose(&m->how, base, find, ctx);
    for (int i = 0; i < STORED_TENSORS; i++) {
        if (!own->format->suffix[i])
            continue;
        snprintf(name, sizeof(name), "%s%s", base, own->format->suffix[i]);
        m->t[i] = find(ctx, name);
        if (!m->t[i] && i <= STORED_SCALES)
            return err_set(e, ERR_VALIDATION,
                           "%s%stensor `%s` is missing (config.json: weights stored by %s)",
                           i ? m->t[STORED_CODES]->file : "", i ? ": " : "", name, how->method);
    }
    if (how->varies && own->format->vary)
        own->format->vary(m);
    m->group = own->group ? own->group : (uint32_t)cols;
    m->groups = (uint32_t)((cols + m->group - 1) / m->group);
    m->turn = rows / (own->turns ? own->turns : 1);
    m->row_block = own->row_block ? own->row_block : (uint32_t)m->turn;
    return own->format->check(m, e) || check_groups(m, e) ? -1 : 0;
}

/* ---------------------------------------------------------------- numbers */

float stored_number(const struct tensor *t, int64_t i)
{
    float f;
    uint16_t h;
    if (t->type == T_U8 || t->type == T_F8_E8M0) {
        const uint8_t e = ((const uint8_t *)t->data)[i];
        return e == 255 ? NAN : ldexpf(1, e - 127);
    }
    if (t->type == T_F32) {
        memcpy(&f, (const char *)t->data + i * 4, 4);
        return f;
    }
    memcpy(&h, (const char *)t->data + i * 2, 2);
    return t->type == T_F16 ? f32_of_f16(h) : f32_of_bf16(h);
}

float stored_scale(const struct stored_matrix *m, int64_t row, uint32_t group)
{
    const float by = m->how.scale_by != 0 ? m->how.scale_by : 1;
    const int64_t of_turn = (m->turn + m->row_block - 1) / m->row_block;
    const int64_t block = row / m->turn * of_turn + row % m->turn / m->row_block;
    return by * stored_number(m->t[STORED_SCALES],
                              block * m->scale_row + (int64_t)group * m->scale_group);
}

/* Terms of a group for the rows of a tile. */
struct terms {
    int64_t group; /* -1: none yet */
    float scale[STORED_TILE], zero[STORED_TILE];
};

static void terms_of(struct terms *x, const struct stored_matrix *m, int64_t row, uint32_t n,
                     uint32_t group)
{
    const struct stored_format *f = m->how.format;
    if (x->group == group)
        return;
    x->group = group;
    for (uint32_t r = 0; r < n; r++) {
        x->scale[r] = stored_scale(m, row + r, group);
        x->zero[r] = f->zero ? f->zero(m, row + r, group) : 0;
    }
}

static void put(void *out, enum dtype to, int64_t at, float v)
{
    if (to == DT_F32)
        ((float *)out)[at] = v;
    else
        ((uint16_t *)out)[at] = to == DT_F16 ? f16_of_f32(v) : bf16_of_f32(v);
}

struct unpack_job {
    const struct stored_matrix *m;
    int64_t row, rows, col, cols;
    enum dtype to;
    void *out;
};

static void tile(const struct unpack_job *j, struct terms *x, int64_t row, uint32_t n_rows,
                 int64_t col, uint32_t n_cols)
{
    const struct stored_matrix *m = j->m;
    const struct tensor *groups = m->t[STORED_GROUPS];
    stored_tile t;
    m->how.format->codes(m, row, n_rows, col, n_cols, t);
    for (uint32_t c = 0; c < n_cols; c++) {
        uint32_t g = groups ? stored_u32(groups, col + c) : (uint32_t)((col + c) / m->group);
        terms_of(x, m, row, n_rows, g);
        for (uint32_t r = 0; r < n_rows; r++)
            t[c][r] = (t[c][r] - x->zero[r]) * x->scale[r];
    }
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t c = 0; c < n_cols; c++)
            put(j->out, j->to, (row - j->row + r) * j->cols + col - j->col + c, t[c][r]);
}

static uint32_t at_most(int64_t n) { return (uint32_t)(n < STORED_TILE ? n : STORED_TILE); }

/* Rows of a format that computes its numbers itself. */
static void rows_of(const struct unpack_job *j, int64_t row, uint32_t n_rows)
{
    enum { CHUNK = 1024 };
    float v[CHUNK];
    for (uint32_t r = 0; r < n_rows; r++)
        for (int64_t c = 0; c < j->cols; c += CHUNK) {
            const int64_t n = j->cols - c < CHUNK ? j->cols - c : CHUNK;
            j->m->how.format->numbers(j->m, row + r, j->col + c, n, v);
            for (int64_t i = 0; i < n; i++)
                put(j->out, j->to, (row - j->row + r) * j->cols + c + i, v[i]);
        }
}

/* Bands of STORED_TILE rows. */
static void bands(void *arg, int thread, size_t begin, size_t end)
{
    const struct unpack_job *j = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        const int64_t r = (int64_t)i * STORED_TILE;
        const uint32_t n = at_most(j->rows - r);
        struct terms x = {.group = -1};
        if (j->m->how.format->numbers) {
            rows_of(j, j->row + r, n);
            continue;
        }
        for (int64_t c = 0; c < j->cols; c += STORED_TILE)
            tile(j, &x, j->row + r, n, j->col + c, at_most(j->cols - c));
    }
}

void stored_numbers(const struct stored_matrix *m, int64_t row, int64_t rows, int64_t col,
                    int64_t cols, enum dtype to, void *out, const struct backend_ops *ops,
                    struct device *dev)
{
    struct unpack_job j = {m, row, rows, col, cols, to, out};
    const size_t n = (size_t)(rows + STORED_TILE - 1) / STORED_TILE;
    if (ops->host_run)
        ops->host_run(dev, bands, &j, n);
    else
        bands(&j, 0, 0, n);
}

/* ---------------------------------------------------------------- codes */

struct codes_job {
    const struct stored_matrix *m;
    const struct stored_slice *s;
    const struct mat_codes *to;
    atomic_bool refused;
};

static void codes_bands(void *arg, int thread, size_t begin, size_t end)
{
    struct codes_job *j = arg;
    const struct stored_slice *s = j->s;
    (void)thread;
    for (int64_t r = (int64_t)begin * STORED_TILE; r < (int64_t)end * STORED_TILE && r < s->rows;) {
        const uint32_t n = s->step == 1 ? at_most(s->rows - r) : 1;
        if (atomic_load(&j->refused))
            return;
        if (!j->m->how.format->codes_rows(j->m, s->row + r * s->step, n, s, j->to, r))
            atomic_store(&j->refused, true);
        r += n;
    }
}

/* Arrays one after the other, those of two bytes directly after the codes, whose number is
 * even. */
static bool take_memory(struct mat_codes *c, size_t n, size_t cols)
{
    const bool wide = c->format.scale == SCALE_F32;
    const size_t blocks = wide ? 0 : n / c->format.block, groups = wide ? 0 : n / c->format.group;
    const size_t words = (n + 4 * blocks + 2 * groups + 3) / 4 * 4;
    const size_t scales =
        wide ? n / cols * format_blocks(&c->format, (uint32_t)cols) * sizeof(*c->scales) : 0;
    const size_t factors = c->format.factors ? n / cols * sizeof(*c->factor) : 0;
    uint8_t *at =
        malloc(words + scales + factors + (c->format.ordered ? cols * sizeof(*c->order) : 0));
    if (!at)
        return false;
    c->codes = at;
    c->scale = (uint16_t *)(void *)(at + n);
    c->offset = c->scale + blocks;
    c->by = (int8_t *)(c->offset + blocks);
    c->less = c->by + groups;
    c->scales = scales ? (float *)(void *)(at + words) : NULL;
    c->factor = factors ? (float *)(void *)(at + words + scales) : NULL;
    c->order = c->format.ordered ? (uint32_t *)(void *)(at + words + scales + factors) : NULL;
    return true;
}

bool stored_form(const struct stored_matrix *m, const struct stored_slice *s,
                 const struct backend_ops *ops, struct format *f)
{
    if (!m->how.keep || !m->how.format->form || !m->how.format->form(m, s, f))
        return false;
    return ops->weight_takes(f, format_arith(f, m->how.arith)) == TAKE_NATIVE;
}

bool stored_codes(const struct stored_matrix *m, const struct stored_slice *s, struct mat_codes *c,
                  const struct backend_ops *ops, struct device *dev)
{
    const size_t n = (size_t)(s->rows + STORED_TILE - 1) / STORED_TILE;
    if (!stored_form(m, s, ops, &c->format) ||
        !take_memory(c, (size_t)(s->rows * s->cols), (size_t)s->cols))
        return false;
    if (c->order)
        m->how.format->order(m, s, c->order);
    struct codes_job j = {m, s, c, false};
    if (ops->host_run)
        ops->host_run(dev, codes_bands, &j, n);
    else
        codes_bands(&j, 0, 0, n);
    if (!j.refused)
        return true;
    free(c->codes);
    return false;
}
