/* Images in the prefix tree: what is shared behind equal placeholders, and where a step may end. */
#include "router/scheduler/kv/blocks.h"
#include "tests/unit/test.h"
#include <string.h>

static const uint32_t PICTURED[] = {1, 2, 9, 9, 9, 9, 3, 4, 5};

static uint32_t hits_with(struct kv_blocks *kv, const struct kv_medium *v, uint32_t n, bool keep)
{
    const struct kv_key k = {.tokens = PICTURED, .n = 9, .media = {.v = v, .n = n}};
    struct kv_table t = {0};
    assert_true(kv_admit(kv, &t, &k, true, 9));
    kv_check(kv);
    const uint32_t hits = t.n_cached;
    kv_release(kv, &t, PICTURED, keep ? 9 : 0);
    kv_check(kv);
    return hits;
}

TEST(two_images_behind_equal_placeholders_share_no_block)
{
    const struct kv_medium a = {2, 4, 77}, same = {2, 4, 77}, other = {2, 4, 78};
    for (int copies = 0; copies < 2; copies++) {
        struct kv_blocks *kv = kv_new(40, 2, 1);
        kv_copying(kv, copies);
        assert_int_equal(hits_with(kv, &a, 1, true), 0);
        assert_int_equal(hits_with(kv, &other, 1, false), 2); /* the text before it */
        assert_int_equal(hits_with(kv, NULL, 0, false), 2);   /* the ids alone are another prompt */
        assert_int_equal(hits_with(kv, &same, 1, false), 8);
        assert_int_equal(hits_with(kv, &other, 1, true), 2);
        assert_int_equal(hits_with(kv, &other, 1, false), 8);
        assert_int_equal(hits_with(kv, &same, 1, false), 8);
        kv_free(kv);
    }
}

TEST(an_image_is_found_again_at_its_own_place_alone)
{
    const struct kv_medium two[] = {{2, 2, 77}, {4, 2, 77}}, one = {2, 4, 77};
    const struct kv_medium turned[] = {{2, 2, 77}, {4, 2, 78}};
    struct kv_blocks *kv = kv_new(40, 2, 1);
    assert_int_equal(hits_with(kv, &one, 1, true), 0);
    assert_int_equal(hits_with(kv, two, 2, true), 4); /* its first half, then another beginning */
    assert_int_equal(hits_with(kv, turned, 2, false), 4);
    assert_int_equal(hits_with(kv, two, 2, false), 8);
    kv_free(kv);
}

TEST(a_step_never_ends_inside_an_image_that_stays_whole)
{
    const struct kv_medium v[] = {{4, 6, 1}, {10, 3, 2}};
    struct kv_media m = {.v = v, .n = 2, .whole = true};
    for (uint32_t from = 0; from < 16; from++)
        for (uint32_t to = from; to < 16; to++) {
            const uint32_t stop = kv_media_stop(&m, from, to);
            assert_true(stop >= from && stop <= to);
            if (stop > from)
                assert_true(stop <= 4 || stop == 10 || stop >= 13);
        }
    assert_int_equal(kv_media_stop(&m, 0, 9), 4);
    assert_int_equal(kv_media_stop(&m, 4, 9), 4);
    assert_int_equal(kv_media_stop(&m, 4, 12), 10);
    assert_int_equal(kv_media_stop(&m, 6, 9), 6); /* the cache had its first two */
    assert_int_equal(kv_media_next(&m, 3), 4);
    assert_int_equal(kv_media_next(&m, 4), 10);
    assert_int_equal(kv_media_next(&m, 6), 10);
    assert_int_equal(kv_media_next(&m, 13), 14);
    m.whole = false;
    assert_int_equal(kv_media_stop(&m, 0, 9), 9);
    assert_int_equal(kv_media_next(&m, 4), 5);
}

TEST(a_prompt_that_sees_itself_is_shared_as_a_whole)
{
    static const uint32_t tok[] = {9, 9, 5, 6, 40, 41}, other[] = {9, 9, 5, 7, 40, 41};
    const struct kv_medium cat = {0, 2, 1}, dog = {0, 2, 2};
    uint64_t a[6], b[6];
    const uint64_t prompt = kv_media_prompt(&cat, 1, tok, 4);
    struct kv_media m = {.v = &cat, .n = 1, .whole = true, .prefix = 4, .prompt = prompt};
    assert_true(prompt == kv_media_prompt(&cat, 1, tok, 4));
    assert_true(prompt != kv_media_prompt(&dog, 1, tok, 4));
    assert_true(prompt != kv_media_prompt(&cat, 1, other, 4));
    assert_true(prompt != kv_media_prompt(&cat, 1, tok, 3));
    kv_media_keys(&m, tok, 0, 6, a);
    m.prompt = kv_media_prompt(&cat, 1, other, 4);
    kv_media_keys(&m, other, 0, 6, b);
    for (int i = 0; i < 6; i++)
        assert_true(i < 4 ? a[i] != b[i] && a[i] >> 63 : a[i] == b[i] && a[i] == tok[i]);
    assert_true(a[0] != a[1]);
    kv_media_keys(&m, other, 3, 2, a); /* the same from any place on */
    assert_memory_equal(a, b + 3, 2 * sizeof(*a));
    for (uint32_t from = 0; from < 4; from++)
        for (uint32_t to = from; to < 4; to++) {
            assert_int_equal(kv_media_stop(&m, from, to), from);
            assert_int_equal(kv_media_next(&m, from), 4);
        }
    assert_int_equal(kv_media_stop(&m, 0, 4), 4);
    assert_int_equal(kv_media_stop(&m, 3, 5), 5);
    assert_int_equal(kv_media_next(&m, 4), 5);
}

int main(void) { return tests_run(NULL, NULL); }
