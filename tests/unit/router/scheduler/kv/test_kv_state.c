/* Recurrent state beside the prefix tree: where a hit ends, where prompts stop, what a snapshot
 * costs. */
#include "router/scheduler/kv/blocks.h"
#include "tests/unit/test.h"
#include <string.h>

enum { BT = 4, N = 4096 };
static uint32_t P[N], Q[N]; /* Q goes on differently behind 26 tokens */

static struct kv_blocks *new_blocks(uint32_t n_blocks, uint32_t n_cells)
{
    struct kv_blocks *kv = kv_new(n_blocks, BT, 1);
    assert_true(kv_stateful(kv, n_cells, true));
    for (uint32_t i = 0; i < N; i++) {
        P[i] = i;
        Q[i] = i < 26 ? i : 9000 + i;
    }
    return kv;
}

static bool admit(struct kv_blocks *kv, struct kv_table *t, const uint32_t *tokens, uint32_t n)
{
    bool ok = kv_admit(kv, t, &(struct kv_key){tokens, n, 0}, true, n + 1);
    kv_check(kv);
    return ok;
}

/* As far as a prompt comes: it stops where it may, and leaves its state there. */
static void compute(struct kv_blocks *kv, struct kv_table *t, const uint32_t *tokens, uint32_t n)
{
    for (uint32_t at = t->n_cached; at < n;) {
        at = kv_stop(kv, t, n, at, false);
        kv_commit(kv, t, tokens, at);
        if (at < n && kv_snapshot(kv, t, tokens, at, false) != NO_CELL)
            cells_saved(kv_cells(kv));
        kv_check(kv);
    }
}

static void run(struct kv_blocks *kv, const uint32_t *tokens, uint32_t n, uint32_t hit)
{
    struct kv_table t = {0};
    assert_true(admit(kv, &t, tokens, n));
    assert_int_equal(t.n_cached, hit);
    assert_true(t.stateful && !t.state_from == !hit);
    kv_copied(kv, &t);
    compute(kv, &t, tokens, n);
    kv_release(kv, &t, tokens, n);
    kv_check(kv);
}

TEST(a_hit_ends_where_a_snapshot_is)
{
    struct kv_blocks *kv = new_blocks(100, 8);
    run(kv, P, 40, 0); /* leaves its state behind 36: the last full block before the last token */
    run(kv, P, 40, 36);
    run(kv, P, 36, 0);  /* has that block, but not the one before it */
    run(kv, P, 36, 32); /* which that one has left */
    run(kv, P, 60, 36);
    run(kv, P, 60, 56);
    assert_int_equal(cells_stats(kv_cells(kv)).owned, 0);
    kv_free(kv);
}

/* The first one that turns off does not find the state there, and leaves it for the next. */
TEST(where_prompts_part_the_second_one_leaves_a_snapshot)
{
    struct kv_blocks *kv = new_blocks(100, 8);
    run(kv, P, 60, 0);
    run(kv, Q, 60, 0);
    Q[30] = 1;
    run(kv, Q, 60, 24);
    kv_free(kv);
}

TEST(the_blocks_behind_the_snapshot_are_shared_all_the_same)
{
    struct kv_blocks *kv = new_blocks(100, 8);
    struct kv_table a = {0}, b = {0};
    assert_true(admit(kv, &a, P, 60));
    compute(kv, &a, P, 60);
    assert_true(admit(kv, &b, P, 40));
    assert_int_equal(b.n_cached, 0);
    assert_int_equal(b.n_matched, 36);
    for (uint32_t i = 0; i < 9; i++)
        assert_int_equal(b.ids[i], a.ids[i]);
    assert_int_not_equal(b.ids[9], a.ids[9]); /* the last token's block is written for good */
    kv_release(kv, &a, P, 60);
    kv_release(kv, &b, P, 10);
    kv_free(kv);
}

TEST(stops_are_few_and_the_same_for_all)
{
    struct kv_blocks *kv = new_blocks(3000, 32);
    struct kv_table t = {.shares = true};
    assert_int_equal(kv_stop(kv, &t, 4000, 0, false), 1024);
    assert_int_equal(kv_stop(kv, &t, 4000, 1000, false), 1024);
    assert_int_equal(kv_stop(kv, &t, 4000, 1024, false), 2048);
    assert_int_equal(kv_stop(kv, &t, 4000, 3072, false), 3996);
    assert_int_equal(kv_stop(kv, &t, 4000, 3996, false), 4000);
    assert_int_equal(kv_stop(kv, &t, 16, 0, false), 16); /* 12 tokens are computed again at once */
    assert_int_equal(kv_stop(kv, &t, 17, 0, false), 16);
    assert_int_equal(kv_stop(kv, &t, 16, 0, true), 12); /* but not by many */
    assert_int_equal(kv_stop(kv, &t, 4, 0, true), 4);
    assert_int_equal(kv_stop(kv, &t, 1, 0, true), 1);
    t.n_kept = 1020; /* one is near */
    assert_int_equal(kv_stop(kv, &t, 1030, 1020, false), 1030);
    assert_int_equal(kv_stop(kv, &t, 4000, 1020, false), 2048);
    t.n_kept = 100;
    t.n_matched = 800;
    assert_int_equal(kv_stop(kv, &t, 1100, 100, false), 800);
    assert_int_equal(kv_stop(kv, &t, 1100, 800, false), 1024);
    t.shares = false;
    assert_int_equal(kv_stop(kv, &t, 4000, 0, false), 4000);
    kv_free(kv);
    kv = new_blocks(3000, 16); /* two stops at most */
    t = (struct kv_table){.shares = true};
    assert_int_equal(kv_stop(kv, &t, 4000, 0, false), 2048);
    assert_int_equal(kv_stop(kv, &t, 4000, 2048, false), 3996);
    kv_free(kv);
}

/* Where a step is dear beside the tokens of prompts, as on a GPU, fewer stops pay. */
TEST(a_stop_must_be_worth_a_step)
{
    struct kv_blocks *kv = new_blocks(3000, 32);
    struct kv_table t = {.shares = true}, known = {.shares = true, .n_matched = 200};
    kv_step_tokens(kv, 100);
    assert_int_equal(kv_stop(kv, &t, 390, 0, false), 390);
    assert_int_equal(kv_stop(kv, &t, 410, 0, false), 408);
    assert_int_equal(kv_stop(kv, &known, 390, 0, false), 200);  /* another one began alike */
    assert_int_equal(kv_stop(kv, &known, 390, 200, true), 388); /* another one waits for it */
    kv_step_tokens(kv, 250);
    assert_int_equal(kv_stop(kv, &known, 390, 0, false), 390);
    kv_step_tokens(kv, 100000); /* but it is bounded */
    assert_int_equal(kv_stop(kv, &t, 1030, 0, false), 1024);
    kv_free(kv);
}

TEST(without_spare_cells_nobody_stops)
{
    struct kv_blocks *kv = new_blocks(100, 2);
    struct kv_table a = {0}, b = {0};
    assert_true(kv_could_fit(kv, 40));
    assert_true(admit(kv, &a, P, 40));
    assert_int_equal(kv_stop(kv, &a, 40, 0, true), 40);
    assert_false(kv_may_fit(kv, 4, 4));
    assert_false(admit(kv, &b, Q, 4));
    assert_int_equal(b.len, 0);
    kv_commit(kv, &a, P, 40);
    assert_int_equal(kv_snapshot(kv, &a, P, 40, false), NO_CELL);
    kv_release(kv, &a, P, 40);
    assert_true(admit(kv, &b, Q, 4));
    kv_release(kv, &b, Q, 4);
    kv_free(kv);
    kv = new_blocks(100, 1);
    assert_false(kv_could_fit(kv, 1));
    kv_free(kv);
}

/* Blocks are there, cells are not, and the other way round: nothing is taken. */
TEST(admission_is_all_or_nothing)
{
    struct kv_blocks *kv = new_blocks(11, 6);
    struct kv_table t[4] = {{0}};
    assert_true(admit(kv, &t[0], P, 30)); /* 8 of 10 blocks */
    assert_false(admit(kv, &t[1], Q + 30, 30));
    assert_int_equal(cells_stats(kv_cells(kv)).owned, 2);
    assert_true(admit(kv, &t[1], Q + 30, 1) && admit(kv, &t[2], Q + 50, 1));
    kv_undo(kv, &t[0]);
    assert_true(admit(kv, &t[0], P, 1));
    assert_false(admit(kv, &t[3], Q + 70, 1)); /* blocks enough */
    assert_int_equal(kv_stats(kv).used, 3);
    for (int i = 0; i < 4; i++)
        kv_release(kv, &t[i], NULL, 0);
    kv_check(kv);
    kv_free(kv);
}

TEST(a_snapshot_goes_with_its_block)
{
    struct kv_blocks *kv = new_blocks(12, 8);
    struct kv_table t = {0};
    run(kv, P, 20, 0);
    assert_int_equal(cells_stats(kv_cells(kv)).snapshots, 1);
    assert_true(admit(kv, &t, Q + 100, 42)); /* all blocks */
    assert_int_equal(cells_stats(kv_cells(kv)).snapshots, 0);
    kv_release(kv, &t, NULL, 0);
    run(kv, P, 20, 0);
    kv_forget(kv);
    kv_check(kv);
    assert_int_equal(cells_stats(kv_cells(kv)).snapshots, 0);
    run(kv, P, 20, 0);
    kv_free(kv);
}

/* Its own snapshot is the only one that could make room: it begins anew. */
TEST(a_request_needs_cells_more_than_a_hit)
{
    struct kv_blocks *kv = new_blocks(100, 4);
    struct kv_table a = {0}, b = {0};
    run(kv, P, 40, 0);
    assert_true(admit(kv, &a, Q, 40));
    kv_copied(kv, &a);
    assert_true(admit(kv, &b, P, 40));
    assert_int_equal(b.n_cached, 0);
    assert_int_equal(b.state_from, 0);
    kv_release(kv, &a, NULL, 0);
    kv_release(kv, &b, NULL, 0);
    kv_free(kv);
}

TEST(a_rolling_snapshot_follows_its_request)
{
    struct kv_blocks *kv = new_blocks(100, 8);
    struct kv_table t = {0};
    assert_true(admit(kv, &t, P, 8) && kv_grow(kv, &t, 40));
    for (uint32_t n = 16; n <= 32; n += 16) {
        assert_int_not_equal(kv_snapshot(kv, &t, P, n, true), NO_CELL);
        cells_saved(kv_cells(kv));
        kv_check(kv);
        assert_int_equal(cells_stats(kv_cells(kv)).snapshots, 1);
    }
    assert_int_equal(kv_snapshot(kv, &t, P, 33, true), NO_CELL); /* not the end of a block */
    kv_release(kv, &t, P, 38);
    run(kv, P, 40, 32);
    kv_free(kv);
}

/* What was computed before the shards forgot it all is no hit after. */
TEST(an_old_table_leaves_nothing)
{
    struct kv_blocks *kv = new_blocks(100, 8);
    struct kv_table t = {0};
    assert_true(admit(kv, &t, P, 40));
    kv_commit(kv, &t, P, 20);
    kv_forget(kv);
    assert_int_equal(kv_stop(kv, &t, 40, 20, false), 40);
    assert_int_equal(kv_snapshot(kv, &t, P, 36, false), NO_CELL);
    kv_release(kv, &t, P, 40);
    kv_check(kv);
    run(kv, P, 40, 0);
    kv_free(kv);
}

int main(void) { return tests_run(NULL, NULL); }
