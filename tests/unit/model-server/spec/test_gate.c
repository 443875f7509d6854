/* Whether a draft head is used: the decision alone, against steps whose times are given. */
#include "model-server/spec/gate.h"
#include "tests/unit/test.h"

struct world { /* ns that a step takes, and tokens of a sequence that it brings */
    double on, off, paused;
    double tokens; /* when it is on */
    uint32_t seqs;
    int noise; /* percent */
    bool idle; /* no draft is ever worth it */
};

/* The time of so many steps, as a multiple of what they would take without a head for as many
 * tokens. */
static double cost(struct gate *g, const struct world *w, int steps)
{
    double time = 0, plain = 0, owed = 0;
    for (int i = 0; i < steps; i++) {
        gate_enter(g, w->seqs);
        const enum gate_mode m = gate_mode(g);
        const bool on = m == GATE_ON && !w->idle;
        const double ns = m == GATE_OFF ? w->off : m == GATE_PAUSED ? w->paused : w->on;
        const double noise = 1 + (w->noise ? rand() % (2 * w->noise) - w->noise : 0) / 100.0;
        owed += w->seqs * (on ? w->tokens : 1);
        const uint32_t tokens = (uint32_t)owed;
        owed -= tokens;
        time += ns;
        plain += w->off * tokens / w->seqs;
        if (gate_note(g, tokens, (int64_t)(ns * noise), on))
            gate_decide(g, gate_period_ns(g));
    }
    return time / plain;
}

TEST(a_head_that_pays_is_used)
{
    const struct world w = {.on = 1.3e6, .off = 1e6, .paused = 1.01e6, .tokens = 2, .seqs = 1};
    struct gate g = gate_new();
    cost(&g, &w, 2000);
    assert_true(g.size[0].in_use);
    assert_true(cost(&g, &w, 10000) < 0.66); /* 0.65 and what pauses cost */
}

/* Whatever it costs: below 1 / 0.97, once it is known. */
TEST(a_head_that_does_not_pay_costs_next_to_nothing)
{
    srand(test_seed(3));
    for (uint32_t seqs = 1; seqs <= 64; seqs *= 4)
        for (int slow = 0; slow <= 100; slow += 10)
            for (int noise = 0; noise <= 20; noise += 20) {
                const struct world w = {.on = 1e6 * (1 + slow / 100.0),
                                        .off = 1e6,
                                        .paused = 1e6 * (1 + slow / 1000.0),
                                        .tokens = 1.02,
                                        .seqs = seqs,
                                        .noise = noise};
                struct gate g = gate_new();
                cost(&g, &w, 1500);
                assert_true(cost(&g, &w, 10000) < 1.03);
            }
}

/* Where no draft is worth its time it is off after GATE_IDLE steps, however noisy the clock is. */
TEST(a_head_without_drafts_is_given_up_at_once)
{
    const struct world w = {.on = 1.1e6,
                            .off = 1e6,
                            .paused = 1.1e6,
                            .tokens = 1,
                            .seqs = 16,
                            .noise = 90,
                            .idle = true};
    struct gate g = gate_new();
    srand(test_seed(4));
    cost(&g, &w, GATE_IDLE);
    assert_int_equal(gate_mode(&g), GATE_OFF);
    assert_true(cost(&g, &w, 5000) < 1.002);
}

TEST(what_changes_is_noticed)
{
    struct world w = {.on = 2e6, .off = 1e6, .paused = 1e6, .tokens = 1.5, .seqs = 2};
    struct gate g = gate_new();
    cost(&g, &w, 200);
    assert_false(g.size[1].in_use);
    w.tokens = 3; /* another text */
    cost(&g, &w, 64 * (GATE_STEPS + GATE_SETTLE) * 3);
    assert_true(g.size[1].in_use);
    w.tokens = 1;
    cost(&g, &w, 64 * (GATE_STEPS + GATE_SETTLE) * 3);
    assert_false(g.size[1].in_use);
}

TEST(each_size_of_batch_has_its_own_answer)
{
    const struct world alone = {.on = 1.2e6, .off = 1e6, .paused = 1e6, .tokens = 2, .seqs = 1};
    const struct world many = {.on = 3e6, .off = 2e6, .paused = 2e6, .tokens = 1.2, .seqs = 16};
    struct gate g = gate_new();
    for (int i = 0; i < 200; i++) { /* in turns: periods go on where they were */
        cost(&g, &alone, 5);
        cost(&g, &many, 3);
    }
    gate_enter(&g, 1);
    assert_true(g.size[g.at].in_use);
    gate_enter(&g, 13);
    assert_false(g.size[g.at].in_use);
    gate_enter(&g, UINT32_MAX);
    assert_int_equal(g.at, GATE_SIZES - 1);
}

/* Numbers that ranks agree on. */
TEST(a_period_has_a_price)
{
    struct gate g = gate_new();
    assert_int_equal(gate_period_ns(&g), 1);
    for (int i = 0; i < GATE_SETTLE + GATE_STEPS; i++)
        gate_note(&g, 2, 1000, true);
    assert_int_equal(gate_period_ns(&g), 500);
    for (int i = 0; i < 3; i++)
        gate_note(&g, 1, INT64_MAX / 8, true);
    assert_int_equal(gate_period_ns(&g), GATE_MOST_NS);
}

int main(void) { return tests_run(NULL, NULL); }
