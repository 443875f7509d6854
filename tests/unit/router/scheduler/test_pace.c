/* The model of a step's time: found from noisy steps, and a share for prompts that keeps the pace.
 */
#include "router/scheduler/pace.h"
#include "tests/unit/test.h"
#include <stdbool.h>

static uint32_t seed = 1;
static double rnd(void) /* [0, 1) */
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) / 16777216.0;
}

/* A machine: 30 ms to read the weights, 1 ms a row, 2 ms a prompt token; one step in eight takes up
 * to ten times as long. */
static double machine(uint32_t rows, uint32_t tokens, bool noisy)
{
    double t = 0.030 + 0.001 * rows + 0.002 * tokens;
    if (!noisy)
        return t;
    return rnd() < 0.125 ? t * (2 + 8 * rnd()) : t * (0.98 + 0.04 * rnd());
}

static void near(double got, double want, double share)
{
    if (got < want * (1 - share) || got > want * (1 + share))
        fail_msg("%g is not %g", got, want);
}

TEST(the_machine_is_found_in_noise)
{
    struct pace p = {0};
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t rows = 1 + (uint32_t)(rnd() * 16),
                 tokens = i % 3 ? 0 : 20 + (uint32_t)(rnd() * 99);
        pace_note(&p, rows, tokens, machine(rows, tokens, true));
    }
    near(pace_of(&p, 1), 0.031, 0.1);
    near(pace_of(&p, 16), 0.046, 0.1);
    near(p.c, 0.002, 0.15);
    near(pace_step(&p), 15, 0.25); /* 30 ms */
    /* 200 ms: 40 of them are the ten streams', the rest is worth 80 tokens */
    near(pace_budget(&p, 10, 0.200, 4096), 80, 0.2);
}

TEST(what_hangs_is_told_from_what_is_slow)
{
    struct pace p = {0};
    assert_true(pace_patience(&p, 1, 0) == 0); /* not known */
    for (uint32_t i = 0; i < 8; i++)
        pace_note(&p, 1, 0, machine(1, 0, false));
    near(pace_patience(&p, 1, 0), 2, 0); /* 20 * 31 ms are less */
    assert_true(pace_patience(&p, 1, 100) == 0);
    for (uint32_t i = 0; i < 60; i++)
        pace_note(&p, 1 + i % 16, i % 3 ? 0 : 100, machine(1 + i % 16, i % 3 ? 0 : 100, true));
    near(pace_patience(&p, 16, 1000), 20 * 2.046, 0.15);
    assert_true(pace_patience(&p, 200, 0) > 2 && pace_patience(&p, 1, 0) == 2);
}

/* A prompt of 32,000 tokens beside eight rows; a token costs more with every token before it, so
 * the budget follows. */
TEST(a_long_prompt_at_most_doubles_the_gaps)
{
    struct pace p = {0};
    uint32_t steps = 0, late = 0, at = 0;
    assert_int_equal(pace_budget_factor(&p, 8, 2, 4096), 4096); /* not known */
    for (uint32_t i = 0; i < 40; i++)
        pace_note(&p, 8, 0, machine(8, 0, true));
    assert_int_equal(pace_budget_factor(&p, 8, 0, 4096), 4096);
    assert_int_equal(pace_budget_factor(&p, 0, 2, 4096), 4096);
    while (at < 32000) {
        const uint32_t n = pace_budget_factor(&p, 8, 2, 4096);
        const double token = 0.0002 * (1 + at / 8000.0);
        const double t = machine(8, 0, false) + token * n, seen = t * (0.9 + 0.2 * rnd());
        late += seen > 2 * machine(8, 0, false);
        steps++;
        at += n;
        pace_note(&p, 8, n, rnd() < 0.125 ? seen * 3 : seen);
    }
    assert_true(late * 100 <= steps); /* the 99th percentile */
    assert_true(steps < 32000 / 30);  /* and the room is used: about 45 tokens a step */
}

/* What counts: whatever the load, the gaps of the streams stay below the target but for the noise.
 */
TEST(gaps_stay_below_the_target_from_the_start)
{
    struct pace p = {0};
    uint32_t late = 0, tokens = 0;
    assert_int_equal(pace_step(&p), 0); /* not known */
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t rows = 1 + i / 20 % 24, n = pace_budget(&p, rows, 0.200, 4096);
        double t = machine(rows, n, false);
        late += t > 0.220;
        tokens += n;
        pace_note(&p, rows, n, machine(rows, n, true));
    }
    assert_true(late <= 20);
    assert_true(tokens > 1000 * 60); /* and the prompts have got what there was */
}

TEST(a_machine_that_changes_is_learnt_anew)
{
    struct pace p = {0};
    for (int i = 0; i < 50; i++)
        pace_note(&p, 4, i % 2 ? 64 : 0, machine(4, i % 2 ? 64 : 0, false));
    for (int i = 0; i < 50; i++) /* four times slower now */
        pace_note(&p, 4, i % 2 ? 64 : 0, 4 * machine(4, i % 2 ? 64 : 0, false));
    near(pace_of(&p, 4), 4 * 0.034, 0.05);
    near(p.c, 0.008, 0.05);
}

TEST(without_streams_or_a_target_there_is_no_bound)
{
    struct pace p = {0};
    assert_int_equal(pace_budget(&p, 0, 0.2, 4096), 4096);
    assert_int_equal(pace_budget(&p, 3, 0, 4096), 4096);
    assert_int_equal(pace_budget(&p, 3, 0.2, 4096), 64); /* nothing is known: careful */
    assert_int_equal(pace_budget(&p, 3, 0.2, 40), 40);
    for (int i = 0; i < 30; i++)
        pace_note(&p, 3, i % 2 ? 100 : 0, i % 2 ? 1.2 : 1.0); /* a step alone is late already */
    near(pace_budget(&p, 3, 0.2, 4096), 500, 0.01);           /* as much again */
    for (int i = 0; i < 30; i++)
        pace_note(&p, 3, i % 2 ? 100 : 0, i % 2 ? 101.0 : 1.0);
    assert_int_equal(pace_budget(&p, 3, 0.2, 4096), 16); /* prompts never stand still */
    for (int i = 0; i < 30; i++)
        pace_note(&p, 3, i % 2 ? 100 : 0, 1e-6); /* times that say nothing */
    assert_int_equal(pace_budget(&p, 3, 0.2, 4096), 4096);
}

TEST(images_take_less_than_a_step_without_them)
{
    struct pace p = {0};
    struct encode_pace e = {0};
    assert_int_equal(encode_budget(&e, &p, 3, 0.2), 1); /* the least there is */
    assert_int_equal(encode_budget(&e, &p, 0, 0.2), 0); /* none waits, nothing is known */
    for (int i = 0; i < 30; i++)
        pace_note(&p, 3, 0, 0.04);
    for (int i = 0; i < 30; i++)
        encode_note(&e, 5000000000, 0.05); /* 100 G a second */
    encode_note(&e, 0, 0.05);
    encode_note(&e, 1, 0);
    near((double)encode_budget(&e, &p, 3, 0.2), 0.7 * 0.04 * 1e11, 0.01);
    near((double)encode_budget(&e, &p, 0, 0.2), 0.2 * 1e11, 0.01); /* so long may others wait */
    assert_int_equal(encode_budget(&e, &p, 0, 0), 0);
    for (int i = 0; i < 30; i++)
        encode_note(&e, 5000000000, 0.5);
    near((double)encode_budget(&e, &p, 3, 0.2), 0.7 * 0.04 * 1e10, 0.01);
}

int main(void) { return tests_run(NULL, NULL); }
