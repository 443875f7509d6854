/* bitsandbytes' 4-bit types, as written by transformers: codes of nf4 (arXiv 2305.14314) or fp4
 * of the whole matrix in a row, the first in the upper nibble; `absmax`, a scale for each block
 * of them, in fp32 or, nested, in 8 bits with a table and another scale; the table of codes; and
 * a JSON text with the sizes of the blocks. */
#include "common/json/json.h"
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/quant/stored.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAP = STORED_FURTHER, NESTED_ABSMAX, NESTED_MAP, STATE };
/* Half precision has enough bits for scales, but few below 2^-14: they are stored times this. */
#define LIFT 64.0f

static float f32_at(const struct tensor *t, int64_t i)
{
    float f;
    memcpy(&f, (const char *)t->data + i * 4, sizeof(f));
    return f;
}

static int no_tensor(const struct stored_matrix *m, int i, struct err *e)
{
    const struct tensor *t = m->t[STORED_CODES];
    return err_set(e, ERR_VALIDATION, "%s: tensor `%s` has no `%s` beside it", t->file, t->name,
                   m->how.format->suffix[i]);
}

/* A size in the JSON text: 1 to 2^24. */
static bool size_of(const cJSON *o, const char *key, uint32_t *out)
{
    const double v = json_num(o, key, 0);
    *out = v >= 1 && v <= 1 << 24 ? (uint32_t)v : 0;
    return *out && (double)*out == v;
}

/* Blocks of m->group; with nested scales also nested_block and nested_offset. */
static int read_state(struct stored_matrix *m, struct err *e)
{
    const struct tensor *t = m->t[STATE];
    cJSON *o = t->type == T_U8 ? cJSON_ParseWithLength(t->data, t->bytes) : NULL;
    const cJSON *shape = json_get(o, "shape"), *a = shape ? shape->child : NULL;
    bool ok = cJSON_IsObject(o) && size_of(o, "blocksize", &m->group) && cJSON_IsArray(shape) &&
              a && a->next && a->valuedouble == (double)m->rows &&
              a->next->valuedouble == (double)m->cols;
    if (ok && m->t[NESTED_ABSMAX]) {
        ok = size_of(o, "nested_blocksize", &m->nested_block);
        m->nested_offset = (float)json_num(o, "nested_offset", 0);
    }
    cJSON_Delete(o);
    return ok ? 0
              : err_set(
                    e, ERR_VALIDATION,
                    "%s: tensor `%s` does not say the shape %lld x %lld and the sizes of blocks",
                    t->file, t->name, (long long)m->rows, (long long)m->cols);
}

static int check(struct stored_matrix *m, struct err *e)
{
    const struct tensor *codes = m->t[STORED_CODES];
    const bool nested = m->t[NESTED_ABSMAX] != NULL;
    const uint64_t n = (uint64_t)m->rows * (uint64_t)m->cols;
    if (!m->t[MAP] || !m->t[STATE] || (nested && !m->t[NESTED_MAP]))
        return no_tensor(m, !m->t[MAP] ? MAP : !m->t[STATE] ? STATE : NESTED_MAP, e);
    if (read_state(m, e))
        return -1;
    const uint64_t blocks = (n + m->group - 1) / m->group;
    const bool renamed = m->how.plain && codes->bytes == (n + 1) / 2; /* bytes as another type */
    if ((!renamed && stored_expect(codes, T_U8, (n + 1) / 2, codes->n_dims == 2 ? 1 : 0, e)) ||
        stored_expect(m->t[MAP], T_F32, 16, 0, e) ||
        stored_expect(m->t[STORED_SCALES], nested ? T_U8 : T_F32, blocks, 0, e))
        return -1;
    return nested && (stored_expect(m->t[NESTED_MAP], T_F32, 256, 0, e) ||
                      stored_expect(m->t[NESTED_ABSMAX], T_F32,
                                    (blocks + m->nested_block - 1) / m->nested_block, 0, e))
               ? -1
               : 0;
}

static uint8_t code_at(const struct stored_matrix *m, int64_t i)
{
    return ((const uint8_t *)m->t[STORED_CODES]->data)[i / 2] >> (i % 2 ? 0 : 4) & 15;
}

/* Of the block of number i. */
static float absmax_of(const struct stored_matrix *m, int64_t i)
{
    const int64_t block = i / m->group;
    if (!m->t[NESTED_ABSMAX])
        return f32_at(m->t[STORED_SCALES], block);
    const uint8_t code = ((const uint8_t *)m->t[STORED_SCALES]->data)[block];
    const float scale = f32_at(m->t[NESTED_ABSMAX], block / m->nested_block);
    return f32_at(m->t[NESTED_MAP], code) * scale + m->nested_offset;
}

static void numbers(const struct stored_matrix *m, int64_t row, int64_t col, int64_t n, float *out)
{
    const int64_t first = row * m->cols + col;
    float absmax = 0;
    for (int64_t i = first; i < first + n; i++) {
        if (i == first || i % m->group == 0)
            absmax = absmax_of(m, i);
        out[i - first] = f32_at(m->t[MAP], code_at(m, i)) * absmax;
    }
}

/* The format with the matrix's table, rounded. */
static const struct format *format_of(const struct stored_matrix *m)
{
    static const enum format_id known[] = {FORMAT_NF4, FORMAT_FP4};
    for (int i = 0, c; i < 2; i++) {
        const struct format *f = &formats[known[i]];
        for (c = 0; c < 16; c++)
            if (!(fabsf(f32_at(m->t[MAP], c) * (float)f->zero + (float)f->zero -
                        (float)f->table[c]) <= 0.52f))
                break;
        if (c == 16)
            return f;
    }
    return NULL;
}

static bool form(const struct stored_matrix *m, const struct stored_slice *s, struct format *f)
{
    const struct format *found = format_of(m);
    if (!found || m->cols % found->block || m->group % found->block || s->col % found->block ||
        s->cols % found->block)
        return false;
    *f = *found;
    return true;
}

static bool codes_rows(const struct stored_matrix *m, int64_t row, uint32_t n_rows,
                       const struct stored_slice *s, const struct mat_codes *c, int64_t to)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        const int64_t first = (row + r) * m->cols + s->col, out = (to + r) * s->cols;
        c->factor[to + r] = 1.0f / (LIFT * (float)c->format.zero);
        for (int64_t k = 0; k < s->cols; k++) {
            c->codes[out + k] = code_at(m, first + k);
            if (k % c->format.block)
                continue;
            const float scale = absmax_of(m, first + k) * LIFT;
            if (!(fabsf(scale) <= 256))
                return false;
            c->scale[(out + k) / c->format.block] = f16_of_f32(scale);
        }
    }
    return true;
}

#define BNB(type)                                                                                  \
    {                                                                                              \
        .words = (const char *const[]){"bitsandbytes", "bitsandbytes-" type, NULL},                \
        .suffix = {".weight",                                                                      \
                   ".weight.absmax",                                                               \
                   [MAP] = ".weight.quant_map",                                                    \
                   [NESTED_ABSMAX] = ".weight.nested_absmax",                                      \
                   [NESTED_MAP] = ".weight.nested_quant_map",                                      \
                   [STATE] = ".weight.quant_state.bitsandbytes__" type},                           \
        .check = check, .numbers = numbers, .form = form, .codes_rows = codes_rows                 \
    }
const struct stored_format stored_nf4 = BNB("nf4"), stored_fp4 = BNB("fp4");
