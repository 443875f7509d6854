/* Who joins a step: order, budget, chunks, passing, and that nobody is passed forever. */
#include "router/scheduler/policy.h"
#include "tests/unit/test.h"

enum { MAX = 64, SEC = 1000000000 };
static uint32_t
    tokens[4096]; /* all prompts are prefixes of nothing: sharing is off but where said */

struct one {
    struct waiter w;
    struct kv_table t;
};

struct rig {
    struct kv_blocks *kv;
    struct policy p;
    struct joiner out[MAX];
};

static void rig_init(struct rig *g, struct policy_limits l, uint32_t blocks)
{
    g->kv = kv_new(blocks + 1, 4, 1);
    policy_init(&g->p, &l, g->kv);
    for (uint32_t i = 0; i < 4096; i++)
        tokens[i] = i;
}

static void add(struct rig *g, struct one *o, uint32_t n_prompt, uint32_t n_reserve)
{
    *o = (struct one){.w = {.key = {tokens, n_prompt, 0}, .n_reserve = n_reserve}};
    o->w.kv = &o->t;
    policy_add(&g->p, &o->w);
}

static uint32_t join(struct rig *g, struct load l, int64_t now)
{
    uint32_t n = policy_join(&g->p, &l, now, g->out, MAX);
    kv_check(g->kv);
    return n;
}

static void done(struct rig *g, struct one *o) { kv_release(g->kv, &o->t, NULL, 0); }

static void rig_fini(struct rig *g, struct one *o, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        done(g, &o[i]);
    assert_int_equal(kv_stats(g->kv).used, 0);
    kv_free(g->kv);
}

static void first_come_first_served_within_the_budget(void **state)
{
    struct rig g;
    struct one o[4];
    (void)state;
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
    assert_int_equal(g.p.n_waiting, 1);
    rig_fini(&g, o, 4);
}

static void running_requests_take_their_share_of_the_step(void **state)
{
    struct rig g;
    struct one o[2];
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 20, .chunking = true}, 100);
    add(&g, &o[0], 8, 10);
    add(&g, &o[1], 8, 10);
    assert_int_equal(join(&g, (struct load){.n_running = 3, .n_tokens = 20}, 0), 0);
    assert_int_equal(join(&g, (struct load){.n_running = 3, .n_tokens = 12}, 0), 1);
    assert_int_equal(g.out[0].n_tokens, 8);
    rig_fini(&g, o, 2);
}

static void the_batch_size_holds_for_every_step(void **state)
{
    struct rig g;
    struct one o[6];
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 99, .batch_size = 4, .chunking = true},
             100);
    for (int i = 0; i < 6; i++)
        add(&g, &o[i], 2, 4);
    assert_int_equal(join(&g, (struct load){.n_running = 1, .n_tokens = 1}, 0), 3);
    assert_int_equal(join(&g, (struct load){.n_running = 4, .n_tokens = 4}, 0), 0);
    assert_int_equal(join(&g, (struct load){.n_running = 9, .n_tokens = 9}, 0), 0);
    rig_fini(&g, o, 6);
}

static void a_long_prompt_leaves_half_of_the_step_to_short_ones(void **state)
{
    struct rig g;
    struct one o[4];
    (void)state;
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
    assert_int_equal(g.p.n_waiting, 2);
    rig_fini(&g, o, 4);
}

static void one_that_does_not_fit_is_passed_but_not_forever(void **state)
{
    struct rig g;
    struct one big, o[10];
    (void)state;
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

static void being_passed_has_a_time_limit_too(void **state)
{
    struct rig g;
    struct one big, o[3];
    (void)state;
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

static void one_that_waits_can_leave(void **state)
{
    struct rig g;
    struct one o[3];
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 500, .chunking = true}, 20);
    for (int i = 0; i < 3; i++)
        add(&g, &o[i], 4, 4);
    policy_remove(&g.p, &o[1].w);
    assert_int_equal(join(&g, (struct load){0}, 0), 2);
    assert_ptr_equal(g.out[0].w, &o[0].w);
    assert_ptr_equal(g.out[1].w, &o[2].w);
    rig_fini(&g, o, 3);
}

static void without_chunking_prompts_come_whole_and_wait_until_enough_do(void **state)
{
    struct rig g;
    struct one o[4];
    struct load busy = {.n_running = 4};
    (void)state;
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

static void cached_tokens_cost_no_budget(void **state)
{
    struct rig g;
    struct one o[2];
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 10, .chunking = true}, 100);
    add(&g, &o[0], 8, 8);
    o[0].w.share = true;
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    kv_release(g.kv, &o[0].t, tokens, 8);
    add(&g, &o[1], 18, 20);
    o[1].w.share = true;
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    assert_int_equal(g.out[0].n_tokens, 10);
    assert_false(g.out[0].cut);
    rig_fini(&g, &o[1], 1);
}

/* Random traffic, random lengths: everybody gets in, and nobody waits longer than the rule says. */
static void nobody_starves(void **state)
{
    enum { N = 3000 };
    static struct one o[N];
    static uint32_t left[N];
    struct rig g;
    uint32_t r = 7, next = 0, over = 0, running[MAX], n_running = 0;
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 64, .batch_size = 16, .chunking = true},
             60);
    for (int64_t step = 0; over < N; step++) {
        assert_true(step < 200000);
        for (int k = 0; k < 2 && next < N; k++, next++) {
            r = r * 1664525u + 1013904223u;
            bool huge = (r >> 20) % 10 == 0;
            uint32_t n = huge ? 200 : 1 + (r >> 10) % 30;
            add(&g, &o[next], n, n + 1 + (r >> 5) % 30);
            left[next] = 1 + (r >> 8) % 12;
        }
        uint32_t n = join(&g, (struct load){.n_running = n_running, .n_tokens = n_running},
                          step * SEC / 100);
        for (uint32_t i = 0; i < n; i++) {
            struct one *in = (struct one *)g.out[i].w;
            assert_true(in->w.passed <= POLICY_MAX_PASSED);
            running[n_running++] = (uint32_t)(in - o);
        }
        assert_true(n_running <= 16);
        for (uint32_t i = n_running; i-- > 0;)
            if (--left[running[i]] == 0) {
                done(&g, &o[running[i]]);
                running[i] = running[--n_running];
                over++;
            }
    }
    rig_fini(&g, o, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_come_first_served_within_the_budget),
        cmocka_unit_test(running_requests_take_their_share_of_the_step),
        cmocka_unit_test(the_batch_size_holds_for_every_step),
        cmocka_unit_test(a_long_prompt_leaves_half_of_the_step_to_short_ones),
        cmocka_unit_test(one_that_does_not_fit_is_passed_but_not_forever),
        cmocka_unit_test(being_passed_has_a_time_limit_too),
        cmocka_unit_test(one_that_waits_can_leave),
        cmocka_unit_test(without_chunking_prompts_come_whole_and_wait_until_enough_do),
        cmocka_unit_test(cached_tokens_cost_no_budget),
        cmocka_unit_test(nobody_starves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
