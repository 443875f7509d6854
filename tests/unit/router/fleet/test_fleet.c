/* Several replicas behind one door: who gets what, and that no stream notices when one is lost. */
#include "tests/unit/router/fleet/fleet_rig.h"

enum { N = 32 };

static void ask(struct fleet_rig *g, struct client **c, uint32_t n, uint32_t tokens)
{
    for (uint32_t i = 0; i < n; i++) {
        c[i] = client_new(i % 7, 1 + (i * 13) % 60, tokens + i);
        fleet_submit(g->fleet, &c[i]->r);
    }
}

static void all_answered(struct client **c, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        expect_answer(c[i]);
        client_free(c[i]);
    }
}

static const struct fake_shard steady = {.step_ms = 2};

/* ---------------------------------------------------------------- */

TEST(all_replicas_work_and_gauges_add_up)
{
    struct fleet_rig *g = fleet_rig_new(&steady, &patient, REPLICAS, NULL);
    struct client *c[N];
    assert_true(wait_for(all_ready, g));
    assert_true(value(g, "tgi_batch_max_total_tokens") >
                2.9 * fleet_limits(g->fleet)->max_batch_total_tokens);
    ask(g, c, N, 40);
    all_answered(c, N);
    for (uint32_t i = 0; i < REPLICAS; i++)
        assert_true(prefills(g, i) > 0);
    assert_true(wait_for(fleet_is_idle, g));
    assert_true(value(g, "tgi_queue_size") == 0);
    assert_true(value(g, "tgi_batch_current_size") == 0);
    fleet_rig_free(g);
}

/* Two prompts of several blocks, in turn: each always where it was first. */
TEST(a_prompt_goes_where_its_beginning_is)
{
    struct fleet_rig *g = fleet_rig_new(&steady, &patient, 2, NULL);
    struct client *first[2];
    assert_true(wait_for(all_ready, g));
    for (uint32_t i = 0; i < 2; i++) { /* beside each other, so that they part */
        first[i] = client_new(i, 50, 30);
        fleet_submit(g->fleet, &first[i]->r);
    }
    all_answered(first, 2);
    assert_int_equal(prefills(g, 0) > 0, prefills(g, 1) > 0);
    for (uint32_t i = 0; i < 10; i++) {
        struct client *c = client_new(i % 2, 50, 3);
        fleet_submit(g->fleet, &c->r);
        expect_answer(c);
        assert_true(c->r.n_cached >= 32);
        client_free(c);
    }
    fleet_rig_free(g);
}

TEST(no_stream_notices_a_loss)
{
    struct fleet_rig *g = fleet_rig_new(&steady, &patient, 2, NULL);
    struct client *c[N], *more[N];
    assert_true(wait_for(all_ready, g));
    ask(g, c, N, 60);
    for (uint32_t i = 0; i < N / 2; i++) /* the others keep both busy, however late this looks */
        assert_true(wait_for(has_token, c[i]));
    kill_shard(g, 1);
    assert_true(wait_for(one_less, g));
    ask(g, more, N, 10); /* who comes now does not wait for it */
    all_answered(more, N);
    all_answered(c, N);
    assert_true(fleet_healthy(g->fleet));
    assert_true(value(g, "tgi_replica_handovers") > 0);
    start_again(g, 1, &steady);
    assert_true(wait_for(all_ready, g));
    ask(g, c, N, 20);
    all_answered(c, N);
    assert_true(prefills(g, 1) > 0);
    assert_false(fleet_is_lost(g));
    fleet_rig_free(g);
}

/* Also those that were handed over once: only who was running at two losses ends. */
TEST(all_wait_where_all_are_lost)
{
    struct fleet_rig *g = fleet_rig_new(&steady, &patient, 2, NULL);
    struct client *c[N];
    assert_true(wait_for(all_ready, g));
    ask(g, c, N, 60);
    for (uint32_t i = 0; i < N; i++)
        assert_true(wait_for(has_token, c[i]));
    kill_shard(g, 0);
    kill_shard(g, 1);
    assert_true(wait_for(none_ready, g));
    assert_false(fleet_healthy(g->fleet));
    struct client *late = client_new(3, 20, 9), *gone = client_new(4, 20, 9);
    fleet_submit(g->fleet, &late->r);
    fleet_submit(g->fleet, &gone->r);
    fleet_cancel(g->fleet, &gone->r);
    expect_error(gone, ERR_INCOMPLETE, "cancelled");
    start_again(g, 1, &steady);
    all_answered(&late, 1);
    uint32_t twice = 0;
    for (uint32_t i = 0; i < N; i++) {
        assert_true(wait_for(is_over, c[i]));
        twice += c[i]->kind != ERR_NONE;
        if (c[i]->kind == ERR_NONE)
            expect_answer(c[i]);
        client_free(c[i]);
    }
    assert_true(twice < N);
    client_free(gone);
    start_again(g, 0, &steady);
    assert_true(wait_for(all_ready, g));
    fleet_rig_free(g);
}

TEST(patience_ends)
{
    struct infer_config c = patient;
    c.return_ms = 300;
    struct fleet_rig *g = fleet_rig_new(&steady, &c, 2, NULL);
    assert_true(wait_for(all_ready, g));
    kill_shard(g, 0);
    kill_shard(g, 1);
    assert_true(wait_for(none_ready, g));
    struct client *w = client_new(1, 10, 9);
    fleet_submit(g->fleet, &w->r);
    expect_error(w, ERR_GENERATION, "no replica is left");
    assert_true(wait_for(fleet_is_lost, g));
    client_free(w);
    fleet_rig_free(g);
}

TEST(whoever_is_cancelled_ends_once)
{
    static const struct fake_shard slow = {.step_ms = 5};
    struct infer_config conf = patient;
    conf.max_batch_size = 2;
    struct fleet_rig *g = fleet_rig_new(&slow, &conf, 2, NULL);
    enum { MANY = 200 };
    struct client *c[MANY];
    assert_true(wait_for(all_ready, g));
    ask(g, c, MANY, 30);
    kill_shard(g, 0);
    for (uint32_t i = 0; i < MANY; i++) {
        fleet_cancel(g->fleet, &c[i]->r);
        if (i == MANY / 2)
            start_again(g, 0, &slow);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        expect_error(c[i], ERR_INCOMPLETE, "cancelled");
        client_free(c[i]);
    }
    fleet_rig_free(g);
}

/* What is listed no longer finishes what it has; what is listed anew is found. */
TEST(replicas_come_and_go_by_a_file)
{
    char where[120], list[110];
    snprintf(list, sizeof(list), "%s/list", dir);
    snprintf(where, sizeof(where), "file:%s", list);
    static const struct fake_shard slow = {.step_ms = 12};
    struct fleet_rig *g = fleet_rig_new(&slow, &patient, 2, where);
    struct client *c[N];
    assert_true(wait_for(all_ready, g));
    ask(g, c, N, 60);
    for (uint32_t i = 0; i < N; i++)
        assert_true(wait_for(has_token, c[i]));
    FILE *f = fopen(list, "we");
    fprintf(f, "unix:%s\n", g->shard[0]->path);
    fclose(f);
    assert_true(wait_for(one_less, g));
    all_answered(c, N);
    assert_true(value(g, "tgi_replica_handovers") == 0);
    f = fopen(list, "we");
    fprintf(f, "unix:%s\nunix:%s\n", g->shard[1]->path, g->shard[0]->path);
    fclose(f);
    assert_true(wait_for(all_ready, g));
    fleet_rig_free(g);
}

static bool two_are_left(const void *arg)
{
    struct fleet *f = ((const struct fleet_rig *)arg)->fleet;
    pthread_mutex_lock(&f->lock);
    const bool two = f->n == 2;
    pthread_mutex_unlock(&f->lock);
    return two;
}

/* They are the ranks of events, by which a subscriber tells caches apart. */
TEST(numbers_stay_distinct_when_replicas_change)
{
    char where[120], list[110];
    snprintf(list, sizeof(list), "%s/list", dir);
    snprintf(where, sizeof(where), "file:%s", list);
    struct fleet_rig *g = fleet_rig_new(&steady, &patient, REPLICAS, where);
    assert_true(wait_for(all_ready, g));
    for (uint32_t gone = 0; gone < REPLICAS; gone++) {
        uint32_t numbers = 0;
        FILE *f = fopen(list, "we");
        for (uint32_t i = 0; i < REPLICAS; i++)
            if (i != gone)
                fprintf(f, "unix:%s\n", g->shard[i]->path);
        fclose(f);
        assert_true(wait_for(two_are_left, g));
        f = fopen(list, "ae");
        fprintf(f, "unix:%s\n", g->shard[gone]->path);
        fclose(f);
        assert_true(wait_for(all_ready, g));
        pthread_mutex_lock(&g->fleet->lock);
        for (uint32_t i = 0; i < g->fleet->n; i++)
            numbers |= UINT32_C(1) << g->fleet->v[i]->number;
        pthread_mutex_unlock(&g->fleet->lock);
        assert_int_equal(numbers, (1 << REPLICAS) - 1);
    }
    fleet_rig_free(g);
}

TEST(other_models_are_refused)
{
    struct fake_shard other[] = {steady, steady, steady};
    other[0].block_size = 32;
    other[1].takes_images = true;
    other[2].n_windows = 64;
    struct fleet_rig *g = fleet_rig_new(&steady, &patient, 2, NULL);
    struct client *c[4];
    assert_true(wait_for(all_ready, g));
    for (int i = 0; i < 3; i++) {
        kill_shard(g, 1);
        assert_true(wait_for(one_less, g));
        start_again(g, 1, &other[i]);
        usleep(300000);
        assert_true(one_less(g));
    }
    ask(g, c, 4, 10);
    all_answered(c, 4);
    fleet_rig_free(g);
}

static bool is_bound(struct fleet_rig *g, const struct client *c)
{
    pthread_mutex_lock(&g->fleet->lock);
    const struct fleet_entry *e = c->r.entry;
    const bool bound = e && e->at;
    pthread_mutex_unlock(&g->fleet->lock);
    return bound;
}

static struct client *ask_as(struct fleet_rig *g, uint64_t key, uint32_t seed)
{
    struct client *c = client_new(seed, 60, 1);
    c->r.tenant = key;
    fleet_submit(g->fleet, &c->r);
    return c;
}

/* All places are taken by one key: the first request of another one is at a replica at once, where
 * it joins the next step. Its second one waits for a place as all do. */
TEST(the_first_request_of_a_key_waits_for_no_place)
{
    static const struct fake_shard slow = {.step_ms = 300};
    struct fleet_rig *g = fleet_rig_new(&slow, &patient, 2, NULL);
    struct client *c[N];
    assert_true(wait_for(all_ready, g));
    for (uint32_t i = 0; i < N - 2; i++)
        c[i] = ask_as(g, 1, i);
    assert_false(is_bound(g, c[N - 3]));
    c[N - 2] = ask_as(g, 2, 100);
    c[N - 1] = ask_as(g, 2, 101);
    assert_true(is_bound(g, c[N - 2]));
    assert_false(is_bound(g, c[N - 1]));
    for (uint32_t i = 2; i < N - 2; i++) /* else they take ten steps */
        fleet_cancel(g->fleet, &c[i]->r);
    expect_answer(c[N - 2]);
    expect_answer(c[N - 1]);
    for (uint32_t i = 0; i < N; i++) {
        assert_true(wait_for(is_over, c[i]));
        client_free(c[i]);
    }
    fleet_rig_free(g);
}

TEST(what_cannot_start_says_why)
{
    const char *const none[] = {"unix:/tmp/no-such-shard-0", "unix:/tmp/no-such-shard-1"};
    struct fleet_config c = {.infer = {.connect_timeout_ms = 400}, .targets = none, .n_targets = 2};
    struct err e = ERR_INIT;
    assert_null(fleet_start(&c, &e));
    assert_non_null(strstr(e.msg, "no replica is ready"));
    c.infer.draft_target = "unix:/tmp/draft-0";
    assert_null(fleet_start(&c, &e));
    assert_non_null(strstr(e.msg, "draft"));
    c.n_targets = 0;
    c.infer.draft_target = NULL;
    assert_null(fleet_start(&c, &e));
}

int main(void) { return tests_run(fleet_rig_set_up, fleet_rig_tear_down); }
