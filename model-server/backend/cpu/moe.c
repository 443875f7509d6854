/* moe.c - mixture of experts: routes each row to its best experts, runs each expert on its rows
 * together, and adds the results in the order of the experts' numbers. A row's result depends
 * only on that row. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/mathf.h"
#include <float.h>
#include <math.h>
#include <string.h>

enum { MAX_TOP_K = 64 };

/* One expert of one row. */
struct choice {
    uint32_t row;
    float weight;
};

struct moe_work {
    float *logits;          /* [rows][n] of all n experts, including those without weights */
    float *choice, *group;  /* [n], [n_groups] of the current row */
    struct choice *choices; /* [n][rows]: rows of an expert, ascending */
    uint32_t *n;            /* [n] */
    float *x, *hidden, *gated, *out;
};

static uint32_t n_all(const struct moe *p) { return p->n_experts + p->n_zero; }

/* Converts logits to scores, in place. With NaN no expert is selected, and 0 / 0 makes the result
 * NaN. Returns the divisor of the scores: softmax is not completed if only the order of scores
 * matters. */
static float score_row(float *l, const struct moe *p)
{
    float max = l[0], sum = 0;
    for (uint32_t i = 1; i < n_all(p); i++)
        max = l[i] > max ? l[i] : max;
    for (uint32_t i = 0; i < n_all(p); i++) {
        const float e = p->score == MOE_SIGMOID         ? math_sigmoid(l[i])
                        : p->score == MOE_SQRT_SOFTPLUS ? sqrtf(math_softplus(l[i]))
                                                        : math_exp(l[i] - max);
        sum += l[i] = e >= 0.0f ? e : 0.0f;
    }
    if (p->score != MOE_SOFTMAX)
        return 1;
    for (uint32_t i = 0; p->select_bias && i < n_all(p); i++)
        l[i] /= sum;
    return p->select_bias ? 1 : sum;
}

/* The best of c[0 .. n) that is not taken (-INFINITY); ties go to the lower number. */
static uint32_t best_of(const float *c, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (c[i] > c[best])
            best = i;
    return best;
}

/* Marks experts outside the best groups as taken. */
static void close_groups(float *choice, float *group, const struct moe *p)
{
    const uint32_t n = n_all(p) / p->n_groups;
    for (uint32_t g = 0; g < p->n_groups; g++) {
        const float *c = choice + (size_t)g * n;
        float first = -INFINITY, second = -INFINITY;
        for (uint32_t i = 0; i < n; i++) {
            second = c[i] > first ? first : c[i] > second ? c[i] : second;
            first = c[i] > first ? c[i] : first;
        }
        group[g] = fmaxf(p->group_pairs ? first + second : first, -FLT_MAX);
    }
    for (uint32_t k = 0; k < p->top_groups; k++)
        group[best_of(group, p->n_groups)] = -INFINITY;
    for (uint32_t g = 0; g < p->n_groups; g++)
        for (uint32_t i = 0; group[g] != -INFINITY && i < n; i++)
            choice[(size_t)g * n + i] = -INFINITY;
}

/* The probability of the best logit in a softmax over the logits close to it. */
static float sparse_share(const float *l, uint32_t best, const float *open, const struct moe *p)
{
    float sum = 0.0f;
    for (uint32_t i = 0; i < n_all(p); i++) {
        const float size = fabsf(l[i]), by = size > l[best] ? size : l[best];
        if (open[i] != -INFINITY && !((l[best] - l[i]) / by > 2 * p->jitter))
            sum += math_exp(l[i] - l[best]);
    }
    return 1.0f / sum;
}

static void add_choice(struct moe_work *m, const struct moe *p, uint32_t expert, uint32_t row,
                       uint32_t rows, float weight)
{
    if (p->expert_scale)
        weight *= p->expert_scale[expert];
    m->choices[(size_t)expert * rows + m->n[expert]++] = (struct choice){row, weight};
}

static void route_sparse(struct moe_work *m, const struct moe *p, uint32_t row, uint32_t rows)
{
    const float *l = m->logits + (size_t)row * n_all(p);
    for (uint32_t i = 0; i < n_all(p); i++)
        m->choice[i] = fmaxf(l[i], -FLT_MAX);
    for (uint32_t k = 0; k < p->top_k && k < n_all(p); k++) {
        const uint32_t best = best_of(m->choice, n_all(p));
        add_choice(m, p, best, row, rows, sparse_share(l, best, m->choice, p) * p->scale);
        m->choice[best] = -INFINITY;
    }
}

/* The experts of the row's token: moe.by_id. */
static void route_by_id(struct moe_work *m, const struct moe *p, uint32_t id, uint32_t row,
                        uint32_t rows)
{
    float *l = m->logits + (size_t)row * n_all(p), kept = 0;
    const uint32_t *of = p->by_id + (size_t)(id < p->n_ids ? id : 0) * p->top_k;
    const float sum = score_row(l, p);
    for (uint32_t k = 0; k < p->top_k; k++)
        kept += l[of[k]];
    for (uint32_t k = 0; k < p->top_k; k++)
        add_choice(m, p, of[k], row, rows, l[of[k]] / (p->renormalise ? kept : sum) * p->scale);
}

/* choice: -INFINITY means taken; NaN is the worst. */
static void route_row(struct moe_work *m, const struct moe *p, uint32_t id, uint32_t row,
                      uint32_t rows)
{
    float *l = m->logits + (size_t)row * n_all(p), *choice = m->choice, kept = 0;
    uint32_t best[MAX_TOP_K], n_best = p->top_k < n_all(p) ? p->top_k : n_all(p);
    if (p->by_id) {
        route_by_id(m, p, id, row, rows);
        return;
    }
    if (p->score == MOE_SPARSEMIXER) {
        route_sparse(m, p, row, rows);
        return;
    }
    for (uint32_t i = 0; p->select_logits && i < n_all(p); i++)
        choice[i] = fmaxf(p->select_bias ? l[i] + p->select_bias[i] : l[i], -FLT_MAX);
    const float sum = score_row(l, p);
    for (uint32_t i = 0; !p->select_logits && i < n_all(p); i++)
        choice[i] = fmaxf(p->select_bias ? l[i] + p->select_bias[i] : l[i], -FLT_MAX);
    if (p->n_groups > 1)
        close_groups(choice, m->group, p);
    for (uint32_t k = 0; k < n_best; k++) {
        const uint32_t b = best[k] = best_of(choice, n_all(p));
        kept += l[b];
        choice[b] = -INFINITY;
    }
    for (uint32_t k = 0; k < n_best; k++)
        add_choice(m, p, best[k], row, rows, l[best[k]] / (p->renormalise ? kept : sum) * p->scale);
}

/* The matrices of this rank's experts have equal shapes. */
static const struct weight *any_down(const struct moe *p)
{
    for (uint32_t i = 0; i < p->n_experts; i++)
        if (p->down[i])
            return p->down[i];
    return NULL;
}

/* Width of the experts, and of their input and result. */
static size_t widest(const struct moe *p) { return any_down(p) ? any_down(p)->cols : 0; }
static uint32_t result_width(const struct moe *p)
{
    return any_down(p) ? any_down(p)->rows : p->router->cols;
}

static void run_expert(struct device *d, float *y, const float *x, uint32_t expert,
                       struct moe_work *m, const struct moe *p, uint32_t rows)
{
    const struct choice *c = m->choices + (size_t)expert * rows;
    uint32_t n = m->n[expert], hidden = p->down[expert]->rows, ffn = p->down[expert]->cols;
    for (uint32_t i = 0; i < n; i++)
        memcpy(m->x + (size_t)i * hidden, x + (size_t)c[i].row * hidden, hidden * sizeof(float));
    const uint32_t up = (p->plain ? 1 : 2) * ffn;
    const float *up_bias = p->up_bias ? p->up_bias + (size_t)expert * up : NULL;
    const float *down_bias = p->down_bias ? p->down_bias + (size_t)expert * hidden : NULL;
    cpu_linear(d, m->hidden, m->x, n, p->up[expert], up_bias);
    for (uint32_t i = 0; p->scale_input && i < n; i++)
        d->kern.soft_cap(m->hidden + (size_t)i * up, up, c[i].weight, 0.0f);
    if (p->plain)
        cpu_act(d, m->hidden, n, ffn, p->act);
    else
        cpu_act_mul(d, m->gated, m->hidden, n, ffn, p->act);
    cpu_linear(d, m->out, p->plain ? m->hidden : m->gated, n, p->down[expert], down_bias);
    if (p->result_norm)
        cpu_gate_norm(d, m->out, hidden, n, hidden, p->result_norm);
    for (uint32_t i = 0; i < n; i++)
        d->kern.axpy(y + (size_t)c[i].row * hidden, m->out + (size_t)i * hidden,
                     p->scale_input ? 1.0f : c[i].weight, hidden);
}

/* The result of an expert without weights. */
static void add_input(struct device *d, float *y, const float *x, uint32_t expert,
                      const struct moe_work *m, const struct moe *p, uint32_t rows)
{
    const struct choice *c = m->choices + (size_t)expert * rows;
    const uint32_t hidden = result_width(p);
    for (uint32_t i = 0; i < m->n[expert]; i++)
        d->kern.axpy(y + (size_t)c[i].row * hidden, x + (size_t)c[i].row * hidden, c[i].weight,
                     hidden);
}

/* Divides one region into the arrays of `m`; returns the required bytes if `base` is NULL. */
static size_t lay_out(struct moe_work *m, char *base, uint32_t rows, const struct moe *p)
{
    size_t hidden = result_width(p), ffn = widest(p), at = 0;
#define PLACE(field, count)                                                                        \
    m->field = (void *)((uintptr_t)base + at);                                                     \
    at += ((count) * sizeof(*m->field) + 63) & ~(size_t)63
    PLACE(n, n_all(p));
    PLACE(logits, (size_t)rows * n_all(p));
    PLACE(choice, n_all(p));
    PLACE(group, p->n_groups);
    PLACE(choices, (size_t)rows * n_all(p));
    PLACE(x, rows * hidden);
    PLACE(hidden, (size_t)2 * rows * ffn);
    PLACE(gated, rows * ffn);
    PLACE(out, rows * hidden);
#undef PLACE
    return at;
}

static void begin_sums(float *y, uint32_t rows, const struct moe *p)
{
    const size_t hidden = result_width(p);
    if (!p->sum_bias)
        memset(y, 0, rows * hidden * sizeof(*y));
    for (uint32_t r = 0; p->sum_bias && r < rows; r++)
        memcpy(y + r * hidden, p->sum_bias, hidden * sizeof(*y));
}

void cpu_moe(struct device *d, float *y, const float *x, uint32_t rows, const struct moe *p)
{
    struct moe_work m;
    if (p->top_k > MAX_TOP_K) {
        err_set(&d->fault, ERR_VALIDATION, "%u experts per token: at most %d", p->top_k, MAX_TOP_K);
        return;
    }
    char *base = cpu_scratch(d, SCRATCH_MOE, lay_out(&m, NULL, rows, p));
    if (!base)
        return;
    lay_out(&m, base, rows, p);
    memset(m.n, 0, n_all(p) * sizeof(*m.n));
    begin_sums(y, rows, p);
    cpu_linear(d, m.logits, p->router_x ? p->router_x : x, rows, p->router, p->router_bias);
    for (uint32_t r = 0; r < rows; r++)
        route_row(&m, p, p->by_id ? d->batch->ids[r] : 0, r, rows);
    for (uint32_t i = 0; i < p->n_experts; i++)
        if (m.n[i] && p->down[i])
            run_expert(d, y, x, i, &m, p, rows);
    for (uint32_t i = p->n_experts; p->adds_zero && i < n_all(p); i++)
        add_input(d, y, x, i, &m, p, rows);
}
