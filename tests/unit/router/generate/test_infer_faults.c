/* The scheduler against scripted shards over real gRPC: what ends early. Refusals, cancellation in
 * every phase, failures of every call, loss of a rank, health, stop. */
#include "tests/unit/router/infer_rig.h"

static const struct fake_shard plain;
static const struct infer_config modest = {.max_batch_prefill_tokens = 64};

/* ------------------------------------------------ refusals and cancellation */
TEST(what_can_never_fit_is_refused_at_once)
{
    struct fake_shard like = {.block_size = 4, .n_blocks = 10}; /* 9 usable: 36 tokens */
    struct rig *g = rig_new(&like, &modest, 1);
    struct client *big = client_new(1, 30, 8), *fits = client_new(1, 30, 7);
    assert_int_equal(infer_limits(g->infer)->max_total_tokens, 36);
    infer_submit(g->infer, &big->r);
    infer_submit(g->infer, &fits->r);
    expect_error(
        big, ERR_TOO_LONG,
        "`inputs` tokens + `max_new_tokens` must be <= 36. Given: 30 `inputs` tokens and 8");
    expect_answer(fits);
    client_free(big);
    client_free(fits);
    rig_free(g);
}

TEST(cancel_in_the_queue)
{
    struct fake_shard like = {.step_ms = 1};
    struct infer_config conf = {.max_batch_prefill_tokens = 64, .max_batch_size = 1};
    struct rig *g = rig_new(&like, &conf, 1);
    struct client *runs = client_new(1, 10, 40), *waits = client_new(2, 10, 40);
    infer_submit(g->infer, &runs->r);
    assert_true(wait_for(has_token, runs));
    g->shard[0]->hold = 1;
    infer_submit(g->infer, &waits->r);
    infer_cancel(g->infer, &waits->r);
    expect_error(waits, ERR_INCOMPLETE, "cancelled");
    assert_int_equal(waits->n_out, 0);
    client_free(waits);
    g->shard[0]->hold = 0;
    expect_answer(runs);
    infer_cancel(g->infer, &runs->r); /* too late: nothing happens */
    rig_free(g);
    assert_int_equal(runs->n_last, 1);
    client_free(runs);
}

TEST(cancel_during_prefill)
{
    struct rig *g = rig_new(&plain, &modest, 1);
    struct client *gone = client_new(1, 50, 40), *stays = client_new(2, 10, 5);
    g->shard[0]->hold = 1;
    infer_submit(g->infer, &gone->r);
    assert_true(wait_for(hangs, g)); /* its Prefill is out */
    infer_submit(g->infer, &stays->r);
    infer_cancel(g->infer, &gone->r);
    expect_error(gone, ERR_INCOMPLETE, "cancelled");    /* at once, though the step hangs */
    assert_true(infer_stats(g->infer).blocks_used > 0); /* the shard may still write them */
    client_free(gone);
    g->shard[0]->hold = 0;
    expect_answer(stays);
    assert_int_equal(stays->n_out, 5);
    client_free(stays);
    rig_free(g);
}

static void cancel_while_decoding(bool edits)
{
    struct fake_shard like = {.step_ms = 3, .n_blocks = 200, .no_edits = !edits};
    struct rig *g = rig_new(&like, &modest, 1);
    struct client *gone = client_new(1, 10, 200), *stays = client_new(2, 10, 150);
    infer_submit(g->infer, &gone->r);
    infer_submit(g->infer, &stays->r);
    assert_true(wait_for(has_token, gone));
    assert_true(wait_for(has_token, stays));
    g->shard[0]->hold = 1;
    assert_true(wait_for(hangs, g)); /* a step */
    log_of(g, 0);
    uint32_t before = n_log;
    uint32_t used = infer_stats(g->infer).blocks_used;
    infer_cancel(g->infer, &gone->r);
    expect_error(gone, ERR_INCOMPLETE, "cancelled");
    usleep(20000);
    assert_int_equal(infer_stats(g->infer).blocks_used, used); /* the shard still writes them */
    g->shard[0]->hold = 0;
    expect_answer(stays);
    uint32_t steps = 0, at = before;
    const struct fake_log *log = log_of(g, 0);
    while (at < n_log && log[at].n_size != 1)
        steps += log[at++].rpc == FAKE_DECODE;
    assert_true(at < n_log);
    assert_int_equal(steps, 1); /* the one that hung */
    assert_int_equal(log[at].rpc, edits ? FAKE_DECODE : FAKE_FILTER);
    client_free(gone);
    client_free(stays);
    rig_free(g);
}

TEST(cancel_while_decoding_frees_its_blocks_before_the_next_step)
{
    cancel_while_decoding(true);
    cancel_while_decoding(false);
}

TEST(storms_of_cancels_leave_nothing_behind)
{
    enum { N = 150 };
    struct fake_shard like = {.n_blocks = 60};
    struct infer_config conf = {.max_batch_prefill_tokens = 24, .max_batch_size = 16};
    struct rig *g = rig_new(&like, &conf, 1);
    struct client *c[N];
    for (uint32_t i = 0; i < N; i++) {
        c[i] = client_new(i % 5, 1 + (i * 13) % 60, 1 + (i * 5) % 40);
        infer_submit(g->infer, &c[i]->r);
        if (i % 3)
            infer_cancel(g->infer, &c[(i * 31) % (i + 1)]->r);
        if (i % 16 == 0)
            usleep(3000);
    }
    for (uint32_t i = 0; i < N; i++) {
        assert_true(wait_for(is_over, c[i]));
        assert_true(c[i]->kind == ERR_NONE || c[i]->kind == ERR_INCOMPLETE);
        if (c[i]->kind == ERR_NONE)
            expect_answer(c[i]);
    }
    rig_free(g);
    for (uint32_t i = 0; i < N; i++)
        client_free(c[i]);
}

/* ------------------------------------------------ failures */
static bool was_probed(const void *g) { return ((const struct rig *)g)->shard[0]->n_probe > 0; }

TEST(a_failed_prefill_fails_only_the_new_ones)
{
    struct fake_shard like = {.step_ms = 2, .n_blocks = 200};
    struct rig *g = rig_new(&like, &modest, 1);
    struct client *old = client_new(1, 10, 240), *new = client_new(2, 10, 5),
                  *again = client_new(2, 10, 5);
    infer_submit(g->infer, &old->r);
    assert_true(wait_for(has_token, old));
    g->shard[0]->fail_prefill = 1;
    infer_submit(g->infer, &new->r);
    expect_error(new, ERR_GENERATION,
                 "Request failed during generation: Server error: prefill failed");
    infer_submit(g->infer, &again->r); /* and its KV was not taken for computed */
    expect_answer(again);
    expect_answer(old);
    client_free(old);
    client_free(new);
    client_free(again);
    rig_free(g);
}

TEST(a_peer_that_loses_the_old_batch_too_fails_both_and_goes_on)
{
    struct fake_shard like = {.step_ms = 2, .n_blocks = 200, .fail_drops = true};
    struct rig *g = rig_new(&like, &modest, 1);
    struct client *old = client_new(1, 10, 240), *new = client_new(2, 10, 5),
                  *next = client_new(3, 10, 5);
    infer_submit(g->infer, &old->r);
    assert_true(wait_for(has_token, old));
    g->shard[0]->fail_prefill = 1;
    infer_submit(g->infer, &new->r);
    expect_error(new, ERR_GENERATION, "prefill failed");
    expect_error(old, ERR_GENERATION, "Request failed during generation: Server error: Batch ID");
    infer_submit(g->infer, &next->r);
    expect_answer(next);
    client_free(old);
    client_free(new);
    client_free(next);
    rig_free(g);
}

TEST(a_failed_decode_fails_what_runs_and_service_goes_on)
{
    struct fake_shard like = {.step_ms = 2, .n_blocks = 200};
    struct rig *g = rig_new(&like, &modest, 1);
    struct client *a = client_new(1, 10, 240), *b = client_new(2, 10, 240),
                  *c = client_new(3, 9, 5);
    infer_submit(g->infer, &a->r);
    infer_submit(g->infer, &b->r);
    assert_true(wait_for(has_token, a));
    assert_true(wait_for(has_token, b));
    g->shard[0]->fail_decode = 1;
    expect_error(a, ERR_GENERATION,
                 "Request failed during generation: Server error: decode failed");
    expect_error(b, ERR_GENERATION, "decode failed");
    assert_true(wait_for(was_probed, g));
    assert_true(wait_for(is_healthy, g)); /* a one-token prefill has proved it */
    infer_submit(g->infer, &c->r);
    expect_answer(c);
    client_free(a);
    client_free(b);
    client_free(c);
    rig_free(g);
}

TEST(lack_of_memory_is_told_from_other_failures)
{
    struct fake_shard like = {.fail_status = GRPC_STATUS_RESOURCE_EXHAUSTED};
    struct rig *g = rig_new(&like, &modest, 2);
    struct client *a = client_new(1, 10, 60), *b = client_new(2, 10, 60), *c = client_new(3, 9, 5);
    g->shard[0]->fail_prefill = g->shard[1]->fail_prefill = 1;
    infer_submit(g->infer, &a->r);
    expect_error(a, ERR_OVERLOADED,
                 "Request failed during generation: Server error: prefill failed");
    g->shard[0]->fail_decode = g->shard[1]->fail_decode = 1;
    infer_submit(g->infer, &b->r);
    expect_error(b, ERR_OVERLOADED, "decode failed");
    assert_true(wait_for(is_healthy, g));
    infer_submit(g->infer, &c->r);
    expect_answer(c);
    client_free(a);
    client_free(b);
    client_free(c);
    rig_free(g);
}

TEST(health_stays_bad_until_a_model_call_succeeds)
{
    struct rig *g = rig_new(&plain, &modest, 1);
    struct client *a = client_new(1, 10, 60);
    assert_true(infer_healthy(g->infer));
    g->shard[0]->fail_prefill = 1000;
    infer_submit(g->infer, &a->r);
    expect_error(a, ERR_GENERATION, "prefill failed");
    assert_true(wait_for(is_sick, g));
    usleep(300000);
    assert_false(infer_healthy(g->infer));
    g->shard[0]->fail_prefill = 0;
    assert_true(wait_for(is_healthy, g));
    client_free(a);
    rig_free(g);
}

TEST(one_request_can_fail_alone)
{
    struct fake_shard like = {.step_ms = 2, .n_blocks = 200};
    struct rig *g = rig_new(&like, &modest, 1);
    struct client *a = client_new(1, 10, 240), *b = client_new(2, 10, 30);
    infer_submit(g->infer, &a->r); /* id 0 */
    infer_submit(g->infer, &b->r);
    assert_true(wait_for(has_token, a));
    g->shard[0]->fail_one = 1;
    expect_error(a, ERR_GENERATION,
                 "Request failed during generation: Server error: its own fault");
    expect_answer(b);
    client_free(a);
    client_free(b);
    rig_free(g);
}

TEST(a_lost_shard_ends_everything_by_name)
{
    struct fake_shard like = {.step_ms = 3};
    struct infer_config conf = {.max_batch_prefill_tokens = 64, .max_batch_size = 1};
    struct rig *g = rig_new(&like, &conf, 2);
    struct client *runs = client_new(1, 10, 200), *waits = client_new(2, 10, 5),
                  *late = client_new(3, 10, 5);
    infer_submit(g->infer, &runs->r);
    infer_submit(g->infer, &waits->r);
    assert_true(wait_for(has_token, runs));
    fake_stop(g->shard[1]);
    expect_error(runs, ERR_GENERATION,
                 "Request failed during generation: Could not connect to Text Generation server: "
                 "shard 1: ");
    expect_error(waits, ERR_GENERATION, "shard 1: ");
    assert_true(wait_for(is_lost, g));
    assert_non_null(strstr(g->why, "shard 1"));
    assert_false(infer_healthy(g->infer));
    infer_submit(g->infer, &late->r);
    expect_error(late, ERR_GENERATION, "lost");
    client_free(runs);
    client_free(waits);
    client_free(late);
    rig_free(g);
}

TEST(a_shard_that_dies_while_idle_is_noticed)
{
    struct rig *g = rig_new(&plain, &modest, 1);
    assert_true(infer_healthy(g->infer));
    usleep(50000);
    int64_t start = clock_ms();
    fake_stop(g->shard[0]);
    assert_true(wait_for(is_lost, g));
    assert_true(clock_ms() - start < 8000); /* not by a ping */
    rig_free(g);
}

TEST(two_ranks_answer_as_one)
{
    struct infer_config conf = {.max_batch_prefill_tokens = 32};
    struct rig *g = rig_new(&plain, &conf, 2);
    struct client *c[20];
    assert_int_equal(infer_limits(g->infer)->n_shards, 2);
    for (uint32_t i = 0; i < 20; i++) {
        c[i] = client_new(i % 4, 3 + i * 3, 2 + i);
        infer_submit(g->infer, &c[i]->r);
    }
    for (uint32_t i = 0; i < 20; i++) {
        expect_answer(c[i]);
        client_free(c[i]);
    }
    rig_free(g);
}

TEST(ranks_that_disagree_about_a_step_start_afresh)
{
    struct fake_shard like = {.step_ms = 2, .n_blocks = 200};
    struct rig *g = rig_new(&like, &modest, 2);
    struct client *old = client_new(1, 10, 240), *new = client_new(2, 10, 5),
                  *next = client_new(3, 10, 5);
    infer_submit(g->infer, &old->r);
    assert_true(wait_for(has_token, old));
    g->shard[1]->fail_prefill = 1;
    infer_submit(g->infer, &new->r);
    expect_error(new, ERR_GENERATION, "prefill failed");
    expect_error(old, ERR_GENERATION, "prefill failed");
    infer_submit(g->infer, &next->r);
    expect_answer(next);
    client_free(old);
    client_free(new);
    client_free(next);
    rig_free(g);
}

/* A shard in a process of its own: this program again. */
static pid_t spawn_shard(const char *path)
{
    char *argv[] = {(char *)(uintptr_t) "/proc/self/exe", (char *)(uintptr_t) "--shard",
                    (char *)(uintptr_t)path, NULL};
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, argv[0], NULL, NULL, argv, environ), 0);
    return pid;
}

static int be_a_shard(const char *path)
{
    struct fake_shard *f = calloc(1, sizeof(*f));
    f->step_ms = 3;
    snprintf(f->path, sizeof(f->path), "%s", path);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fake_open(f);
    fake_run(f);
    return 0;
}

TEST(a_shard_that_freezes_is_unhealthy_and_one_that_is_killed_is_lost)
{
    struct rig g = {0};
    struct err e = ERR_INIT;
    char path[100];
    struct client *c = client_new(1, 10, 240);
    snprintf(path, sizeof(path), "%s/own", dir);
    struct infer_config conf = {
        .shard_target = path, .connect_timeout_ms = WAIT_MS, .max_batch_prefill_tokens = 64};
    pid_t pid = spawn_shard(path);
    g.infer = infer_start(&conf, &e); /* which waits until it is up */
    assert_non_null(g.infer);
    infer_on_lost(g.infer, on_lost, &g);
    assert_true(is_healthy(&g));
    kill(pid, SIGSTOP);
    int64_t start = clock_ms();
    assert_true(wait_for(is_sick, &g));
    assert_in_range(clock_ms() - start, 1000, 12000);
    kill(pid, SIGCONT);
    assert_true(wait_for(is_healthy, &g));
    assert_false(is_lost(&g));
    infer_submit(g.infer, &c->r);
    assert_true(wait_for(has_token, c));
    kill(pid, SIGKILL);
    start = clock_ms();
    expect_error(c, ERR_GENERATION, "Could not connect to Text Generation server: shard 0: ");
    assert_true(wait_for(is_lost, &g));
    assert_true(clock_ms() - start < 8000);
    waitpid(pid, NULL, 0);
    infer_stop(g.infer);
    client_free(c);
    unlink(path);
    snprintf(path, sizeof(path), "%s/own.lock", dir);
    unlink(path);
}

/* ------------------------------------------------ life */
static bool was_asked(const void *g) { return ((const struct rig *)g)->shard[0]->n_health > 0; }

TEST(idle_shards_are_asked_for_their_health)
{
    struct rig *g = rig_new(&plain, &modest, 1);
    usleep(1100000);
    assert_int_equal(g->shard[0]->n_health, 0);
    assert_true(infer_healthy(g->infer)); /* asks, and does not wait */
    assert_true(wait_for(was_asked, g));
    usleep(100000);
    assert_true(infer_healthy(g->infer));
    rig_free(g);
}

/* What a second signal does: also to one whose prompt is being computed. The shards stay. */
TEST(fail_ends_all_requests_and_counts_them)
{
    atomic_uint failed = 0;
    struct fake_shard like = {.step_ms = 5, .n_blocks = 200};
    struct infer_config conf = {
        .max_batch_prefill_tokens = 64, .max_batch_size = 2, .failed = &failed};
    struct rig *g = rig_new(&like, &conf, 1);
    struct client *c[4], *next = client_new(9, 10, 5);
    for (uint32_t i = 0; i < 4; i++) { /* runs, joins, and two that wait */
        c[i] = client_new(i, 10, 200);
        infer_submit(g->infer, &c[i]->r);
        if (i == 0)
            assert_true(wait_for(has_token, c[0]));
    }
    infer_fail(g->infer, "the server is shutting down");
    for (uint32_t i = 0; i < 4; i++) {
        expect_error(c[i], ERR_GENERATION, "generation: the server is shutting down");
        client_free(c[i]);
    }
    assert_int_equal(atomic_load(&failed), 4);
    infer_submit(g->infer, &next->r);
    expect_answer(next);
    client_free(next);
    assert_int_equal(atomic_load(&failed), 4);
    rig_free(g);
}

TEST(stop_ends_what_is_alive)
{
    struct fake_shard like = {.step_ms = 5};
    struct infer_config conf = {.max_batch_prefill_tokens = 64, .max_batch_size = 1};
    struct rig *g = rig_new(&like, &conf, 1);
    struct client *runs = client_new(1, 10, 200), *waits = client_new(2, 10, 5);
    infer_submit(g->infer, &runs->r);
    infer_submit(g->infer, &waits->r);
    assert_true(wait_for(has_token, runs));
    int64_t start = clock_ms();
    infer_stop(g->infer);
    assert_true(clock_ms() - start < 3000);
    expect_error(runs, ERR_GENERATION, "shutting down");
    expect_error(waits, ERR_GENERATION, "shutting down");
    client_free(runs);
    client_free(waits);
    fake_stop(g->shard[0]);
    free(g->shard[0]);
    metrics_free(g->metrics);
    free(g);
}

TEST(a_shard_that_never_comes_is_not_waited_for_forever)
{
    struct err e = ERR_INIT;
    struct infer_config conf = {.shard_target = "unix:///tmp/no-such-shard",
                                .connect_timeout_ms = 300};
    int64_t start = clock_ms();
    assert_null(infer_start(&conf, &e));
    assert_in_range(clock_ms() - start, 250, 5000);
    assert_non_null(strstr(e.msg, "Unable to connect to the model shards"));
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--shard") == 0)
        return be_a_shard(argv[2]);
    return tests_run(temp_begin, temp_end);
}
