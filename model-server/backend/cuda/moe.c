/* moe.c - mixture of experts as a handful of launches whose shapes do not depend on the routing.
 *
 * Few rows: four launches. The router; route and group; up with biases, gate and activation; down,
 * which adds the results of a row's experts, and to the residual stream. More rows in 16 bits: x is
 * rounded in the order of the experts, wgmma multiplies, and a kernel adds the results. */
#include "model-server/backend/cuda/cuda.h"
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- the experts' weights */

/* The first expert of this rank. */
static uint32_t first_of(struct weight *const *w, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && !w[i])
        i++;
    return i;
}

/* The experts of this rank are consecutive and alike. */
static int check_alike(struct weight *const *w, uint32_t n, struct err *e)
{
    const uint32_t first = first_of(w, n);
    if (first == n)
        return err_set(e, ERR_VALIDATION, "a mixture without experts");
    const struct stored *a = &w[first]->m;
    for (uint32_t i = first + 1; i < n; i++) {
        const struct stored *b = w[i] ? &w[i]->m : a;
        if (w[i] && !w[i - 1])
            return err_set(e, ERR_VALIDATION, "expert %u is here, and the one before is not", i);
        if (b->rows != a->rows || b->cols != a->cols || b->dtype != a->dtype ||
            b->quant != a->quant || b->offsets != a->offsets ||
            memcmp(b->table, a->table, sizeof(a->table)) != 0)
            return err_set(e, ERR_VALIDATION, "expert %u is not of the shape of expert %u", i,
                           first);
    }
    return 0;
}

/* Copies `bytes` to new device memory; NULL with an error. */
static void *send_table(struct device *d, const void *host, size_t bytes, struct err *e)
{
    void *dev = cuda_take(d, bytes, "a table of experts", "lower --kv-cache-memory", e);
    if (dev && cuda_upload(d, dev, host, bytes, e)) {
        cudaFree(dev);
        dev = NULL;
    }
    return dev;
}

static const void **make_table(struct device *d, struct weight *const *w, uint32_t n, struct err *e)
{
    const void **host = malloc(n * sizeof(*host)), **dev;
    if (!host)
        return err_nomem(e), NULL;
    for (uint32_t i = 0; i < n; i++)
        host[i] = w[i] ? w[i]->m.data : NULL;
    dev = send_table(d, host, n * sizeof(*host), e);
    free(host);
    return dev;
}

static void *make_maps(struct device *d, struct weight *const *w, uint32_t n, struct err *e)
{
    char *host = aligned_alloc(EXPERT_MAP_BYTES, (size_t)n * EXPERT_MAP_BYTES);
    cudaError_t rc = cudaSuccess;
    void *dev = NULL;
    if (!host)
        return err_nomem(e), NULL;
    memset(host, 0, (size_t)n * EXPERT_MAP_BYTES);
    for (uint32_t i = 0; i < n && rc == cudaSuccess; i++)
        rc =
            !w[i] ? cudaSuccess : linear_experts_map(host + (size_t)i * EXPERT_MAP_BYTES, &w[i]->m);
    if (rc != cudaSuccess)
        cuda_failed(d, rc, "describing experts", e);
    else
        dev = send_table(d, host, (size_t)n * EXPERT_MAP_BYTES, e);
    free(host);
    return dev;
}

/* Matrices that linear_experts supports, if it is to be used at all. */
static bool takes_experts(const struct device *d, const struct stored *w)
{
    return d->features & CUDA_EXPERTS && wgmma_has(d, w);
}

/* The device's arrays for w[0 .. n), created on first use; NULL with a fault. Valid until the next
 * call. */
static const struct expert_table *table_of(struct device *d, struct weight *const *w, uint32_t n)
{
    const void *const *key = (const void *const *)w;
    const uint32_t at = first_of(w, n);
    struct weight *first = at < n ? w[at] : NULL;
    for (uint32_t i = 0; i < d->n_experts; i++)
        if (d->experts[i].key == key && d->experts[i].first == first && d->experts[i].n == n)
            return &d->experts[i];
    struct expert_table *all = realloc(d->experts, ((size_t)d->n_experts + 1) * sizeof(*all));
    if (!all)
        return err_nomem(&d->fault), NULL;
    d->experts = all;
    struct expert_table *t = &all[d->n_experts];
    *t = (struct expert_table){.key = key, .first = first, .n = n};
    t->dev = check_alike(w, n, &d->fault) ? NULL : make_table(d, w, n, &d->fault);
    if (!t->dev)
        return NULL;
    d->n_experts++; /* from here on it is freed with the device */
    t->maps = takes_experts(d, &first->m) ? make_maps(d, w, n, &d->fault) : NULL;
    return d->fault.kind == ERR_NONE ? t : NULL;
}

void moe_forget(struct device *d, const struct weight *w)
{
    for (uint32_t i = 0; i < d->n_experts;)
        if (d->experts[i].first == w) {
            cudaFree(d->experts[i].dev);
            cudaFree(d->experts[i].maps);
            d->experts[i] = d->experts[--d->n_experts];
        } else {
            i++;
        }
}

void moe_tables_free(struct device *d)
{
    for (uint32_t i = 0; i < d->n_experts; i++) {
        cudaFree(d->experts[i].dev);
        cudaFree(d->experts[i].maps);
    }
    free(d->experts);
}

/* ---------------------------------------------------------------- one layer */

/* A layer's scratch memory, and which kernels it takes. */
struct moe_work {
    float *logits, *weight;          /* [rows][n_all()], [rows][top_k] */
    uint32_t *expert, *begin, *list; /* [pairs], [n_experts + 2], [pairs] */
    struct expert_job *jobs;         /* [n_experts + pairs / EXPERT_FEW] */
    float *hidden, *gated, *out;     /* [pairs][2 ffn], [pairs][ffn], [pairs][hidden] */
    uint16_t *x16, *gated16;         /* [pairs][padded hidden], [pairs][padded ffn] */
    uint32_t rows, pairs, hidden_n, ffn;
    uint32_t first, here;           /* the experts of this rank */
    const struct weight *up, *down; /* one of them */
    bool wgmma, fused;              /* linear_experts; everything within products */
    uint32_t tile;                  /* of group_args */
};

/* Experts of the router, including those without weights. */
static uint32_t n_all(const struct moe *p) { return p->n_experts + p->n_zero; }

static size_t lay_out(struct moe_work *m, char *base, const struct moe *p)
{
    const size_t pairs = m->pairs, ffn = m->ffn;
    size_t at = 0;
#define PLACE(field, count)                                                                        \
    m->field = (void *)((uintptr_t)base + at);                                                     \
    at += ((count) * sizeof(*m->field) + 255) & ~(size_t)255
    PLACE(logits, (size_t)m->rows * n_all(p));
    PLACE(weight, pairs);
    PLACE(expert, pairs);
    PLACE(begin, (size_t)p->n_experts + 2);
    PLACE(list, pairs);
    PLACE(jobs, p->n_experts + pairs / EXPERT_FEW);
    PLACE(hidden, pairs * 2 * ffn);
    PLACE(gated, pairs * ffn);
    PLACE(out, pairs * m->hidden_n);
    PLACE(x16, pairs * k_padded(m->hidden_n, m->up->m.quant));
    PLACE(gated16, pairs * k_padded(m->ffn, m->down->m.quant));
#undef PLACE
    return at;
}

/* An expert's product of rows of x, each of which has `per_row` pairs. */
static struct linear_args expert_args(const struct moe_work *m, const struct expert_table *t,
                                      float *y, const float *x, uint32_t x_rows)
{
    return (struct linear_args){.y = y,
                                .x = x,
                                .w = t->first->m,
                                .table = t->dev,
                                .list = m->list,
                                .begin = m->begin,
                                .jobs = m->jobs,
                                .rows = x_rows,
                                .experts = t->n,
                                .per_row = m->pairs / x_rows};
}

/* Above this number of rows weights are read faster by copies than by the threads that multiply,
 * if x has to come from global memory step by step: by estimate. */
enum { FEW_ROWS = 4, FEW_PAIRS = 48 /* of an expert, on average: smaller tiles */ };

static bool in_shared(const struct device *d, const struct moe_work *m, const struct weight *w,
                      uint32_t x_rows, uint32_t n_experts)
{
    const struct stream_args s = {
        .l = {.w = w->m, .rows = x_rows, .per_row = m->pairs / x_rows, .experts = n_experts}};
    return stream_experts_fit(d, &s);
}

static void choose(const struct device *d, struct moe_work *m, const struct moe *p)
{
    const struct stored *up = &m->up->m, *down = &m->down->m;
    const bool shared = m->rows <= FEW_ROWS && in_shared(d, m, m->up, m->rows, p->n_experts) &&
                        in_shared(d, m, m->down, m->pairs, p->n_experts);
    m->wgmma =
        takes_experts(d, up) && takes_experts(d, down) && up->dtype == down->dtype && !shared;
    m->fused = d->features & CUDA_FUSE && d->features & CUDA_MIX && d->features & CUDA_TENSOR &&
               up->dtype != DT_F32 && down->dtype != DT_F32;
    m->tile = !m->wgmma                                                          ? UINT32_MAX
              : up->quant || down->quant || m->pairs <= FEW_PAIRS * p->n_experts ? EXPERT_FEW
                                                                                 : EXPERT_MANY;
}

/* A row's scores and choices in the shared memory of a block that has all rows. */
enum { ROUTE_BYTES = 48 << 10 };

static void route(struct device *d, const struct moe_work *m, const float *x, const struct moe *p)
{
    cuda_linear(d, m->logits, p->router_x ? p->router_x : x, m->rows, p->router, p->router_bias);
    struct route_args a = {.logits = m->logits,
                           .expert = m->expert,
                           .weight = m->weight,
                           .select_bias = p->select_bias,
                           .rows = m->rows,
                           .n_experts = n_all(p),
                           .top_k = p->top_k,
                           .renormalise = p->renormalise,
                           .score = p->score,
                           .n_groups = p->n_groups,
                           .top_groups = p->top_groups,
                           .group_pairs = p->group_pairs,
                           .scale = p->scale,
                           .jitter = p->jitter,
                           .expert_scale = p->expert_scale,
                           .by_id = p->by_id,
                           .ids = d->b.ids,
                           .n_ids = p->n_ids,
                           .select_logits = p->select_logits};
    const struct group_args group = {.expert = m->expert,
                                     .begin = m->begin,
                                     .list = m->list,
                                     .jobs = m->jobs,
                                     .pairs = m->pairs,
                                     .n_experts = p->n_experts,
                                     .tile = m->tile,
                                     .first = m->first,
                                     .here = m->here};
    const size_t row = (2 * (size_t)n_all(p) + p->n_groups) * sizeof(float);
    const bool together = m->fused && m->rows <= ROUTE_ROWS && m->rows * row <= ROUTE_BYTES;
    if (together)
        a.group = group;
    RECORD(d, route_launch, a);
    if (!together)
        RECORD(d, group_launch, group);
}

static void norm_results(struct device *d, const struct moe_work *m, const struct moe *p)
{
    if (p->result_norm)
        cuda_gate_norm(d, m->out, m->hidden_n, m->pairs, m->hidden_n, p->result_norm);
}

static void mix(struct device *d, const struct moe_work *m, float *y, const struct moe *p)
{
    const struct mix_args a = {.y = y,
                               .x = m->out,
                               .weight = m->weight,
                               .rows = m->rows,
                               .n = m->hidden_n,
                               .top_k = p->top_k,
                               .plain = p->scale_input,
                               .expert = m->here < n_all(p) ? m->expert : NULL,
                               .first = m->first,
                               .here = m->here};
    RECORD(d, mix_launch, a);
}

/* ---------------------------------------------------------------- by wgmma */

static void collect(struct device *d, const struct moe_work *m, uint16_t *y, const float *x,
                    uint32_t x_rows, const struct stored *w, uint32_t n_experts)
{
    const struct collect_args a = {.y = y,
                                   .x = x,
                                   .list = m->list,
                                   .used = m->begin + n_experts,
                                   .rows = m->pairs,
                                   .per_row = m->pairs / x_rows,
                                   .n = w->cols,
                                   .pitch = k_padded(w->cols, w->quant),
                                   .dtype = w->dtype};
    RECORD(d, collect_launch, a);
}

static struct experts_args wgmma_args(const struct device *d, const struct moe_work *m,
                                      const struct expert_table *t, float *y, const uint16_t *x)
{
    struct experts_args a = {.l = expert_args(m, t, y, NULL, m->pairs), .maps = t->maps};
    a.l.narrow = x, a.l.tile_rows = m->tile, a.l.blocks = (uint32_t)d->sms;
    return a;
}

static void up_by_wgmma(struct device *d, const struct moe_work *m, const float *x,
                        const struct expert_table *t, const struct moe *p)
{
    collect(d, m, m->x16, x, m->rows, &t->first->m, t->n);
    struct experts_args a = wgmma_args(d, m, t, m->hidden, m->x16);
    a.bias_of = p->up_bias, a.scale_of = p->scale_input ? m->weight : NULL;
    const uint32_t pitch = k_padded(m->ffn, m->down->m.quant);
    if (!p->plain && (p->act == ACT_SILU || p->act == ACT_GELU_TANH) && wgmma_gates(&a.l.w) &&
        pitch == k_padded(m->ffn, QUANT_NONE)) { /* tiles of 64 outputs fill the rows */
        a.l.gated = (struct narrow_rows){m->gated16, pitch, a.l.w.dtype, NARROW_WGMMA, true};
        a.l.gate = true, a.l.act = p->act;
        RECORD(d, linear_experts_launch, a);
        return;
    }
    RECORD(d, linear_experts_launch, a);
    if (p->plain)
        cuda_act(d, m->hidden, m->pairs, m->ffn, p->act);
    else
        cuda_act_mul(d, m->gated, m->hidden, m->pairs, m->ffn, p->act);
    collect(d, m, m->gated16, p->plain ? m->hidden : m->gated, m->pairs, &m->down->m, t->n);
}

static void down_by_wgmma(struct device *d, const struct moe_work *m, const struct expert_table *t,
                          const struct moe *p)
{
    struct experts_args a = wgmma_args(d, m, t, m->out, m->gated16);
    a.bias_of = p->down_bias;
    RECORD(d, linear_experts_launch, a);
}

/* ---------------------------------------------------------------- by linear_stream */

static void stream(struct device *d, struct stream_args *s)
{
    if (s->l.w.quant == QUANT_W8A8)
        cuda_quantise(d, &s->l, s->l.rows, NARROW_PLAIN);
    if (s->l.w.quant != QUANT_W8A8 || s->l.narrow)
        stream_experts(d, s);
}

static void up_by_stream(struct device *d, const struct moe_work *m, const float *x,
                         const struct expert_table *t, const struct moe *p)
{
    struct stream_args s = {.l = expert_args(m, t, p->plain ? m->hidden : m->gated, x, m->rows),
                            .bias_of = p->up_bias,
                            .scale_of = p->scale_input ? m->weight : NULL,
                            .acts = p->plain};
    s.l.gate = !p->plain, s.l.act = p->act;
    stream(d, &s);
}

/* The results of few rows are added by the product. It has a block for each tile then: so tiles
 * must be about as many as there are multiprocessors. */
enum { MIX_ROWS = 16 };

static void down_by_stream(struct device *d, const struct moe_work *m, float *y,
                           const struct expert_table *t, const struct moe *p)
{
    const float *x = p->plain ? m->hidden : m->gated;
    struct stream_args s = {.l = expert_args(m, t, m->out, x, m->pairs), .bias_of = p->down_bias};
    const bool mixed = m->rows <= MIX_ROWS && !p->result_norm &&
                       m->hidden_n / STREAM_OUTS * 8 >= (uint32_t)d->sms * 7;
    if (mixed)
        s.mix = (struct mix_args){.y = y,
                                  .weight = m->weight,
                                  .rows = m->rows,
                                  .n = m->hidden_n,
                                  .top_k = p->top_k,
                                  .plain = p->scale_input};
    stream(d, &s);
    if (!mixed) {
        norm_results(d, m, p);
        mix(d, m, y, p);
    }
}

/* ---------------------------------------------------------------- each operation by itself */

static void add_biases(struct device *d, float *y, const float *bias, const struct moe_work *m,
                       uint32_t n)
{
    struct expert_bias_args a = {y, bias, m->expert, m->pairs, n};
    if (bias)
        RECORD(d, expert_bias_launch, a);
}

static void up_alone(struct device *d, const struct moe_work *m, const float *x,
                     const struct expert_table *t, const struct moe *p)
{
    struct linear_args a = expert_args(m, t, m->hidden, x, m->rows);
    const uint32_t n = (p->plain ? 1 : 2) * m->ffn;
    cuda_product(d, &a, m->rows);
    add_biases(d, m->hidden, p->up_bias, m, n);
    if (p->scale_input) {
        struct pair_scale_args scale = {m->hidden, m->weight, m->pairs, n};
        RECORD(d, pair_scale_launch, scale);
    }
    if (p->plain)
        cuda_act(d, m->hidden, m->pairs, m->ffn, p->act);
    else
        cuda_act_mul(d, m->gated, m->hidden, m->pairs, m->ffn, p->act);
}

static void down_alone(struct device *d, const struct moe_work *m, const struct expert_table *t,
                       const struct moe *p)
{
    struct linear_args a = expert_args(m, t, m->out, p->plain ? m->hidden : m->gated, m->pairs);
    cuda_product(d, &a, m->pairs);
    add_biases(d, m->out, p->down_bias, m, m->hidden_n);
}

/* Adds the results of experts without weights. */
static void add_zero(struct device *d, const struct moe_work *m, float *y, const float *x,
                     const struct moe *p)
{
    const struct zero_args a = {.y = y,
                                .x = x,
                                .weight = m->weight,
                                .expert = m->expert,
                                .rows = m->rows,
                                .n = m->hidden_n,
                                .top_k = p->top_k,
                                .first = p->n_experts};
    if (p->n_zero && p->adds_zero)
        RECORD(d, zero_launch, a);
}

static void add_sum_bias(struct device *d, const struct moe_work *m, float *y, const struct moe *p)
{
    const struct expert_bias_args a = {
        .y = y, .bias = p->sum_bias, .pairs = m->rows, .n = m->hidden_n};
    if (p->sum_bias)
        RECORD(d, expert_bias_launch, a);
}

void cuda_moe(struct device *d, float *y, const float *x, uint32_t rows, const struct moe *p)
{
    const uint32_t first = first_of(p->down, p->n_experts);
    uint32_t end = first;
    while (end < p->n_experts && p->down[end])
        end++;
    if (end == first) {
        err_set(&d->fault, ERR_VALIDATION, "a mixture without experts");
        return;
    }
    struct moe_work m = {.rows = rows,
                         .pairs = rows * p->top_k,
                         .hidden_n = p->down[first]->m.rows,
                         .ffn = p->down[first]->m.cols,
                         .first = first,
                         .here = end - first,
                         .up = p->up[first],
                         .down = p->down[first]};
    if (p->top_k > p->n_experts) {
        err_set(&d->fault, ERR_VALIDATION, "%u experts per token of %u", p->top_k, p->n_experts);
        return;
    }
    if (!rows)
        return;
    char *base = cuda_work(d, WORK_MOE, lay_out(&m, NULL, p));
    const struct expert_table *t = base ? table_of(d, p->up, p->n_experts) : NULL;
    if (!t)
        return;
    lay_out(&m, base, p);
    choose(d, &m, p);
    route(d, &m, x, p);
    if (m.wgmma)
        up_by_wgmma(d, &m, x, t, p);
    else if (m.fused)
        up_by_stream(d, &m, x, t, p);
    else
        up_alone(d, &m, x, t, p);
    if (!(t = table_of(d, p->down, p->n_experts)))
        return;
    if (m.wgmma)
        down_by_wgmma(d, &m, t, p);
    else if (m.fused) /* sums as well */
        down_by_stream(d, &m, y, t, p);
    else
        down_alone(d, &m, t, p);
    if (m.wgmma || !m.fused) {
        norm_results(d, &m, p);
        mix(d, &m, y, p);
    }
    add_zero(d, &m, y, x, p);
    add_sum_bias(d, &m, y, p);
}

/* ---------------------------------------------------------------- a matrix for each head */

/* Heads are experts that every row uses. */
void cuda_linear_heads(struct device *d, float *y, const float *x, uint32_t rows,
                       struct weight *const *w, uint32_t n)
{
    const size_t begin = (((size_t)n + 2) * sizeof(uint32_t) + 255) & ~(size_t)255;
    const size_t jobs = ((size_t)n * sizeof(struct expert_job) + 255) & ~(size_t)255;
    const struct expert_table *t = rows ? table_of(d, w, n) : NULL;
    if (!t)
        return;
    char *base = cuda_work(d, WORK_MOE, begin + jobs + (size_t)rows * n * sizeof(uint32_t));
    if (!base)
        return;
    const struct heads_args heads = {.begin = (uint32_t *)(void *)base,
                                     .jobs = (struct expert_job *)(void *)(base + begin),
                                     .list = (uint32_t *)(void *)(base + begin + jobs),
                                     .rows = rows,
                                     .heads = n};
    RECORD(d, heads_launch, heads);
    struct linear_args a = {.y = y,
                            .x = x,
                            .w = w[0]->m,
                            .table = t->dev,
                            .list = heads.list,
                            .begin = heads.begin,
                            .jobs = heads.jobs,
                            .rows = rows * n,
                            .experts = n,
                            .per_row = 1};
    cuda_product(d, &a, rows * n);
}
