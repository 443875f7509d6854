/* Texts of several requests share calls; a loss of the shards counts once for each request. */
#include "common/clock.h"
#include "tests/unit/router/texts_rig.h"

/* TEXTS: two turns of 16, and a rest. */
static const struct infer_config patient = {.max_batch_prefill_tokens = 4096, .return_ms = WAIT_MS};

static struct asked *ask(struct rig *g, uint32_t seed, uint32_t n)
{
    struct asked *a = asked_new(seed, n);
    a->job.tenant = seed;
    infer_embed(g->infer, &a->job);
    return a;
}

static void expect_loss(struct asked *a)
{
    assert_true(wait_for(asked_over, a));
    assert_int_equal(a->job.err.kind, ERR_GENERATION);
    asked_free(a);
}

static bool second_call(const void *g) { return ((const struct rig *)g)->shard[0]->n_embeds == 2; }
static bool first_call(const void *g) { return ((const struct rig *)g)->shard[0]->n_embeds == 1; }

static bool both_wait(const void *g)
{
    return infer_stats(((const struct rig *)g)->infer).queued == 2;
}

/* The second call, which waits, has texts of b and c in turns. */
static void share_a_call(struct rig *g, struct asked **b, struct asked **c)
{
    g->shard[0]->hold_embed = 1;
    struct asked *a = ask(g, 1, 1);
    assert_true(wait_for(first_call, g));
    *b = ask(g, 2, TEXTS);
    *c = ask(g, 3, TEXTS);
    assert_true(wait_for(both_wait, g));
    g->shard[0]->hold_embed = 2;
    expect_vectors(a);
    assert_true(wait_for(second_call, g));
}

TEST(accounting_balances_while_requests_take_turns)
{
    struct rig *g = rig_new(&vectors, &patient, 1);
    struct asked *b, *c;
    struct buf out = BUF_INIT;
    struct err e = ERR_INIT;
    bool balanced = false;
    share_a_call(g, &b, &c);
    assert_int_equal(infer_audit(g->infer, WAIT_MS, &out, &balanced, &e), 0);
    assert_non_null(strstr(out.p, "\"requests\":2,\"waiting\":0,\"running\":2,\"texts_out\":80"));
    assert_true(balanced);
    buf_free(&out);
    g->shard[0]->hold_embed = 0;
    expect_vectors(b);
    expect_vectors(c);
    rig_free(g);
}

/* An image that is one token takes as much of a call as its cost says: two fit, of five. */
TEST(a_call_is_bounded_by_costs)
{
    enum { N = 5, COST = 2000, CALLS = 3 };
    struct rig *g = rig_new(&vectors, &patient, 1);
    struct asked *a = asked_new(1, N);
    for (int i = 0; i < N; i++)
        a->texts[i].cost = COST;
    infer_embed(g->infer, &a->job);
    expect_vectors(a);
    assert_int_equal(g->shard[0]->n_embeds, CALLS);
    rig_free(g);
}

TEST(requests_that_take_turns_survive_a_loss)
{
    struct rig *g = rig_new(&vectors, &patient, 1);
    struct asked *b, *c;
    share_a_call(g, &b, &c);
    g->shard[0]->lose_embed = 2;
    g->shard[0]->hold_embed = 0;
    expect_vectors(b);
    expect_vectors(c);
    assert_int_equal(g->shard[0]->n_embeds, 3);
    assert_false(is_lost(g));
    rig_free(g);
}

/* They may be its cause. */
TEST(requests_of_two_losses_end)
{
    struct rig *g = rig_new(&vectors, &patient, 1);
    struct asked *b, *c;
    share_a_call(g, &b, &c);
    g->shard[0]->lose_embed = 2;
    g->shard[0]->hold_embed = 3;
    while (g->shard[0]->n_embeds < 3)
        usleep(1000);
    g->shard[0]->lose_embed = 3;
    g->shard[0]->hold_embed = 0;
    expect_loss(b);
    expect_loss(c);
    expect_vectors(ask(g, 4, TEXTS));
    rig_free(g);
}

/* Those that come back are killed in their warm-up: that is no reason to wait as for other models.
 */
TEST(shards_that_are_lost_again_are_sought_at_once)
{
    struct rig *g = rig_new(&vectors, &patient, 1);
    expect_vectors(ask(g, 1, 1));
    g->shard[0]->lose_embed = 2;
    g->shard[0]->lose_warmups = 3;
    const int64_t began = clock_ms();
    expect_vectors(ask(g, 2, 1));
    assert_true(clock_ms() - began < 5000); /* after any other error it waits as long each time */
    rig_free(g);
}

int main(void) { return tests_run(temp_begin, temp_end); }
