/* test_cuda_sample.c - tokens chosen on the device against the host's sampler, which is what they
 * mean: the same token, the same alternatives in the same order, log-probabilities within 1e-5, the
 * same errors; rows with ties, cuts in the middle of them, and numbers that are none. */
#include "model-server/engine/step/draws.h"
#include "model-server/sample/sample.h"
#include "tests/check/cuda/cuda_sides.h"
#include <math.h>
#include <time.h>

enum { MOST_ROWS = 24, WIDE = 70000 };

static double unit(void) { return rng_unit(&rng) * 0.5 + 0.5; } /* (0, 1) */
static uint32_t below(uint32_t n) { return rng_below(&rng, n); }
static bool one_in(uint32_t n) { return below(n) == 0; }

/* ---------------------------------------------------------------- rows */

enum kind { PLAIN, COARSE, FLAT, STEEP, FAR, N_KINDS };

/* Scores as models have them, on a grid (ties), all alike, one far ahead, far apart. */
static void fill_row(float *row, uint32_t n, enum kind kind)
{
    for (uint32_t i = 0; i < n; i++) {
        double u = unit() + unit() + unit() + unit() - 2;
        row[i] = kind == FLAT     ? 1.25f
                 : kind == COARSE ? (float)(floor(u * 8) / 4)
                 : kind == FAR    ? (float)(u * 200)
                                  : (float)(u * 5);
    }
    if (kind == STEEP)
        row[below(n)] = 40;
}

/* What is asked of a row, and what it points to. */
struct ask {
    struct sampling p;
    struct tally t;
    uint32_t bias_id[12], forbidden[3], n_forbidden, *mask, n_top;
    float bias[12];
    uint64_t position;
};

static void ask_for(struct ask *a, uint32_t vocab)
{
    struct err e = ERR_INIT;
    *a = (struct ask){.p = sampling_neutral(), .position = rng_u32(&rng)};
    struct sampling *p = &a->p;
    p->sample = !one_in(4);
    p->seed = (uint64_t)rng_u32(&rng) << 32 | rng_u32(&rng);
    if (one_in(2))
        p->temperature = (float)(0.2 + 2 * unit());
    if (one_in(3))
        p->top_k = 1 + below(one_in(2) ? 50 : vocab + 10);
    if (one_in(3))
        p->top_p = (float)unit();
    if (one_in(4))
        p->min_p = (float)(unit() * 0.3);
    if (one_in(4))
        p->typical_p = (float)unit();
    p->raw_logprobs = one_in(3);
    if (one_in(3))
        p->penalties = (struct penalties){
            one_in(2) ? 1.0f : (float)(0.5 + unit()), one_in(2) ? 0.0f : (float)unit(),
            one_in(2) ? 0.0f : (float)(unit() - 0.5), one_in(2) ? 0.0f : (float)(unit() - 0.5)};
    for (uint32_t i = below(300) + 1; penalties_on(&p->penalties) && i; i--)
        assert_int_equal(tally_add(&a->t, below(one_in(2) ? 20 : vocab) % vocab, one_in(2), &e), 0);
    if (one_in(4)) {
        p->bias = (struct bias){a->bias_id, a->bias, 1 + below(12)};
        for (size_t i = 0; i < p->bias.n; i++) {
            a->bias_id[i] = below(one_in(2) ? 4 : vocab) % vocab;
            a->bias[i] = (float)(10 * unit() - 5);
        }
    }
    for (; one_in(4) && a->n_forbidden < 3; a->n_forbidden++)
        a->forbidden[a->n_forbidden] = below(vocab);
    if (one_in(4)) {
        size_t words = (vocab + 31) / 32;
        a->mask = malloc(words * 4);
        for (size_t i = 0; i < words; i++)
            a->mask[i] = rng_u32(&rng) & rng_u32(&rng) & (one_in(20) ? 0 : ~0u);
        if (one_in(8))
            memset(a->mask, 0, words * 4);
    }
    a->n_top = one_in(2) ? 0 : one_in(4) ? below(DRAW_MOST_TOP + 1) : 1 + below(6);
    assert_int_equal(sampling_normalise(p, &e), 0);
}

static void forget(struct ask *a)
{
    tally_free(&a->t);
    free(a->mask);
    a->mask = NULL;
}

static struct draw draw_of(const struct ask *a)
{
    struct draw d = draws_rules(&a->p);
    d.position = a->position;
    d.counts = penalties_on(&a->p.penalties) ? a->t.v : NULL;
    d.n_counts = a->t.cap;
    d.length = a->t.length;
    d.forbid[0] = (struct id_list){a->forbidden, a->n_forbidden};
    d.mask = a->mask;
    d.n_top = a->n_top;
    return d;
}

/* ---------------------------------------------------------------- host and device */

static const uint32_t zero;
static const struct span one_span = {0, 1, 1, &zero, 0};

/* Draw from the rows at `logits` (device memory) into a set. */
static void draw_rows(struct side g, const struct logits *x, const struct draw *v, uint32_t n,
                      int set)
{
    struct err e = ERR_INIT;
    uint32_t slot = 0;
    struct ragged b = {1, 1, 1, &zero, &zero, &slot, &one_span, &zero, NULL, 0};
    if (g.ops->step_begin(g.d, &b, &e) || g.ops->draw(g.d, x, v, n, set, &e) ||
        g.ops->step_end(g.d, &e))
        fail_msg("%s", e.msg);
}

static void compare(const struct ask *a, const float *logits, uint32_t vocab, struct filter_mem *x,
                    const struct drawn *got, const struct scored *top, const char *what)
{
    struct err e = ERR_INIT;
    uint32_t id[DRAW_MOST_TOP];
    float lp[DRAW_MOST_TOP], *row = malloc((size_t)vocab * 4);
    struct sampled want = {.n_top = a->n_top, .top_id = id, .top_logprob = lp};
    memcpy(row, logits, (size_t)vocab * 4);
    for (uint32_t i = 0; i < a->n_forbidden; i++)
        row[a->forbidden[i]] = -INFINITY;
    int rc = sample_row(&a->p, &a->t, 0, a->mask, a->position, row, vocab, x, &want, &e);
    free(row);
    const char *message = got->status == DRAW_NOTHING_ALLOWED ? "no token is allowed here"
                          : got->status == DRAW_NOT_FINITE
                              ? "the model's scores are not finite numbers"
                              : "";
    assert_string_equal(message, rc ? e.msg : "");
    if (rc)
        return;
    const struct sampling *p = &a->p;
    if (got->id != want.id || !(fabs((double)got->logprob - want.logprob) <= 1e-5) ||
        got->n_top != want.n_top)
        fail_msg("%s: T %g k %u p %g min_p %g typical %g raw %d sample %d of %u: %u (%g, %u), the "
                 "host's is %u (%g, %u)",
                 what, p->temperature, p->top_k, p->top_p, p->min_p, p->typical_p, p->raw_logprobs,
                 p->sample, vocab, got->id, got->logprob, got->n_top, want.id, want.logprob,
                 want.n_top);
    for (uint32_t i = 0; i < want.n_top; i++)
        if (top[i].id != id[i] || !(fabs((double)top[i].logprob - lp[i]) <= 1e-5))
            fail_msg("%s: alternative %u of %u is %u (%g), the host's is %u (%g)", what, i,
                     want.n_top, top[i].id, top[i].logprob, id[i], lp[i]);
}

static void spoil(float *row, uint32_t vocab)
{
    static const float worse[] = {NAN, INFINITY, -INFINITY};
    if (one_in(12))
        row[below(vocab)] = worse[below(3)];
    for (uint32_t i = 0; one_in(60) && i < vocab; i++)
        row[i] = -INFINITY;
}

/* A step of `n` rows of every kind. */
static void check_step(struct side g, uint32_t vocab, uint32_t n, int set)
{
    struct err e = ERR_INIT;
    struct ask a[MOST_ROWS];
    struct draw v[MOST_ROWS];
    struct draw_results r;
    struct filter_mem x;
    float *rows = malloc((size_t)n * vocab * 4);
    assert_int_equal(filter_mem_init(&x, vocab, &e), 0);
    for (uint32_t i = 0; i < n; i++) {
        fill_row(rows + (size_t)i * vocab, vocab, (enum kind)below(N_KINDS));
        spoil(rows + (size_t)i * vocab, vocab);
        ask_for(&a[i], vocab);
        v[i] = draw_of(&a[i]);
        v[i].fetch = one_in(10);
    }
    float *dev = up(g, rows, (size_t)n * vocab * 4);
    draw_rows(g, &(struct logits){dev, vocab, 1, 0}, v, n, set);
    assert_int_equal(g.ops->drawn(g.d, set, &r, &e), 0);
    uint32_t top = 0, fetched = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (v[i].fetch)
            assert_memory_equal(r.rows + (size_t)fetched++ * vocab, rows + (size_t)i * vocab,
                                (size_t)vocab * 4);
        else
            compare(&a[i], rows + (size_t)i * vocab, vocab, &x, &r.v[i], r.top + top, "a row");
        top += v[i].n_top;
        forget(&a[i]);
    }
    g.ops->free(g.d, dev);
    filter_mem_free(&x);
    free(rows);
}

TEST(tokens_are_those_of_the_host)
{
    struct side g = open_side(gpu, ~0ull);
    for (uint32_t i = 0; i < 220; i++)
        check_step(g, one_in(3) ? 1 + below(40) : 1 + below(1500), 1 + below(MOST_ROWS),
                   (int)i % 2);
    close_side(g);
}

/* Two, four and eight blocks a row, and one where there are no clusters; scores in shared memory
 * and in the device's. */
TEST(a_row_may_be_cut_among_blocks)
{
    static const uint32_t vocabs[] = {4095, 4096, 4099, 8193, 20000, WIDE};
    for (uint64_t features = ~0ull; features; features = features == ~0ull ? ~4096ull : 0) {
        struct side g = open_side(gpu, features);
        for (uint32_t i = 0; i < sizeof(vocabs) / sizeof(*vocabs); i++)
            check_step(g, vocabs[i], machine ? 5 : MOST_ROWS, 0);
        close_side(g);
    }
    struct side g;
    if (machine) {
        machine->major = 8;
        g = open_side(gpu, ~0ull);
        check_step(g, 9001, 5, 1);
        close_side(g);
        machine->major = 9;
    }
}

/* The slices of several ranks are one vocabulary. */
TEST(slices_of_ranks_are_one_row)
{
    enum { VOCAB = 1001, ROWS = 3 };
    struct side g = open_side(gpu, ~0ull);
    struct err e = ERR_INIT;
    float rows[ROWS * VOCAB], *split = malloc(sizeof(rows) * 2);
    for (uint32_t world = 2; world <= 7; world++) {
        const size_t stride = (size_t)ROWS * ((VOCAB + world - 1) / world);
        struct draw v[ROWS];
        struct draw_results r;
        for (uint32_t i = 0; i < ROWS; i++) {
            fill_row(rows + (size_t)i * VOCAB, VOCAB, PLAIN);
            v[i] = (struct draw){.fetch = true};
        }
        for (uint32_t k = 0; k < world; k++) {
            uint32_t first = VOCAB * k / world, end = VOCAB * (k + 1) / world;
            for (uint32_t i = 0; i < ROWS; i++)
                memcpy(split + k * stride + (size_t)i * (end - first),
                       rows + (size_t)i * VOCAB + first, (end - first) * sizeof(float));
        }
        float *dev = up(g, split, stride * world * 4);
        draw_rows(g, &(struct logits){dev, VOCAB, world, stride}, v, ROWS, 0);
        assert_int_equal(g.ops->drawn(g.d, 0, &r, &e), 0);
        assert_memory_equal(r.rows, rows, sizeof(rows));
        g.ops->free(g.d, dev);
    }
    free(split);
    close_side(g);
}

/* Neither the neighbours nor the order of threads move a bit. */
TEST(a_row_is_drawn_as_alone)
{
    enum { VOCAB = 5000, ROWS = 9 };
    struct side g = open_side(gpu, ~0ull);
    struct err e = ERR_INIT;
    float *rows = malloc((size_t)ROWS * VOCAB * 4);
    struct ask a[ROWS];
    struct draw v[ROWS];
    struct draw_results r;
    struct drawn together[ROWS];
    for (uint32_t i = 0; i < ROWS; i++) {
        fill_row(rows + (size_t)i * VOCAB, VOCAB, PLAIN);
        ask_for(&a[i], VOCAB);
        a[i].n_top = 0;
        v[i] = draw_of(&a[i]);
    }
    float *dev = up(g, rows, (size_t)ROWS * VOCAB * 4);
    draw_rows(g, &(struct logits){dev, VOCAB, 1, 0}, v, ROWS, 0);
    assert_int_equal(g.ops->drawn(g.d, 0, &r, &e), 0);
    memcpy(together, r.v, sizeof(together));
    for (uint32_t i = 0; i < ROWS; i++) {
        if (machine)
            machine->shuffle = 12345 + i;
        assert_int_equal(g.ops->upload(g.d, dev, rows, (size_t)ROWS * VOCAB * 4, &e), 0);
        draw_rows(g, &(struct logits){dev + (size_t)i * VOCAB, VOCAB, 1, 0}, &v[i], 1, 1);
        assert_int_equal(g.ops->drawn(g.d, 1, &r, &e), 0);
        assert_memory_equal(r.v, &together[i], sizeof(together[i]));
        forget(&a[i]);
    }
    if (machine)
        machine->shuffle = 0;
    g.ops->free(g.d, dev);
    free(rows);
    close_side(g);
}

/* A step whose ids are the tokens of the step before, which the host has not waited for: it
 * computes with them, and its penalties count them. */
TEST(a_token_may_still_be_on_the_device)
{
    enum { VOCAB = 700, ROWS = 2 };
    static const uint32_t two[ROWS] = {0, 1}, swapped[ROWS] = {1, 0}, nothing[ROWS];
    static const struct span spans[ROWS] = {{0, 1, 1, &zero, 0}, {1, 1, 1, &zero, 0}};
    struct side g = open_side(gpu, ~0ull);
    struct err e = ERR_INIT;
    struct filter_mem x;
    struct draw v[ROWS];
    struct ask a[ROWS] = {0};
    struct draw_results r;
    float *rows = malloc((size_t)ROWS * VOCAB * 4), table[VOCAB * 4], y[ROWS * 4];
    for (uint32_t i = 0; i < VOCAB * 4; i++)
        table[i] = (float)(i / 4);
    struct weight *w = load(g, table, VOCAB, 4, DT_F32);
    float *dev = up(g, NULL, (size_t)ROWS * VOCAB * 4), *dy = up(g, NULL, sizeof(y));
    const struct logits all = {dev, VOCAB, 1, 0};
    assert_int_equal(filter_mem_init(&x, VOCAB, &e), 0);
    for (int round = 0; round < 40; round++) {
        for (uint32_t i = 0; i < ROWS; i++) {
            fill_row(rows + (size_t)i * VOCAB, VOCAB, round % 2 ? PLAIN : FLAT);
            do {
                forget(&a[i]);
                ask_for(&a[i], VOCAB);
            } while (!penalties_on(&a[i].p.penalties));
            v[i] = (struct draw){.sample = true, .temperature = 1, .top_p = 1, .typical_p = 1};
            v[i].repetition = 1, v[i].last = DRAW_KNOWN, v[i].seed = rng_u32(&rng);
            if (round % 3 == 0) /* one that the context has already */
                v[i].top_k = 1, rows[(size_t)i * VOCAB + a[i].t.v[0].id] += 50;
        }
        assert_int_equal(g.ops->upload(g.d, dev, rows, (size_t)ROWS * VOCAB * 4, &e), 0);
        draw_rows(g, &all, v, ROWS, round % 2);
        for (uint32_t i = 0; i < ROWS; i++) {
            v[i] = draw_of(&a[i]);
            v[i].last = swapped[i];
        }
        struct ragged b = {ROWS, ROWS, ROWS, nothing, two, two, spans, two, swapped, round % 2};
        assert_int_equal(g.ops->upload(g.d, dev, rows, (size_t)ROWS * VOCAB * 4, &e), 0);
        assert_int_equal(g.ops->step_begin(g.d, &b, &e), 0);
        g.ops->embed(g.d, dy, w, 0, 1);
        assert_int_equal(g.ops->draw(g.d, &all, v, ROWS, !(round % 2), &e), 0);
        assert_int_equal(g.ops->step_end(g.d, &e), 0);
        uint32_t id[ROWS];
        assert_int_equal(g.ops->drawn(g.d, round % 2, &r, &e), 0);
        for (uint32_t i = 0; i < ROWS; i++)
            id[i] = r.v[swapped[i]].id;
        assert_int_equal(g.ops->drawn(g.d, !(round % 2), &r, &e), 0);
        assert_int_equal(g.ops->download(g.d, y, dy, sizeof(y), &e), 0);
        for (uint32_t i = 0, top = 0; i < ROWS; top += a[i++].n_top) {
            assert_float_equal(y[4 * i], (float)id[i], 0);
            assert_int_equal(tally_add(&a[i].t, id[i], true, &e), 0);
            compare(&a[i], rows + (size_t)i * VOCAB, VOCAB, &x, &r.v[i], r.top + top, "a fed row");
        }
        for (uint32_t i = 0; i < ROWS; i++)
            forget(&a[i]);
        memset(a, 0, sizeof(a));
    }
    g.ops->weight_free(g.d, w);
    g.ops->free(g.d, dev), g.ops->free(g.d, dy);
    filter_mem_free(&x);
    free(rows);
    close_side(g);
}

/* On a GPU: from the draw to its token on the host, behind each other and without a step. */
TEST(how_long_it_takes)
{
    enum { VOCAB = 128256, ROWS = 64, TIMES = 100 };
    static const struct {
        const char *name;
        struct draw v;
    } asks[] = {
        {"greedy", {.temperature = 1, .top_p = 1, .typical_p = 1}},
        {"greedy, 5 alternatives", {.temperature = 1, .top_p = 1, .typical_p = 1, .n_top = 5}},
        {"sampled", {.sample = true, .temperature = 0.8f, .top_p = 1, .typical_p = 1}},
        {"top_k 50", {.sample = true, .temperature = 1, .top_p = 1, .typical_p = 1, .top_k = 50}},
        {"top_p 0.95", {.sample = true, .temperature = 1, .top_p = 0.95f, .typical_p = 1}},
        {"typical_p 0.95", {.sample = true, .temperature = 1, .top_p = 1, .typical_p = 0.95f}},
    };
    if (machine)
        return; /* the double's time says nothing */
    struct side g = open_side(gpu, ~0ull);
    struct err e = ERR_INIT;
    struct draw_results r;
    struct draw v[ROWS];
    float *rows = malloc((size_t)ROWS * VOCAB * 4);
    for (uint32_t i = 0; i < ROWS; i++)
        fill_row(rows + (size_t)i * VOCAB, VOCAB, PLAIN);
    float *dev = up(g, rows, (size_t)ROWS * VOCAB * 4);
    for (size_t k = 0; k < sizeof(asks) / sizeof(*asks); k++)
        for (uint32_t n = 1; n <= ROWS; n += ROWS - 1) {
            struct timespec t0, t1;
            for (uint32_t i = 0; i < n; i++) {
                v[i] = asks[k].v;
                v[i].repetition = 1, v[i].last = DRAW_KNOWN, v[i].seed = i;
            }
            for (int i = -3; i < TIMES; i++) {
                if (i == 0)
                    clock_gettime(CLOCK_MONOTONIC, &t0);
                draw_rows(g, &(struct logits){dev, VOCAB, 1, 0}, v, n, 0);
                assert_int_equal(g.ops->drawn(g.d, 0, &r, &e), 0);
            }
            clock_gettime(CLOCK_MONOTONIC, &t1);
            printf(
                "sampler: %s, %u rows of %d: %.1f us\n", asks[k].name, n, VOCAB,
                ((double)(t1.tv_sec - t0.tv_sec) * 1e6 + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-3) /
                    TIMES);
        }
    g.ops->free(g.d, dev);
    free(rows);
    close_side(g);
}

int main(void) { return cuda_tests_run(); }
