/* test_ngrams.c - sizes of the tables of hashed n-grams and factors of ids: the numbers that
 * transformers 5.24 makes of the same configurations. */
#include "model-server/model/ngrams.h"
#include "tests/unit/test.h"

static struct decoder_spec spec_of(uint32_t vocab, uint32_t seed)
{
    struct decoder_spec s = {.vocab = vocab};
    s.ngrams.seed = seed;
    return s;
}

TEST(factors_are_those_of_transformers)
{
    static const struct {
        uint32_t vocab, seed, nth;
        uint64_t by[4]; /* 0: not compared */
    } cases[] = {
        {151936, 1234, 0, {15411308609579, 2523213358983, 11275943025685, 0}},
        {151936, 1234, 1, {27696880803969, 9426225827651, 20661530663711, 0}},
        {320, 7, 1, {11416900657957565, 23497697098281801, 11095752455299213, 24104558909805447}},
        {7, UINT32_MAX, 2, {189570344793822089, 923420724994677343, 903836755932422717, 0}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct decoder_spec s = spec_of(cases[i].vocab, cases[i].seed);
        for (uint32_t k = 0; k < 4 && cases[i].by[k]; k++) {
            const uint64_t by = ngram_factor(&s, cases[i].nth, k);
            assert_true(by == cases[i].by[k]);
            assert_true(by <= (uint64_t)INT64_MAX / (s.vocab - 1)); /* a product is below 2^63 */
        }
    }
}

TEST(sizes_are_primes)
{
    static const uint32_t small[] = {31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83};
    static const uint32_t least[] = {2, 3, 5, 7, 11};
    const struct ngram_spec published = {.least = 20000000}, few = {.least = 31},
                            one = {.least = 1};
    assert_int_equal(ngram_size(&published, 0), 20000003);
    assert_int_equal(ngram_size(&published, 1), 20000023);
    assert_int_equal(ngram_size(&published, 15), 20000171);
    assert_int_equal(ngram_size(&published, 31), 20000429);
    for (uint32_t i = 0; i < sizeof(small) / sizeof(small[0]); i++)
        assert_int_equal(ngram_size(&few, i), small[i]);
    for (uint32_t i = 0; i < sizeof(least) / sizeof(least[0]); i++)
        assert_int_equal(ngram_size(&one, i), least[i]);
}

int main(void) { return tests_run(NULL, NULL); }
