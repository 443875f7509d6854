// The chain's promises that no table of distributions shows: ties, masks, faults, seeds, the
// watermark.
#include "common/clock.h"
#include "common/params.h"
#include "model-server/sample/sample.h"
#include "tests/unit/test.h"
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { V = 1000 };
static struct filter_mem mem;
static float row[V];
static uint32_t top_id[V];
static float top_lp[V];

static void fill(void)
{
    for (int i = 0; i < V; i++)
        row[i] = 3 * sinf((float)i * 0.7f) + (float)(i % 13) / 7;
}

static int run(struct sampling p, const uint32_t *mask, uint64_t pos, uint32_t n_top,
               struct sampled *out)
{
    struct err e = ERR_INIT;
    struct tally t = {0};
    tally_add(&t, 5, true, &e);
    *out = (struct sampled){.n_top = n_top, .top_id = top_id, .top_logprob = top_lp};
    int rc =
        sampling_normalise(&p, &e) ? -1 : sample_row(&p, &t, 5, mask, pos, row, V, &mem, out, &e);
    tally_free(&t);
    return rc;
}

TEST(greedy_takes_the_lowest_of_equals)
{
    struct sampled o;
    for (int i = 0; i < V; i++)
        row[i] = i % 10 == 7 ? 4.0f : 1.0f;
    assert_int_equal(run(sampling_neutral(), NULL, 0, 3, &o), 0);
    assert_int_equal(o.id, 7);
    assert_int_equal(o.n_top, 3); /* never more than asked for */
    assert_int_equal(top_id[0], 7), assert_int_equal(top_id[1], 17),
        assert_int_equal(top_id[2], 27);
    assert_true(o.logprob == top_lp[0]);
}

TEST(mask_and_faults)
{
    struct sampled o;
    uint32_t mask[(V + 31) / 32] = {0};
    mask[3] = 1u << 4;
    fill();
    assert_int_equal(run(sampling_neutral(), mask, 0, 5, &o), 0);
    assert_int_equal(o.id, 100);
    assert_int_equal(o.n_top, 1);
    assert_true(fabsf(o.logprob) < 1e-6f);
    mask[3] = 0;
    fill();
    assert_int_equal(run(sampling_neutral(), mask, 0, 0, &o), -1);
    fill();
    row[500] = NAN;
    assert_int_equal(run(sampling_neutral(), NULL, 0, 0, &o), -1);
    fill();
    row[999] = INFINITY;
    assert_int_equal(run(sampling_neutral(), NULL, 0, 0, &o), -1);
}

TEST(parameters)
{
    struct err e = ERR_INIT;
    struct sampling p = {0};
    assert_int_equal(sampling_normalise(&p, &e), 0);
    assert_false(p.sample);
    assert_true(p.temperature == 1 && p.top_p == 1 && p.penalties.repetition == 1);
    p.top_k = 4;
    assert_int_equal(sampling_normalise(&p, &e), 0);
    assert_true(p.sample);
    p.temperature = 1e-8f;
    p.penalties.repetition = 1e30f;
    assert_int_equal(sampling_normalise(&p, &e), 0);
    assert_true(p.temperature == 1e-6f && p.penalties.repetition == 1e6f);
    p.temperature = NAN;
    assert_int_equal(sampling_normalise(&p, &e), -1);
    p.temperature = -1;
    assert_int_equal(sampling_normalise(&p, &e), -1);
}

/* The filters only take tokens away: what is drawn from the shorter list is what the longer one
 * drew, if it is still there. */
TEST(seeds)
{
    struct sampled a, b;
    int differ = 0, same = 0;
    for (uint64_t pos = 0; pos < 200; pos++) {
        struct sampling p = sampling_neutral();
        p.sample = true, p.seed = 1234;
        fill(), assert_int_equal(run(p, NULL, pos, 0, &a), 0);
        fill(), assert_int_equal(run(p, NULL, pos, 0, &b), 0);
        assert_int_equal(a.id, b.id);
        p.top_k = 400;
        fill(), assert_int_equal(run(p, NULL, pos, V, &b), 0);
        bool kept = false;
        for (uint32_t i = 0; i < b.n_top; i++)
            kept |= top_id[i] == a.id;
        if (kept)
            assert_int_equal(a.id, b.id), same++;
        p.seed++;
        fill(), assert_int_equal(run(p, NULL, pos, 0, &b), 0);
        differ += a.id != b.id;
    }
    assert_true(same > 100 && differ > 150);
}

TEST(openai_penalties)
{
    struct penalties p = {.repetition = 1, .openai_presence = 0.5f, .openai_frequency = 0.25f};
    struct tally t = {0};
    struct err e = ERR_INIT;
    float s[4] = {1, 1, 1, 1};
    tally_add(&t, 1, false, &e); /* of the prompt: not penalised */
    for (int i = 0; i < 3; i++)
        tally_add(&t, 2, true, &e);
    tally_add(&t, 1000000, true, &e); /* beyond the vocabulary: ignored */
    penalties_apply(&p, &t, s, 4);
    assert_true(s[0] == 1 && s[1] == 1 && s[2] == 1 - 0.5f - 0.75f && s[3] == 1);
    tally_free(&t);
    for (uint32_t i = 0; i < 5000; i++)
        assert_int_equal(tally_add(&t, i * 77 % 3001, false, &e), 0);
    assert_int_equal(t.n, 3001);
    assert_int_equal(t.length, 5000);
    tally_free(&t);
}

TEST(watermark)
{
    struct sampling p = sampling_neutral();
    struct sampled o;
    p.watermark = (struct watermark){0.5f, 2.0f};
    memset(row, 0, sizeof(row));
    assert_int_equal(run(p, NULL, 0, V, &o), 0);
    int green = 0;
    for (int i = 0; i < V; i++)
        green += row[i] == 2.0f;
    assert_true(green > V * 4 / 10 && green < V * 6 / 10);
}

TEST(bias)
{
    uint32_t ids[] = {3, 5, 3};
    float values[] = {-100, 2, -1};
    struct bias from = {ids, values, 3}, copy;
    struct err e = ERR_INIT;
    struct sampling p = sampling_neutral();
    struct sampled o;
    assert_int_equal(bias_copy(&copy, &from, V, &e), 0);
    ids[0] = 1; /* a copy it is */
    p.bias = copy;
    memset(row, 0, sizeof(row));
    row[3] = 50, row[6] = 1.5f;
    assert_int_equal(run(p, NULL, 0, V, &o), 0);
    assert_int_equal(o.id, 5);
    assert_true(row[3] == -51 && row[5] == 2 && row[6] == 1.5f);
    bias_free(&copy);
    ids[1] = V;
    assert_int_equal(bias_copy(&copy, &from, V, &e), -1);
    ids[1] = 5, values[1] = NAN;
    assert_int_equal(bias_copy(&copy, &from, V, &e), -1);
    assert_int_equal(bias_copy(&copy, &from, 2, &e), -1);
    from.n = 0;
    assert_int_equal(bias_copy(&copy, &from, V, &e), 0);
    bias_free(&copy);
}

/* Named tokens in their order, by the same sums as the best ones; what a cut or a mask rules out is
 * left out. */
TEST(named_tokens)
{
    struct sampled o;
    struct err e = ERR_INIT;
    uint32_t ids[] = {9, 5, 9, 150};
    float best[V];
    fill();
    struct sampling p = sampling_neutral();
    assert_int_equal(run(p, NULL, 0, V, &o), 0);
    assert_int_equal(o.n_top, V);
    for (uint32_t i = 0; i < V; i++)
        best[top_id[i]] = top_lp[i];
    const uint32_t likeliest = top_id[0];
    p.report = (struct report){ids, 4};
    assert_true(sampling_on_host(&p));
    fill();
    assert_int_equal(run(p, NULL, 0, 4, &o), 0);
    assert_int_equal(o.n_top, 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(top_id[i] == ids[i] && top_lp[i] == best[ids[i]]);
    ids[1] = likeliest;
    p.top_k = 1;
    fill();
    assert_int_equal(run(p, NULL, 0, 4, &o), 0);
    assert_true(o.n_top == 1 && top_id[0] == likeliest && top_lp[0] == 0);
    p.raw_logprobs = true; /* cuts choose, and are not in what is reported */
    fill();
    assert_int_equal(run(p, NULL, 0, 4, &o), 0);
    assert_true(o.n_top == 4 && top_id[0] == ids[0] && top_lp[0] == best[ids[0]]);

    struct report copy, from = {ids, 4};
    assert_int_equal(report_copy(&copy, &from, V, &e), 0);
    assert_true(copy.n == 4 && !memcmp(copy.id, ids, sizeof(ids)) && copy.id != ids);
    report_free(&copy);
    assert_int_equal(report_copy(&copy, &from, 150, &e), -1);
    from.n = MOST_LOGPROB_IDS + 1;
    assert_int_equal(report_copy(&copy, &from, V, &e), -1);
}

/* LMTP's masks: 50,000 entries take less than a millisecond of a step, whatever the vocabulary. The
 * shortest of many times, so that the machine's other work is not in it. */
TEST(a_large_bias_takes_less_than_a_millisecond)
{
    enum { N = 50000, VOCAB = 200000, ROUNDS = 50 };
    uint32_t *ids = malloc(N * sizeof(*ids));
    float *values = malloc(N * sizeof(*values)), *logits = calloc(VOCAB, sizeof(*logits));
    struct err e = ERR_INIT;
    struct bias from = {ids, values, N}, copy;
    int64_t least = INT64_MAX;
    assert_true(ids && values && logits);
    for (uint32_t i = 0; i < N; i++) { /* in no order: 7919 is prime */
        ids[i] = (uint32_t)((uint64_t)i * 7919 % VOCAB);
        values[i] = -1;
    }
    assert_int_equal(bias_copy(&copy, &from, VOCAB, &e), 0);
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t t = clock_ns();
        bias_apply(&copy, logits);
        const int64_t took = clock_ns() - t;
        least = took < least ? took : least;
    }
    double sum = 0;
    for (uint32_t i = 0; i < VOCAB; i++)
        sum += logits[i];
    assert_true(sum == -(double)N * ROUNDS);
    assert_in_range(least, 0, 1000000);
    bias_free(&copy);
    free(ids);
    free(values);
    free(logits);
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
