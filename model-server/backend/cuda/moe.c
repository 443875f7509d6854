/* moe.c - mixture of experts as a handful of launches whose shapes do not depend on the routing. */
#include "model-server/backend/cuda/cuda.h"
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- the experts' weights */

static int check_alike(struct weight *const *w, uint32_t n, struct err *e)
{
    for (uint32_t i = 1; i < n; i++)
        if (w[i]->m.rows != w[0]->m.rows || w[i]->m.cols != w[0]->m.cols ||
            w[i]->m.dtype != w[0]->m.dtype || w[i]->m.quant != w[0]->m.quant ||
            w[i]->m.offsets != w[0]->m.offsets ||
            memcmp(w[i]->m.table, w[0]->m.table, sizeof(w[0]->m.table)) != 0)
            return err_set(e, ERR_VALIDATION, "expert %u is not of the shape of expert 0", i);
    return 0;
}

static const void **make_table(struct device *d, struct weight *const *w, uint32_t n, struct err *e)
{
    const void **host = malloc(n * sizeof(*host)), **dev = NULL;
    if (!host)
        return err_nomem(e), NULL;
    for (uint32_t i = 0; i < n; i++)
        host[i] = w[i]->m.data;
    dev = cuda_take(d, n * sizeof(*dev), "a table of experts", "lower --kv-cache-memory", e);
    if (dev && cuda_upload(d, dev, host, n * sizeof(*host), e)) {
        cudaFree(dev);
        dev = NULL;
    }
    free(host);
    return dev;
}

/* The device's array of the data of w[0 .. n), created on first use. */
static const void *const *table_of(struct device *d, struct weight *const *w, uint32_t n)
{
    const void *const *key = (const void *const *)w;
    for (uint32_t i = 0; i < d->n_experts; i++)
        if (d->experts[i].key == key && d->experts[i].first == w[0] && d->experts[i].n == n)
            return d->experts[i].dev;
    struct expert_table *all = realloc(d->experts, ((size_t)d->n_experts + 1) * sizeof(*all));
    if (!all)
        return err_nomem(&d->fault), NULL;
    d->experts = all;
    const void **dev = check_alike(w, n, &d->fault) ? NULL : make_table(d, w, n, &d->fault);
    if (dev)
        all[d->n_experts++] = (struct expert_table){key, w[0], n, dev};
    return dev;
}

void moe_forget(struct device *d, const struct weight *w)
{
    for (uint32_t i = 0; i < d->n_experts;)
        if (d->experts[i].first == w) {
            cudaFree(d->experts[i].dev);
            d->experts[i] = d->experts[--d->n_experts];
        } else {
            i++;
        }
}

void moe_tables_free(struct device *d)
{
    for (uint32_t i = 0; i < d->n_experts; i++)
        cudaFree(d->experts[i].dev);
    free(d->experts);
}

/* ---------------------------------------------------------------- one layer */

struct moe_work {
    float *logits, *weight;          /* [rows][n_experts], [rows][top_k] */
    uint32_t *expert, *begin, *list; /* [pairs], [n_experts + 1], [pairs] */
    float *hidden, *gated, *out;     /* [pairs][2 ffn], [pairs][ffn], [pairs][hidden] */
};

static size_t lay_out(struct moe_work *m, char *base, size_t rows, const struct moe *p)
{
    size_t pairs = rows * p->top_k, ffn = p->down[0]->m.cols, at = 0;
#define PLACE(field, count)                                                                        \
    m->field = (void *)((uintptr_t)base + at);                                                     \
    at += ((count) * sizeof(*m->field) + 255) & ~(size_t)255
    PLACE(logits, rows * p->n_experts);
    PLACE(weight, pairs);
    PLACE(expert, pairs);
    PLACE(begin, (size_t)p->n_experts + 1);
    PLACE(list, pairs);
    PLACE(hidden, pairs * 2 * ffn);
    PLACE(gated, pairs * ffn);
    PLACE(out, pairs * p->router->m.cols);
#undef PLACE
    return at;
}

static void experts_linear(struct device *d, float *y, const float *x, const struct moe_work *m,
                           struct weight *const *w, const struct moe *p, uint32_t x_rows,
                           uint32_t per_row)
{
    struct linear_args a = {.y = y,
                            .x = x,
                            .w = w[0]->m,
                            .table = table_of(d, w, p->n_experts),
                            .list = m->list,
                            .begin = m->begin,
                            .experts = p->n_experts,
                            .per_row = per_row};
    if (a.table)
        cuda_product(d, &a, x_rows);
}

static void add_biases(struct device *d, float *y, const float *bias, const struct moe_work *m,
                       uint32_t pairs, uint32_t n)
{
    struct expert_bias_args a = {y, bias, m->expert, pairs, n};
    if (bias)
        RECORD(d, expert_bias_launch, a);
}

void cuda_moe(struct device *d, float *y, const float *x, uint32_t rows, const struct moe *p)
{
    struct moe_work m;
    const uint32_t pairs = rows * p->top_k, hidden = p->router->m.cols, ffn = p->down[0]->m.cols;
    if (p->top_k > p->n_experts) {
        err_set(&d->fault, ERR_VALIDATION, "%u experts per token of %u", p->top_k, p->n_experts);
        return;
    }
    if (!rows)
        return;
    char *base = cuda_work(d, WORK_MOE, lay_out(&m, NULL, rows, p));
    if (!base)
        return;
    lay_out(&m, base, rows, p);
    cuda_linear(d, m.logits, p->router_x ? p->router_x : x, rows, p->router, p->router_bias);
    struct route_args route = {.logits = m.logits,
                               .expert = m.expert,
                               .weight = m.weight,
                               .select_bias = p->select_bias,
                               .rows = rows,
                               .n_experts = p->n_experts,
                               .top_k = p->top_k,
                               .renormalise = p->renormalise,
                               .sigmoid = p->score == MOE_SIGMOID,
                               .n_groups = p->n_groups,
                               .top_groups = p->top_groups,
                               .group_pairs = p->group_pairs,
                               .scale = p->scale,
                               .jitter = p->jitter,
                               .expert_scale = p->expert_scale,
                               .sparse = p->score == MOE_SPARSEMIXER};
    RECORD(d, route_launch, route);
    struct group_args group = {m.expert, m.begin, m.list, pairs, p->n_experts};
    RECORD(d, group_launch, group);
    experts_linear(d, m.hidden, x, &m, p->up, p, rows, p->top_k);
    add_biases(d, m.hidden, p->up_bias, &m, pairs, (p->plain ? 1 : 2) * ffn);
    if (p->scale_input) {
        struct pair_scale_args scale = {m.hidden, m.weight, pairs, (p->plain ? 1 : 2) * ffn};
        RECORD(d, pair_scale_launch, scale);
    }
    if (p->plain)
        cuda_act(d, m.hidden, pairs, ffn, p->act);
    else
        cuda_act_mul(d, m.gated, m.hidden, pairs, ffn, p->act);
    experts_linear(d, m.out, p->plain ? m.hidden : m.gated, &m, p->down, p, pairs, 1);
    add_biases(d, m.out, p->down_bias, &m, pairs, hidden);
    struct mix_args mix = {y, m.out, m.weight, rows, hidden, p->top_k, p->scale_input};
    RECORD(d, mix_launch, mix);
}

/* ---------------------------------------------------------------- a matrix for each head */

/* Heads are experts that every row uses. */
void cuda_linear_heads(struct device *d, float *y, const float *x, uint32_t rows,
                       struct weight *const *w, uint32_t n)
{
    const size_t begin = (((size_t)n + 1) * sizeof(uint32_t) + 255) & ~(size_t)255;
    const void *const *table = table_of(d, w, n);
    if (!rows || !table)
        return;
    char *base = cuda_work(d, WORK_MOE, begin + (size_t)rows * n * sizeof(uint32_t));
    if (!base)
        return;
    struct heads_args heads = {(uint32_t *)(void *)base, (uint32_t *)(void *)(base + begin), rows,
                               n};
    RECORD(d, heads_launch, heads);
    struct linear_args a = {.y = y,
                            .x = x,
                            .w = w[0]->m,
                            .table = table,
                            .list = heads.list,
                            .begin = heads.begin,
                            .experts = n,
                            .per_row = 1};
    cuda_product(d, &a, rows * n);
}
