/* Texts of a model that embeds, for several replicas: none waits for a replica that is lost. */
#include "tests/unit/router/fleet/fleet_rig.h"
#include "tests/unit/router/texts_rig.h"

enum { CALL_TEXTS = 16, MANY = 8 };
static const struct infer_config small_steps = {.max_batch_prefill_tokens = CALL_TEXTS,
                                                .return_ms = WAIT_MS};

static struct asked *ask(struct fleet_rig *g, uint32_t seed, uint32_t n)
{
    struct asked *a = asked_new(seed, n);
    fleet_embed(g->fleet, &a->job);
    return a;
}

static void expect_failure(struct asked *a, enum err_kind kind, const char *words)
{
    assert_true(wait_for(asked_over, a));
    assert_int_equal(a->job.err.kind, kind);
    assert_non_null(strstr(a->job.err.msg, words));
    asked_free(a);
}

static bool both_have_a_call(const void *arg)
{
    const struct fleet_rig *g = arg;
    return g->shard[0]->n_embeds && g->shard[1]->n_embeds;
}

static bool first_has_a_call(const void *arg)
{
    return ((const struct fleet_rig *)arg)->shard[0]->n_embeds == 1;
}
static bool first_has_two_calls(const void *arg)
{
    return ((const struct fleet_rig *)arg)->shard[0]->n_embeds == 2;
}

/* ---------------------------------------------------------------- */

TEST(texts_go_where_shards_answer)
{
    struct fleet_rig *g = fleet_rig_new(&vectors, &patient, 2, NULL);
    assert_true(wait_for(all_ready, g));
    expect_vectors(ask(g, 1, 1));
    kill_shard(g, 0);
    assert_true(wait_for(one_less, g));
    for (uint32_t i = 2; i < 10; i++)
        expect_vectors(ask(g, i, 1));
    kill_shard(g, 1);
    struct asked *late = ask(g, 10, 1); /* none answers: it waits */
    start_again(g, 1, &vectors);
    expect_vectors(late);
    fleet_rig_free(g);
}

/* Its shards return at once, but do not answer any more: nothing may be left there. */
TEST(texts_of_a_lost_replica_go_to_another)
{
    struct fleet_rig *g = fleet_rig_new(&vectors, &small_steps, 2, NULL);
    struct asked *a[MANY];
    assert_true(wait_for(all_ready, g));
    g->shard[0]->hold_embed = g->shard[1]->hold_embed = 1;
    for (uint32_t i = 0; i < MANY; i++)
        a[i] = ask(g, i, TEXTS);
    assert_true(wait_for(both_have_a_call, g));
    g->shard[0]->lose_embed = 1;
    g->shard[0]->hold_embed = 2;
    g->shard[1]->hold_embed = 0;
    for (uint32_t i = 0; i < MANY; i++)
        expect_vectors(a[i]);
    assert_int_equal(g->shard[0]->n_embeds, 1);
    assert_true(value(g, "tgi_replica_handovers") == MANY / 2);
    assert_true(wait_for(all_ready, g));
    g->shard[0]->hold_embed = 0;
    fleet_rig_free(g);
}

static bool second_has_the_rest(const void *arg)
{
    return ((const struct fleet_rig *)arg)->shard[1]->n_embeds == 2;
}

/* 40 texts in calls of 16: the first call has returned when the replica is lost. */
TEST(values_that_came_are_kept)
{
    struct fleet_rig *g = fleet_rig_new(&vectors, &small_steps, 2, NULL);
    assert_true(wait_for(all_ready, g));
    g->shard[0]->hold_embed = 2;
    struct asked *a = ask(g, 1, TEXTS);
    assert_true(wait_for(first_has_two_calls, g));
    g->shard[0]->lose_embed = 2;
    g->shard[0]->hold_embed = 3;
    expect_vectors(a);
    assert_true(second_has_the_rest(g));
    g->shard[0]->hold_embed = 0;
    fleet_rig_free(g);
}

/* Shards that accept connections and answer nothing: frozen, or behind a network that drops all. */
TEST(texts_of_a_silent_replica_go_to_another)
{
    struct fleet_rig *g = fleet_rig_new(&vectors, &patient, 2, NULL);
    assert_true(wait_for(all_ready, g));
    g->shard[0]->hold_embed = 1;
    struct asked *a = ask(g, 1, 1);
    assert_true(wait_for(first_has_a_call, g));
    pthread_mutex_lock(&g->fleet->lock);
    infer_abandon(g->fleet->v[0]->infer, "no answer");
    pthread_mutex_unlock(&g->fleet->lock);
    expect_vectors(a);
    g->shard[0]->hold_embed = 0;
    fleet_rig_free(g);
}

TEST(patience_ends)
{
    struct infer_config c = patient;
    c.return_ms = 300;
    struct fleet_rig *g = fleet_rig_new(&vectors, &c, 2, NULL);
    assert_true(wait_for(all_ready, g));
    kill_shard(g, 0);
    kill_shard(g, 1);
    assert_true(wait_for(none_ready, g));
    expect_failure(ask(g, 1, 1), ERR_GENERATION, "no replica is left");
    assert_true(wait_for(fleet_is_lost, g));
    expect_failure(ask(g, 2, 1), ERR_OVERLOADED, "overloaded");
    fleet_rig_free(g);
}

TEST(a_client_that_left_does_not_wait)
{
    struct fleet_rig *g = fleet_rig_new(&vectors, &patient, 2, NULL);
    assert_true(wait_for(all_ready, g));
    kill_shard(g, 0);
    kill_shard(g, 1);
    assert_true(wait_for(none_ready, g));
    struct asked *a = ask(g, 1, 1);
    atomic_store(&a->cancelled, true);
    expect_failure(a, ERR_INCOMPLETE, "gone");
    fleet_rig_free(g);
}

/* A request without texts ends on the replica's thread while it is still being sent there. `make
 * jitter T=fleet_texts` makes that likely. */
TEST(a_request_may_end_at_once)
{
    enum { ROUNDS = 200 };
    struct fleet_rig *g = fleet_rig_new(&vectors, &patient, 2, NULL);
    assert_true(wait_for(all_ready, g));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct asked *a = ask(g, i, 0);
        assert_true(wait_for(asked_over, a));
        assert_int_equal(a->job.err.kind, ERR_NONE);
        asked_free(a);
    }
    fleet_rig_free(g);
}

/* It finishes what it has. */
TEST(a_replica_that_is_listed_no_longer_loses_no_texts)
{
    char where[120], list[110];
    snprintf(list, sizeof(list), "%s/list", dir);
    snprintf(where, sizeof(where), "file:%s", list);
    struct fleet_rig *g = fleet_rig_new(&vectors, &patient, 2, where);
    struct asked *a[2];
    assert_true(wait_for(all_ready, g));
    g->shard[0]->hold_embed = g->shard[1]->hold_embed = 1;
    for (uint32_t i = 0; i < 2; i++)
        a[i] = ask(g, i, 1);
    assert_true(wait_for(both_have_a_call, g));
    FILE *f = fopen(list, "we");
    fprintf(f, "unix:%s\n", g->shard[0]->path);
    fclose(f);
    assert_true(wait_for(one_less, g));
    usleep(400000); /* longer than a turn of the fleet's thread */
    g->shard[0]->hold_embed = g->shard[1]->hold_embed = 0;
    for (uint32_t i = 0; i < 2; i++)
        expect_vectors(a[i]);
    fleet_rig_free(g);
}

int main(void) { return tests_run(fleet_rig_set_up, fleet_rig_tear_down); }
