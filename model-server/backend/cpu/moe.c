/* moe.c - mixture of experts: route each row to its best experts, run each expert on its rows
 * together, add the results up in the order of the experts' numbers. A row's result depends on that
 * row alone. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/cpu/mathf.h"
#include <string.h>

enum { MAX_TOP_K = 64 };

/* One expert of one row. */
struct choice {
    uint32_t row;
    float weight;
};

struct moe_work {
    float *logits;          /* [rows][n_experts] */
    struct choice *choices; /* [n_experts][rows]: who goes to an expert, ascending */
    uint32_t *n;            /* [n_experts] */
    float *x, *hidden, *gated, *out;
};

/* The best top_k of softmax(logits); of equals the lower number. */
static void route_row(struct moe_work *m, const struct moe *p, uint32_t row, uint32_t rows)
{
    float *l = m->logits + (size_t)row * p->n_experts, max = l[0], sum = 0, kept = 0;
    uint32_t best[MAX_TOP_K], n_best = p->top_k < p->n_experts ? p->top_k : p->n_experts;
    for (uint32_t i = 1; i < p->n_experts; i++)
        max = l[i] > max ? l[i] : max;
    for (uint32_t i = 0; i < p->n_experts; i++) {
        float e = math_exp(l[i] - max);
        sum += l[i] =
            e >= 0.0f ? e : 0.0f; /* NaN chooses nobody, and 0 / 0 shows it in the result */
    }
    for (uint32_t k = 0; k < n_best; k++) {
        best[k] = 0;
        for (uint32_t i = 1; i < p->n_experts; i++)
            if (l[i] > l[best[k]])
                best[k] = i;
        struct choice *c = &m->choices[(size_t)best[k] * rows + m->n[best[k]]++];
        *c = (struct choice){row, l[best[k]]};
        kept += l[best[k]];
        l[best[k]] = -1.0f; /* taken */
    }
    for (uint32_t k = 0; k < n_best; k++)
        m->choices[(size_t)best[k] * rows + m->n[best[k]] - 1].weight /=
            p->renormalise ? kept : sum;
}

static void run_expert(struct device *d, float *y, const float *x, uint32_t expert,
                       struct moe_work *m, const struct moe *p, uint32_t rows)
{
    const struct choice *c = m->choices + (size_t)expert * rows;
    uint32_t n = m->n[expert], hidden = p->router->cols, ffn = p->down[expert]->cols;
    for (uint32_t i = 0; i < n; i++)
        memcpy(m->x + (size_t)i * hidden, x + (size_t)c[i].row * hidden, hidden * sizeof(float));
    const float *up_bias = p->up_bias ? p->up_bias + (size_t)expert * 2 * ffn : NULL;
    const float *down_bias = p->down_bias ? p->down_bias + (size_t)expert * hidden : NULL;
    cpu_linear(d, m->hidden, m->x, n, p->up[expert], up_bias);
    cpu_act_mul(d, m->gated, m->hidden, n, ffn, p->act);
    cpu_linear(d, m->out, m->gated, n, p->down[expert], down_bias);
    for (uint32_t i = 0; i < n; i++)
        d->kern.axpy(y + (size_t)c[i].row * hidden, m->out + (size_t)i * hidden, c[i].weight,
                     hidden);
}

/* Cut one region into the arrays of `m`; returns the bytes needed when `base` is NULL. */
static size_t lay_out(struct moe_work *m, char *base, uint32_t rows, const struct moe *p)
{
    size_t hidden = p->router->cols, ffn = p->down[0]->cols, at = 0;
#define PLACE(field, count)                                                                        \
    m->field = (void *)((uintptr_t)base + at);                                                     \
    at += ((count) * sizeof(*m->field) + 63) & ~(size_t)63
    PLACE(n, p->n_experts);
    PLACE(logits, (size_t)rows * p->n_experts);
    PLACE(choices, (size_t)rows * p->n_experts);
    PLACE(x, rows * hidden);
    PLACE(hidden, (size_t)2 * rows * ffn);
    PLACE(gated, rows * ffn);
    PLACE(out, rows * hidden);
#undef PLACE
    return at;
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
    memset(m.n, 0, p->n_experts * sizeof(*m.n));
    memset(y, 0, (size_t)rows * p->router->cols * sizeof(*y));
    cpu_linear(d, m.logits, x, rows, p->router, p->router_bias);
    for (uint32_t r = 0; r < rows; r++)
        route_row(&m, p, r, rows);
    for (uint32_t i = 0; i < p->n_experts; i++)
        if (m.n[i])
            run_expert(d, y, x, i, &m, p, rows);
}
