/* KV blocks: what is shared, what is not, what is evicted. */
#include "router/scheduler/kv/blocks.h"
#include "tests/unit/test.h"
#include <string.h>

static const uint32_t P[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static struct kv_key key(const uint32_t *tokens, uint32_t n)
{
    return (struct kv_key){tokens, n, 0};
}

static bool admit(struct kv_blocks *kv, struct kv_table *t, const uint32_t *tokens, uint32_t n,
                  uint32_t reserve)
{
    bool ok = kv_admit(kv, t, &(struct kv_key){tokens, n, 0}, true, reserve);
    kv_check(kv);
    return ok;
}

static void release(struct kv_blocks *kv, struct kv_table *t, const uint32_t *tokens, uint32_t n)
{
    kv_release(kv, t, tokens, n);
    kv_check(kv);
}

/* ------------------------------------------------ sharing */
TEST(a_released_prompt_is_a_hit_up_to_its_last_full_block)
{
    struct kv_blocks *kv = kv_new(12, 2, 1);
    struct kv_table a = {0}, b = {0}, c = {0};
    assert_true(admit(kv, &a, P, 4, 8));
    assert_int_equal(a.len, 4);
    assert_int_equal(a.n_cached, 0);
    uint32_t first = a.ids[0];
    release(kv, &a, P, 4);
    /* the last prompt token is always computed: 4 tokens hit one block of two, not two */
    assert_true(admit(kv, &b, P, 4, 8));
    assert_int_equal(b.n_cached, 2);
    assert_int_equal(b.ids[0], first);
    assert_true(admit(kv, &c, P, 5, 8));
    assert_int_equal(c.n_cached, 4);
    release(kv, &b, NULL, 0);
    release(kv, &c, NULL, 0);
    kv_free(kv);
}

TEST(block_0_is_never_handed_out)
{
    struct kv_blocks *kv = kv_new(5, 1, 1);
    struct kv_table a = {0};
    assert_int_equal(kv_stats(kv).total, 4);
    assert_false(kv_could_fit(kv, 5));
    assert_true(admit(kv, &a, P, 4, 4));
    for (uint32_t i = 0; i < a.len; i++)
        assert_true(a.ids[i] > 0 && a.ids[i] < 5);
    release(kv, &a, NULL, 0);
    kv_free(kv);
}

TEST(what_was_not_computed_is_not_a_hit)
{
    struct kv_blocks *kv = kv_new(12, 2, 1);
    struct kv_table a = {0}, b = {0};
    assert_true(admit(kv, &a, P, 8, 8)); /* reserved, prefill fails */
    release(kv, &a, P, 0);
    assert_true(admit(kv, &b, P, 8, 8));
    assert_int_equal(b.n_cached, 0);
    kv_commit(kv, &b, P, 5); /* a chunk of five: two full blocks */
    kv_check(kv);
    assert_true(admit(kv, &a, P, 8, 8));
    assert_int_equal(a.n_cached, 4);
    kv_undo(kv, &a);
    release(kv, &b, P, 5);
    assert_int_equal(kv_stats(kv).cached, 2);
    kv_free(kv);
}

TEST(running_prompts_share_as_soon_as_they_are_computed)
{
    struct kv_blocks *kv = kv_new(20, 4, 1);
    struct kv_table a = {0}, b = {0};
    assert_true(admit(kv, &a, P, 10, 10));
    kv_commit(kv, &a, P, 10);
    assert_true(admit(kv, &b, P, 10, 10));
    assert_int_equal(b.n_cached, 8);
    assert_int_equal(b.ids[0], a.ids[0]);
    assert_true(b.ids[2] != a.ids[2]);
    assert_int_equal(kv_stats(kv).used, 4);
    release(kv, &a, P, 10);
    assert_int_equal(kv_stats(kv).used, 3);
    release(kv, &b, P, 10);
    assert_int_equal(kv_stats(kv).cached, 2);
    kv_free(kv);
}

TEST(generated_tokens_are_cached_too)
{
    struct kv_blocks *kv = kv_new(12, 2, 1);
    struct kv_table a = {0}, b = {0};
    assert_true(admit(kv, &a, P, 3, 9));
    release(kv, &a, P, 9); /* six of them generated */
    assert_true(admit(kv, &b, P, 12, 12));
    assert_int_equal(b.n_cached, 8);
    release(kv, &b, NULL, 0);
    kv_free(kv);
}

TEST(two_that_computed_the_same_leave_one_copy)
{
    struct kv_blocks *kv = kv_new(10, 1, 1);
    struct kv_table a = {0}, b = {0};
    assert_true(admit(kv, &a, P, 4, 4));
    assert_true(admit(kv, &b, P, 4, 4));
    kv_commit(kv, &a, P, 4);
    kv_commit(kv, &b, P, 4); /* the shard reads b's own blocks: nothing is swapped now */
    kv_check(kv);
    assert_int_equal(kv_stats(kv).used, 8);
    release(kv, &b, P, 4);
    release(kv, &a, P, 4);
    assert_int_equal(kv_stats(kv).cached, 4);
    assert_int_equal(kv_stats(kv).free, 5);
    kv_free(kv);
}

TEST(a_longer_copy_goes_on_under_the_first_one)
{
    struct kv_blocks *kv = kv_new(20, 2, 1);
    struct kv_table a = {0}, b = {0}, c = {0};
    assert_true(admit(kv, &a, P, 4, 4));
    assert_true(admit(kv, &b, P, 8, 8));
    release(kv, &a, P, 4);
    release(kv, &b, P, 8); /* its first two blocks give way, the other two are new */
    assert_int_equal(kv_stats(kv).cached, 4);
    assert_true(admit(kv, &c, P, 9, 9));
    assert_int_equal(c.n_cached, 8);
    release(kv, &c, NULL, 0);
    kv_free(kv);
}

TEST(adapters_and_the_unshared_see_nothing_of_each_other)
{
    struct kv_blocks *kv = kv_new(40, 2, 1);
    struct kv_table a = {0}, b = {0};
    struct kv_key base = key(P, 8), one = {P, 8, 1};
    assert_true(kv_admit(kv, &a, &base, true, 8));
    kv_release(kv, &a, P, 8);
    assert_true(kv_admit(kv, &b, &one, true, 8));
    assert_int_equal(b.n_cached, 0);
    kv_release(kv, &b, P, 8);
    assert_int_equal(kv_stats(kv).cached, 8);
    assert_true(kv_admit(kv, &a, &base, false, 8)); /* with the prompt's logprobs */
    assert_int_equal(a.n_cached, 0);
    kv_release(kv, &a, P, 8);
    assert_int_equal(kv_stats(kv).cached, 8);
    kv_check(kv);
    kv_free(kv);
}

/* Scores: whatever the cache holds, the end of the prompt is computed. */
TEST(what_must_be_fresh_is_no_hit)
{
    for (int copies = 0; copies < 2; copies++) {
        struct kv_blocks *kv = kv_new(40, 4, 1);
        struct kv_table t = {0};
        kv_copying(kv, copies);
        assert_true(admit(kv, &t, P, 16, 16));
        release(kv, &t, P, 16);
        for (uint32_t fresh = 0; fresh <= 16; fresh++) {
            uint32_t most = 16 - (fresh ? fresh : 1);
            assert_true(kv_admit(kv, &t, &(struct kv_key){P, 16, 0, .n_fresh = fresh}, true, 16));
            kv_check(kv);
            /* a handful of tokens is not worth a copy: see blocks.c */
            if (most >= 4)
                assert_int_equal(t.n_cached, copies ? most : most / 4 * 4);
            else
                assert_in_range(t.n_cached, 0, most);
            kv_copied(kv, &t);
            kv_undo(kv, &t);
            kv_check(kv);
        }
        assert_true(kv_admit(kv, &t, &(struct kv_key){P, 16, 0, .n_fresh = 99}, true, 16));
        assert_int_equal(t.n_cached, 0);
        release(kv, &t, P, 16);
        kv_free(kv);
    }
}

TEST(adapters_that_meet_in_a_bucket_are_told_apart)
{
    struct kv_blocks *kv = kv_new(6, 2, 1); /* 16 buckets */
    struct kv_table t = {0};
    for (uint32_t adapter = 1; adapter < 200; adapter++) {
        assert_true(kv_admit(kv, &t, &(struct kv_key){P, 3, adapter}, true, 3));
        assert_int_equal(t.n_cached, 0);
        kv_release(kv, &t, P, 3);
    }
    kv_free(kv);
}

/* 1500 first blocks in 4096 buckets: hundreds meet in one. The tokens decide, not the hash. */
TEST(colliding_hashes_share_nothing)
{
    struct kv_blocks *kv = kv_new(2000, 1, 1);
    struct kv_table t = {0};
    for (uint32_t i = 0; i < 1500; i++) {
        assert_true(kv_admit(kv, &t, &(struct kv_key){&i, 1, 0}, true, 1));
        kv_release(kv, &t, &i, 1);
    }
    assert_int_equal(kv_stats(kv).cached, 1500);
    for (uint32_t i = 0; i < 1500; i++) {
        uint32_t two[2] = {i, 0};
        assert_true(kv_admit(kv, &t, &(struct kv_key){two, 2, 0}, true, 2));
        assert_int_equal(t.n_cached, 1);
        kv_undo(kv, &t);
    }
    kv_check(kv);
    kv_free(kv);
}

/* ------------------------------------------------ room */
TEST(admission_is_all_or_nothing_and_evicts_only_when_that_helps)
{
    struct kv_blocks *kv = kv_new(9, 2, 1); /* 8 usable */
    struct kv_table live = {0}, a = {0};
    uint32_t other[12] = {90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101};
    assert_true(admit(kv, &a, P, 6, 6)); /* three will be cached */
    release(kv, &a, P, 6);
    assert_true(admit(kv, &live, other, 8, 8));
    assert_false(admit(kv, &a, other + 6, 6, 12)); /* needs 6, 4 to be had */
    assert_int_equal(a.len, 0);
    assert_int_equal(kv_stats(kv).cached, 3);
    assert_int_equal(kv_stats(kv).evictions, 0);
    assert_true(admit(kv, &a, other + 6, 4, 4)); /* needs 2: one free, one evicted */
    assert_int_equal(kv_stats(kv).evictions, 1);
    assert_int_equal(kv_stats(kv).cached, 2);
    release(kv, &a, NULL, 0);
    assert_true(admit(kv, &a, P, 6, 6)); /* the leaf went, the root is still a hit */
    assert_int_equal(a.n_cached, 4);
    release(kv, &a, NULL, 0);
    release(kv, &live, NULL, 0);
    kv_free(kv);
}

TEST(the_coldest_goes_first)
{
    struct kv_blocks *kv = kv_new(7, 1, 1); /* 6 usable */
    struct kv_table t = {0};
    uint32_t a[3] = {1, 2, 3}, b[3] = {7, 8, 9}, c[2] = {20, 21};
    assert_true(admit(kv, &t, a, 3, 3));
    release(kv, &t, a, 3);
    assert_true(admit(kv, &t, b, 3, 3));
    release(kv, &t, b, 3);
    assert_true(admit(kv, &t, a, 3, 3)); /* a is used again: b is the coldest now */
    release(kv, &t, a, 3);
    assert_true(admit(kv, &t, c, 2, 2));
    release(kv, &t, c, 2);
    assert_true(admit(kv, &t, a, 3, 4));
    assert_int_equal(t.n_cached, 2);
    release(kv, &t, NULL, 0);
    kv_free(kv);
}

TEST(growing_takes_one_block_at_a_time)
{
    struct kv_blocks *kv = kv_new(4, 2, 1);
    struct kv_table t = {0};
    assert_true(admit(kv, &t, P, 2, 2));
    assert_true(kv_grow(kv, &t, 2));
    assert_int_equal(t.len, 1);
    assert_true(kv_grow(kv, &t, 3));
    assert_true(kv_grow(kv, &t, 6));
    assert_int_equal(t.len, 3);
    assert_false(kv_grow(kv, &t, 7));
    assert_int_equal(t.len, 3);
    kv_check(kv);
    release(kv, &t, P, 6);
    assert_int_equal(kv_stats(kv).cached, 3);
    kv_free(kv);
}

TEST(nothing_is_resident_after_the_device_forgot)
{
    struct kv_blocks *kv = kv_new(20, 2, 1);
    struct kv_table live = {0}, t = {0};
    assert_true(admit(kv, &t, P, 8, 8));
    release(kv, &t, P, 8);
    assert_true(admit(kv, &live, P, 9, 12));
    assert_int_equal(live.n_cached, 8);
    kv_forget(kv);
    kv_check(kv);
    kv_commit(kv, &live, P, 12); /* computed before: worth nothing now */
    release(kv, &live, P, 12);
    assert_int_equal(kv_stats(kv).cached, 0);
    assert_int_equal(kv_stats(kv).free, 19);
    assert_true(admit(kv, &t, P, 8, 8));
    assert_int_equal(t.n_cached, 0);
    release(kv, &t, P, 8);
    assert_int_equal(kv_stats(kv).cached, 4);
    kv_free(kv);
}

/* ------------------------------------------------ half-filled blocks */
static struct kv_blocks *copying(uint32_t n_blocks, uint32_t bt)
{
    struct kv_blocks *kv = kv_new(n_blocks, bt, 1);
    kv_copying(kv, true);
    return kv;
}

TEST(a_conversation_goes_on_in_the_block_where_it_ended)
{
    struct kv_blocks *kv = copying(20, 4);
    struct kv_table a = {0}, b = {0}, c = {0};
    assert_true(admit(kv, &a, P, 7, 10));
    release(kv, &a, P, 9); /* ten tokens, the last one's KV is not there */
    uint32_t tail = 3;
    assert_int_equal(kv_stats(kv).cached, 3);
    assert_true(admit(kv, &b, P, 10, 14)); /* all that was said, and on */
    assert_int_equal(b.n_cached, 9);
    assert_int_equal(b.copy_from, 0); /* no other one needs it: it is taken as it is */
    assert_int_equal(b.ids[2], tail);
    assert_true(admit(kv, &c, P, 10, 14)); /* another one does: a copy */
    assert_int_equal(c.n_cached, 9);
    assert_int_equal(c.copy_from, tail);
    assert_int_not_equal(c.ids[2], tail);
    kv_copied(kv, &c);
    release(kv, &b, P, 13);
    release(kv, &c, P, 11); /* b has all of that */
    assert_int_equal(kv_stats(kv).cached, 4);
    assert_int_equal(kv_stats(kv).begun, 2);
    kv_free(kv);
}

TEST(a_running_prompt_lends_the_beginning_of_its_last_block)
{
    struct kv_blocks *kv = copying(20, 4);
    struct kv_table a = {0}, b = {0};
    assert_true(admit(kv, &a, P, 7, 12));
    assert_true(admit(kv, &b, P, 7, 12));
    assert_int_equal(b.n_cached, 0); /* reserved is not computed */
    kv_undo(kv, &b);
    kv_commit(kv, &a, P, 7);
    kv_check(kv);
    assert_true(admit(kv, &b, P, 7, 12));
    assert_int_equal(b.n_cached, 6);
    assert_int_equal(b.copy_from, a.ids[1]);
    uint32_t source = a.ids[1];
    release(kv, &a, NULL, 0); /* before the copy: the block is held */
    assert_int_equal(kv_stats(kv).used, 4);
    assert_int_equal(b.copy_from, source);
    kv_copied(kv, &b);
    kv_check(kv);
    assert_int_equal(kv_stats(kv).used, 3);
    release(kv, &b, P, 7);
    kv_free(kv);
}

TEST(a_prompt_that_differs_inside_a_block_copies_what_is_common)
{
    struct kv_blocks *kv = copying(40, 8);
    struct kv_table t = {0};
    uint32_t other[16];
    for (int i = 0; i < 16; i++)
        other[i] = i < 13 ? P[i] : 900 + (uint32_t)i;
    assert_true(admit(kv, &t, P, 16, 16));
    release(kv, &t, P, 16);
    assert_true(admit(kv, &t, other, 16, 16));
    assert_int_equal(t.n_cached, 13);
    assert_int_equal(t.copy_from, 2);
    kv_copied(kv, &t);
    release(kv, &t, other, 16);
    assert_int_equal(kv_stats(kv).cached, 3);
    assert_true(admit(kv, &t, P, 16, 16)); /* the block of the last token is never shared */
    assert_int_equal(t.n_cached, 15);
    assert_int_equal(t.copy_from, 2);
    kv_undo(kv, &t);
    assert_true(admit(kv, &t, (uint32_t[]){P[0], 77, 78}, 3, 3)); /* BOS alone is worth nothing */
    assert_int_equal(t.n_cached, 0);
    kv_undo(kv, &t);
    kv_check(kv);
    kv_free(kv);
}

/* ------------------------------------------------ why the cache ends */
TEST(every_miss_has_a_reason_and_a_place)
{
    static const uint32_t other[] = {1, 2, 3, 9, 9, 9, 9, 9}, fresh[] = {7, 7, 7, 7, 7, 7};
    struct kv_blocks *kv = kv_new(9, 2, 1); /* 8 blocks */
    struct kv_table a = {0}, b = {0};
    assert_true(admit(kv, &a, P, 8, 8));
    assert_int_equal(a.miss, KV_MISS_NEW);
    assert_int_equal(a.miss_at, 0);
    release(kv, &a, P, 8);

    assert_true(admit(kv, &a, P, 8, 8)); /* all but the last token's block */
    assert_int_equal(a.n_cached, 6);
    assert_int_equal(a.miss, KV_MISS_DIFFERS); /* that token is there, and computed all the same */
    assert_int_equal(a.miss_at, 7);
    release(kv, &a, NULL, 0);
    assert_true(admit(kv, &a, P, 7, 7));
    assert_int_equal(a.miss, KV_MISS_NONE);
    assert_null(kv_miss_name(a.miss));
    release(kv, &a, NULL, 0);

    assert_true(admit(kv, &a, other, 8, 8)); /* the second block begins as one that is there */
    assert_int_equal(a.n_cached, 2);
    assert_int_equal(a.miss, KV_MISS_DIFFERS);
    assert_int_equal(a.miss_at, 3);
    release(kv, &a, NULL, 0);

    const struct kv_key k = key(P, 8);
    assert_true(kv_admit(kv, &a, &k, false, 8));
    assert_int_equal(a.miss, KV_MISS_OFF);
    release(kv, &a, NULL, 0);

    assert_true(admit(kv, &b, fresh, 6, 12)); /* takes the free blocks, and evicts two of P's */
    assert_int_equal(kv_stats(kv).evictions, 2);
    release(kv, &b, NULL, 0);
    assert_true(admit(kv, &a, P, 8, 8));
    assert_int_equal(a.miss, KV_MISS_EVICTED);
    assert_int_equal(a.miss_at, 4);
    assert_string_equal(kv_miss_name(a.miss), "evicted");
    release(kv, &a, NULL, 0);
    kv_free(kv);
}

/* With one block too few to keep the source, the prompt is computed; it is not kept out. */
TEST(a_copy_never_costs_admission)
{
    struct kv_blocks *kv = copying(4, 4); /* three */
    struct kv_table t = {0};
    assert_true(admit(kv, &t, P, 8, 12));
    release(kv, &t, P, 8);
    assert_int_equal(kv_stats(kv).cached, 2);
    assert_true(admit(kv, &t, P, 8, 8)); /* one shared, one copied, one from which */
    assert_int_equal(t.n_cached, 7);
    kv_undo(kv, &t);
    assert_true(admit(kv, &t, P, 8, 12));
    assert_int_equal(t.n_cached, 4);
    assert_int_equal(t.copy_from, 0);
    release(kv, &t, P, 0);
    kv_free(kv);
}

TEST(nothing_of_a_failed_beginning_is_lent)
{
    struct kv_blocks *kv = copying(20, 4);
    struct kv_table t = {0};
    assert_true(admit(kv, &t, P, 6, 8));
    release(kv, &t, P, 0);
    assert_true(admit(kv, &t, P, 6, 8));
    assert_int_equal(t.n_cached, 0);
    kv_commit(kv, &t, P, 2); /* a chunk of two */
    kv_forget(kv);           /* the device lost it */
    kv_commit(kv, &t, P, 6);
    release(kv, &t, P, 6);
    assert_true(admit(kv, &t, P, 6, 8));
    assert_int_equal(t.n_cached, 0);
    release(kv, &t, NULL, 0);
    kv_free(kv);
}

int main(void) { return tests_run(NULL, NULL); }
