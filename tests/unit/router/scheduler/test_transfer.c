/* Prefill and decode apart, by scripted shards of two routers: what is kept when, what is asked of
 * a peer, and that no failure of it costs an answer. */
#include "router/request/transfer.h"
#include "tests/unit/router/infer_rig.h"

enum { LONG = 61, BLOCKS = 15, OUT = 5 };
static const struct infer_config config = {.max_batch_prefill_tokens = 16};
static const struct fake_shard like = {
    .block_size = 4, .n_blocks = 101, .offloads = true, .transfers = true};
static const struct kv_transfer exports = {.exports = true};
static const struct kv_transfer imports = {.host = "h", .port = 1, .n_blocks = BLOCKS};

static double blocks(struct rig *g) { return counter(g, "\ntgi_kv_transfer_blocks "); }
static double reads(struct rig *g, const char *outcome)
{
    char name[80];
    snprintf(name, sizeof(name), "tgi_kv_transfer_reads{outcome=\"%s\"} ", outcome);
    return counter(g, name);
}
static double hits(struct rig *g) { return counter(g, "\nprefix_hit_tokens "); }

static void serve(struct rig *g, uint32_t prompt, const struct kv_transfer *t, uint32_t out)
{
    struct client *c = client_new(prompt, LONG, out);
    c->r.transfer = t;
    infer_submit(g->infer, &c->r);
    expect_answer(c);
    client_free(c);
    assert_true(wait_for(is_idle, g));
}

struct two {
    struct rig *first, *second;
};

static struct two two_new(uint32_t shards)
{
    struct two t = {rig_new(&like, &config, shards), rig_new(&like, &config, shards)};
    for (uint32_t i = 0; i < shards; i++)
        t.second->shard[i]->peer = t.first->shard[i];
    return t;
}

static void two_free(struct two *t)
{
    rig_free(t->second);
    rig_free(t->first);
}

static bool is_exported(const void *arg)
{
    return ((const struct rig *)arg)->shard[0]->n_kept_for_peers >= BLOCKS;
}

struct wish {
    const struct rig *g;
    uint32_t n;
};
static bool has_kept(const void *arg)
{
    const struct wish *w = arg;
    for (uint32_t i = 0; i < w->g->n; i++)
        if (w->g->shard[i]->n_kept_for_peers < w->n)
            return false;
    return true;
}

TEST(a_prompt_is_computed_there_and_read_here)
{
    for (uint32_t shards = 1; shards < 3; shards++) {
        struct two t = two_new(shards);
        for (uint32_t i = 0; i < 3; i++) {
            serve(t.first, i, &exports, 1);
            assert_true(wait_for(has_kept, &(struct wish){t.first, BLOCKS * (i + 1)}));
            const double before = hits(t.second);
            serve(t.second, i, &imports, OUT);
            assert_true(hits(t.second) - before == BLOCKS * 4); /* all but the last token */
        }
        assert_true(reads(t.second, "found") == 3 && blocks(t.second) == 3 * BLOCKS);
        assert_true(counter(t.second, "\ntgi_kv_transfer_bytes ") == 3.0 * BLOCKS * 4 * shards);
        assert_true(counter(t.first, "\ntgi_kv_transfer_exported ") >= 3 * BLOCKS);
        assert_int_equal(t.second->shard[0]->n_kept_for_peers, 0);
        two_free(&t);
    }
}

/* Also while the cache has it, and though it was stored before: memory may have given it up. */
TEST(what_is_cached_is_kept_for_a_peer_all_the_same)
{
    struct two t = two_new(1);
    serve(t.first, 1, NULL, 1);
    for (int i = 0; i < 500 && counter(t.first, "\ntgi_kv_offload_stored ") < BLOCKS; i++)
        usleep(10000);
    assert_int_equal(t.first->shard[0]->n_kept_for_peers, 0);
    serve(t.first, 1, &exports, 1);
    assert_true(wait_for(is_exported, t.first));
    two_free(&t);
}

TEST(memory_of_a_few_blocks_takes_turns)
{
    struct two t = two_new(1);
    serve(t.first, 1, &exports, 1);
    assert_true(wait_for(is_exported, t.first));
    t.second->shard[0]->peer_most = 4;
    serve(t.second, 1, &imports, OUT);
    assert_true(hits(t.second) == BLOCKS * 4);
    assert_true(reads(t.second, "full") == 3 && reads(t.second, "found") == 1);
    assert_int_equal(t.second->shard[0]->n_peer_fetches, 4);
    two_free(&t);
}

TEST(a_part_is_read_and_the_rest_computed)
{
    struct two t = two_new(1);
    serve(t.first, 1, &exports, 1);
    assert_true(wait_for(is_exported, t.first));
    struct fake_shard *f = t.first->shard[0];
    struct kv_transfer fewer = imports;
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 6; i < f->n_kept; i++)
        memset(f->kept[i].key, 0, sizeof(f->kept[i].key));
    pthread_mutex_unlock(&f->lock);
    serve(t.second, 1, &imports, OUT);
    assert_true(reads(t.second, "missing") == 1 && blocks(t.second) == 6);
    assert_int_equal(t.second->shard[0]->n_peer_fetches, 1); /* it is not asked again */
    assert_true(hits(t.second) == 6 * 4);
    fewer.n_blocks = 6; /* what is here already is not asked for */
    serve(t.second, 1, &fewer, OUT);
    assert_int_equal(t.second->shard[0]->n_peer_fetches, 1);
    two_free(&t);
}

TEST(a_peer_that_has_gone_costs_time_alone)
{
    struct two t = two_new(2);
    t.second->shard[0]->peer = t.second->shard[1]->peer = NULL;
    serve(t.second, 1, &imports, OUT);
    assert_true(reads(t.second, "unreachable") == 1 && blocks(t.second) == 0);
    t.second->shard[1]->fail_fetch = 1;
    serve(t.second, 2, &imports, OUT);
    assert_int_equal(t.second->shard[1]->fail_fetch, 0);
    serve(t.second, 3, &imports, OUT); /* a call that failed puts none off that names a peer */
    assert_int_equal(t.second->shard[0]->n_peer_fetches, 3);
    two_free(&t);
}

/* Shards of an older version, or without an address, are asked for nothing. */
TEST(shards_that_do_not_transfer)
{
    struct fake_shard old = like;
    old.transfers = false;
    struct rig *g = rig_new(&old, &config, 1);
    serve(g, 1, &imports, OUT);
    serve(g, 1, &exports, 1);
    assert_int_equal(g->shard[0]->n_peer_fetches, 0);
    assert_int_equal(g->shard[0]->n_kept_for_peers, 0);
    rig_free(g);
}

/* Clients that leave at any moment of it. */
TEST(cancelled_at_any_time)
{
    struct two t = two_new(1);
    for (uint32_t i = 0; i < 6; i++)
        serve(t.first, i, &exports, 1);
    t.second->shard[0]->fetch_ms = 3;
    for (uint32_t k = 0; k < 60; k++) {
        struct client *c[3];
        for (uint32_t i = 0; i < 3; i++) {
            c[i] = client_new((k + i) % 6, LONG, OUT);
            c[i]->r.transfer = i == 1 ? &exports : &imports;
            infer_submit(t.second->infer, &c[i]->r);
        }
        usleep(k * 200);
        infer_cancel(t.second->infer, &c[k % 3]->r);
        for (uint32_t i = 0; i < 3; i++) {
            assert_true(wait_for(is_over, c[i]));
            if (i != k % 3)
                expect_answer(c[i]);
            client_free(c[i]);
        }
    }
    assert_true(wait_for(is_idle, t.second));
    two_free(&t);
}

int main(void) { return tests_run(temp_begin, temp_end); }
