/* Shards that die under live requests and come back: every answer is what it would have been. */
#include "tests/unit/router/infer_rig.h"

enum { N = 24 };
static const struct infer_config patient = {.max_batch_prefill_tokens = 64, .return_ms = WAIT_MS};

static bool ran_along(const void *c) { return ((const struct client *)c)->n_out >= 10; }

static void everything_goes_on(uint32_t ranks, const struct fake_shard *like,
                               const struct fake_shard *then)
{
    struct infer_config conf = patient;
    conf.max_batch_size = N / 2; /* some run, some wait */
    struct rig *g = rig_new(like, &conf, ranks);
    struct client *c[N];
    for (uint32_t i = 0; i < N; i++) {
        c[i] = client_new(i % 5, 1 + (i * 13) % 60, 60 + i);
        infer_submit(g->infer, &c[i]->r);
    }
    for (uint32_t i = 0; i < N / 2; i++)
        assert_true(wait_for(has_token, c[i]));
    fake_stop(g->shard[ranks - 1]);
    assert_true(wait_for(is_sick, g));
    restart_shards(g, then);
    for (uint32_t i = 0; i < N; i++)
        expect_answer(c[i]);
    assert_true(wait_for(is_healthy, g));
    assert_false(is_lost(g));
    assert_true(counter(g, "\ntgi_shard_returns ") == 1);
    for (uint32_t i = 0; i < N; i++)
        client_free(c[i]);
    rig_free(g);
}

TEST(what_runs_and_what_waits_goes_on)
{
    static const struct fake_shard like = {.step_ms = 2}, swaps = {.step_ms = 2, .n_slots = 20};
    everything_goes_on(1, &like, &like);
    everything_goes_on(2, &like, &like);
    everything_goes_on(1, &swaps, &like);
}

TEST(a_smaller_cache_will_do)
{
    static const struct fake_shard much = {.step_ms = 5, .block_size = 4, .n_blocks = 400},
                                   little = {.step_ms = 2, .block_size = 4, .n_blocks = 100};
    struct infer_config conf = patient;
    struct client *c[4];
    conf.max_input_tokens = 100;
    conf.max_total_tokens = 300;
    struct rig *g = rig_new(&much, &conf, 1);
    for (uint32_t i = 0; i < 4; i++) {
        c[i] = client_new(i, 20, 100);
        infer_submit(g->infer, &c[i]->r);
        assert_true(wait_for(has_token, c[i]));
    }
    fake_stop(g->shard[0]);
    restart_shards(g, &little);
    for (uint32_t i = 0; i < 4; i++) {
        expect_answer(c[i]);
        client_free(c[i]);
    }
    assert_int_equal(infer_stats(g->infer).blocks_total, 99);
    rig_free(g);
}

/* In the middle of a call, also of one that brings a prompt; its first token is told once. */
TEST(a_step_that_hangs_is_done_again)
{
    static const struct fake_shard like = {.step_ms = 2};
    struct rig *g = rig_new(&like, &patient, 1);
    struct client *runs = client_new(1, 10, 100), *comes = client_new(2, 30, 9),
                  *third = client_new(2, 30, 9);
    third->r.same = &comes->r; /* follows it */
    infer_submit(g->infer, &runs->r);
    assert_true(wait_for(has_token, runs));
    g->shard[0]->hold = 1;
    infer_submit(g->infer, &comes->r);
    infer_submit(g->infer, &third->r);
    usleep(20000);
    g->shard[0]->hold = 0;
    fake_stop(g->shard[0]);
    restart_shards(g, &like);
    expect_answer(runs);
    expect_answer(comes);
    expect_answer(third);
    client_free(runs);
    client_free(comes);
    client_free(third);
    rig_free(g);
}

TEST(who_was_there_twice_ends)
{
    static const struct fake_shard like = {.step_ms = 4, .n_blocks = 200};
    struct infer_config conf = patient;
    conf.max_batch_size = 2;
    struct rig *g = rig_new(&like, &conf, 1);
    struct client *old = client_new(1, 10, 230), *done = client_new(2, 10, 100),
                  *next = client_new(3, 10, 220);
    infer_submit(g->infer, &old->r);
    infer_submit(g->infer, &done->r);
    infer_submit(g->infer, &next->r);
    assert_true(wait_for(has_token, old));
    assert_true(wait_for(has_token, done));
    assert_int_equal(next->n_out, 0); /* waits */
    fake_stop(g->shard[0]);
    restart_shards(g, &like);
    expect_answer(done);
    assert_true(wait_for(has_token, next));
    fake_stop(g->shard[0]);
    expect_error(old, ERR_GENERATION, "Could not connect to Text Generation server");
    restart_shards(g, &like);
    expect_answer(next);
    assert_true(counter(g, "\ntgi_shard_returns ") == 2);
    client_free(old);
    client_free(done);
    client_free(next);
    rig_free(g);
}

TEST(clients_come_and_go_meanwhile)
{
    static const struct fake_shard like = {.step_ms = 4};
    struct rig *g = rig_new(&like, &patient, 1);
    struct client *goes = client_new(1, 10, 200), *comes = client_new(2, 10, 20);
    infer_submit(g->infer, &goes->r);
    assert_true(wait_for(ran_along, goes));
    fake_stop(g->shard[0]);
    assert_true(wait_for(is_sick, g));
    infer_submit(g->infer, &comes->r);
    infer_cancel(g->infer, &goes->r);
    expect_error(goes, ERR_INCOMPLETE, "cancelled");
    client_free(goes);
    restart_shards(g, &like);
    expect_answer(comes);
    client_free(comes);
    rig_free(g);
}

TEST(while_nobody_is_served)
{
    static const struct fake_shard like = {0};
    struct rig *g = rig_new(&like, &patient, 2);
    struct client *before = client_new(1, 40, 20), *after = client_new(1, 40, 20);
    infer_submit(g->infer, &before->r);
    expect_answer(before);
    assert_true(wait_for(is_idle, g));
    fake_stop(g->shard[0]);
    assert_true(wait_for(is_sick, g));
    restart_shards(g, &like);
    assert_true(wait_for(is_healthy, g));
    infer_submit(g->infer, &after->r);
    expect_answer(after);
    assert_int_equal(last_prefill(g).cached, 0); /* that was the other one's */
    client_free(before);
    client_free(after);
    rig_free(g);
}

static void lost_for_good(const struct infer_config *conf, const struct fake_shard *then,
                          const char *why)
{
    static const struct fake_shard like = {.step_ms = 5, .checkpoint_hash = 5};
    struct rig *g = rig_new(&like, conf, 1);
    struct client *runs = client_new(1, 10, 200), *late = client_new(2, 10, 5);
    infer_submit(g->infer, &runs->r);
    assert_true(wait_for(has_token, runs));
    fake_stop(g->shard[0]);
    if (then)
        restart_shards(g, then);
    expect_error(runs, ERR_GENERATION, why);
    assert_true(wait_for(is_lost, g));
    assert_non_null(strstr(g->why, why));
    infer_submit(g->infer, &late->r);
    expect_error(late, ERR_GENERATION, "lost");
    client_free(runs);
    client_free(late);
    rig_free(g);
}

TEST(patience_ends)
{
    static const struct fake_shard other = {.block_size = 8};
    struct infer_config conf = {.max_batch_prefill_tokens = 64, .return_ms = 300};
    lost_for_good(&conf, NULL, "Unable to connect to the model shards");
    lost_for_good(&patient, &other, "another model came back");
}

/* Everything else that they say is equal: other weights of one architecture. */
TEST(other_files_are_another_model)
{
    static const struct fake_shard named = {.step_ms = 5, .checkpoint_hash = 7};
    lost_for_good(&patient, &named, "another model came back");
}

TEST(files_that_are_unknown_are_no_other_model)
{
    const struct shard_model known = {.checkpoint_hash = 5}, other = {.checkpoint_hash = 7};
    const struct shard_model unknown = {0};
    assert_null(shard_model_unfit(&known, &known));
    assert_null(shard_model_unfit(&known, &unknown));
    assert_null(shard_model_unfit(&unknown, &known));
    assert_non_null(shard_model_unfit(&known, &other));
}

TEST(other_options_are_another_model)
{
    const struct shard_model was = {.options = "--kv-cache-dtype float32"};
    const struct shard_model now = {.options = "--kv-cache-dtype int8"}, unknown = {0};
    const struct shard_model rounds = {.options = "--kv-cache-dtype float32",
                                       .products = "AVX-512 BF16, bfloat16 products"};
    assert_null(shard_model_unfit(&was, &was));
    assert_null(shard_model_unfit(&was, &unknown));
    assert_non_null(strstr(shard_model_unfit(&was, &now), "options"));
    assert_non_null(strstr(shard_model_unfit(&was, &rounds), "device"));
}

TEST(stop_does_not_wait_for_them)
{
    static const struct fake_shard like = {.step_ms = 5};
    struct rig *g = rig_new(&like, &patient, 1);
    struct client *runs = client_new(1, 10, 200);
    infer_submit(g->infer, &runs->r);
    assert_true(wait_for(has_token, runs));
    fake_stop(g->shard[0]);
    assert_true(wait_for(is_sick, g));
    infer_stop(g->infer);
    expect_error(runs, ERR_GENERATION, "shutting down");
    client_free(runs);
    free(g->shard[0]);
    metrics_free(g->metrics);
    free(g);
}

int main(void) { return tests_run(temp_begin, temp_end); }
