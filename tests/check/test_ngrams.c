/* test_ngrams.c - embeddings of n-grams, a dilated convolution and roots of dot products on the CPU
 * beside plain references; the same bits whatever the cut of a text. */
#include "tests/check/cpu_device.h"
#include "tests/check/ngrams_rig.h"

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;

static void run(const struct text *t, uint32_t most, uint64_t features, struct embedded *out)
{
    struct err e = ERR_INIT;
    struct device *d = device(2, features);
    const struct mat_part part = {t->w, DT_F32, ROWS, COLS, COLS, 1};
    struct weight *w = ops->weight_load(d, &(struct mat_desc){&part, 1, DT_F32, QUANT_NONE}, &e);
    const struct conv conv = {.channels = CHANNELS, .width = WIDTH, .dilation = DILATION};
    float *cells = calloc(2 * (MOST - 1 + ops->conv_floats(&conv)), sizeof(float));
    const struct inputs in = {w, tables, t->kernels, cells};
    uint32_t rows[TOKENS * TABLES];
    assert_true(w && cells);
    assert_int_equal(ops->conv_floats(&conv), (WIDTH - 1) * DILATION * CHANNELS);
    for (uint32_t at = 0, n, turn = 0; at < TOKENS; at += n, turn = 1 - turn) {
        n = most == TOKENS ? TOKENS : 1 + rng_below(&rng, most);
        n = n < TOKENS - at ? n : TOKENS - at;
        if (embed_step(ops, d, t, &in, at, n, turn, t->x + (size_t)at * CHANNELS, out->rows[at],
                       out->conv[at], rows, &e))
            fail_msg("%s", e.msg);
    }
    free(cells);
    ops->weight_free(d, w);
    ops->close(d);
}

/* The row of token `t` in table k, as the words say: ids beyond an end, or the beginning, are the
 * end. */
static uint32_t want_row(const struct text *x, uint32_t t, uint32_t k)
{
    uint64_t hash = x->ids[t] * x->by[0];
    for (uint32_t back = 1; back < tables[k].length; back++) {
        bool ended = back > t;
        for (uint32_t i = 1; !ended && i <= back; i++)
            ended = x->ids[t - i] == END;
        hash ^= (ended ? END : x->ids[t - back]) * x->by[back];
    }
    return tables[k].first + (uint32_t)(hash % tables[k].size);
}

static void check_rows(const struct text *x, const struct embedded *got)
{
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t k = 0; k < TABLES; k++)
            assert_memory_equal(got->rows[t] + (size_t)k * COLS,
                                x->w + (size_t)want_row(x, t, k) * COLS, COLS * sizeof(float));
}

static void check_conv(const struct text *x, const struct embedded *got)
{
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t c = 0; c < CHANNELS; c++) {
            double sum = 0, all = 1;
            for (uint32_t j = 0; j < WIDTH; j++) {
                const int64_t from = (int64_t)t - (int64_t)DILATION * (WIDTH - 1 - j);
                const double v =
                    from < 0 ? 0 : (double)x->x[from * CHANNELS + c] * x->kernels[j * CHANNELS + c];
                sum += v, all += fabs(v);
            }
            assert_true(fabs(got->conv[t][c] - sum / (1 + exp(-sum))) < 1e-5 * all);
        }
}

TEST(they_are_those_of_the_words)
{
    static struct embedded whole, parts;
    struct text x;
    text_make(&x, &rng);
    run(&x, TOKENS, ~0ull, &whole);
    check_rows(&x, &whole);
    check_conv(&x, &whole);
    for (uint32_t most = 1; most < 9; most += 3) {
        run(&x, most, most == 4 ? 0 : ~0ull, &parts);
        assert_memory_equal(&whole, &parts, sizeof(whole));
    }
    text_free(&x);
}

TEST(roots_keep_signs)
{
    enum { N = 5, LONG = 77 };
    struct device *d = device(1, ~0ull);
    float *a = rng_floats(&rng, (size_t)N * LONG), *b = rng_floats(&rng, (size_t)N * LONG), y[N];
    memset(b, 0, LONG * sizeof(*b));
    memset(b + LONG, 0, LONG * sizeof(*b));
    a[LONG] = -1e-3F, b[LONG] = 1e-5F; /* below the least magnitude */
    ops->root_dots(d, y, a, b, N, LONG, 0.125F);
    assert_true(y[0] == 0);
    assert_true(fabs(y[1] + 1e-3) < 1e-9);
    for (uint32_t r = 2; r < N; r++) {
        double sum = 0, all = 1;
        for (uint32_t i = 0; i < LONG; i++) {
            const double v = (double)a[r * LONG + i] * b[r * LONG + i] / 8;
            sum += v, all += fabs(v);
        }
        assert_true(y[r] * sum > 0 && fabs((double)y[r] * y[r] - fabs(sum)) < 1e-5 * all);
    }
    free(a), free(b);
    ops->close(d);
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
