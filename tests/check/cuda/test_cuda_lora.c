/* test_cuda_lora.c - low-rank updates of the CUDA backend against the CPU's: any ranks, types,
 * parts and mixtures of adapters; a row's bits against its company; steps that are replayed while
 * adapters come and go. */
#include "tests/check/cuda/cuda_sides.h"

enum { ADAPTERS = 12, MAX_SPANS = 9 };

/* A matrix of y_width rows over x_width columns, and what each adapter changes of it: on the host,
 * and on one side. */
struct rig {
    uint32_t x_width, y_width;
    struct lora_set host[ADAPTERS + 1], of[ADAPTERS + 1];
    void *memory[(ADAPTERS + 1) * LORA_MAX_PARTS * 2];
    size_t n_memory;
    struct side s;
};

static size_t pitch_of(uint32_t n, enum dtype t)
{
    return (n * dtype_size(t) + 63 + 192) & ~(size_t)63; /* something between the rows */
}

/* `rank` rows of n random numbers, last one first. */
static const void *const *host_rows(uint32_t rank, uint32_t n, enum dtype t)
{
    const size_t pitch = pitch_of(n, t);
    char *p = aligned_alloc(64, pitch * rank);
    const void **list = calloc(rank, sizeof(*list));
    for (uint32_t r = 0; r < rank; r++) {
        char *at = p + (rank - 1 - r) * pitch;
        for (uint32_t i = 0; i < n; i++) {
            float f = rng_unit(&rng);
            uint16_t h = t == DT_F16 ? f16_of_f32(f) : bf16_of_f32(f);
            memcpy(at + i * dtype_size(t), t == DT_F32 ? (void *)&f : (void *)&h, dtype_size(t));
        }
        list[r] = at;
    }
    return list;
}
static void host_rows_free(const void *const *list, uint32_t rank)
{
    free((void *)(uintptr_t)list[rank - 1]); /* the first in memory */
    free((void *)(uintptr_t)list);
}

static void random_set(struct lora_set *s, uint32_t x_width, uint32_t y_width, uint32_t max_rank)
{
    s->n_parts = rng_below(&rng, LORA_MAX_PARTS + 1);
    for (uint32_t k = 0, at = 0; k < s->n_parts; k++) {
        uint32_t n = 1 + rng_below(&rng, y_width / LORA_MAX_PARTS);
        uint32_t rank = 1 + rng_below(&rng, max_rank);
        enum dtype t = (enum dtype)rng_below(&rng, DT_N);
        s->part[k] =
            (struct lora){host_rows(rank, x_width, t), host_rows(rank, n, t), t, rank, at, n,
                          0.25f + rng_unit(&rng)};
        at += n;
    }
}
static void set_free(struct lora_set *s)
{
    for (uint32_t k = 0; k < s->n_parts; k++) {
        host_rows_free(s->part[k].a, s->part[k].rank);
        host_rows_free(s->part[k].b, s->part[k].rank);
    }
}

/* The rows of `list` on the side: where each begins there. */
static const void **side_rows(struct rig *g, const void *const *list, uint32_t rank, uint32_t n,
                              enum dtype t)
{
    const size_t pitch = pitch_of(n, t);
    const void **there = calloc(rank, sizeof(*there));
    char *p = up(g->s, list[rank - 1], pitch * rank);
    for (uint32_t r = 0; r < rank; r++)
        there[r] = p + (rank - 1 - r) * pitch;
    g->memory[g->n_memory++] = p;
    return there;
}
static void bring_in(struct rig *g, uint32_t adapter)
{
    const struct lora_set *from = &g->host[adapter];
    struct lora_set *to = &g->of[adapter];
    *to = *from;
    for (uint32_t k = 0; k < from->n_parts; k++) {
        const struct lora *p = &from->part[k];
        to->part[k].a = side_rows(g, p->a, p->rank, g->x_width, p->dtype);
        to->part[k].b = side_rows(g, p->b, p->rank, p->n, p->dtype);
    }
}
static void drop_lists(struct rig *g, uint32_t adapter)
{
    struct lora_set *of = &g->of[adapter];
    for (uint32_t k = 0; k < of->n_parts; k++)
        free((void *)(uintptr_t)of->part[k].a), free((void *)(uintptr_t)of->part[k].b);
    of->n_parts = 0;
}
static void drop(struct rig *g)
{
    for (size_t i = 0; i < g->n_memory; i++)
        g->s.ops->free(g->s.d, g->memory[i]);
    g->n_memory = 0;
    for (uint32_t a = 1; a <= ADAPTERS; a++)
        drop_lists(g, a);
}

/* y of the update of `y` by the spans' adapters. */
static void update(struct rig *g, const struct span *spans, uint32_t n_spans, uint32_t tokens,
                   float *y, const float *x)
{
    struct err e = ERR_INIT;
    uint32_t *zero = calloc(tokens, sizeof(*zero));
    struct span *own = malloc(n_spans * sizeof(*own));
    for (uint32_t i = 0; i < n_spans; i++)
        own[i] = spans[i], own[i].blocks = zero, own[i].kv_len = spans[i].n;
    const struct ragged b = {.n_tokens = tokens,
                             .n_spans = n_spans,
                             .spans = own,
                             .ids = zero,
                             .pos = zero,
                             .slots = zero};
    const size_t bytes = (size_t)tokens * g->y_width * 4;
    float *dy = up(g->s, y, bytes), *dx = up(g->s, x, (size_t)tokens * g->x_width * 4);
    assert_int_equal(g->s.ops->step_begin(g->s.d, &b, &e), 0);
    g->s.ops->lora(g->s.d, dy, g->y_width, dx, g->x_width, g->of);
    if (g->s.ops->step_end(g->s.d, &e))
        fail_msg("%s", e.msg);
    down(g->s, y, dy, bytes);
    g->s.ops->free(g->s.d, dx);
    free(zero), free(own);
}

static uint32_t any_spans(struct span *spans, uint32_t *n, uint32_t longest)
{
    uint32_t tokens = 0;
    *n = 1 + rng_below(&rng, MAX_SPANS);
    for (uint32_t i = 0; i < *n; i++) {
        spans[i] = (struct span){.first = tokens, .n = 1 + rng_below(&rng, longest)};
        spans[i].adapter = rng_below(&rng, ADAPTERS + 1);
        tokens += spans[i].n;
    }
    return tokens;
}

static void one_batch(uint32_t x_width, uint32_t y_width, uint32_t max_rank, uint32_t longest)
{
    struct rig *g[2] = {calloc(1, sizeof(**g)), calloc(1, sizeof(**g))};
    struct span spans[MAX_SPANS];
    uint32_t n, tokens = any_spans(spans, &n, longest);
    const size_t bytes = (size_t)tokens * y_width * 4;
    float *x = units((size_t)tokens * x_width), *before = units((size_t)tokens * y_width);
    float *y[2] = {malloc(bytes), malloc(bytes)};
    for (uint32_t a = 1; a <= ADAPTERS; a++)
        random_set(&g[0]->host[a], x_width, y_width, max_rank);
    for (int i = 0; i < 2; i++) {
        memcpy(g[i]->host, g[0]->host, sizeof(g[0]->host));
        g[i]->x_width = x_width, g[i]->y_width = y_width;
        g[i]->s = open_side(i ? cpu : gpu, ~0ull);
        for (uint32_t a = 1; a <= ADAPTERS; a++)
            bring_in(g[i], a);
        memcpy(y[i], before, bytes);
        update(g[i], spans, n, tokens, y[i], x);
    }
    for (size_t i = 0; i < (size_t)tokens * y_width; i++) {
        double within = 2e-6 * (1 + (double)x_width) * max_rank; /* sums of numbers below 1 */
        if (!(fabs((double)y[0][i] - y[1][i]) <= within))
            fail_msg("[%u, %u], ranks to %u: y[%zu] is %g, the CPU's %g", y_width, x_width,
                     max_rank, i, y[0][i], y[1][i]);
    }
    for (uint32_t i = 0; i < n; i++) /* token by token: the same bits; none for no adapter */
        for (uint32_t t = spans[i].first; t < spans[i].first + spans[i].n; t++) {
            const struct span alone = {.n = 1, .adapter = spans[i].adapter};
            float *row = y[1];
            memcpy(row, before + (size_t)t * y_width, y_width * 4);
            update(g[0], &alone, 1, 1, row, x + (size_t)t * x_width);
            assert_memory_equal(row, y[0] + (size_t)t * y_width, y_width * 4);
            if (!alone.adapter)
                assert_memory_equal(row, before + (size_t)t * y_width, y_width * 4);
        }
    for (int i = 0; i < 2; i++) {
        drop(g[i]);
        close_side(g[i]->s);
    }
    for (uint32_t a = 1; a <= ADAPTERS; a++)
        set_free(&g[0]->host[a]);
    free(g[0]), free(g[1]), free(x), free(before), free(y[0]), free(y[1]);
}

TEST(updates_are_right_and_independent_of_the_batch)
{
    for (uint32_t i = 0; i < 12; i++) {
        if (machine)
            machine->shuffle = i % 2 ? 77 * i : 0;
        one_batch(1 + rng_below(&rng, 400), 3 + rng_below(&rng, 400), 1 + rng_below(&rng, 40), 5);
    }
    if (machine)
        machine->shuffle = 0;
    one_batch(576, 900, 16, 30);
    one_batch(64, 96, LORA_MAX_RANK, 2);
}

/* Decode steps that are replayed, while the adapter behind a number comes back elsewhere, is
 * another one, or has gone. */
TEST(adapters_come_and_go_between_replays)
{
    enum { X = 96, Y = 120, TOKENS = 3 };
    struct rig g = {.x_width = X, .y_width = Y, .s = open_side(gpu, ~0ull)};
    struct rig c = {.x_width = X, .y_width = Y, .s = open_side(cpu, ~0ull)};
    const struct span spans[TOKENS] = {
        {.n = 1, .adapter = 1}, {.first = 1, .n = 1}, {.first = 2, .n = 1, .adapter = ADAPTERS}};
    struct err e = ERR_INIT;
    uint32_t zero[TOKENS] = {0};
    struct span own[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        own[i] = spans[i], own[i].blocks = zero, own[i].kv_len = 1;
    const struct ragged b = {.n_tokens = TOKENS,
                             .n_spans = TOKENS,
                             .spans = own,
                             .ids = zero,
                             .pos = zero,
                             .slots = zero};
    float *x = units(TOKENS * X), *before = units(TOKENS * Y), want[TOKENS * Y], got[TOKENS * Y];
    float *dy = up(g.s, NULL, sizeof(got)), *dx = up(g.s, x, TOKENS * X * 4);
    uint64_t replays = machine ? machine->graph_launches : 0;
    for (int round = 0; round < 4; round++) {
        for (uint32_t a = 1; a <= ADAPTERS; a += ADAPTERS - 1) {
            struct lora_set *s = &c.host[a];
            if (round != 1) { /* round 1: the same ones, elsewhere */
                do {
                    set_free(s);
                    random_set(s, X, Y, 9);
                } while (s->n_parts != LORA_MAX_PARTS);
            }
            g.host[a] = *s;
        }
        void *keep = round == 1 ? up(g.s, NULL, 5000) : NULL;
        drop(&c), drop(&g);
        for (uint32_t a = 1; a <= ADAPTERS; a += ADAPTERS - 1)
            bring_in(&g, a), bring_in(&c, a);
        if (round == 3)
            drop_lists(&g, 1), drop_lists(&c, 1); /* gone */
        memcpy(want, before, sizeof(want));
        update(&c, spans, TOKENS, TOKENS, want, x);
        for (int step = 0; step < 3; step++) {
            assert_int_equal(gpu->upload(g.s.d, dy, before, sizeof(got), &e), 0);
            assert_int_equal(gpu->step_begin(g.s.d, &b, &e), 0);
            gpu->lora(g.s.d, dy, Y, dx, X, g.of);
            assert_int_equal(gpu->step_end(g.s.d, &e), 0);
            assert_int_equal(gpu->download(g.s.d, got, dy, sizeof(got), &e), 0);
            assert_near(got, want, TOKENS * Y, 1e-4, "after adapters have changed");
        }
        gpu->free(g.s.d, keep);
    }
    if (machine && !getenv("CUDA_FEATURES"))
        assert_true(machine->graph_launches - replays >= 4);
    drop(&c), drop(&g);
    gpu->free(g.s.d, dy), gpu->free(g.s.d, dx);
    for (uint32_t a = 1; a <= ADAPTERS; a += ADAPTERS - 1)
        set_free(&c.host[a]);
    close_side(g.s), close_side(c.s);
    free(x), free(before);
}

int main(void) { return cuda_tests_run(); }
