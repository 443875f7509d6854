/* How long a loop waits before its thread sleeps. */
#include "common/clock.h"
#include "common/thread/spin.h"
#include "tests/unit/test.h"

TEST(long_waits_make_it_short)
{
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

TEST(short_waits_make_it_long_enough_to_see_them)
{
    struct spin s = {.most = 1600, .now = 50};
    spin_slept(&s, SPIN_NS); /* a whole loop would have seen it */
    assert_int_equal(s.now, 100);
    for (int i = 0; i < 5; i++)
        spin_slept(&s, SPIN_NS);
    assert_int_equal(s.now, s.most);
    s.now = 50;
    spin_gained(&s, 49); /* just in time: the next one may take longer */
    assert_in_range(s.now, 100, 400);
    spin_gained(&s, 1599);
    assert_int_equal(s.now, s.most);
}

TEST(a_short_wait_makes_a_threads_whole)
{
    struct spin s = {.most = 1600, .now = 50, .whole = true};
    spin_slept(&s, SPIN_NS);
    assert_int_equal(s.now, s.most);
    s.now = 50;
    spin_gained(&s, 1);
    assert_int_equal(s.now, s.most);
    spin_slept(&s, 4000000);
    assert_int_equal(s.now, s.most / 2);
}

/* A loop that sees its events at once wastes little on the one that it does not see: it is the
 * peer's core where there are more ranks than cores. */
TEST(it_is_no_longer_than_the_waits_that_it_sees_need)
{
    struct spin s = {.most = 1600, .now = 1600};
    spin_gained(&s, 30);
    assert_in_range(s.now, 1300, 1500); /* one of them says little */
    for (int i = 0; i < 50; i++)
        spin_gained(&s, 30);
    assert_in_range(s.now, 60, 200);
    for (int i = 0; i < 50; i++)
        spin_gained(&s, 0);
    assert_in_range(s.now, 1, 80);
}

/* At most: the thread may lose its core. */
TEST(a_loop_takes_its_time)
{
    const struct spin s = spin_new(false);
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

int main(void) { return tests_run(NULL, NULL); }
