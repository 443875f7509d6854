#include "model-server/model/static_rows.h"
#include "model-server/backend/numbers.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 1 << 24, MOST_WIDTH = 1 << 16 };

struct static_rows {
    const struct tensor *rows, *mapping, *weights; /* the last two may be NULL */
    uint64_t tokens, width;
};

static bool is_list(const struct tensor *t, uint64_t n)
{
    return t->n_dims == 1 && t->dims[0] == n;
}

static int find(const struct checkpoint *c, struct static_rows *s, struct err *e)
{
    s->rows = checkpoint_find(c, "embeddings");
    s->rows = s->rows ? s->rows : checkpoint_find(c, "embedding.weight");
    s->mapping = checkpoint_find(c, "mapping");
    s->weights = checkpoint_find(c, "weights");
    if (!s->rows)
        return (void)checkpoint_missing(c, "embeddings", e), -1;
    const struct tensor *t = s->rows, *m = s->mapping, *w = s->weights;
    if (t->n_dims != 2 || (t->type != T_F32 && t->type != T_F16 && t->type != T_BF16))
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` must be a matrix of F32, F16 or BF16",
                       t->file, t->name);
    s->tokens = m && m->n_dims == 1 ? m->dims[0] : t->dims[0];
    s->width = t->dims[1];
    if (m && (!is_list(m, s->tokens) || (m->type != T_I64 && m->type != T_I32)))
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` must be a list of I64 or I32", m->file,
                       m->name);
    if (w && (!is_list(w, s->tokens) ||
              (w->type != T_F64 && w->type != T_F32 && w->type != T_F16 && w->type != T_BF16)))
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` must be a list of floats, one a token",
                       w->file, w->name);
    if (!s->tokens || s->tokens > MOST_TOKENS || !s->width || s->width > MOST_WIDTH)
        return err_set(e, ERR_VALIDATION, "%s: a table of %llu rows of %llu numbers", t->file,
                       (unsigned long long)s->tokens, (unsigned long long)s->width);
    return 0;
}

int static_rows_sizes(const char *dir, uint32_t *tokens, uint32_t *width, struct err *e)
{
    struct checkpoint c;
    struct static_rows s = {0};
    if (checkpoint_open(&c, dir, NULL, e))
        return -1;
    const int rc = find(&c, &s, e);
    if (rc == 0) {
        *tokens = (uint32_t)s.tokens;
        *width = (uint32_t)s.width;
    }
    checkpoint_close(&c);
    return rc;
}

/* Files do not align numbers. */
static double float_at(const struct tensor *t, uint64_t i)
{
    const char *p = t->data;
    uint16_t half = 0;
    float single = 0;
    double d = 0;
    if (t->type == T_F64)
        return memcpy(&d, p + i * sizeof(d), sizeof(d)), d;
    if (t->type == T_F32)
        return memcpy(&single, p + i * sizeof(single), sizeof(single)), single;
    memcpy(&half, p + i * sizeof(half), sizeof(half));
    return t->type == T_F16 ? f32_of_f16(half) : f32_of_bf16(half);
}

static int64_t row_of(const struct static_rows *s, uint64_t token)
{
    int64_t wide = 0;
    int32_t narrow = 0;
    if (!s->mapping)
        return (int64_t)token;
    const char *p = s->mapping->data;
    if (s->mapping->type == T_I64)
        return memcpy(&wide, p + token * sizeof(wide), sizeof(wide)), wide;
    return memcpy(&narrow, p + token * sizeof(narrow), sizeof(narrow)), narrow;
}

float *static_rows_load(const struct checkpoint *c, struct err *e)
{
    struct static_rows s = {0};
    if (find(c, &s, e))
        return NULL;
    float *out = malloc(s.tokens * s.width * sizeof(*out));
    if (!out)
        return err_nomem(e), NULL;
    for (uint64_t i = 0; i < s.tokens; i++) {
        const int64_t row = row_of(&s, i);
        const double by = s.weights ? float_at(s.weights, i) : 1;
        if (row < 0 || (uint64_t)row >= s.rows->dims[0]) {
            err_set(e, ERR_VALIDATION, "%s: tensor `mapping`: %lld is no row of `embeddings`",
                    s.mapping->file, (long long)row);
            free(out);
            return NULL;
        }
        for (uint64_t k = 0; k < s.width; k++)
            out[i * s.width + k] = (float)(by * float_at(s.rows, (uint64_t)row * s.width + k));
    }
    return out;
}
