/* test_lora.c - low-rank updates of the CPU backend against double precision, and their promise: a
 * row's bits do not depend on batch, chunking, threads or instruction set. */
#include "model-server/backend/backend.h"
#include "model-server/backend/numbers.h"
#include "tests/check/cpu_device.h"
#include "tests/check/random.h"
#include <string.h>

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;

enum { ADAPTERS = 4, MAX_SPANS = 9, PAD = 3 };

/* A matrix of y_width rows over x_width columns, and what each adapter changes of it. */
struct rig {
    uint32_t x_width, y_width;
    struct lora_set of[ADAPTERS + 1];
    void *rows[(ADAPTERS + 1) * LORA_MAX_PARTS * 2];
    const void **lists[(ADAPTERS + 1) * LORA_MAX_PARTS * 2];
    size_t n_rows, n_lists;
};

/* `rank` rows of n elements, in any order and with something between them. */
static const void *const *rows(struct rig *g, uint32_t rank, uint32_t n, enum dtype t)
{
    size_t stride = (n * dtype_size(t) + 63 + PAD * 64) & ~(size_t)63;
    char *p = aligned_alloc(64, stride * rank);
    const void **list = calloc(rank, sizeof(*list));
    for (uint32_t r = 0; r < rank; r++) {
        char *at = p + (size_t)(rank - 1 - r) * stride;
        for (uint32_t i = 0; i < n; i++) {
            float f = rng_unit(&rng);
            uint16_t h = t == DT_F16 ? f16_of_f32(f) : bf16_of_f32(f);
            memcpy(at + i * dtype_size(t), t == DT_F32 ? (void *)&f : (void *)&h, dtype_size(t));
        }
        list[r] = at;
    }
    g->rows[g->n_rows++] = p;
    return g->lists[g->n_lists++] = list;
}

static struct rig *rig_new(uint32_t x_width, uint32_t y_width, uint32_t max_rank)
{
    struct rig *g = calloc(1, sizeof(*g));
    g->x_width = x_width, g->y_width = y_width;
    for (int a = 1; a <= ADAPTERS; a++) {
        struct lora_set *s = &g->of[a];
        s->n_parts = rng_below(&rng, LORA_MAX_PARTS + 1);
        for (uint32_t k = 0, at = 0; k < s->n_parts; k++) {
            uint32_t n = 1 + rng_below(&rng, y_width / LORA_MAX_PARTS);
            uint32_t rank = 1 + rng_below(&rng, max_rank);
            enum dtype t = (enum dtype)rng_below(&rng, DT_N);
            s->part[k] = (struct lora){.rank = rank, .first = at, .n = n, .dtype = t};
            s->part[k].scale = 0.25f + rng_unit(&rng);
            s->part[k].a = rows(g, rank, x_width, t);
            s->part[k].b = rows(g, rank, n, t);
            at += n;
        }
    }
    return g;
}

static void rig_free(struct rig *g)
{
    for (size_t i = 0; i < g->n_rows; i++)
        free(g->rows[i]);
    for (size_t i = 0; i < g->n_lists; i++)
        free(g->lists[i]);
    free(g);
}

static double at(const void *row, enum dtype t, uint32_t i)
{
    if (t == DT_F32)
        return ((const float *)row)[i];
    uint16_t h = ((const uint16_t *)row)[i];
    return t == DT_F16 ? f32_of_f16(h) : f32_of_bf16(h);
}

static void expect_row(const struct rig *g, uint32_t adapter, const float *x, const float *before,
                       const float *y)
{
    for (uint32_t i = 0; i < g->y_width; i++) {
        double want = before[i], size = fabs(want);
        for (uint32_t k = 0; k < g->of[adapter].n_parts; k++) {
            const struct lora *p = &g->of[adapter].part[k];
            for (uint32_t r = 0; i >= p->first && i < p->first + p->n && r < p->rank; r++) {
                double u = 0, b = at(p->b[r], p->dtype, i - p->first), reach = 0;
                for (uint32_t c = 0; c < g->x_width; c++) {
                    u += at(p->a[r], p->dtype, c) * x[c];
                    reach += fabs(at(p->a[r], p->dtype, c) * x[c]);
                }
                want += p->scale * u * b, size += fabs(p->scale * reach * b);
            }
        }
        if (fabs(y[i] - want) > 1e-6 * size + 1e-30)
            fail_msg("adapter %u, column %u of %u: %g for %g", adapter, i, g->y_width, y[i], want);
    }
}

static void run(struct device *d, const struct rig *g, const struct span *spans, uint32_t n_spans,
                uint32_t tokens, float *y, const float *x)
{
    struct err e = ERR_INIT;
    const struct ragged b = {.n_tokens = tokens, .n_spans = n_spans, .spans = spans};
    assert_int_equal(ops->step_begin(d, &b, &e), 0);
    ops->lora(d, y, g->y_width, x, g->x_width, g->of);
    assert_int_equal(ops->step_end(d, &e), 0);
}

static void one_batch(uint32_t x_width, uint32_t y_width, uint32_t max_rank, uint32_t longest)
{
    struct rig *g = rig_new(x_width, y_width, max_rank);
    struct span spans[MAX_SPANS];
    uint32_t n = 1 + rng_below(&rng, MAX_SPANS), tokens = 0;
    for (uint32_t i = 0; i < n; i++) {
        spans[i] = (struct span){.first = tokens, .n = 1 + rng_below(&rng, longest)};
        spans[i].adapter = rng_below(&rng, ADAPTERS + 1);
        tokens += spans[i].n;
    }
    float *x = rng_floats(&rng, (size_t)tokens * x_width);
    float *before = rng_floats(&rng, (size_t)tokens * y_width);
    size_t bytes = (size_t)tokens * y_width * sizeof(float);
    float *y = malloc(bytes), *again = malloc(bytes);
    struct device *two = device(2, ~(uint64_t)0), *plain = device(1, 0);

    memcpy(y, before, bytes);
    run(two, g, spans, n, tokens, y, x);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t t = spans[i].first; t < spans[i].first + spans[i].n; t++)
            expect_row(g, spans[i].adapter, x + (size_t)t * x_width, before + (size_t)t * y_width,
                       y + (size_t)t * y_width);

    memcpy(again, before, bytes); /* other threads, plain C */
    run(plain, g, spans, n, tokens, again, x);
    assert_memory_equal(y, again, bytes);

    memcpy(again, before, bytes); /* token by token */
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t t = spans[i].first; t < spans[i].first + spans[i].n; t++) {
            const struct span alone = {.n = 1, .adapter = spans[i].adapter};
            run(two, g, &alone, 1, 1, again + (size_t)t * y_width, x + (size_t)t * x_width);
        }
    assert_memory_equal(y, again, bytes);
    ops->close(two), ops->close(plain);
    free(x), free(before), free(y), free(again);
    rig_free(g);
}

TEST(updates_are_right_and_independent_of_the_batch)
{
    for (int i = 0; i < 40; i++)
        one_batch(1 + rng_below(&rng, 200), 3 + rng_below(&rng, 200), 1 + rng_below(&rng, 9), 5);
    one_batch(576, 3000, 16, 40);
    one_batch(70001, 96, 3, 2); /* rows longer than a thread's scratch */
}

TEST(no_adapter_changes_nothing)
{
    struct rig *g = rig_new(32, 48, 4);
    struct device *d = device(1, ~(uint64_t)0);
    const struct span spans[] = {{.n = 3}, {.first = 3, .n = 1}};
    float *x = rng_floats(&rng, 4 * 32), *y = rng_floats(&rng, 4 * 48), before[4 * 48];
    memcpy(before, y, sizeof(before));
    run(d, g, spans, 2, 4, y, x);
    assert_memory_equal(y, before, sizeof(before));
    free(x), free(y);
    ops->close(d);
    rig_free(g);
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
