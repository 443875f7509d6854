/* Adapters that are loaded and unloaded while requests run and shards are replaced. */
#include "tests/unit/router/infer_rig.h"

static const struct infer_config patient = {.max_batch_prefill_tokens = 64, .return_ms = WAIT_MS};

struct change {
    struct adapter_change c;
    bool done;
};

static void on_done(struct adapter_change *c)
{
    pthread_mutex_lock(&lock);
    ((struct change *)c->arg)->done = true;
    pthread_mutex_unlock(&lock);
}

static bool is_done(const void *arg) { return ((const struct change *)arg)->done; }

static void begin(struct rig *g, struct change *x, char *name, char *path)
{
    *x = (struct change){.c = {.name = name, .path = path, .done = on_done, .arg = x}};
    infer_change(g->infer, &x->c);
}

static bool is_served(const struct rig *g)
{
    return adapter_shelf_has(infer_adapters(g->infer), "a");
}
static bool is_refused(const void *g) { return !is_served(g); }
static bool is_held(const void *g) { return ((const struct rig *)g)->shard[0]->holds_adapter; }

/* A request that uses `a`, which is loaded. */
static struct client *ask_with_adapter(struct rig *g, uint32_t n)
{
    struct client *c = client_new(1, 20, n);
    struct change load;
    begin(g, &load, "a", "/a");
    assert_true(wait_for(is_done, &load));
    assert_int_equal(load.c.err.kind, ERR_NONE);
    assert_true(is_served(g));
    c->r.params.adapter_id = "a";
    infer_submit(g->infer, &c->r);
    assert_true(wait_for(has_token, c));
    return c;
}

static void expect_unloaded(struct rig *g, struct client *c, struct change *unload)
{
    expect_answer(c);
    assert_true(wait_for(is_done, unload));
    assert_int_equal(unload->c.err.kind, ERR_NONE);
    assert_int_equal(g->shard[0]->n_adapters, 0);
    client_free(c);
    rig_free(g);
}

TEST(an_adapter_in_use_is_refused_first_and_unloaded_last)
{
    static const struct fake_shard like = {.step_ms = 5, .runtime_adapters = 4};
    struct rig *g = rig_new(&like, &patient, 1);
    struct client *c = ask_with_adapter(g, 100);
    struct change unload;
    begin(g, &unload, "a", NULL);
    assert_true(wait_for(is_refused, g));
    assert_int_equal(g->shard[0]->n_adapters, 1);
    expect_unloaded(g, c, &unload);
}

/* New shards are given the adapters of the list as it was when they were found. An unload that
 * comes while they load these is not forgotten. */
TEST(an_unload_while_shards_return_is_not_undone)
{
    static const struct fake_shard like = {.step_ms = 20, .runtime_adapters = 4};
    struct fake_shard then = {.step_ms = 20, .runtime_adapters = 4, .hold_adapter = 1};
    struct rig *g = rig_new(&like, &patient, 1);
    struct client *c = ask_with_adapter(g, 200);
    struct change unload;
    fake_stop(g->shard[0]);
    assert_true(wait_for(is_sick, g));
    restart_shards(g, &then);
    assert_true(wait_for(is_held, g));
    begin(g, &unload, "a", NULL);
    assert_true(wait_for(is_refused, g));
    g->shard[0]->hold_adapter = 0;
    assert_true(wait_for(is_healthy, g));
    assert_false(is_served(g));
    assert_int_equal(c->n_last, 0);
    expect_unloaded(g, c, &unload);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    return tests_run(temp_begin, temp_end);
}
