/* Which request is next: keys share by tokens, priorities hold within a key, no request starves. */
#include "router/scheduler/fair.h"
#include "tests/unit/test.h"
#include <stdlib.h>
#include <string.h>

static struct fair f;
static uint64_t order;

static void put(struct fair_item *it, uint64_t key, int32_t priority)
{
    *it = (struct fair_item){.priority = priority, .order = ++order};
    assert_true(fair_enter(&f, it, key));
    fair_wait(&f, it);
}

/* The next one runs, takes `tokens`, and is gone. */
static struct fair_item *serve(int64_t tokens)
{
    struct fair_item *it = fair_first(&f);
    assert_non_null(it);
    fair_joins(it);
    fair_unwait(&f, it);
    fair_charge(it, tokens);
    fair_leave(&f, it);
    return it;
}

static int fresh(void **state)
{
    (void)state;
    fair_free(&f);
    return 0;
}

TEST_WITH(one_key_is_first_come_first_served, fresh, fresh)
{
    struct fair_item v[5];
    for (int i = 0; i < 5; i++)
        put(&v[i], 0, 0);
    for (int i = 0; i < 5; i++)
        assert_ptr_equal(serve(1000 * (5 - i)), &v[i]);
    assert_null(fair_first(&f));
}

TEST_WITH(lower_priorities_run_first, fresh, fresh)
{
    struct fair_item v[5];
    static const int32_t priority[] = {0, 5, -3, 0, -3};
    static const int want[] = {2, 4, 0, 3, 1};
    for (int i = 0; i < 5; i++)
        put(&v[i], 0, priority[i]);
    struct fair_item *it = fair_first(&f);
    for (int i = 0; i < 5; i++, it = fair_next(&f))
        assert_ptr_equal(it, &v[want[i]]);
    assert_null(it);
    for (int i = 0; i < 5; i++)
        assert_ptr_equal(serve(1), &v[want[i]]);
}

/* A key with a hundred times the requests gets half of the tokens, and all of what is left over. */
TEST_WITH(keys_share_by_tokens_not_by_requests, fresh, fresh)
{
    enum { N = 400 };
    static struct fair_item a[N], b[4];
    uint32_t served_a = 0, served_b = 0;
    for (int i = 0; i < N; i++)
        put(&a[i], 1, 0);
    for (int i = 0; i < 4; i++)
        put(&b[i], 2, 0);
    while (served_b < 400) { /* b's requests are ten times as large */
        struct fair_item *it = fair_first(&f);
        bool is_b = it >= b && it < b + 4;
        *(is_b ? &served_b : &served_a) += is_b ? 100 : 10;
        assert_ptr_equal(serve(is_b ? 100 : 10), it);
        assert_true(served_a <= served_b + 100 && served_b <= served_a + 100);
    }
    while (fair_first(&f))
        served_a += 10, serve(10);
    assert_int_equal(served_a, 10 * N);
}

/* A pause earns nothing, and pays nothing back. */
TEST_WITH(a_pause_saves_up_no_claim, fresh, fresh)
{
    static struct fair_item a[40], b[40];
    put(&a[0], 1, 0);
    for (int i = 1; i < 20; i++) {
        put(&a[i], 1, 0);
        serve(1000);
    }
    put(&b[0], 2, 0); /* new: not 19,000 ahead */
    put(&b[1], 2, 0);
    put(&b[2], 2, 0);
    put(&a[20], 1, 0);
    int of_b = 0;
    for (int i = 0; i < 4; i++) {
        struct fair_item *it = serve(1000);
        of_b += it >= b && it < b + 40;
    }
    assert_int_equal(of_b, 2);
    while (fair_first(&f))
        serve(1000);
    put(&a[30], 1, 0);
    serve(50000); /* while no other key was there: this costs none */
    put(&a[31], 1, 0);
    put(&b[30], 2, 0);
    assert_ptr_equal(serve(50000), &a[31]);
    put(&a[32], 1, 0); /* gone and back: what it took while b waited still counts */
    put(&b[31], 2, 0);
    assert_ptr_equal(serve(10), &b[30]);
    assert_ptr_equal(serve(10), &b[31]);
    serve(1);
}

TEST_WITH(what_was_charged_can_be_taken_back, fresh, fresh)
{
    struct fair_item a[2], b;
    put(&a[0], 1, 0);
    put(&a[1], 1, 0);
    put(&b, 2, 0);
    struct fair_item *it = fair_first(&f);
    assert_ptr_equal(it, &a[0]);
    fair_charge(it, 10);
    assert_ptr_equal(fair_next(&f), &b); /* they take turns within a scan */
    fair_charge(it, -10);
    assert_ptr_equal(fair_first(&f), &a[0]);
    serve(1), serve(1), serve(1);
}

/* A flood of better priorities: the last one of the first ten gets in within eight times ten. */
TEST_WITH(the_oldest_gets_every_eighth_turn, fresh, fresh)
{
    static struct fair_item low[10], high[400];
    uint32_t next = 0, out = 0, turns = 0;
    for (int i = 0; i < 10; i++)
        put(&low[i], 0, 100);
    for (; out < 10; turns++) {
        put(&high[next++], 0, -100);
        put(&high[next++], 0, -100);
        struct fair_item *it = serve(10);
        if (it >= low && it < low + 10)
            assert_ptr_equal(it, &low[out++]);
    }
    assert_int_equal(turns, 10 * FAIR_OLDEST_EVERY);
    while (fair_first(&f))
        serve(1);
}

/* Thousands of keys that come and go: memory stays bounded, and those that owe are remembered as
 * long as there is room. */
TEST_WITH(keys_that_pause_are_forgotten_when_there_are_too_many, fresh, fresh)
{
    static struct fair_item it[3000];
    for (uint32_t i = 0; i < 3000; i++) {
        put(&it[i], i + 1, 0);
        serve(100);
    }
    assert_true(f.n_keys <= FAIR_KEYS);
    for (uint32_t i = 0; i < 2000; i++) /* all at once: all must be known */
        put(&it[i], 10000 + i, 0);
    assert_true(f.n_keys >= 2000);
    assert_int_equal(fair_present(&f), 2000);
    while (fair_first(&f))
        serve(1);
    put(&it[0], 77, 0);
    assert_true(f.n_keys <= FAIR_KEYS);
    serve(1);
}

/* Random traffic of keys, priorities and sizes: everyone is served; two keys that both always have
 * a waiting request never differ by more than the largest request. */
TEST_WITH(random_traffic_is_shared_and_nobody_is_lost, fresh, fresh)
{
    enum { N = 4000, KEYS = 7 };
    static struct fair_item v[N];
    static uint32_t size[N], key[N];
    uint32_t in = 0, out = 0;
    uint64_t tokens[KEYS] = {0};
    uint32_t waiting[KEYS] = {0};
    srand(test_seed(5));
    while (out < N) {
        while (in < N && (in < out + 200 || rand() % 3 == 0)) {
            key[in] = (uint32_t)(rand() % 4 ? rand() % KEYS : 3); /* 3 asks for the most */
            for (uint32_t k = 0; k < KEYS; k++)
                if (waiting[k] < 3) /* but all want more than they get */
                    key[in] = k;
            waiting[key[in]]++;
            size[in] = 1 + (uint32_t)rand() % 500;
            put(&v[in], key[in], rand() % 3);
            in++;
        }
        struct fair_item *it = fair_first(&f);
        uint32_t i = (uint32_t)(it - v);
        uint32_t seen = 0;
        for (; it; it = fair_next(&f)) /* a scan offers everybody once */
            seen++;
        assert_int_equal(seen, in - out);
        assert_int_equal(seen, f.n_waiting);
        assert_ptr_equal(serve(size[i]), &v[i]);
        tokens[key[i]] += size[i];
        waiting[key[i]]--;
        out++;
        for (int k = 1; in < N && k < KEYS; k++) /* all have a waiting request: equal shares */
            assert_true(tokens[k] <= tokens[0] + 1000 && tokens[0] <= tokens[k] + 1000);
    }
    assert_null(fair_first(&f));
    assert_int_equal(fair_present(&f), 0);
}

int main(void) { return tests_run(NULL, NULL); }
