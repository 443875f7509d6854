/* Draft heads that are used, and left off, from step to step: answers stay what they are, and a
 * head never looks at keys that it has not made. Model, head and helpers: rig.h. */
#include "model-server/engine/engine_impl.h" /* what costs are said to be */

#include "tests/unit/model-server/engine/rig.h" /* whose `g` would shadow that header's */

enum { N = 24, TOGETHER = 6, MOST_DRAFTS = 5 };

static struct asked v[N];

static void ask_all(void)
{
    next_block = 0;
    for (uint32_t i = 0; i < N; i++) {
        ask(&v[i], i, i * 11 + 1, i % 2);
        v[i].spec.ignore_eos = true;
        run_alone(&v[i], v);
    }
}

/* An engine whose model has a head, where rows and passes are cheap. Nothing is measured: `mode` of
 * the gate is what the test says. */
static void with_head(void)
{
    engine_free(g);
    speculate = MOST_DRAFTS;
    headed = true;
    assert_int_equal(setup_on(&ops), 0);
    speculate = 0;
    g->drafting.cost = 0.02;
    g->heads.pass_cost = 0.02;
    g->heads.measured = false;
}

static void set_mode(enum gate_mode m) { g->heads.gate.size[g->heads.gate.at].mode = m; }

/* Everybody's answers, so many at a time. `change`: the mode of each step is drawn. Returns how
 * many steps it took. */
static int answer_many(uint32_t together, bool change)
{
    struct err e = ERR_INIT;
    struct answer a;
    const int before = fake.forwards;
    for (uint32_t i = 0; i < N; i += together) {
        struct seq_spec specs[N];
        for (uint32_t k = 0; k < together; k++)
            specs[k] = v[i + k].spec;
        assert_int_equal(engine_prefill(g, 9, specs, together, NULL, NULL, &a, &e), 0);
        take(&a, v);
        while (a.batch) {
            if (change)
                set_mode((enum gate_mode)(rand() % 3));
            assert_int_equal(engine_decode(g, (uint64_t[]){9}, 1, NULL, &a, &e), 0);
            take(&a, v);
        }
    }
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(v[i].n_got, v[i].n_alone);
        assert_memory_equal(v[i].got, v[i].alone, v[i].n_got * sizeof(uint32_t));
        v[i].n_got = 0, v[i].over = false;
    }
    return fake.forwards - before;
}
static int answer_all(bool change) { return answer_many(TOGETHER, change); }

TEST_WITH(a_head_saves_steps, setup, teardown)
{
    srand(test_seed(7));
    ask_all();
    const int plain = answer_all(false);
    with_head();
    const int drafted = answer_all(false);
    assert_true(fake.passes > 0 && fake.captured > 0);
    assert_true(2 * drafted < plain);
}

/* A head that is off for some steps has no keys of their tokens. */
TEST_WITH(it_may_be_off_and_on_at_any_step, setup, teardown)
{
    srand(test_seed(8));
    ask_all();
    const int plain = answer_all(false);
    with_head();
    for (int round = 0; round < 10; round++) {
        set_mode(GATE_ON);
        assert_true(answer_all(true) < plain);
    }
}

/* A head whose first drafts are wrong, and whose second-best are right: two tokens a step. */
TEST_WITH(second_best_drafts_are_verified_too, setup, teardown)
{
    srand(test_seed(10));
    ask_all();
    const int plain = answer_all(false);
    with_head();
    g->drafting.cost = g->heads.pass_cost = 0.002;
    head_wrong = 100;
    const int both = answer_all(false);
    assert_true(10 * both < 6 * plain); /* a row of the first draft in the place of its: more */
    g->drafting.siblings = NULL;
    assert_true(answer_all(false) > both + both / 5);
}

/* Some of them right, some of the first ones; more sequences than scratch blocks; a head that comes
 * and goes. Blocks are all given back. */
TEST_WITH(siblings_change_no_answer, setup, teardown)
{
    srand(test_seed(11));
    ask_all();
    with_head();
    g->drafting.cost = g->heads.pass_cost = 0.0005;
    assert_true((int)N > (int)SIBLINGS_MOST);
    for (head_wrong = 20; head_wrong < 100; head_wrong += 30)
        for (int round = 0; round < 4; round++) {
            answer_many(round % 2 ? N : 2, round > 1);
            set_mode(GATE_ON);
        }
    engine_clear(g, NULL);
    for (int i = 0; i < SIBLINGS_MOST; i++)
        assert_false(g->siblings.taken[i]);
}

/* What a head costs that brings nothing: no row is fetched, none passes. */
TEST_WITH(one_that_is_off_does_nothing, setup, teardown)
{
    srand(test_seed(9));
    ask_all();
    with_head();
    const int captured = fake.captured, passes = fake.passes;
    set_mode(GATE_OFF);
    answer_all(false);
    assert_int_equal(fake.captured, captured);
    assert_int_equal(fake.passes, passes);
    set_mode(GATE_PAUSED);
    answer_all(false);
    assert_true(fake.captured > captured);
    for (uint32_t i = 0; i < N; i++)
        assert_true(v[i].spec.n_prompt + MAX_NEW < HEAD_LAG); /* else some pass without a draft */
    assert_int_equal(fake.passes, passes);
}

/* The gate follows what steps take, and a batch of another size has its own answer. */
TEST_WITH(steps_are_measured, setup, teardown)
{
    struct err e = ERR_INIT;
    ask_all();
    with_head();
    g->heads.measured = true;
    heads_enter(&g->heads, 16);
    assert_int_equal(g->heads.gate.at, 4);
    for (int i = 0; i < GATE_IDLE; i++)
        assert_int_equal(heads_learn(&g->heads, &solo, 16, 1000, &e), 0);
    assert_false(heads_draft(&g->heads) || heads_keep(&g->heads));
    heads_enter(&g->heads, 1);
    assert_true(heads_draft(&g->heads));
    const uint32_t before = g->heads.gate.size[3].steps;
    answer_all(false); /* batches of TOGETHER */
    assert_true(g->heads.gate.size[3].steps > before ||
                g->heads.gate.size[3].with + g->heads.gate.size[3].without > 0);
}

int main(void) { return tests_run(NULL, NULL); }
