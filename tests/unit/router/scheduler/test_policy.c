/* Which requests join a step: order, budget, chunks, passing, adapters. test_policy_walk.c has
 * random traffic. */
#include "tests/unit/router/scheduler/policy_rig.h"

TEST(first_come_first_served_within_the_budget)
{
    struct rig g;
    struct one o[4];
    rig_init(&g, (struct policy_limits){.prefill_tokens = 20, .chunking = true}, 100);
    for (int i = 0; i < 4; i++)
        add(&g, &o[i], 8, 10);
    assert_int_equal(join(&g, (struct load){0}, 0), 3);
    assert_ptr_equal(g.out[0].w, &o[0].w);
    assert_ptr_equal(g.out[1].w, &o[1].w);
    assert_ptr_equal(g.out[2].w, &o[2].w);
    assert_int_equal(g.out[0].n_tokens, 8);
    assert_false(g.out[1].cut);
    assert_int_equal(g.out[2].n_tokens, 4); /* the rest of the step */
    assert_true(g.out[2].cut);
    assert_int_equal(policy_waiting(&g.p), 1);
    rig_fini(&g, o, 4);
}

TEST(running_requests_take_their_share_of_the_step)
{
    struct rig g;
    struct one o[2];
    rig_init(&g, (struct policy_limits){.prefill_tokens = 20, .chunking = true}, 100);
    add(&g, &o[0], 8, 10);
    add(&g, &o[1], 8, 10);
    assert_int_equal(join(&g, (struct load){.n_running = 3, .n_tokens = 20}, 0), 0);
    assert_int_equal(join(&g, (struct load){.n_running = 3, .n_tokens = 12}, 0), 1);
    assert_int_equal(g.out[0].n_tokens, 8);
    rig_fini(&g, o, 2);
}

TEST(the_batch_size_holds_for_every_step)
{
    struct rig g;
    struct one o[6];
    rig_init(&g, (struct policy_limits){.prefill_tokens = 99, .batch_size = 4, .chunking = true},
             100);
    for (int i = 0; i < 6; i++)
        add(&g, &o[i], 2, 4);
    assert_int_equal(join(&g, (struct load){.n_running = 1, .n_tokens = 1}, 0), 3);
    assert_int_equal(join(&g, (struct load){.n_running = 4, .n_tokens = 4}, 0), 0);
    assert_int_equal(join(&g, (struct load){.n_running = 9, .n_tokens = 9}, 0), 0);
    rig_fini(&g, o, 6);
}

/* A chunk of no tokens would stand for the whole prompt. */
TEST(a_prompt_that_is_cut_gets_a_token_of_the_smallest_step)
{
    struct rig g;
    struct one o[2];
    rig_init(&g, (struct policy_limits){.prefill_tokens = 20, .chunking = true}, 1000);
    add(&g, &o[0], 1000, 1010);
    add(&g, &o[1], 1, 10);
    assert_int_equal(join(&g, (struct load){.n_running = 19, .n_tokens = 19}, 0), 1);
    assert_ptr_equal(g.out[0].w, &o[0].w);
    assert_int_equal(g.out[0].n_tokens, 1);
    assert_true(g.out[0].cut);
    rig_fini(&g, o, 2);
}

TEST(a_long_prompt_leaves_half_of_the_step_to_short_ones)
{
    struct rig g;
    struct one o[4];
    rig_init(&g, (struct policy_limits){.prefill_tokens = 100, .chunking = true}, 1000);
    add(&g, &o[0], 1000, 1010);
    add(&g, &o[1], 30, 40);
    add(&g, &o[2], 30, 40); /* 60 would be more than half */
    add(&g, &o[3], 1000, 1010);
    assert_int_equal(join(&g, (struct load){0}, 0), 2);
    assert_ptr_equal(g.out[0].w, &o[1].w);
    assert_ptr_equal(g.out[1].w, &o[0].w); /* the cut one comes last */
    assert_true(g.out[1].cut);
    assert_int_equal(g.out[1].n_tokens, 70);
    assert_int_equal(policy_waiting(&g.p), 2);
    rig_fini(&g, o, 4);
}

TEST(one_that_does_not_fit_is_passed_but_not_forever)
{
    struct rig g;
    struct one big, o[10];
    rig_init(&g, (struct policy_limits){.prefill_tokens = 500, .chunking = true, .max_passed = 3},
             20);
    add(&g, &o[0], 20, 40); /* half of the blocks */
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    add(&g, &big, 20, 80); /* needs all of them */
    for (int i = 1; i <= 3; i++) {
        add(&g, &o[i], 4, 4);
        assert_int_equal(join(&g, (struct load){.n_running = 1, .n_tokens = 1}, 0), 1);
        assert_ptr_equal(g.out[0].w, &o[i].w);
        assert_int_equal(big.w.passed, i);
    }
    add(&g, &o[4], 4, 4); /* would fit, but has to wait for its turn now */
    assert_int_equal(join(&g, (struct load){.n_running = 1, .n_tokens = 1}, 0), 0);
    for (int i = 0; i <= 3; i++)
        done(&g, &o[i]);
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    assert_ptr_equal(g.out[0].w, &big.w);
    done(&g, &big);
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    rig_fini(&g, &o[4], 1);
}

TEST(being_passed_has_a_time_limit_too)
{
    struct rig g;
    struct one big, o[3];
    rig_init(&g,
             (struct policy_limits){
                 .prefill_tokens = 500, .chunking = true, .max_passed_ns = 2 * (int64_t)SEC},
             20);
    add(&g, &o[0], 20, 40);
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    add(&g, &big, 20, 80);
    add(&g, &o[1], 4, 4);
    /* waiting alone does not count: a queue that is long everywhere stays first come, first served
     */
    assert_int_equal(join(&g, (struct load){0}, 100 * (int64_t)SEC), 1);
    add(&g, &o[2], 4, 4);
    assert_int_equal(join(&g, (struct load){0}, 102 * (int64_t)SEC), 0);
    done(&g, &o[0]);
    done(&g, &o[1]);
    assert_int_equal(join(&g, (struct load){0}, 103 * (int64_t)SEC), 1);
    assert_ptr_equal(g.out[0].w, &big.w);
    done(&g, &big);
    assert_int_equal(join(&g, (struct load){0}, 104 * (int64_t)SEC), 1);
    rig_fini(&g, &o[2], 1);
}

TEST(one_that_waits_can_leave)
{
    struct rig g;
    struct one o[3];
    rig_init(&g, (struct policy_limits){.prefill_tokens = 500, .chunking = true}, 20);
    for (int i = 0; i < 3; i++)
        add(&g, &o[i], 4, 4);
    policy_remove(&g.p, &o[1].w);
    assert_int_equal(join(&g, (struct load){0}, 0), 2);
    assert_ptr_equal(g.out[0].w, &o[0].w);
    assert_ptr_equal(g.out[1].w, &o[2].w);
    rig_fini(&g, o, 3);
}

TEST(without_chunking_prompts_come_whole_and_wait_until_enough_do)
{
    struct rig g;
    struct one o[4];
    struct load busy = {.n_running = 4};
    rig_init(&g,
             (struct policy_limits){
                 .prefill_tokens = 20, .waiting_served_ratio = 0.5, .max_waiting_tokens = 10},
             100);
    add(&g, &o[0], 30, 32); /* more than a step holds: alone, when nothing runs */
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    assert_int_equal(g.out[0].n_tokens, 30);
    assert_false(g.out[0].cut);
    add(&g, &o[1], 8, 10);
    assert_int_equal(join(&g, busy, 0), 0); /* 4 * 0.5: two have to wait */
    busy.steps_since_join = 10;
    add(&g, &o[2], 15, 16);
    assert_int_equal(join(&g, busy, 0), 1); /* long enough; the second is too much */
    assert_ptr_equal(g.out[0].w, &o[1].w);
    add(&g, &o[3], 5, 6);
    busy.steps_since_join = 0;
    assert_int_equal(join(&g, busy, 0), 2);
    rig_fini(&g, o, 4);
}

TEST(cached_tokens_cost_no_budget)
{
    struct rig g;
    struct one o[2];
    rig_init(&g, (struct policy_limits){.prefill_tokens = 10, .chunking = true}, 100);
    add(&g, &o[0], 8, 8);
    o[0].w.share = true;
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    kv_release(g.kv, &o[0].t, tokens, 8);
    policy_forget(&g.p, &o[0].w);
    add(&g, &o[1], 18, 20);
    o[1].w.share = true;
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    assert_int_equal(g.out[0].n_tokens, 10);
    assert_false(g.out[0].cut);
    rig_fini(&g, &o[1], 1);
}

TEST(prompts_in_progress_and_newcomers_share_a_bounded_step)
{
    struct rig g;
    struct one o[4];
    struct started st[2] = {{.left = 1000}, {.left = 30}};
    struct load l = {.n_running = 8,
                     .n_tokens = 6,
                     .prompt_tokens = 80, /* of the 4096: the streams keep their pace */
                     .started = st,
                     .n_started = 2};
    rig_init(&g, (struct policy_limits){.prefill_tokens = 4096, .chunking = true}, 10000);
    assert_int_equal(join(&g, l, 0), 0);
    assert_int_equal(st[1].n_now, 30); /* the shortest rest goes first */
    assert_int_equal(st[0].n_now, 50);
    add(&g, &o[0], 2000, 2001); /* not now: longer than those */
    add(&g, &o[1], 25, 30);
    add(&g, &o[2], 15, 30);
    add(&g, &o[3], 15, 30); /* half of the step is full */
    assert_int_equal(join(&g, l, 0), 2);
    assert_ptr_equal(g.out[0].w, &o[1].w);
    assert_ptr_equal(g.out[1].w, &o[2].w);
    assert_int_equal(st[1].n_now + st[0].n_now, 40);
    assert_int_equal(st[0].n_now, 11); /* a quarter is the oldest one's, come what may */
    st[1].left = 0;
    l.n_started = 1;
    done(&g, &o[1]);
    add(&g, &o[1], 400, 401); /* less than half of what the long one has left: it goes between */
    assert_int_equal(join(&g, l, 0), 2);
    assert_ptr_equal(g.out[0].w, &o[3].w);
    assert_ptr_equal(g.out[1].w, &o[1].w);
    assert_true(g.out[1].cut);
    assert_int_equal(g.out[0].n_tokens + g.out[1].n_tokens + st[0].n_now, 80);
    st[0].left = 20; /* ends in this step: the rest is for the next one */
    assert_int_equal(join(&g, l, 0), 1);
    assert_ptr_equal(g.out[0].w, &o[0].w);
    assert_int_equal(g.out[0].n_tokens, 60);
    rig_fini(&g, o, 4);
}

/* Many may be cut at once, and what they leave of the step is the others'. */
TEST(prompts_stop_where_their_state_is_kept)
{
    struct rig g;
    struct one o[3];
    struct started st[2] = {{.left = 1000, .stop = 24}, {.left = 30, .stop = 7}};
    struct load l = {
        .n_running = 2, .n_tokens = 0, .prompt_tokens = 200, .started = st, .n_started = 2};
    rig_init(&g, (struct policy_limits){.prefill_tokens = 4096, .chunking = true}, 1000);
    assert_true(kv_stateful(g.kv, 8, true));
    for (int i = 0; i < 3; i++) {
        add(&g, &o[i], 50 + (uint32_t)i, 60);
        o[i].w.share = true;
    }
    assert_int_equal(join(&g, l, 0), 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_ptr_equal(g.out[i].w, &o[i].w);
        assert_int_equal(g.out[i].n_tokens, 48); /* of 50, 51, 52 */
        assert_true(g.out[i].cut);
    }
    assert_int_equal(st[0].n_now, 24);
    assert_int_equal(st[1].n_now, 7);
    rig_fini(&g, o, 3);
}

TEST(a_key_with_one_request_does_not_wait_for_a_key_with_many)
{
    struct rig g;
    struct one many[20], one, second, fresh[3];
    rig_init(&g, (struct policy_limits){.prefill_tokens = 100, .chunking = true}, 1000);
    for (int i = 0; i < 20; i++)
        add_for(&g, &many[i], 40, 41, 1);
    assert_int_equal(join(&g, (struct load){0}, 0), 3);
    add(&g, &one, 40, 41); /* another account: a step with its prompt and as much of a cut one */
    struct started cut = {.left = 500};
    const struct load l = {.n_running = 3, .n_tokens = 2, .started = &cut, .n_started = 1};
    assert_int_equal(join(&g, l, 0), 1);
    assert_ptr_equal(g.out[0].w, &one.w);
    assert_int_equal(cut.n_now, 40);
    fair_charge(&many[0].w.fair, 1000); /* tokens computed meanwhile */
    add(&g, &second, 40, 41);           /* it runs one: its next joins with the others */
    assert_int_equal(join(&g, l, 0), 2);
    assert_ptr_equal(g.out[0].w, &second.w);
    assert_int_equal(cut.n_now, 98 - 49);
    for (int i = 0; i < 3; i++) { /* new accounts with every step: others join in every second */
        add_for(&g, &fresh[i], 4, 5, 10 + (uint64_t)i);
        assert_int_equal(join(&g, l, 0) > 1, i == 1);
        assert_ptr_equal(g.out[0].w, &fresh[i].w);
        assert_true(cut.n_now >= 98 / 4);
        done(&g, &fresh[i]);
    }
    done(&g, &one);
    done(&g, &second);
    rig_fini(&g, many, 20);
}

TEST(priorities_rule_within_a_key)
{
    struct rig g;
    struct one o[3];
    rig_init(&g, (struct policy_limits){.prefill_tokens = 8, .chunking = true}, 1000);
    for (int i = 0; i < 3; i++) {
        add(&g, &o[i], 8, 9);
        policy_remove(&g.p, &o[i].w);
        o[i].w.fair.priority = i == 2 ? -1 : 0;
        assert_true(policy_add(&g.p, &o[i].w));
    }
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    assert_ptr_equal(g.out[0].w, &o[2].w);
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    assert_ptr_equal(g.out[0].w, &o[0].w);
    rig_fini(&g, o, 3);
}

TEST(an_image_that_stays_whole_is_never_divided)
{
    static const struct kv_medium one_image = {4, 30, 7};
    const struct kv_media media = {.v = &one_image, .n = 1, .whole = true};
    struct rig g;
    struct one o[2];
    rig_init(&g, (struct policy_limits){.prefill_tokens = 32, .chunking = true}, 1000);
    add(&g, &o[0], 40, 50);
    o[0].w.key.media = media;
    add(&g, &o[1], 4, 9);
    assert_int_equal(join(&g, (struct load){.n_running = 1, .n_tokens = 1}, 0), 2);
    assert_int_equal(g.out[0].n_tokens, 4); /* up to the image */
    assert_true(g.out[0].cut);
    assert_ptr_equal(g.out[1].w, &o[1].w);
    /* one row of the step belongs to another request: the image still gets its 30 */
    struct started st[2] = {{.left = 36, .at = 4, .media = media}, {.left = 5}};
    struct load l = {
        .n_running = 9, .n_tokens = 7, .prompt_tokens = 8, .started = st, .n_started = 2};
    assert_int_equal(join(&g, l, 0), 0);
    assert_int_equal(st[0].n_now, 30);
    assert_int_equal(st[1].n_now, 0);
    st[0] = (struct started){.left = 6, .at = 34, .media = media};
    assert_int_equal(join(&g, l, 0), 0);
    assert_int_equal(st[0].n_now + st[1].n_now, 8);
    rig_fini(&g, o, 2);
}

TEST(a_step_carries_so_many_bytes_of_images)
{
    struct rig g;
    struct one o[3];
    rig_init(&g, (struct policy_limits){.prefill_tokens = 64, .chunking = true}, 100);
    for (int i = 0; i < 3; i++) {
        add(&g, &o[i], 8, 10);
        o[i].w.n_bytes = i == 0 ? POLICY_MAX_BYTES + 1 : i == 1 ? 1 : 0;
    }
    assert_int_equal(join(&g, (struct load){0}, 0), 1); /* one alone may always */
    assert_int_equal(join(&g, (struct load){0}, 0), 2);
    rig_fini(&g, o, 3);
}

TEST(adapters_run_while_there_is_room_for_them)
{
    struct rig g;
    struct one o[6] = {0};
    rig_init(&g, (struct policy_limits){.prefill_tokens = 100, .chunking = true}, 100);
    const uint32_t wants[6] = {1, 2, 1, 0, 3, ADAPTER_UNNUMBERED};
    for (int i = 0; i < 6; i++) {
        add(&g, &o[i], 4, 5);
        o[i].w.key.adapter = wants[i];
    }
    /* two pages, then two that are too many, the same two again, none, one, and an unknown */
    assert_int_equal(join(&g, (struct load){.n_running = 0}, 0), 5);
    for (int i = 0; i < 5; i++)
        assert_ptr_equal(g.out[i].w, &o[i < 1 ? 0 : i + 1].w);
    assert_int_equal(g.adapters.pages, 3);
    done(&g, &o[2]);
    assert_int_equal(join(&g, (struct load){.n_running = 4}, 0), 0);
    done(&g, &o[0]); /* the last that used it */
    assert_int_equal(g.adapters.pages, 1);
    assert_int_equal(join(&g, (struct load){.n_running = 3}, 0), 1);
    assert_ptr_equal(g.out[0].w, &o[1].w);
    done(&g, &o[1]), done(&g, &o[3]), done(&g, &o[4]), done(&g, &o[5]);
    assert_int_equal(g.adapters.pages, 0);
    rig_fini(&g, o, 0);
}

int main(void) { return tests_run(NULL, NULL); }
