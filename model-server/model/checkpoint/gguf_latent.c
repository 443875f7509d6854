#include "model-server/model/checkpoint/gguf_latent.h"
#include "model-server/model/checkpoint/quant/blocks.h"
#include <stdlib.h>
#include <string.h>

static float plain_number(enum gguf_packing p, const uint8_t *at)
{
    uint32_t bits;
    float v;
    if (p == GGUF_F16)
        return block_half(at);
    bits = p == GGUF_BF16 ? (uint32_t)(at[0] | at[1] << 8) << 16
                          : (uint32_t)(at[0] | at[1] << 8 | at[2] << 16) | (uint32_t)at[3] << 24;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

static bool is_plain(enum gguf_packing p)
{
    return p == GGUF_F32 || p == GGUF_F16 || p == GGUF_BF16;
}

void gguf_read_row(const struct gguf_tensor *t, uint64_t row, float *out)
{
    const struct gguf_packing_info *p = &gguf_packings[t->packing];
    const uint64_t blocks = t->dims[0] / p->elements;
    const uint8_t *at = t->data + row * blocks * p->bytes;
    float numbers[BLOCK_MAX];
    for (uint64_t i = 0; i < blocks; i++) {
        if (is_plain(t->packing))
            numbers[0] = plain_number(t->packing, at + i * p->bytes);
        else
            block_numbers(t->packing, at + i * p->bytes, numbers);
        for (uint32_t j = 0; j < p->elements; j++)
            out[i * p->elements + j] = numbers[j];
    }
}

bool gguf_row_readable(enum gguf_packing p) { return is_plain(p) || block_readable(p); }

static bool fits(const struct gguf_tensor *k, const struct gguf_tensor *v)
{
    return k && v && k->n_dims == 3 && v->n_dims == 3 && k->dims[1] == v->dims[0] &&
           k->dims[2] == v->dims[2] && gguf_row_readable(k->packing) &&
           gguf_row_readable(v->packing) && k->dims[0] % gguf_packings[k->packing].elements == 0 &&
           v->dims[0] % gguf_packings[v->packing].elements == 0;
}

int gguf_latent_join(const struct gguf_tensor *k, const struct gguf_tensor *v, struct tensor *t,
                     struct err *e)
{
    if (!fits(k, v))
        return err_set(e, ERR_VALIDATION,
                       "%s: tensors `%s` and its values are no matrices of one size", t->file,
                       k ? k->name : v->name);
    const uint64_t nope = k->dims[0], rank = k->dims[1], heads = k->dims[2], n_v = v->dims[1];
    const uint64_t each = (nope + n_v) * rank;
    float *out = calloc(heads * each, sizeof(float)), *row = calloc(nope, sizeof(float));
    for (uint64_t h = 0; out && row && h < heads; h++) {
        float *head = out + h * each;
        for (uint64_t j = 0; j < rank; j++) {
            gguf_read_row(k, h * rank + j, row);
            for (uint64_t i = 0; i < nope; i++)
                head[i * rank + j] = row[i];
        }
        for (uint64_t i = 0; i < n_v; i++)
            gguf_read_row(v, h * n_v + i, head + (nope + i) * rank);
    }
    free(row);
    if (!out || !row) {
        free(out);
        return err_nomem(e);
    }
    t->type = T_F32;
    t->packing = GGUF_F32;
    t->n_dims = 2;
    t->dims[0] = heads * (nope + n_v), t->dims[1] = rank;
    t->bytes = heads * each * sizeof(float);
    t->data = out;
    t->in_memory = true;
    return 0;
}
