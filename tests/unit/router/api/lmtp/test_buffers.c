/* Token buffers: what they hold, and what bounds them. */
#include "router/api/lmtp/buffers.h"
#include "tests/unit/test.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect_ids(const struct buffers *b, const char *name, const uint32_t *ids, uint32_t n)
{
    const struct token_buffer *t = buffers_find(b, name);
    assert_non_null(t);
    assert_int_equal(t->n, n);
    if (n)
        assert_memory_equal(t->ids, ids, n * sizeof(*ids));
}

TEST(test_life)
{
    struct buffers b = {0};
    struct err e = ERR_INIT;
    uint32_t prompt[] = {1, 2, 3}, answer[] = {4, 5}, all[] = {1, 2, 3, 4, 5};
    assert_null(buffers_find(&b, "a"));
    assert_int_equal(buffers_reserve(&b, "a", 100, &e), 0);
    assert_null(buffers_find(&b, "a")); /* it has room, but nothing in it */
    buffers_fill(&b, "a", 100, prompt, 3, answer, 2);
    expect_ids(&b, "a", all, 5);
    assert_true(b.held == 5 && b.reserved == 0);
    assert_int_equal(buffers_reserve(&b, "a", 2, &e), 0);
    expect_ids(&b, "a", all, 5); /* until it is filled again */
    buffers_fill(&b, "a", 2, NULL, 0, answer, 2);
    expect_ids(&b, "a", answer, 2);
    assert_int_equal(b.held, 2);
    assert_int_equal(buffers_reserve(&b, "a", 3, &e), 0);
    assert_true(buffers_drop(&b, "a"));
    assert_false(buffers_drop(&b, "a"));
    assert_int_equal(b.held, 0);
    buffers_fill(&b, "a", 3, prompt, 3, NULL, 0); /* dropped while its stream ran */
    expect_ids(&b, "a", prompt, 3);
    buffers_free(&b);
    assert_true(b.n == 0 && b.held == 0 && b.reserved == 0);
}

TEST(test_bounds)
{
    struct buffers b = {0};
    struct err e = ERR_INIT;
    char name[16];
    for (int i = 0; i < BUFFERS_MAX; i++) {
        snprintf(name, sizeof(name), "%d", i);
        assert_int_equal(buffers_reserve(&b, name, 1, &e), 0);
        buffers_fill(&b, name, 1, &(uint32_t){7}, 1, NULL, 0);
    }
    assert_int_equal(buffers_reserve(&b, "one more", 1, &e), -1);
    assert_int_equal(e.kind, ERR_VALIDATION);
    assert_int_equal(buffers_reserve(&b, "5", 1, &e), 0); /* one that is there */
    buffers_fill(&b, "5", 1, NULL, 0, NULL, 0);
    expect_ids(&b, "5", NULL, 0);
    assert_int_equal(buffers_reserve(&b, "6", BUFFERS_TOKENS - BUFFERS_MAX, &e), 0);
    assert_int_equal(buffers_reserve(&b, "7", 2, &e), -1);
    buffers_fill(&b, "6", BUFFERS_TOKENS - BUFFERS_MAX, NULL, 0, NULL, 0);
    assert_int_equal(buffers_reserve(&b, "7", 2, &e), 0);
    buffers_fill(&b, "7", 2, NULL, 0, NULL, 0);
    buffers_free(&b);
}

int main(void) { return tests_run(NULL, NULL); }
