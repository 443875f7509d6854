/* The methods: a row each. */
#include "common/buf.h"
#include "model-server/quantize/fold.h"
#include "model-server/quantize/gptq.h"
#include "model-server/quantize/quantize.h"
#include <stdlib.h>
#include <string.h>

static int round_nearest(struct run *r, struct layer_tensor *t, struct grid_matrix *m,
                         struct err *e)
{
    (void)e;
    grid_matrix_round(&r->workers, m, t->w, t->weight);
    return 0;
}

/* A matrix without input (an unused expert) is rounded to nearest. */
static int round_gptq(struct run *r, struct layer_tensor *t, struct grid_matrix *m, struct err *e)
{
    const struct gptq o = {r->kind.damp, r->o->order};
    if (!t->in || !t->in->moments)
        return round_nearest(r, t, m, e);
    if (gptq_quantise(&o, &r->workers, m, t->w, t->in->moments, e))
        return err_wrap(e, "%s", t->s->t->name);
    return 0;
}

/* AWQ's clipping: the ranges with the smallest error of the outputs of a sample of inputs. */
struct clipping {
    struct grid_matrix *m;
    const float *w, *x; /* x: [n][cols] */
    uint32_t n;
    bool failed;
};

/* Squared error of the outputs from a group of a row. */
static double group_error(const struct clipping *c, const struct grid *g, size_t at, size_t n,
                          const float *w, float *lost)
{
    const int most = grid_most(&c->m->kind);
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        lost[i] = grid_number(g, grid_code(g, most, w[i])) - w[i];
    for (uint32_t r = 0; r < c->n; r++) {
        const float *x = c->x + r * c->m->cols + at;
        float y = 0;
        for (size_t i = 0; i < n; i++)
            y += x[i] * lost[i];
        sum += (double)y * (double)y;
    }
    return sum;
}

static void clip_rows(void *arg, int thread, size_t begin, size_t end)
{
    enum { TRIES = 10 };
    struct clipping *c = arg;
    struct grid_matrix *m = c->m;
    const int most = grid_most(&m->kind);
    float *lost = malloc(m->group * sizeof(*lost));
    (void)thread;
    for (size_t k = begin * m->groups; lost && k < end * m->groups; k++) {
        const size_t at = k % m->groups * m->group;
        const size_t n = m->cols - at < m->group ? m->cols - at : m->group;
        const float *w = c->w + k / m->groups * m->cols + at;
        float low = 0, high = 0;
        double least = -1;
        for (size_t i = 0; i < n; i++)
            low = w[i] < low ? w[i] : low, high = w[i] > high ? w[i] : high;
        for (int t = 0; t < TRIES; t++) {
            const float part = 1 - 0.5F * (float)t / TRIES;
            const struct grid g = grid_range(&m->kind, low * part, high * part);
            const double error = group_error(c, &g, at, n, w, lost);
            if (least < 0 || error < least)
                least = error, m->grids[k] = g;
        }
        for (size_t i = 0; i < n; i++)
            m->codes[k / m->groups * m->cols + at + i] =
                (uint8_t)grid_code(&m->grids[k], most, w[i]);
    }
    if (!lost)
        __atomic_store_n(&c->failed, true, __ATOMIC_RELAXED);
    free(lost);
}

static int round_clipped(struct run *r, struct layer_tensor *t, struct grid_matrix *m,
                         struct err *e)
{
    if (!t->in || !t->in->n_sample)
        return round_nearest(r, t, m, e);
    const size_t n = (size_t)t->in->n_sample * m->cols;
    float *x = malloc(n * sizeof(*x));
    if (!x)
        return err_nomem(e);
    for (size_t i = 0; i < n; i++)
        x[i] = t->in->sample[i] / (t->by ? t->by[i % m->cols] : 1);
    struct clipping c = {.m = m, .w = t->w, .x = x, .n = t->in->n_sample};
    workers_run(&r->workers, clip_rows, &c, m->rows);
    free(x);
    return c.failed ? err_nomem(e) : 0;
}

static const struct method methods[] = {
    {.name = "rtn",
     .bits = 4,
     .group = 128,
     .symmetric = true,
     .layout = &layout_gptq,
     .round = round_nearest},
    {.name = "gptq",
     .needs = TAP_MOMENTS,
     .propagates = true,
     .bits = 4,
     .group = 128,
     .symmetric = true,
     .layout = &layout_gptq,
     .round = round_gptq},
    {.name = "awq",
     .needs = TAP_SCALES | TAP_ROWS,
     .bits = 4,
     .group = 128,
     .layout = &layout_awq,
     .fold = fold_awq,
     .round = round_clipped},
    {.name = "smoothquant",
     .needs = TAP_SCALES,
     .bits = 8,
     .symmetric = true,
     .layout = &layout_int8,
     .fold = fold_smooth,
     .round = round_nearest},
    {.name = "gguf", .needs = TAP_SQUARES},
};
enum { N_METHODS = sizeof(methods) / sizeof(methods[0]) };

const struct method *method_find(const char *word, struct err *e)
{
    struct buf known = BUF_INIT;
    const char *colon = strchr(word, ':');
    const size_t n = colon ? (size_t)(colon - word) : strlen(word);
    for (int i = 0; i < N_METHODS; i++)
        if (strlen(methods[i].name) == n && strncmp(methods[i].name, word, n) == 0 &&
            !colon == (methods[i].layout != NULL))
            return &methods[i];
    for (int i = 0; i < N_METHODS; i++)
        buf_fmt(&known, "%s%s%s", i ? ", " : "", methods[i].name, methods[i].layout ? "" : ":TYPE");
    err_set(e, ERR_VALIDATION, "--method %.60s is not known (known: %s)", word,
            known.p ? known.p : "");
    buf_free(&known);
    return NULL;
}
