/* test_cuda_ngrams.c - embeddings of n-grams, a dilated convolution and roots of dot products on a
 * GPU beside the CPU's, in steps. Without a GPU: on the double. */
#include "tests/check/cuda/cuda_sides.h"
// the rig needs the random numbers that cuda_sides.h includes
#include "tests/check/ngrams_rig.h"

static void run(struct side s, const struct text *t, uint32_t most, struct embedded *out)
{
    struct err e = ERR_INIT;
    const struct conv conv = {.channels = CHANNELS, .width = WIDTH, .dilation = DILATION};
    struct weight *w = load(s, t->w, ROWS, COLS, DT_F32);
    struct ngram_table *own = up(s, tables, sizeof(tables));
    float *kernels = up(s, t->kernels, (size_t)WIDTH * CHANNELS * 4);
    float *cells = up(s, NULL, 2 * (MOST - 1 + s.ops->conv_floats(&conv)) * 4);
    uint32_t *rows = up(s, NULL, (size_t)TOKENS * TABLES * 4);
    const struct inputs in = {w, own, kernels, cells};
    for (uint32_t at = 0, n, turn = 0; at < TOKENS; at += n, turn = 1 - turn) {
        n = most == TOKENS ? TOKENS : 1 + rng_below(&rng, most);
        n = n < TOKENS - at ? n : TOKENS - at;
        float *x = up(s, t->x + (size_t)at * CHANNELS, (size_t)n * CHANNELS * 4);
        float *y = up(s, NULL, n * sizeof(out->rows[0])),
              *c = up(s, NULL, n * sizeof(out->conv[0]));
        if (embed_step(s.ops, s.d, t, &in, at, n, turn, x, y, c, rows, &e))
            fail_msg("%s", e.msg);
        down(s, out->rows[at], y, n * sizeof(out->rows[0]));
        down(s, out->conv[at], c, n * sizeof(out->conv[0]));
        s.ops->free(s.d, x);
    }
    s.ops->weight_free(s.d, w);
    s.ops->free(s.d, own), s.ops->free(s.d, kernels), s.ops->free(s.d, cells);
    s.ops->free(s.d, rows);
}

TEST(they_are_those_of_the_cpu)
{
    static struct embedded want, got, parts;
    struct text x;
    text_make(&x, &rng);
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    run(c, &x, TOKENS, &want), run(g, &x, TOKENS, &got), run(g, &x, 4, &parts);
    assert_memory_equal(got.rows, want.rows, sizeof(got.rows));
    for (uint32_t i = 0; i < TOKENS; i++)
        assert_near(got.conv[i], want.conv[i], CHANNELS, 1e-4, "convolution");
    assert_memory_equal(&got, &parts, sizeof(got));
    text_free(&x);
    close_side(g), close_side(c);
}

static float *roots(struct side s, const float *a, const float *b, uint32_t rows, uint32_t n)
{
    float *out = malloc(rows * sizeof(*out)), *y = up(s, NULL, rows * 4);
    float *da = up(s, a, (size_t)rows * n * 4), *db = up(s, b, (size_t)rows * n * 4);
    s.ops->root_dots(s.d, y, da, db, rows, n, 0.3F);
    down(s, out, y, rows * 4);
    s.ops->free(s.d, da), s.ops->free(s.d, db);
    return out;
}

TEST(roots_are_those_of_the_cpu)
{
    enum { N = 9, LONG = 700 };
    float *a = units((size_t)N * LONG), *b = units((size_t)N * LONG);
    memset(b, 0, LONG * sizeof(*b));
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    float *got = roots(g, a, b, N, LONG), *want = roots(c, a, b, N, LONG);
    assert_true(got[0] == 0);
    assert_near(got, want, N, 1e-4, "roots");
    free(a), free(b), free(got), free(want);
    close_side(g), close_side(c);
}

int main(void) { return cuda_tests_run(); }
