/* NVFP4 in safetensors: numbers of four bits (e2m1), low nibble first, with a scale in e4m3 for
 * each 16 columns and one in fp32 for the tensor. NVIDIA's modelopt stores a multiplier,
 * compressed-tensors (nvfp4-pack-quantized) a divisor. Scales of activations are not used. */
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/quant/stored.h"
#include <math.h>

enum { GROUP = 16, PAIRS = GROUP / 2, STORED_GLOBAL = STORED_FURTHER };

static int check(struct stored_matrix *m, struct err *e)
{
    const struct tensor *global = m->t[STORED_GLOBAL], *codes = m->t[STORED_CODES];
    uint64_t n = 1;
    if (m->cols % GROUP)
        return stored_not_multiple(m, "columns", m->cols, GROUP, e);
    if (stored_expect(codes, T_U8, (uint64_t)m->rows, (uint64_t)m->cols / 2, e) ||
        stored_expect(m->t[STORED_SCALES], T_F8_E4M3, (uint64_t)m->rows, m->groups, e))
        return -1;
    if (!global)
        return err_set(e, ERR_VALIDATION,
                       "%s: tensor `%s` has no scale of all of it beside it (`%s`)", codes->file,
                       codes->name, m->how.format->suffix[STORED_GLOBAL]);
    for (int i = 0; i < global->n_dims; i++)
        n *= global->dims[i];
    if (global->type != T_F32)
        return stored_expect(global, T_F32, 1, 0, e);
    return n == 1 ? 0 : tensor_wrong_shape(global, "1", e);
}

static float global_of(const struct stored_matrix *m)
{
    float f;
    __builtin_memcpy(&f, m->t[STORED_GLOBAL]->data, sizeof(f));
    return m->how.divides ? 1.0f / f : f;
}

static const uint8_t *pairs_at(const struct stored_matrix *m, int64_t row, int64_t group)
{
    return (const uint8_t *)m->t[STORED_CODES]->data + (row * m->groups + group) * PAIRS;
}

static uint8_t scale_at(const struct stored_matrix *m, int64_t row, int64_t group)
{
    return ((const uint8_t *)m->t[STORED_SCALES]->data)[row * m->groups + group];
}

static void numbers(const struct stored_matrix *m, int64_t row, int64_t col, int64_t n, float *out)
{
    const struct format *f = &formats[FORMAT_NVFP4];
    const float global = global_of(m);
    for (int64_t i = 0; i < n; i++) {
        const int64_t group = (col + i) / GROUP, in = (col + i) % GROUP;
        const int code = pairs_at(m, row, group)[in / 2] >> in % 2 * 4 & 15;
        const float number = 0.5f * (float)(f->table[code] - (int)f->zero);
        out[i] = number * f32_of_e4m3(scale_at(m, row, group)) * global;
    }
}

static bool form(const struct stored_matrix *m, const struct stored_slice *s, struct format *f)
{
    *f = formats[FORMAT_NVFP4];
    f->factors = true;
    return s->col % GROUP == 0 && s->cols % (2 * (int64_t)GROUP) == 0 && isfinite(global_of(m));
}

static bool codes_rows(const struct stored_matrix *m, int64_t row, uint32_t n_rows,
                       const struct stored_slice *s, const struct mat_codes *c, int64_t to)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        c->factor[to + r] = global_of(m);
        for (int64_t k = 0; k < s->cols; k += GROUP) {
            const int64_t group = (s->col + k) / GROUP, at = (to + r) * s->cols + k;
            const uint8_t *pairs = pairs_at(m, row + r, group);
            const float scale = 0.5f * f32_of_e4m3(scale_at(m, row + r, group));
            if (isnan(scale))
                return false;
            c->scale[at / GROUP] = f16_of_f32(scale);
            for (int i = 0; i < GROUP; i++)
                c->codes[at + i] = pairs[i / 2] >> i % 2 * 4 & 15;
        }
    }
    return true;
}

#define NVFP4(codes, global)                                                                       \
    {                                                                                              \
        .words = (const char *const[]){"compressed-tensors", NULL},                                \
        .suffix = {codes, ".weight_scale", [STORED_GLOBAL] = global}, .check = check,              \
        .numbers = numbers, .form = form, .codes_rows = codes_rows                                 \
    }
const struct stored_format stored_nvfp4 = NVFP4(".weight", ".weight_scale_2");
const struct stored_format stored_nvfp4_packed = NVFP4(".weight_packed", ".weight_global_scale");
