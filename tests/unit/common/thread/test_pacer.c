/* test_pacer.c - rests follow from the work before them, have a bound, and end when asked to. */
#include "common/clock.h"
#include "common/thread/pacer.h"
#include "tests/unit/test.h"
#include <unistd.h>

static void work_ms(int64_t ms)
{
    for (const int64_t end = clock_ns() + ms * 1000000; clock_ns() < end;)
        ;
}

TEST(a_rest_is_as_long_as_its_share)
{
    struct pacer p;
    pacer_init(&p);
    assert_true(pacer_rest(&p, 5)); /* the first piece has no beginning */
    work_ms(10);
    int64_t start = clock_ns();
    assert_true(pacer_rest(&p, 5));
    assert_true(clock_ns() - start >= 50000000);
    start = clock_ns(); /* rests are no work */
    assert_true(pacer_rest(&p, 5));
    assert_true(clock_ns() - start < 40000000);
    work_ms(10);
    start = clock_ns();
    assert_true(pacer_rest(&p, 0));
    assert_true(clock_ns() - start < 40000000);
    pacer_destroy(&p);
}

TEST(a_rest_has_a_bound)
{
    struct pacer p;
    pacer_init(&p);
    pacer_rest(&p, 0);
    work_ms(2);
    const int64_t start = clock_ns();
    assert_true(pacer_rest(&p, 1000000));
    assert_true(clock_ns() - start >= (int64_t)PACER_MOST_MS * 1000000);
    assert_true(clock_ns() - start < 10 * (int64_t)PACER_MOST_MS * 1000000);
    pacer_destroy(&p);
}

static void *rest_for_good(void *arg)
{
    while (pacer_rest(arg, 1000000))
        work_ms(1);
    return NULL;
}

TEST(a_stop_ends_it)
{
    struct pacer p;
    pthread_t t;
    pacer_init(&p);
    assert_int_equal(pthread_create(&t, NULL, rest_for_good, &p), 0);
    usleep(20000);
    pacer_stop(&p);
    pthread_join(t, NULL);
    assert_false(pacer_rest(&p, 0));
    pacer_destroy(&p);
}

int main(void) { return tests_run(NULL, NULL); }
