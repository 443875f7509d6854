/* More requests than blocks: a preempted request resumes with the tokens that it would get alone,
 * whether its blocks were computed again or swapped in. */
#include "tests/unit/router/infer_rig.h"

static double swaps(struct rig *g) { return counter(g, "tgi_preemption_count{method=\"swap\"} "); }
static double recomputes(struct rig *g)
{
    return counter(g, "tgi_preemption_count{method=\"recompute\"} ");
}

/* No step is larger than it may be, and no sequence was preempted for a newer one. */
static void check_steps(struct rig *g, uint32_t budget)
{
    const struct fake_log *log = log_of(g, 0);
    for (uint32_t i = 0; i < n_log; i++)
        assert_true(log[i].n_tokens <= budget);
    assert_int_equal(g->shard[0]->n_unfair, 0);
}

enum { N = 48 };

/* Each needs up to 25 blocks of the 30; all of them 600. */
static void crowd(struct client **c, struct rig *g)
{
    for (uint32_t i = 0; i < g->n; i++) /* until all are there */
        g->shard[i]->hold = 1;
    for (uint32_t i = 0; i < N; i++) {
        c[i] = client_new(i % 7, 1 + (i * 7) % 40, 5 + (i * 11) % 56);
        infer_submit(g->infer, &c[i]->r);
    }
    for (uint32_t i = 0; i < g->n; i++)
        g->shard[i]->hold = 0;
}

static void serve_a_crowd(const struct fake_shard *like, uint32_t n_shards, double *n_swap,
                          double *n_recompute)
{
    struct rig *g = rig_new(like, &(struct infer_config){.max_batch_prefill_tokens = 64}, n_shards);
    struct client *c[N];
    crowd(c, g);
    for (uint32_t i = 0; i < N; i++) {
        expect_answer(c[i]);
        assert_true(c[i]->r.times.batched <= c[i]->first_ns); /* when it ran first */
        client_free(c[i]);
    }
    assert_true(wait_for(is_idle, g));
    check_steps(g, 64);
    for (uint32_t i = 0; i < n_shards; i++) { /* always a block to run ahead into */
        assert_int_equal(g->shard[i]->n_tight, 0);
        assert_int_equal(g->shard[i]->n_out, g->shard[0]->n_out);
    }
    const struct fake_log *log = log_of(g, 0);
    for (uint32_t i = 0; i < n_log; i++)
        assert_int_not_equal(log[i].rpc, FAKE_FILTER); /* rides with the steps */
    *n_swap = swaps(g);
    *n_recompute = recomputes(g);
    print_message("%u requests, %g made way by computing again, %g by swapping (%u blocks out, "
                  "%u in), in %u calls\n",
                  N, *n_recompute, *n_swap, g->shard[0]->n_out, g->shard[0]->n_in, n_log);
    rig_free(g);
}

TEST(more_requests_than_blocks_computing_again)
{
    double swap, again;
    for (uint32_t shards = 1; shards <= 2; shards++) {
        serve_a_crowd(&(struct fake_shard){.block_size = 4, .n_blocks = 31}, shards, &swap, &again);
        assert_true(again > 10);
        assert_true(swap == 0);
    }
    serve_a_crowd(&(struct fake_shard){.block_size = 4, .n_blocks = 31, .no_copies = true}, 1,
                  &swap, &again);
    serve_a_crowd(&(struct fake_shard){.block_size = 4, .n_blocks = 31, .no_prefix_caching = true},
                  1, &swap, &again);
    assert_true(again > 10);
}

TEST(more_requests_than_blocks_swapping)
{
    double swap, again;
    for (uint32_t shards = 1; shards <= 2; shards++) {
        serve_a_crowd(&(struct fake_shard){.block_size = 4, .n_blocks = 31, .n_slots = 1000},
                      shards, &swap, &again);
        assert_true(swap > 10);
        assert_true(again == 0);
    }
}

/* A region for few: both ways at the same time. */
TEST(a_small_swap_region_takes_whom_it_can)
{
    double swap, again;
    serve_a_crowd(&(struct fake_shard){.block_size = 4, .n_blocks = 31, .n_slots = 20}, 1, &swap,
                  &again);
    assert_true(swap > 0 && again > 0);
}

/* A token takes 1000 ns to compute; a block of four takes longer to move, out and in. */
TEST(what_is_dear_to_move_is_computed_again)
{
    double swap, again;
    serve_a_crowd(
        &(struct fake_shard){
            .block_size = 4, .n_blocks = 31, .n_slots = 1000, .swap_block_ns = 3000},
        1, &swap, &again);
    assert_true(swap == 0 && again > 0);
}

/* TGI's server: what may be needed is reserved, nothing of ours is sent. */
TEST(peers_that_take_no_edits_get_it_all_at_once)
{
    struct fake_shard like = {.block_size = 4, .n_blocks = 31, .n_slots = 9, .no_edits = true};
    struct rig *g = rig_new(&like, &(struct infer_config){.max_batch_prefill_tokens = 64}, 1);
    struct client *c[N];
    crowd(c, g);
    for (uint32_t i = 0; i < N; i++) {
        expect_answer(c[i]);
        client_free(c[i]);
    }
    assert_true(swaps(g) + recomputes(g) == 0);
    log_of(g, 0);
    print_message("%u requests in %u calls\n", N, n_log);
    rig_free(g);
}

/* All that memory allows, and alone it preempts none; beyond that it is refused. */
TEST(one_request_may_have_everything)
{
    struct fake_shard like = {.block_size = 4, .n_blocks = 31};
    struct rig *g = rig_new(&like, &(struct infer_config){.max_batch_prefill_tokens = 64}, 1);
    struct client *most = client_new(1, 20, 101), *more = client_new(2, 20, 102),
                  *last = client_new(3, 1, 120);
    infer_submit(g->infer, &most->r); /* the last token needs no room: 30 blocks */
    infer_submit(g->infer, &more->r);
    infer_submit(g->infer, &last->r);
    expect_error(more, ERR_TOO_LONG, "must be <= 120");
    expect_answer(most);
    expect_answer(last);
    assert_true(most->last_ns < last->last_ns); /* the older one kept its blocks */
    check_steps(g, 64);
    client_free(most), client_free(more), client_free(last);
    rig_free(g);
}

/* What was on its way to the region when a step failed is not relied on. */
TEST(a_failed_step_makes_the_region_worthless)
{
    struct fake_shard like = {.block_size = 4, .n_blocks = 31, .n_slots = 1000, .step_ms = 3};
    struct rig *g = rig_new(&like, &(struct infer_config){.max_batch_prefill_tokens = 64}, 1);
    struct client *c[N];
    uint32_t well = 0;
    crowd(c, g);
    while (g->shard[0]->n_out < 20)
        usleep(200);
    g->shard[0]->fail_decode = 1;
    for (uint32_t i = 0; i < N; i++) {
        assert_true(wait_for(is_over, c[i]));
        if (c[i]->kind == ERR_NONE)
            expect_answer(c[i]);
        well += c[i]->kind == ERR_NONE;
        client_free(c[i]);
    }
    assert_true(well > N / 4 && well < N);
    rig_free(g);
}

struct world { /* one property run: everything of it is random */
    struct fake_shard like;
    struct infer_config conf;
    uint32_t n_shards, n;
    bool cancels, failures;
};

static uint32_t upto(uint32_t n) { return (uint32_t)rand() % n; }

static struct world any_world(void)
{
    struct world w = {.like = {.block_size = 1u << upto(5),
                               .no_copies = upto(3) == 0,
                               .no_prefix_caching = upto(4) == 0,
                               .fail_late = upto(2),
                               .swap_block_ns = upto(2) ? 0 : 4000},
                      .conf = {.max_batch_prefill_tokens = 32 + upto(100),
                               .max_batch_size = upto(2) ? 0 : 4 + upto(20)},
                      .n_shards = 1 + upto(2),
                      .n = 20 + upto(40),
                      .cancels = upto(3) == 0,
                      .failures = upto(4) == 0};
    w.like.n_blocks = 2 + (100 + upto(300)) / w.like.block_size; /* >= 100 tokens: all can fit */
    w.like.n_slots = upto(3) * upto(w.like.n_blocks * 3);
    return w;
}

TEST(whatever_comes_nobody_is_lost)
{
    enum { WORLDS = 40, MOST = 60 };
    double yielded = 0;
    for (unsigned seed = 1; seed <= WORLDS; seed++) {
        srand(test_seed(seed));
        struct world w = any_world();
        struct rig *g = rig_new(&w.like, &w.conf, w.n_shards);
        struct client *c[MOST];
        for (uint32_t i = 0; i < w.n; i++) {
            uint32_t n_prompt = 1 + upto(60);
            c[i] = client_new(upto(4), n_prompt, 1 + upto(100 - n_prompt));
            infer_submit(g->infer, &c[i]->r);
            if (upto(10) == 0)
                usleep(upto(3000));
            if (w.cancels && upto(3) == 0)
                infer_cancel(g->infer, &c[upto(i + 1)]->r);
            if (w.failures && upto(12) == 0)
                for (uint32_t k = 0; k < w.n_shards; k++)
                    g->shard[k]->fail_prefill = 1;
        }
        for (uint32_t i = 0; i < w.n; i++) {
            assert_true(wait_for(is_over, c[i]));
            if (c[i]->kind == ERR_NONE)
                expect_answer(c[i]);
            else
                assert_true((w.cancels && c[i]->kind == ERR_INCOMPLETE) ||
                            (w.failures && c[i]->kind == ERR_GENERATION));
        }
        assert_true(wait_for(is_idle, g));
        if (!w.cancels && !w.failures) {
            check_steps(g, w.conf.max_batch_prefill_tokens);
            assert_int_equal(g->shard[0]->n_tight, 0);
        }
        yielded += swaps(g) + recomputes(g);
        rig_free(g);
        for (uint32_t i = 0; i < w.n; i++)
            client_free(c[i]);
    }
    print_message("%d worlds, %g made way\n", WORLDS, yielded);
    assert_true(yielded > WORLDS);
}

int main(void) { return tests_run(temp_begin, temp_end); }
