/* llama.cpp's samplers against plain code: sorted lists, sums in double, every match by hand. */
#include "model-server/sample/noise.h"
#include "model-server/sample/sample.h"
#include "tests/unit/test.h"
#include <math.h>
#include <string.h>

enum { V = 300, POSITIONS = 4000 };
static struct filter_mem mem;
static uint32_t rng;
static float next(void) { return (float)((rng = rng * 1664525 + 1013904223) >> 8) * 0x1p-24f; }

static const char *const texts[] = {"a", "b", "c", "d", "e", "f", ":", "x\ny", "En", "d.", "End"};
enum { D = 3, COLON = 6, LINES, EN, D_DOT, END };
#include "tests/unit/model-server/sample/detok_texts.inc.h"

/* ---------------------------------------------------------------- cuts */

static void fill(float *row)
{
    for (int i = 0; i < V; i++)
        row[i] = 6 * next() + (i % 50 == 0 ? 4 * next() : 0);
    row[7] = row[8]; /* equals, and a token that may not come */
    row[9] = -INFINITY;
}

/* What sample_row() keeps of the row, through the widest window it has. */
static void kept(struct sampling p, uint64_t position, const float *row, bool in[V])
{
    float copy[V], lp[V];
    uint32_t id[V];
    struct err e = ERR_INIT;
    struct tally t = {0};
    struct sampled out = {.n_top = V, .top_id = id, .top_logprob = lp};
    memcpy(copy, row, sizeof(copy));
    memset(in, 0, V * sizeof(*in));
    assert_int_equal(sampling_normalise(&p, &e), 0);
    assert_true(p.sample);
    assert_int_equal(sample_row(&p, &t, 0, NULL, position, copy, V, &mem, &out, &e), 0);
    for (uint32_t i = 0; i < out.n_top; i++)
        in[id[i]] = true;
    assert_true(in[out.id]);
}

static void same(const bool want[V], const bool got[V], const char *what, double value)
{
    for (int i = 0; i < V; i++)
        if (want[i] != got[i])
            fail_msg("%s %g: token %d is %s", what, value, i, got[i] ? "kept" : "gone");
}

TEST(top_n_sigma_keeps_what_is_near_the_best)
{
    rng = test_seed(1);
    for (int round = 0; round < 200; round++) {
        float row[V], best = -INFINITY;
        bool want[V], got[V];
        double mean = 0, square = 0;
        struct sampling p = sampling_neutral();
        fill(row);
        p.top_n_sigma = 0.05f + 3 * next();
        p.temperature = round % 2 ? 1 : 0.25f + 2 * next();
        for (int i = 0; i < V; i++) {
            best = row[i] > best ? row[i] : best;
            mean += i == 9 ? 0 : row[i] / (V - 1.0);
        }
        for (int i = 0; i < V; i++)
            square += i == 9 ? 0 : (row[i] - mean) * (row[i] - mean) / (V - 1.0);
        double bar = best - p.top_n_sigma * sqrt(square);
        kept(p, 0, row, got);
        for (int i = 0; i < V; i++) /* what rounding decides is not this test's */
            want[i] = fabs(row[i] - bar) < 1e-4 ? got[i] : row[i] >= bar;
        same(want, got, "top_n_sigma", p.top_n_sigma);
    }
}

static int by_score(const void *a, const void *b)
{
    float x = ((const float *)a)[0], y = ((const float *)b)[0];
    return x < y ? 1 : x > y ? -1 : ((const float *)a)[1] > ((const float *)b)[1] ? 1 : -1;
}

/* llama.cpp's: sorted, all in front of the last one that reaches the threshold go. */
static void without_top_choices(const float *row, double threshold, bool want[V])
{
    float v[V][2];
    double sum = 0;
    int last = -1;
    for (int i = 0; i < V; i++) {
        v[i][0] = row[i], v[i][1] = (float)i;
        sum += exp(row[i]);
        want[i] = row[i] != -INFINITY;
    }
    qsort(v, V, sizeof(v[0]), by_score);
    for (int i = 0; i < V && exp(v[i][0]) / sum >= threshold; i++)
        last = i;
    for (int i = 0; i < last; i++)
        want[(int)v[i][1]] = false;
}

TEST(xtc_leaves_out_the_top_choices)
{
    rng = test_seed(2);
    int cut = 0;
    for (int round = 0; round < 200; round++) {
        float row[V];
        bool want[V], got[V];
        struct sampling p = sampling_neutral();
        fill(row);
        p.xtc_probability = 1;
        p.xtc_threshold = round % 10 ? 0.3f * next() : 0.6f;
        without_top_choices(row, p.xtc_threshold, want);
        kept(p, (uint64_t)round, row, got);
        same(want, got, "xtc_threshold", p.xtc_threshold);
        for (int i = 0; i < V; i++)
            cut += !got[i];
    }
    assert_true(cut > 400);
}

/* The draw whether to cut: as often as asked, and the same for the same seed and position. */
TEST(xtc_is_a_function_of_seed_and_position)
{
    float row[V];
    bool got[V], again[V], neutral[V];
    int cut = 0, differs = 0;
    struct sampling p = sampling_neutral(), other;
    for (int i = 0; i < V; i++)
        row[i] = i < 3 ? 5 : 0;
    p.xtc_probability = 0.3f;
    p.seed = 77;
    other = p;
    other.seed = 78;
    for (uint64_t at = 0; at < POSITIONS; at++) {
        kept(p, at, row, got);
        kept(p, at, row, again);
        same(got, again, "position", (double)at);
        cut += !got[0];
        assert_true(got[0] == got[1] && got[2] && got[3]);
        kept(other, at, row, again);
        differs += got[0] != again[0];
    }
    double share = (double)cut / POSITIONS; /* four standard deviations */
    assert_true(fabs(share - 0.3) < 4 * sqrt(0.3 * 0.7 / POSITIONS));
    assert_true(differs > POSITIONS / 4);
    p.xtc_threshold = 0.51f; /* no two tokens reach it */
    p.xtc_probability = 1;
    kept(p, 0, row, neutral);
    assert_true(neutral[0] && neutral[1]);
}

/* ---------------------------------------------------------------- DRY */

/* What the row of zeros of `vocab` tokens becomes, by comparing every place with the end. */
static void reference(const uint32_t *ids, const bool *breaks, int n, const struct dry *d,
                      float *row, int vocab)
{
    int from = d->last_n >= 0 && d->last_n < n ? n - d->last_n : 0;
    for (int t = 0; t < vocab; t++) {
        int longest = 0;
        for (int i = from; i + 1 < n; i++) { /* ids[i] is the last of a match, t came behind it */
            int len = 0;
            if (ids[i + 1] != (uint32_t)t || breaks[i + 1])
                continue;
            while (i - len >= from && ids[i - len] == ids[n - 1 - len] && !breaks[n - 1 - len])
                len++;
            longest = len > longest ? len : longest;
        }
        row[t] = longest < d->allowed_length
                     ? 0
                     : -(float)(d->multiplier * pow(d->base, longest - d->allowed_length));
    }
}

TEST(dry_lowers_what_goes_on_with_a_repetition)
{
    enum { N = 120, WORDS = END + 1 };
    char *breakers[] = {":", "\n", "", "End"};
    struct err e = ERR_INIT;
    int lowered = 0;
    rng = test_seed(3);
    for (int round = 0; round < 300; round++) {
        uint32_t ids[N];
        bool breaks[N];
        const struct dry d = {.multiplier = 0.1f + next(),
                              .base = 1 + next(),
                              .allowed_length = 1 + (int)(4 * next()),
                              .last_n = round % 3 ? -1 : (int)(N * next())};
        struct repeats *r = repeats_new(NULL, breakers, round % 4 ? 4 : 0, N, &e);
        assert_non_null(r);
        for (int n = 0; n < N; n++) {
            float got[WORDS] = {0}, want[WORDS], work[WORDS];
            uint32_t some = (uint32_t)((round % 2 ? 3 : WORDS) * next());
            ids[n] = n > 10 && next() < 0.7f ? ids[n - 7] : some;
            breaks[n] = round % 4 && (ids[n] == COLON || ids[n] == LINES || ids[n] == END ||
                                      (n && ids[n - 1] == EN && (ids[n] == D || ids[n] == D_DOT)));
            assert_int_equal(repeats_push(r, ids[n], &e), 0);
            repeats_penalise(r, &d, got, WORDS, work);
            reference(ids, breaks, n + 1, &d, want, WORDS);
            for (int t = 0; t < WORDS; t++) {
                if (fabsf(got[t] - want[t]) > 1e-5f * fabsf(want[t]))
                    fail_msg("round %d, %d tokens, token %d: %g, not %g", round, n, t, got[t],
                             want[t]);
                lowered += got[t] < 0;
            }
        }
        repeats_free(r);
    }
    assert_true(lowered > 10000);
}

TEST(dry_never_forbids)
{
    enum { N = 3000 };
    struct err e = ERR_INIT;
    const struct dry d = {.multiplier = 5, .base = 10, .allowed_length = 1, .last_n = -1};
    float row[2] = {1, 1}, work[2];
    struct repeats *r = repeats_new(NULL, NULL, 0, N, &e);
    for (int i = 0; i < N; i++)
        assert_int_equal(repeats_push(r, 0, &e), 0);
    repeats_penalise(r, &d, row, 2, work);
    assert_true(isfinite(row[0]) && row[0] < -1e30f && row[1] == 1);
    row[0] = 1;
    repeats_penalise(r, &d, row, 0, work); /* ids past the row */
    assert_true(row[0] == 1);
    repeats_free(r);
}

TEST(what_needs_the_host)
{
    struct sampling p = sampling_neutral();
    p.temperature = 0.5f, p.min_p = 0.1f, p.penalties.openai_presence = 1;
    p.xtc_threshold = 0.2f, p.dry.base = 3; /* settings of what is off */
    assert_false(sampling_on_host(&p));
    p.xtc_probability = 0.5f;
    assert_true(sampling_on_host(&p));
    p = sampling_neutral(), p.dry.multiplier = 1;
    assert_true(sampling_on_host(&p));
    p = sampling_neutral(), p.top_n_sigma = 1;
    assert_true(sampling_on_host(&p));
}

/* A peer that does not know a field leaves 0. */
TEST(zeros_are_neutral)
{
    struct err e = ERR_INIT;
    struct sampling p = {0};
    assert_int_equal(sampling_normalise(&p, &e), 0);
    assert_false(p.sample || sampling_on_host(&p));
    assert_true(p.dry.base == 1.75f && p.dry.allowed_length == 2 && p.temperature == 1);
    p.xtc_probability = NAN;
    assert_int_equal(sampling_normalise(&p, &e), -1);
    p = (struct sampling){.dry = {.allowed_length = -1}};
    assert_int_equal(sampling_normalise(&p, &e), -1);
}

int main(void)
{
    struct err e = ERR_INIT;
    if (filter_mem_init(&mem, V, &e))
        return 1;
    int rc = tests_run(NULL, NULL);
    filter_mem_free(&mem);
    return rc;
}
