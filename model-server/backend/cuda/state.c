/* state.c - recurrent layers: operations of backend.h as kernels and their arguments, cells. */
#include "model-server/backend/cuda/cuda.h"
#include <assert.h>

uint64_t cuda_conv_floats(const struct conv *p) { return (uint64_t)conv_before(p) * p->channels; }

void cuda_conv(struct device *d, float *y, const float *x, uint32_t x_stride,
               const struct state_ref *s, const struct conv *p)
{
    struct conv_args a = {.y = y,
                          .base = s->base,
                          .x = x,
                          .w = p->w,
                          .bias = p->bias,
                          .spans = d->b.spans,
                          .span_of = d->b.span_of,
                          .stride = s->stride,
                          .x_stride = x_stride,
                          .channels = p->channels,
                          .width = p->width,
                          .before = conv_before(p),
                          .silu = p->silu,
                          .sums = p->sums > 1 ? p->sums : 1,
                          .by = p->by,
                          .each = p->each,
                          .tokens = d->batch->n_tokens,
                          .n_spans = d->batch->n_spans};
    RECORD(d, conv_launch, a);
    RECORD(d, conv_keep_launch, a);
}

uint64_t cuda_recur_floats(const struct recur *p)
{
    return (uint64_t)p->heads * p->key_dim * p->value_dim;
}

static void recur_rwkv(struct device *d, float *o, const struct state_ref *s, const struct recur *p)
{
    const struct rwkv *w = p->rwkv;
    const uint32_t n = p->heads * p->key_dim;
    assert(p->value_dim == p->key_dim && p->x_stride == n && p->step_stride == n &&
           p->beta_stride == n);
    (void)n;
    const struct rwkv_args a = {.o = o,
                                .k = p->x + p->k,
                                .v = p->x + p->v,
                                .work = p->work,
                                .base = s->base,
                                .q = p->x + p->q,
                                .step = p->step,
                                .step_bias = p->dt_bias,
                                .rate = p->beta,
                                .rate_bias = p->beta_bias,
                                .erase = w->erase,
                                .replace = w->replace,
                                .bonus = w->bonus,
                                .first = w->first,
                                .blend = w->blend,
                                .blend_bias = w->blend_bias,
                                .norm = w->norm,
                                .norm_bias = w->norm_bias,
                                .gate = w->gate,
                                .spans = d->b.spans,
                                .stride = s->stride,
                                .heads = p->heads,
                                .dim = p->key_dim,
                                .tokens = d->batch->n_tokens,
                                .n_spans = d->batch->n_spans,
                                .eps = w->eps};
    RECORD(d, rwkv_prepare_launch, a);
    RECORD(d, rwkv_launch, a);
    RECORD(d, rwkv_finish_launch, a);
}

void cuda_recur(struct device *d, float *o, const struct state_ref *s, const struct recur *p)
{
    struct recur_args a = {.o = o,
                           .x = p->x,
                           .work = p->work,
                           .base = s->base,
                           .step = p->step,
                           .beta = p->beta,
                           .a_log = p->a_log,
                           .dt_bias = p->dt_bias,
                           .skip = p->skip,
                           .rates = p->rates,
                           .kq = p->kq,
                           .beta_bias = p->beta_bias,
                           .spans = d->b.spans,
                           .stride = s->stride,
                           .x_stride = p->x_stride,
                           .q = p->q,
                           .k = p->k,
                           .v = p->v,
                           .step_stride = p->step_stride,
                           .beta_stride = p->beta_stride,
                           .heads = p->heads,
                           .key_heads = p->key_heads,
                           .key_dim = p->key_dim,
                           .value_dim = p->value_dim,
                           .kind = p->kind,
                           .by_key = p->by_key,
                           .tokens = d->batch->n_tokens,
                           .n_spans = d->batch->n_spans,
                           .dt_min = p->dt_min,
                           .dt_max = p->dt_max,
                           .beta_scale = p->beta_scale,
                           .floor = p->floor};
    if (p->key_dim > RECUR_MOST_KEYS) {
        err_set(&d->fault, ERR_VALIDATION, "keys of %u numbers: at most %d", p->key_dim,
                RECUR_MOST_KEYS);
        return;
    }
    if (p->kind == RECUR_RWKV) {
        recur_rwkv(d, o, s, p);
        return;
    }
    if (p->kind == RECUR_GATED) {
        RECORD(d, gated_launch, a);
        return;
    }
    RECORD(d, recur_prepare_launch, a);
    RECORD(d, recur_launch, a);
}

void cuda_gate_norm(struct device *d, float *x, uint32_t x_stride, uint32_t rows, uint32_t n,
                    const struct gate_norm *p)
{
    struct gate_norm_args a = {.x = x,
                               .gate = p->gate,
                               .w = p->w,
                               .squares = p->squares,
                               .x_stride = x_stride,
                               .stride = p->stride,
                               .rows = rows,
                               .n = n,
                               .kind = p->kind,
                               .group = p->w && !p->squares ? p->group : n,
                               .norm_first = p->norm_first,
                               .column = p->column,
                               .all = p->all,
                               .eps = p->eps};
    if (rows)
        RECORD(d, gate_norm_launch, a);
}

int cuda_state_copy(struct device *d, const struct state_ref *s, const uint32_t *src,
                    const uint32_t *dst, uint32_t n, struct err *e)
{
    for (uint32_t i = 0; i < n; i++) {
        if (src[i] == dst[i])
            continue;
        const cudaError_t rc =
            cudaMemcpyAsync(s->base + dst[i] * s->stride, s->base + src[i] * s->stride,
                            s->stride * sizeof(float), cudaMemcpyDeviceToDevice, d->stream);
        if (rc != cudaSuccess)
            return cuda_failed(d, rc, "copying recurrent state", e);
    }
    return 0;
}

void cuda_pool_keys(struct device *d, float *k, const struct state_ref *s,
                    const struct pool_keys *p)
{
    const struct pooled_args a = {.k = k,
                                  .base = s->base,
                                  .x = p->x,
                                  .gates = p->gates,
                                  .bias = p->bias,
                                  .spans = d->b.spans,
                                  .stride = s->stride,
                                  .dim = p->dim,
                                  .size = p->size,
                                  .series = p->series,
                                  .n_spans = d->batch->n_spans};
    RECORD(d, pooled_launch, a);
}
