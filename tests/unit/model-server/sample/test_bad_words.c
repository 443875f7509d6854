#include "model-server/sample/bad_words.h"
#include "tests/unit/test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { V = 12 };

static struct bad_words make(uint32_t *id, size_t n_ids, uint32_t *len, size_t n)
{
    struct bad_words b, from = {.id = id, .len = len, .n_ids = n_ids, .n = n};
    struct err e = ERR_INIT;
    assert_int_equal(bad_words_copy(&b, &from, V, &e), 0);
    return b;
}

/* The tokens that may not follow, as a string of digits in their order in the row. */
static const char *never(const struct bad_words *b, const uint32_t *said, size_t n)
{
    static char out[V + 1];
    float row[V] = {0};
    uint32_t list[V];
    size_t m = 0, found = bad_words_next(b, said, n, list);
    bool listed[V] = {false};
    for (size_t i = 0; i < found; i++)
        listed[list[i]] = true;
    bad_words_forbid(b, said, n, row);
    for (uint32_t i = 0; i < V; i++) {
        assert_int_equal(listed[i], isinf(row[i]) != 0);
        if (listed[i])
            out[m++] = (char)('0' + i);
    }
    out[m] = 0;
    return out;
}
#define SAID(...) (uint32_t[]){__VA_ARGS__}, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)

TEST(the_token_that_completes_a_word_is_masked)
{
    uint32_t id[] = {7, 1, 2, 3, 1, 1, 4, 2, 5}, len[] = {1, 3, 3, 2};
    struct bad_words b = make(id, 9, len, 4); /* 7; 1 2 3; 1 1 4; 2 5 */
    assert_true(b.looks_back);
    assert_string_equal(never(&b, NULL, 0), "7");
    assert_string_equal(never(&b, SAID(1)), "7");
    assert_string_equal(never(&b, SAID(2)), "57");
    assert_string_equal(never(&b, SAID(9, 1, 2)), "357"); /* two words end here */
    assert_string_equal(never(&b, SAID(1, 2, 9)), "7");
    assert_string_equal(never(&b, SAID(1, 1)), "47");
    assert_string_equal(never(&b, SAID(1, 1, 1)), "47");
    assert_string_equal(never(&b, SAID(3, 7, 1, 2)), "357");
    bad_words_free(&b);
}

TEST(words_of_one_token_need_no_context)
{
    uint32_t id[] = {3, 11, 3}, len[] = {1, 1, 1}, list[3];
    struct bad_words b = make(id, 3, len, 3);
    assert_false(b.looks_back);
    assert_int_equal(bad_words_next(&b, NULL, 5, list), 3);
    assert_true(list[0] == 3 && list[1] == 11 && list[2] == 3);
    bad_words_free(&b);
    b = make(NULL, 0, NULL, 0);
    assert_int_equal(bad_words_next(&b, NULL, 0, NULL), 0);
    bad_words_free(&b);
}

TEST(what_is_no_list_of_words_is_refused)
{
    uint32_t id[] = {1, 2, 3}, outside[] = {1, V, 3};
    static const struct {
        uint32_t len[3];
        size_t n;
        bool outside;
        const char *why;
    } rows[] = {
        {{1, 1, 0}, 3, false, "bad word 2 of 0 tokens"},
        {{2, 2, 0}, 2, false, "bad word 1 of 2 tokens, where 1 are left"},
        {{2, 0, 0}, 1, false, "1 tokens belong to no bad word"},
        {{UINT32_MAX, 4, 0}, 2, false, "bad word 0"},
        {{0, 0, 0}, 0, false, "3 tokens belong to no bad word"},
        {{3, 0, 0}, 1, true, "token 12, which is not in the vocabulary"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint32_t len[3] = {rows[i].len[0], rows[i].len[1], rows[i].len[2]};
        struct bad_words b, from = {rows[i].outside ? outside : id, len, 3, rows[i].n, false};
        struct err e = ERR_INIT;
        assert_int_equal(bad_words_copy(&b, &from, V, &e), -1);
        assert_non_null(strstr(e.msg, rows[i].why));
        assert_null(b.id);
    }
}

/* Against the rule as it is written down: no answer that heeds the lists holds a word, and only
 * what would complete one is forbidden. */
TEST(answers_at_random)
{
    srand(test_seed(3));
    for (int round = 0; round < 300; round++) {
        uint32_t id[40], len[12], said[60], n_ids = 0, n = 1 + (uint32_t)rand() % 12;
        for (uint32_t i = 0; i < n; i++) {
            len[i] = 1 + (uint32_t)rand() % 3;
            for (uint32_t k = 0; k < len[i]; k++)
                id[n_ids++] = (uint32_t)rand() % 4 + (len[i] == 1 ? 4 : 0);
        }
        struct bad_words b = make(id, n_ids, len, n);
        for (uint32_t at = 0; at < 60; at++) {
            float row[V] = {0};
            bad_words_forbid(&b, said, at, row);
            for (uint32_t t = 0; t < V; t++) {
                bool completes = false;
                said[at] = t;
                const uint32_t *word = id;
                for (uint32_t i = 0; i < n; word += len[i++])
                    completes |= at + 1 >= len[i] &&
                                 !memcmp(word, said + at + 1 - len[i], len[i] * sizeof(*word));
                assert_int_equal(completes, isinf(row[t]) != 0);
            }
            do
                said[at] = (uint32_t)rand() % V;
            while (isinf(row[said[at]]));
        }
        bad_words_free(&b);
    }
}

int main(void) { return tests_run(NULL, NULL); }
