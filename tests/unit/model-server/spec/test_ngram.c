/* The lookup against a plain search, and what acceptance teaches. */
#include "model-server/spec/acceptance.h"
#include "model-server/spec/ngram.h"
#include "tests/unit/test.h"

static struct ngram plain(const uint32_t *ids, uint32_t n)
{
    struct ngram best = {0};
    for (uint32_t at = 1; at < n; at++) {
        uint32_t k = 0;
        while (k < NGRAM_MOST && k < at && ids[at - 1 - k] == ids[n - 1 - k])
            k++;
        if (k >= NGRAM_LEAST && k >= best.match)
            best = (struct ngram){at, k};
    }
    return best;
}

TEST(finds_the_longest_and_latest)
{
    uint32_t ids[200], found = 0;
    srand(test_seed(1));
    for (int round = 0; round < 20000; round++) {
        uint32_t n = (uint32_t)rand() % 200, kinds = 2 + (uint32_t)rand() % 12;
        for (uint32_t i = 0; i < n; i++)
            ids[i] = (uint32_t)rand() % kinds;
        struct ngram a = ngram_find(ids, n), b = plain(ids, n);
        assert_int_equal(a.match, b.match);
        if (a.match)
            assert_int_equal(a.at, b.at), found++;
    }
    assert_true(found > 1000);
}

TEST(rates_follow_what_is_accepted)
{
    struct acceptance a = acceptance_new();
    for (int i = 0; i < 50; i++)
        acceptance_learn(&a, DRAFT_MATCH, 4, 4);
    assert_true(a.rate[DRAFT_MATCH] > 0.95 && a.rate[DRAFT_MATCH] <= 1);
    assert_true(a.rate[DRAFT_SHORT_MATCH] == acceptance_new().rate[DRAFT_SHORT_MATCH]);
    for (int i = 0; i < 50; i++)
        acceptance_learn(&a, DRAFT_MATCH, 4, 0);
    assert_true(a.rate[DRAFT_MATCH] < 0.05 && a.rate[DRAFT_MATCH] >= 0);
    for (int i = 0; i < 2400; i++) /* slowly, after fifty losses */
        acceptance_fade(&a, DRAFT_MATCH);
    assert_true(a.rate[DRAFT_MATCH] > 0.5);
}

/* The choice makes tokens per time largest: by trying all numbers of rows. */
TEST(rows_are_added_while_the_ratio_grows)
{
    for (int i = 0; i < 200; i++) {
        double p = i % 20 / 20.0, cost = (i / 20 + 1) / 30.0, n = 1 + i % 7;
        struct step_worth w = {.cost = cost, .rows = n, .tokens = n};
        double gain = 1, best = 0, tokens = n, at = 0;
        for (int k = 0; k < 40; k++, tokens += gain)
            if (tokens / (1 + cost * (n + k - 1)) > best)
                best = tokens / (1 + cost * (n + k - 1)), at = k, gain *= p;
            else
                gain *= p;
        double g = p;
        int rows = 0;
        for (; rows < 40 && worth_row(&w, g); rows++, g *= p)
            w.rows++, w.tokens += g;
        assert_true(rows == at || w.tokens / (1 + cost * (w.rows - 1)) > best * 0.999);
    }
}

int main(void) { return tests_run(NULL, NULL); }
