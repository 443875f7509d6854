/* How long a loop waits before its thread sleeps. */
#include "common/clock.h"
#include "common/spin.h"
#include "tests/unit/test.h"

static void long_waits_make_it_short(void **state)
{
    (void)state;
    struct spin s = {.most = 1600, .now = 1600};
    uint32_t before = s.now;
    for (int i = 0; i < 3; i++, before = s.now) {
        spin_slept(&s, 4000000);
        assert_int_equal(s.now, before / 2);
    }
    for (int i = 0; i < 20; i++)
        spin_slept(&s, 4000000);
    assert_in_range(s.now, 1, s.most / 20); /* it still sees what has happened already */
}

static void a_short_wait_makes_it_whole(void **state)
{
    (void)state;
    struct spin s = {.most = 1600, .now = 50};
    spin_slept(&s, SPIN_NS); /* a whole loop would have seen it */
    assert_int_equal(s.now, s.most);
    s.now = 50;
    spin_gained(&s);
    assert_int_equal(s.now, s.most);
}

/* At most: the thread may lose its core. */
static void a_loop_takes_its_time(void **state)
{
    (void)state;
    const struct spin s = spin_new();
    int64_t best = INT64_MAX;
    assert_int_equal(s.now, s.most);
    for (int k = 0; k < 20; k++) {
        const int64_t begin = clock_ns();
        for (uint32_t i = 0; i < s.most; i++)
            spin_pause();
        const int64_t took = clock_ns() - begin;
        best = took < best ? took : best;
    }
    assert_in_range(best, 1, 4LL * SPIN_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_waits_make_it_short),
        cmocka_unit_test(a_short_wait_makes_it_whole),
        cmocka_unit_test(a_loop_takes_its_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
