#include "model-server/model/lora/lora_head.h"
#include "model-server/backend/numbers.h"
#include <stdlib.h>
#include <string.h>

static float number(const struct tensor *t, size_t i)
{
    const char *p = t->data;
    uint16_t half = 0;
    float single = 0;
    if (t->type == T_F32)
        return memcpy(&single, p + i * sizeof(single), sizeof(single)), single;
    memcpy(&half, p + i * sizeof(half), sizeof(half));
    return t->type == T_F16 ? f32_of_f16(half) : f32_of_bf16(half);
}

static float *numbers(const struct tensor *t, float scale)
{
    const size_t n = (size_t)t->dims[0] * t->dims[1];
    float *out = malloc(n * sizeof(*out));
    for (size_t i = 0; out && i < n; i++)
        out[i] = scale * number(t, i);
    return out;
}

int lora_head_read(struct lora_head *h, const struct tensor *a, const struct tensor *b, float scale,
                   struct err *e)
{
    *h = (struct lora_head){.rank = (uint32_t)a->dims[0],
                            .inputs = (uint32_t)a->dims[1],
                            .outputs = (uint32_t)b->dims[0]};
    h->a = numbers(a, 1);
    h->b = numbers(b, scale);
    return h->a && h->b ? 0 : err_nomem(e);
}

void lora_head_free(struct lora_head *h)
{
    free(h->a);
    free(h->b);
    *h = (struct lora_head){0};
}

static float dot(const float *a, const float *b, uint32_t n)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

void lora_head_add(const struct lora_head *h, const float *x, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++, x += h->inputs, out += h->outputs)
        for (uint32_t r = 0; r < h->rank; r++) {
            const float middle = dot(h->a + (size_t)r * h->inputs, x, h->inputs);
            for (uint32_t k = 0; k < h->outputs; k++)
                out[k] += middle * h->b[(size_t)k * h->rank + r];
        }
}
