/* A model with recurrent state: whatever comes, goes, is preempted or is lost, no cell is lost or
 * had twice, and every answer comes of the state that belongs to its tokens. */
#include "tests/unit/router/infer_rig.h"

enum { N = 32 };
static const struct infer_config plain = {.max_batch_prefill_tokens = 64};

static bool is_alone(const void *arg)
{
    return infer_stats(((const struct rig *)arg)->infer).running <= 1;
}

static void expect_balance(struct rig *g)
{
    struct buf b = BUF_INIT;
    struct err e = ERR_INIT;
    bool balanced = false;
    assert_int_equal(infer_audit(g->infer, WAIT_MS, &b, &balanced, &e), 0);
    assert_true(balanced);
    assert_non_null(strstr(b.p, "\"balanced\":true"));
    buf_free(&b);
}

/* One request alone, of the first n of `tokens` and max_new more; returns what was cached. */
static uint32_t ask(struct rig *g, const uint32_t *tokens, uint32_t n, uint32_t max_new,
                    uint32_t *out)
{
    struct client *c = client_new(0, 1, max_new);
    memcpy(c->prompt, tokens, n * sizeof(*tokens));
    c->r.n_ids = n;
    infer_submit(g->infer, &c->r);
    expect_answer(c);
    uint32_t cached = c->r.n_cached;
    if (out)
        memcpy(out, c->out, c->n_out * sizeof(*out));
    assert_true(wait_for(is_idle, g));
    assert_int_equal(infer_stats(g->infer).cells_used, 0);
    client_free(c);
    return cached;
}

static void some_tokens(uint32_t *v, uint32_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        v[i] = (seed * 7919 + i * 31 + i * i) % FAKE_VOCAB;
}

/* ------------------------------------------------ prefix hits */
TEST(the_same_prompt_goes_on_from_its_last_full_block)
{
    struct rig *g = rig_new(&(struct fake_shard){.n_cells = 12}, &plain, 1);
    uint32_t p[64];
    some_tokens(p, 64, 1);
    assert_int_equal(ask(g, p, 40, 1, NULL), 0);
    assert_int_equal(ask(g, p, 40, 1, NULL), 36);
    assert_int_equal(ask(g, p, 64, 1, NULL), 36);
    assert_int_equal(ask(g, p, 64, 1, NULL), 60);
    assert_int_equal(g->shard[0]->n_from, 3);
    assert_true(counter(g, "\ntgi_state_snapshot_hits ") == 3);
    assert_true(counter(g, "\ntgi_state_snapshots ") == g->shard[0]->n_saves);
    assert_true(counter(g, "\ntgi_state_cells{state=\"snapshot\"} ") == 2);
    assert_true(counter(g, "\ntgi_state_cells{state=\"free\"} ") == 10);
    rig_free(g);
}

/* A conversation goes on from where its last answer was not long ago. */
TEST(a_conversation_computes_what_is_new)
{
    struct rig *g = rig_new(&(struct fake_shard){.n_cells = 12, .n_blocks = 200}, &plain, 1);
    uint32_t p[400], n = 30;
    some_tokens(p, 400, 2);
    for (int turn = 0; turn < 5; turn++) {
        uint32_t cached = ask(g, p, n, 41, p + n), bt = g->shard[0]->block_size;
        if (turn > 0)
            assert_true(cached + 12 + (4 + 1) * bt >= n); /* what was said since, and a gain */
        n += 41 + 12;
    }
    rig_free(g);
}

TEST(what_many_prompts_begin_with_is_found_by_the_third)
{
    struct rig *g = rig_new(&(struct fake_shard){.n_cells = 12, .n_blocks = 200}, &plain, 1);
    uint32_t p[80];
    some_tokens(p, 80, 3);
    assert_int_equal(ask(g, p, 80, 2, NULL), 0);
    for (uint32_t i = 0; i < 5; i++) {
        some_tokens(p + 41, 39, 100 + i);
        assert_int_equal(ask(g, p, 70, 2, NULL), i == 0 ? 0 : 40);
    }
    rig_free(g);
}

TEST(a_long_prompt_leaves_snapshots_on_its_way)
{
    struct infer_config conf = {.max_batch_prefill_tokens = 700};
    struct rig *g = rig_new(&(struct fake_shard){.n_cells = 40, .n_blocks = 1500}, &conf, 1);
    static uint32_t p[2048];
    some_tokens(p, 2048, 4);
    assert_int_equal(ask(g, p, 2040, 2, NULL), 0);
    p[1500]++;
    assert_int_equal(ask(g, p, 2040, 2, NULL), 1024);
    p[2000]++;
    assert_int_equal(ask(g, p, 2040, 2, NULL), 1500);
    rig_free(g);
}

static bool three_follow(const void *arg)
{
    return counter((const struct rig *)arg, "\ntgi_shared_prompts ") == 3;
}

TEST(followers_begin_from_the_leaders_state)
{
    struct rig *g = rig_new(&(struct fake_shard){.n_cells = 12}, &plain, 1);
    struct client *c[4], *other = client_new(1, 3, 9);
    g->shard[0]->hold = 1;
    infer_submit(g->infer, &other->r);
    assert_true(wait_for(hangs, g)); /* the leader waits while its followers come */
    for (uint32_t i = 0; i < 4; i++) {
        c[i] = client_new(5, 11, 9); /* shorter than what others stop for */
        c[i]->r.same = i ? &c[0]->r : NULL;
        infer_submit(g->infer, &c[i]->r);
    }
    assert_true(wait_for(three_follow, g));
    g->shard[0]->hold = 0;
    for (uint32_t i = 0; i < 4; i++) {
        expect_answer(c[i]);
        assert_int_equal(c[i]->r.n_cached, i ? 8 : 0);
        client_free(c[i]);
    }
    assert_int_equal(g->shard[0]->n_from, 3);
    expect_answer(other);
    client_free(other);
    rig_free(g);
}

TEST(without_a_prefix_cache_nothing_is_kept)
{
    struct fake_shard like = {.n_cells = 12, .no_prefix_caching = true};
    struct rig *g = rig_new(&like, &plain, 1);
    uint32_t p[64];
    some_tokens(p, 64, 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ask(g, p, 60, 30, NULL), 0);
    assert_int_equal(g->shard[0]->n_saves + g->shard[0]->n_from, 0);
    rig_free(g);
}

/* ------------------------------------------------ cells and blocks are scarce */
static void crowd(struct rig *g, struct client **c)
{
    for (uint32_t i = 0; i < g->n; i++)
        g->shard[i]->hold = 1;
    for (uint32_t i = 0; i < N; i++) {
        c[i] = client_new(i % 7, 1 + (i * 7) % 40, 5 + (i * 11) % 56);
        infer_submit(g->infer, &c[i]->r);
    }
    for (uint32_t i = 0; i < g->n; i++)
        g->shard[i]->hold = 0;
}

static void serve_a_crowd(const struct fake_shard *like, uint32_t ranks)
{
    struct rig *g = rig_new(like, &plain, ranks);
    struct client *c[N];
    crowd(g, c);
    uint32_t most = 0;
    for (uint32_t i = 0; i < N; i++) {
        expect_answer(c[i]);
        expect_balance(g);
        client_free(c[i]);
    }
    assert_true(wait_for(is_idle, g));
    const struct fake_log *log = log_of(g, 0);
    for (uint32_t i = 0; i < n_log; i++) {
        assert_true(log[i].n_tokens <= 64);
        most = log[i].n_size > most ? log[i].n_size : most;
    }
    assert_true(most <= like->n_cells / 2);
    assert_int_equal(g->shard[0]->n_out + g->shard[0]->n_in, 0);
    assert_true(counter(g, "tgi_preemption_count{method=\"swap\"} ") == 0);
    print_message("%u blocks, %u cells: %u at once, %u snapshots, %u begun from one, %g made way\n",
                  like->n_blocks, like->n_cells, most, (unsigned)g->shard[0]->n_saves,
                  (unsigned)g->shard[0]->n_from,
                  counter(g, "tgi_preemption_count{method=\"recompute\"} "));
    rig_free(g);
}

TEST(the_queue_waits_for_cells_as_for_blocks)
{
    static const uint32_t cells[] = {2, 3, 4, 7, 20, 80};
    for (uint32_t i = 0; i < 6; i++) {
        struct fake_shard like = {.n_cells = cells[i], .n_blocks = 200, .n_slots = 50};
        serve_a_crowd(&like, 1 + i % 2);
    }
}

TEST(a_preempted_request_gives_its_cells_back)
{
    static const uint32_t cells[] = {4, 12, 80};
    for (uint32_t i = 0; i < 3; i++) {
        struct fake_shard like = {.n_cells = cells[i], .n_blocks = 31, .n_slots = 50};
        serve_a_crowd(&like, 1 + i % 2);
    }
}

TEST(a_preempted_request_goes_on_from_a_snapshot)
{
    struct fake_shard like = {.n_cells = 30, .n_blocks = 31};
    struct rig *g = rig_new(&like, &plain, 1);
    struct client *c[2];
    for (uint32_t i = 0; i < 2; i++) {
        c[i] = client_new(i, 20, 60); /* 20 blocks each, of 30 */
        infer_submit(g->infer, &c[i]->r);
    }
    expect_answer(c[0]);
    expect_answer(c[1]);
    assert_true(counter(g, "tgi_preemption_count{method=\"recompute\"} ") > 0);
    assert_int_equal(c[1]->r.n_cached, 0);
    assert_true(g->shard[0]->n_from > 0);
    client_free(c[0]), client_free(c[1]);
    rig_free(g);
}

/* How far one came that is cancelled while a step runs is not known: its state is left alone. The
 * shard would object. */
TEST(one_that_is_cancelled_leaves_no_snapshot)
{
    struct fake_shard like = {.n_cells = 30, .block_size = 1, .n_blocks = 400, .step_ms = 1};
    struct rig *g = rig_new(&like, &plain, 1);
    struct client *stays = client_new(1, 10, 200);
    infer_submit(g->infer, &stays->r);
    for (uint32_t i = 0; i < 20; i++) {
        struct client *c = client_new(2 + i, 10, 50);
        infer_submit(g->infer, &c->r);
        assert_true(wait_for(has_token, c));
        infer_cancel(g->infer, &c->r);
        expect_error(c, ERR_INCOMPLETE, "cancelled");
        assert_true(wait_for(is_alone, g));
        client_free(c);
    }
    infer_cancel(g->infer, &stays->r);
    assert_true(wait_for(is_over, stays));
    assert_true(wait_for(is_idle, g));
    client_free(stays);
    rig_free(g);
}

/* ------------------------------------------------ shards that are not as they should be */
TEST(no_start_without_room_for_one_request)
{
    struct fake_shard f = {.n_cells = 1, .world = 0};
    struct infer_config conf = plain;
    struct err e = ERR_INIT;
    snprintf(f.path, sizeof(f.path), "%s/few", dir);
    fake_start(&f);
    conf.shard_target = f.path;
    conf.connect_timeout_ms = WAIT_MS;
    conf.metrics = metrics_new(router_metrics, N_ROUTER_METRICS);
    assert_null(infer_start(&conf, &e));
    assert_non_null(strstr(e.msg, "the recurrent state of no request"));
    fake_stop(&f);
    metrics_free(conf.metrics);
}

/* The call that was to save it failed: no sequence begins from there. */
TEST(a_save_that_failed_is_no_snapshot)
{
    struct rig *g = rig_new(&(struct fake_shard){.n_cells = 12}, &plain, 1);
    struct client *c[2] = {client_new(3, 40, 9), client_new(4, 5, 9)};
    uint32_t p[40];
    memcpy(p, c[0]->prompt, sizeof(p));
    g->shard[0]->hold = 1;
    infer_submit(g->infer, &c[0]->r);
    assert_true(wait_for(hangs, g)); /* it computes 36 tokens */
    infer_submit(g->infer, &c[1]->r);
    g->shard[0]->fail_prefill = 1; /* comes with the save */
    usleep(20000);
    g->shard[0]->hold = 0;
    expect_error(c[1], ERR_GENERATION, "prefill failed");
    expect_answer(c[0]);
    assert_int_equal(g->shard[0]->n_saves, 0);
    assert_int_equal(ask(g, p, 40, 1, NULL), 0);
    assert_int_equal(ask(g, p, 40, 1, NULL), 36);
    client_free(c[0]), client_free(c[1]);
    rig_free(g);
}

static void lose_shards(uint32_t ranks, uint32_t cells_after)
{
    struct fake_shard like = {.n_cells = 26, .step_ms = 2}, then = like;
    struct infer_config conf = {.max_batch_prefill_tokens = 64, .return_ms = WAIT_MS};
    struct rig *g = rig_new(&like, &conf, ranks);
    struct client *c[N];
    then.n_cells = cells_after;
    for (uint32_t i = 0; i < N; i++) {
        c[i] = client_new(i % 5, 1 + (i * 13) % 60, 60 + i);
        infer_submit(g->infer, &c[i]->r);
    }
    assert_true(wait_for(has_token, c[0]));
    usleep(20000);
    fake_stop(g->shard[ranks - 1]);
    assert_true(wait_for(is_sick, g));
    restart_shards(g, &then);
    for (uint32_t i = 0; i < N; i++) {
        expect_answer(c[i]);
        client_free(c[i]);
    }
    expect_balance(g);
    rig_free(g);
}

TEST(nothing_in_the_cells_of_lost_shards_is_relied_on)
{
    lose_shards(1, 26);
    lose_shards(2, 26);
    lose_shards(1, 5);
}

/* ------------------------------------------------ anything */
static uint32_t upto(uint32_t n) { return (uint32_t)rand() % n; }

struct world {
    struct fake_shard like;
    struct infer_config conf;
    uint32_t n_shards, n;
    bool cancels, failures, loss;
};

static struct world any_world(void)
{
    struct world w = {.like = {.block_size = 1u << upto(4),
                               .n_cells = 2 + upto(3) * upto(40),
                               .no_prefix_caching = upto(8) == 0,
                               .no_chunks = upto(6) == 0,
                               .fail_late = upto(2)},
                      .conf = {.max_batch_prefill_tokens = 32 + upto(100),
                               .max_batch_size = upto(2) ? 0 : 4 + upto(20)},
                      .n_shards = 1 + upto(2),
                      .n = 20 + upto(40),
                      .cancels = upto(3) == 0,
                      .failures = upto(4) == 0,
                      .loss = upto(4) == 0};
    w.like.n_blocks = 2 + (100 + upto(300)) / w.like.block_size; /* >= 100 tokens: all can fit */
    w.conf.return_ms = w.loss ? WAIT_MS : 0;
    return w;
}

/* Many begin alike. */
static struct client *any_client(void)
{
    uint32_t n = 1 + upto(60), same = upto(3) ? upto(n) : 0;
    struct client *c = client_new(upto(4), n, 1 + upto(100 - n));
    for (uint32_t i = same; i < n; i++)
        c->prompt[i] = upto(2);
    return c;
}

static void run_world(const struct world *w, struct client **c, uint32_t *n_from)
{
    struct rig *g = rig_new(&w->like, &w->conf, w->n_shards);
    for (uint32_t i = 0; i < w->n; i++) {
        c[i] = any_client();
        c[i]->r.same = i && upto(8) == 0 ? &c[i - 1]->r : NULL;
        if (c[i]->r.same) {
            memcpy(c[i]->prompt, c[i - 1]->prompt, sizeof(c[i]->prompt));
            c[i]->r.n_ids = c[i - 1]->r.n_ids;
            c[i]->r.params.max_new_tokens = 1 + upto(40);
        }
        infer_submit(g->infer, &c[i]->r);
        if (upto(10) == 0)
            usleep(upto(3000));
        if (w->cancels && upto(3) == 0)
            infer_cancel(g->infer, &c[upto(i + 1)]->r);
        if (w->failures && upto(12) == 0)
            for (uint32_t k = 0; k < w->n_shards; k++)
                g->shard[k]->fail_prefill = 1;
        if (w->loss && i == w->n / 2) {
            fake_stop(g->shard[w->n_shards - 1]);
            assert_true(wait_for(is_sick, g));
            restart_shards(g, &w->like);
        }
    }
    for (uint32_t i = 0; i < w->n; i++) {
        assert_true(wait_for(is_over, c[i]));
        if (c[i]->kind == ERR_NONE)
            expect_answer(c[i]);
        else
            assert_true((w->cancels && c[i]->kind == ERR_INCOMPLETE) ||
                        (w->failures && c[i]->kind == ERR_GENERATION));
    }
    assert_true(wait_for(is_idle, g));
    expect_balance(g);
    *n_from += g->shard[0]->n_from;
    rig_free(g);
}

TEST(whatever_comes_no_cell_is_lost_or_had_twice)
{
    enum { WORLDS = 40, MOST = 60 };
    uint32_t n_from = 0;
    for (unsigned seed = 1; seed <= WORLDS; seed++) {
        struct client *c[MOST];
        srand(test_seed(seed));
        struct world w = any_world();
        run_world(&w, c, &n_from);
        for (uint32_t i = 0; i < w.n; i++)
            client_free(c[i]);
    }
    print_message("%d worlds, %u requests began from a snapshot\n", WORLDS, n_from);
    assert_true(n_from > WORLDS);
}

int main(void) { return tests_run(temp_begin, temp_end); }
