#include "model-server/quantize/layout.h"
#include "model-server/backend/numbers.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 512, AWQ_PER = 8 };

static int64_t add(struct out *o, const char *module, const char *suffix, const char *type,
                   uint64_t a, uint64_t b, uint64_t size, struct err *e)
{
    char name[NAME];
    const uint64_t dims[] = {a, b};
    snprintf(name, sizeof(name), "%s.%s", module, suffix);
    return out_add(o, name, type, b ? 2 : 1, dims, a * (b ? b : 1) * size, e);
}

static bool all_there(const int64_t first[LAYOUT_TENSORS], int n)
{
    for (int i = 0; i < n; i++)
        if (first[i] < 0)
            return false;
    return true;
}

/* Writes and frees. */
static int give(const struct out *o, int64_t i, void *p, struct err *e)
{
    const int rc = p ? out_write(o, (uint32_t)i, 0, p, o->tensors[i].bytes, e) : err_nomem(e);
    free(p);
    return rc;
}

static uint64_t groups_of(const struct layout_kind *k, uint64_t cols)
{
    return k->group ? (cols + k->group - 1) / k->group : 1;
}

/* Scales, [groups][rows] or [rows][groups]. */
static void *scales(const struct grid_matrix *m, bool by_group)
{
    const size_t size = m->kind.scale == SCALE_F32 ? 4 : 2;
    char *p = malloc(m->rows * m->groups * size);
    for (size_t r = 0; p && r < m->rows; r++)
        for (size_t g = 0; g < m->groups; g++) {
            const float s = m->grids[r * m->groups + g].scale;
            const size_t at = by_group ? g * m->rows + r : r * m->groups + g;
            const uint16_t h = m->kind.scale == SCALE_F16 ? f16_of_f32(s) : bf16_of_f32(s);
            if (size == 4)
                memcpy(p + at * 4, &s, 4);
            else
                memcpy(p + at * 2, &h, 2);
        }
    return p;
}

static const char *scale_type(const struct grid_kind *k)
{
    return k->scale == SCALE_F32 ? "F32" : k->scale == SCALE_F16 ? "F16" : "BF16";
}

/* Stores the `bits` bits of `code` as the i-th code of a sequence of words `stride` apart. */
static void put_code(uint32_t *words, size_t stride, size_t i, uint32_t bits, uint32_t code)
{
    const size_t bit = i * bits, shift = bit % 32;
    words[bit / 32 * stride] |= code << shift;
    if (shift + bits > 32)
        words[(bit / 32 + 1) * stride] |= code >> (32 - shift);
}

/* ---------------------------------------------------------------- GPTQ */

static const char *gptq_misfit(const struct layout_kind *k, uint64_t rows, uint64_t cols)
{
    static const char *const per[] = {[2] = "rows and columns in multiples of 16",
                                      [3] = "rows and columns in multiples of 32",
                                      [4] = "rows and columns in multiples of 8",
                                      [8] = "rows and columns in multiples of 4"};
    const uint64_t n = k->grid.bits == 3 ? 32 : 32 / k->grid.bits;
    return rows % n || cols % n ? per[k->grid.bits] : NULL;
}

static int gptq_declare(struct out *o, const struct layout_kind *k, const char *module,
                        uint64_t rows, uint64_t cols, int64_t first[LAYOUT_TENSORS], struct err *e)
{
    const uint64_t bits = k->grid.bits, groups = groups_of(k, cols);
    first[0] = add(o, module, "qweight", "I32", cols * bits / 32, rows, 4, e);
    first[1] = add(o, module, "qzeros", "I32", groups, rows * bits / 32, 4, e);
    first[2] = add(o, module, "scales", "F16", groups, rows, 2, e);
    first[3] = add(o, module, "g_idx", "I32", cols, 0, 4, e);
    return all_there(first, 4) ? 0 : -1;
}

static int gptq_write(const struct out *o, const int64_t first[LAYOUT_TENSORS],
                      const struct grid_matrix *m, struct err *e)
{
    const uint32_t bits = m->kind.bits, mask = (1u << bits) - 1;
    uint32_t *w = calloc(m->cols * bits / 32, m->rows * sizeof(*w));
    uint32_t *z = calloc(m->groups, m->rows * bits / 32 * sizeof(*z));
    uint32_t *g = malloc(m->cols * sizeof(*g));
    for (size_t r = 0; w && r < m->rows; r++)
        for (size_t c = 0; c < m->cols; c++)
            put_code(w + r, m->rows, c, bits, m->codes[r * m->cols + c]);
    for (size_t k = 0; z && k < m->groups; k++)
        for (size_t r = 0; r < m->rows; r++)
            put_code(z + k * (m->rows * bits / 32), 1, r, bits,
                     (uint32_t)(m->grids[r * m->groups + k].zero - 1) & mask);
    for (size_t c = 0; g && c < m->cols; c++)
        g[c] = m->group_of ? m->group_of[c] : (uint32_t)(c / m->group);
    int rc = give(o, first[0], w, e);
    rc = give(o, first[1], z, e) || rc ? -1 : 0;
    rc = give(o, first[2], scales(m, true), e) || rc ? -1 : 0;
    return give(o, first[3], g, e) || rc ? -1 : 0;
}

/* If some matrices are not quantised, readers need the names of the others. */
static cJSON *gptq_config(const struct layout_kind *k, const cJSON *kept, const cJSON *made)
{
    cJSON *q = cJSON_CreateObject();
    cJSON_AddStringToObject(q, "quant_method", "gptq");
    cJSON_AddNumberToObject(q, "bits", k->grid.bits);
    cJSON_AddNumberToObject(q, "group_size", k->group ? (double)k->group : -1);
    cJSON_AddNumberToObject(q, "damp_percent", k->damp);
    cJSON_AddBoolToObject(q, "desc_act", k->desc_act);
    cJSON_AddBoolToObject(q, "sym", k->grid.symmetric);
    cJSON_AddBoolToObject(q, "true_sequential", false);
    cJSON_AddBoolToObject(q, "static_groups", false);
    cJSON_AddBoolToObject(q, "lm_head", false);
    cJSON_AddStringToObject(q, "checkpoint_format", "gptq");
    cJSON_AddStringToObject(q, "pack_dtype", "int32");
    if (kept->child) {
        cJSON *blocks = cJSON_AddArrayToObject(q, "modules_in_block_to_quantize");
        cJSON_AddItemToArray(blocks, cJSON_Duplicate(made, true));
        cJSON_AddItemToObject(q, "modules_to_not_convert", cJSON_Duplicate(kept, true));
    }
    return q;
}

const struct layout layout_gptq = {
    "gptq",     1 << 2 | 1 << 3 | 1 << 4 | 1 << 8, false, gptq_misfit, gptq_declare, gptq_write,
    gptq_config};

/* ---------------------------------------------------------------- AWQ */

static const char *awq_misfit(const struct layout_kind *k, uint64_t rows, uint64_t cols)
{
    (void)k, (void)cols;
    return rows % AWQ_PER ? "rows in multiples of 8" : NULL;
}

static int awq_declare(struct out *o, const struct layout_kind *k, const char *module,
                       uint64_t rows, uint64_t cols, int64_t first[LAYOUT_TENSORS], struct err *e)
{
    const uint64_t groups = groups_of(k, cols);
    first[0] = add(o, module, "qweight", "I32", cols, rows / AWQ_PER, 4, e);
    first[1] = add(o, module, "qzeros", "I32", groups, rows / AWQ_PER, 4, e);
    first[2] = add(o, module, "scales", "F16", groups, rows, 2, e);
    return all_there(first, 3) ? 0 : -1;
}

/* Position in its word of the n-th of eight outputs. */
static uint32_t awq_shift(size_t row)
{
    static const uint8_t shift[AWQ_PER] = {0, 16, 4, 20, 8, 24, 12, 28};
    return shift[row % AWQ_PER];
}

static int awq_write(const struct out *o, const int64_t first[LAYOUT_TENSORS],
                     const struct grid_matrix *m, struct err *e)
{
    const size_t words = m->rows / AWQ_PER;
    uint32_t *w = calloc(m->cols, words * sizeof(*w)), *z = calloc(m->groups, words * sizeof(*z));
    for (size_t r = 0; w && z && r < m->rows; r++) {
        for (size_t c = 0; c < m->cols; c++)
            w[c * words + r / AWQ_PER] |= (uint32_t)m->codes[r * m->cols + c] << awq_shift(r);
        for (size_t g = 0; g < m->groups; g++)
            z[g * words + r / AWQ_PER] |= (uint32_t)m->grids[r * m->groups + g].zero
                                          << awq_shift(r);
    }
    int rc = give(o, first[0], w, e);
    rc = give(o, first[1], z, e) || rc ? -1 : 0;
    return give(o, first[2], scales(m, true), e) || rc ? -1 : 0;
}

static cJSON *awq_config(const struct layout_kind *k, const cJSON *kept, const cJSON *made)
{
    (void)made;
    cJSON *q = cJSON_CreateObject();
    cJSON_AddStringToObject(q, "quant_method", "awq");
    cJSON_AddNumberToObject(q, "bits", k->grid.bits);
    cJSON_AddNumberToObject(q, "group_size", k->group ? (double)k->group : -1);
    cJSON_AddStringToObject(q, "version", "gemm");
    cJSON_AddBoolToObject(q, "zero_point", true);
    if (kept->child)
        cJSON_AddItemToObject(q, "modules_to_not_convert", cJSON_Duplicate(kept, true));
    else
        cJSON_AddNullToObject(q, "modules_to_not_convert");
    return q;
}

const struct layout layout_awq = {"awq",       1 << 4,    false,     awq_misfit,
                                  awq_declare, awq_write, awq_config};

/* ---------------------------------------------------------------- compressed-tensors */

static const char *any(const struct layout_kind *k, uint64_t rows, uint64_t cols)
{
    (void)k, (void)rows, (void)cols;
    return NULL;
}

static int int8_declare(struct out *o, const struct layout_kind *k, const char *module,
                        uint64_t rows, uint64_t cols, int64_t first[LAYOUT_TENSORS], struct err *e)
{
    const uint64_t size = k->grid.scale == SCALE_F32 ? 4 : 2;
    first[0] = add(o, module, "weight", "I8", rows, cols, 1, e);
    first[1] =
        add(o, module, "weight_scale", scale_type(&k->grid), rows, groups_of(k, cols), size, e);
    return all_there(first, 2) ? 0 : -1;
}

static int int8_write(const struct out *o, const int64_t first[LAYOUT_TENSORS],
                      const struct grid_matrix *m, struct err *e)
{
    int8_t *w = malloc(m->rows * m->cols);
    for (size_t i = 0; w && i < m->rows * m->cols; i++)
        w[i] = (int8_t)(m->codes[i] - 128);
    const int rc = give(o, first[0], w, e);
    return give(o, first[1], scales(m, false), e) || rc ? -1 : 0;
}

static int pack_declare(struct out *o, const struct layout_kind *k, const char *module,
                        uint64_t rows, uint64_t cols, int64_t first[LAYOUT_TENSORS], struct err *e)
{
    const uint64_t size = k->grid.scale == SCALE_F32 ? 4 : 2, per = 32 / k->grid.bits;
    first[0] = add(o, module, "weight_packed", "I32", rows, (cols + per - 1) / per, 4, e);
    first[1] =
        add(o, module, "weight_scale", scale_type(&k->grid), rows, groups_of(k, cols), size, e);
    first[2] = add(o, module, "weight_shape", "I64", 2, 0, 8, e);
    return all_there(first, 3) ? 0 : -1;
}

static int pack_write(const struct out *o, const int64_t first[LAYOUT_TENSORS],
                      const struct grid_matrix *m, struct err *e)
{
    const size_t per = 32 / m->kind.bits, words = (m->cols + per - 1) / per;
    const int64_t shape[] = {(int64_t)m->rows, (int64_t)m->cols};
    uint32_t *w = calloc(m->rows, words * sizeof(*w));
    for (size_t r = 0; w && r < m->rows; r++)
        for (size_t c = 0; c < m->cols; c++)
            put_code(w + r * words, 1, c, m->kind.bits, m->codes[r * m->cols + c]);
    const int rc = give(o, first[0], w, e);
    return give(o, first[1], scales(m, false), e) || rc ||
                   out_write(o, (uint32_t)first[2], 0, shape, sizeof(shape), e)
               ? -1
               : 0;
}

static cJSON *scheme(uint32_t bits, const char *strategy, uint32_t group, bool dynamic)
{
    cJSON *w = cJSON_CreateObject();
    cJSON_AddNumberToObject(w, "num_bits", bits);
    cJSON_AddStringToObject(w, "type", "int");
    cJSON_AddBoolToObject(w, "symmetric", true);
    cJSON_AddStringToObject(w, "strategy", strategy);
    if (group)
        cJSON_AddNumberToObject(w, "group_size", group);
    else
        cJSON_AddNullToObject(w, "group_size");
    cJSON_AddBoolToObject(w, "dynamic", dynamic);
    cJSON_AddNullToObject(w, "actorder");
    cJSON_AddNullToObject(w, "block_structure");
    return w;
}

static cJSON *compressed(const struct layout_kind *k, const cJSON *kept, const char *format,
                         bool activations)
{
    cJSON *q = cJSON_CreateObject(), *groups = cJSON_CreateObject(), *g = cJSON_CreateObject();
    cJSON *targets = cJSON_AddArrayToObject(g, "targets"), *ignore = cJSON_Duplicate(kept, true);
    cJSON_AddItemToArray(targets, cJSON_CreateString("Linear"));
    cJSON_AddItemToObject(g, "weights",
                          scheme(k->grid.bits, k->group ? "group" : "channel", k->group, false));
    if (activations)
        cJSON_AddItemToObject(g, "input_activations", scheme(8, "token", 0, true));
    else
        cJSON_AddNullToObject(g, "input_activations");
    cJSON_AddNullToObject(g, "output_activations");
    cJSON_AddItemToObject(groups, "group_0", g);
    cJSON_AddStringToObject(q, "quant_method", "compressed-tensors");
    cJSON_AddStringToObject(q, "format", format);
    cJSON_AddStringToObject(q, "quantization_status", "compressed");
    cJSON_AddItemToObject(q, "config_groups", groups);
    cJSON_AddItemToArray(ignore, cJSON_CreateString("lm_head"));
    cJSON_AddItemToObject(q, "ignore", ignore);
    cJSON_AddNullToObject(q, "kv_cache_scheme");
    return q;
}

static cJSON *int8_config(const struct layout_kind *k, const cJSON *kept, const cJSON *made)
{
    (void)made;
    return compressed(k, kept, "int-quantized", true);
}

static cJSON *pack_config(const struct layout_kind *k, const cJSON *kept, const cJSON *made)
{
    (void)made;
    return compressed(k, kept, "pack-quantized", false);
}

const struct layout layout_int8 = {"int8",       1 << 8,     true,       any,
                                   int8_declare, int8_write, int8_config};
const struct layout layout_pack = {"pack",       1 << 4 | 1 << 8, true,       any,
                                   pack_declare, pack_write,      pack_config};
