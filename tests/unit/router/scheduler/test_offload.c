/* Blocks below the cache, by scripted shards: whatever happens to the calls, every answer is right
 * and every block is given back. */
#include "tests/unit/router/infer_rig.h"

static double found(struct rig *g) { return counter(g, "tgi_kv_offload_hits{tier=\"memory\"} "); }
static double loaded(struct rig *g) { return counter(g, "\ntgi_kv_offload_loaded "); }
static double late(struct rig *g) { return counter(g, "\ntgi_kv_offload_late "); }

enum { PROMPTS = 6, LONG = 60 };
static const struct infer_config config = {.max_batch_prefill_tokens = 64};
static const struct fake_shard small = {.block_size = 4, .n_blocks = 31, .offloads = true};

static void serve(struct rig *g, uint32_t prompt)
{
    struct client *c = client_new(prompt, LONG, 5);
    infer_submit(g->infer, &c->r);
    expect_answer(c);
    client_free(c);
}

/* One after the other: each drives the one before out of the cache. */
static void round_of_prompts(struct rig *g)
{
    for (uint32_t i = 0; i < PROMPTS; i++) {
        serve(g, i);
        assert_true(wait_for(is_idle, g));
        usleep(5000); /* stores come when nothing runs */
    }
}

TEST(what_is_evicted_comes_back)
{
    for (uint32_t shards = 1; shards < 3; shards++) {
        struct rig *g = rig_new(&small, &config, shards);
        round_of_prompts(g);
        assert_true(loaded(g) == 0);
        for (int i = 0; i < 3; i++)
            round_of_prompts(g);
        assert_true(loaded(g) > 3 * (PROMPTS - 2) * 10);
        assert_true(found(g) >= loaded(g));
        assert_int_equal(g->shard[0]->n_loads, (uint32_t)loaded(g));
        assert_true(late(g) == 0);
        rig_free(g);
    }
}

TEST(with_recurrent_state)
{
    struct fake_shard like = small;
    like.n_cells = 12;
    struct rig *g = rig_new(&like, &config, 1);
    for (int i = 0; i < 3; i++)
        round_of_prompts(g);
    assert_true(loaded(g) > 0);
    rig_free(g);
}

/* Ranks evict apart. What is loaded is what all have: so much more on one rank that a list as long
 * as that of rank 0 would not hold it. */
TEST(ranks_that_find_more_do_no_harm)
{
    enum { TOKENS = 240, FEWEST = 3 };
    const struct fake_shard like = {.block_size = 2, .n_blocks = 141, .offloads = true};
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct rig *g = rig_new(&like, &config, 2);
        double before = 0;
        g->shard[rank]->finds_most = FEWEST;
        for (uint32_t i = 0; i < 12; i++) {
            struct client *c = client_new(i % 2, TOKENS, 5);
            infer_submit(g->infer, &c->r);
            expect_answer(c);
            client_free(c);
            assert_true(wait_for(is_idle, g));
            usleep(5000); /* stores come when nothing runs */
            assert_true(loaded(g) - before <= FEWEST);
            before = loaded(g);
        }
        assert_true(before > 0);
        rig_free(g);
    }
}

/* After a refused store the disk gets a pause, in which what is evicted is lost: how many rounds it
 * takes until a call meets the fault depends on the machine. */
static void rounds_until_met(struct rig *g, _Atomic int *fault)
{
    for (int i = 0; i < 100 && *fault; i++)
        round_of_prompts(g);
    assert_int_equal(*fault, 0);
}

TEST(calls_that_fail_cost_time_alone)
{
    struct rig *g = rig_new(&small, &config, 2);
    g->shard[1]->fail_store = 5;
    round_of_prompts(g);
    for (int i = 0; i < 500 && g->shard[1]->fail_store; i++)
        usleep(10000); /* it is tried again after a while, with nothing else to do */
    assert_int_equal(g->shard[1]->fail_store, 0);
    g->shard[0]->fail_load = 3;
    rounds_until_met(g, &g->shard[0]->fail_load);
    g->shard[1]->fail_fetch = 1;
    rounds_until_met(g, &g->shard[1]->fail_fetch);
    assert_true(late(g) == 1);
    rig_free(g);
}

/* Streams go on beside a disk that takes seconds, and none waits longer for it than for a prompt.
 */
TEST(a_slow_disk_holds_nothing_up)
{
    struct rig *g = rig_new(&small, &config, 1);
    round_of_prompts(g);
    g->shard[0]->fetch_ms = 1500;
    const int64_t t0 = clock_ms();
    struct client *c[PROMPTS];
    for (uint32_t i = 0; i < PROMPTS; i++) {
        c[i] = client_new(i, LONG, 5);
        infer_submit(g->infer, &c[i]->r);
    }
    for (uint32_t i = 0; i < PROMPTS; i++) {
        expect_answer(c[i]);
        client_free(c[i]);
    }
    assert_true(clock_ms() - t0 < 1400);
    assert_true(late(g) == 1); /* the others did not wait */
    rig_free(g);
}

TEST(a_shard_without_room_is_asked_again)
{
    struct rig *g = rig_new(&small, &config, 1);
    g->shard[0]->keeps_most = 3;
    serve(g, 1);
    for (int i = 0; i < 400 && counter(g, "\ntgi_kv_offload_stored ") < 15; i++)
        usleep(10000);
    assert_true(counter(g, "\ntgi_kv_offload_stored ") >= 15);
    assert_in_range(g->shard[0]->n_stores, 5, 30);
    rig_free(g);
}

/* Clients that leave at any moment of it. */
TEST(cancelled_at_any_time)
{
    struct rig *g = rig_new(&small, &config, 1);
    round_of_prompts(g);
    g->shard[0]->fetch_ms = 4;
    for (uint32_t k = 0; k < 60; k++) {
        struct client *c[3];
        for (uint32_t i = 0; i < 3; i++) {
            c[i] = client_new((k + i) % PROMPTS, LONG, 5);
            infer_submit(g->infer, &c[i]->r);
        }
        usleep(k * 250);
        infer_cancel(g->infer, &c[k % 3]->r);
        for (uint32_t i = 0; i < 3; i++) {
            assert_true(wait_for(is_over, c[i]));
            if (i != k % 3)
                expect_answer(c[i]);
            client_free(c[i]);
        }
    }
    rig_free(g);
}

/* All at once, with pressure from both sides. */
TEST(a_crowd)
{
    struct rig *g = rig_new(&small, &config, 1);
    enum { N = 60 };
    struct client *c[N];
    for (uint32_t k = 0; k < 3; k++) {
        g->shard[0]->fetch_ms = (int)k;
        for (uint32_t i = 0; i < N; i++) {
            c[i] = client_new(i % 9, 8 + (i * 13) % 50, 5 + i % 30);
            infer_submit(g->infer, &c[i]->r);
        }
        for (uint32_t i = 0; i < N; i++) {
            expect_answer(c[i]);
            client_free(c[i]);
        }
    }
    assert_int_equal(g->shard[0]->n_tight, 0);
    rig_free(g);
}

TEST(stopped_while_it_reads)
{
    struct rig *g = rig_new(&small, &config, 1);
    round_of_prompts(g);
    g->shard[0]->fetch_ms = 300;
    struct client *c = client_new(0, LONG, 5);
    infer_submit(g->infer, &c->r);
    usleep(20000);
    infer_stop(g->infer);
    assert_true(is_over(c));
    client_free(c);
    fake_stop(g->shard[0]);
    free(g->shard[0]);
    metrics_free(g->metrics);
    free(g);
}

int main(void) { return tests_run(temp_begin, temp_end); }
