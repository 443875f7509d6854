/* A draft model's shards beside those of the served model. */
#include "tests/unit/router/infer_rig.h"

enum { PROMPT = 40, ANSWER = 30 };

static struct fake_shard *draft_shard(void)
{
    struct fake_shard *f = calloc(1, sizeof(*f));
    snprintf(f->path, sizeof(f->path), "%s/draft", dir);
    fake_start(f);
    return f;
}

/* Fewest tokens that a prompt on the draft shards since the last call found in their cache: a draft
 * sequence that joins again finds its own. UINT32_MAX: there was none. */
static uint32_t seen_before(struct fake_shard *f)
{
    static uint32_t read;
    uint32_t cached = UINT32_MAX;
    pthread_mutex_lock(&f->lock);
    for (; read < f->n_log; read++)
        if (f->log[read].rpc == FAKE_PREFILL && f->log[read].n_new)
            cached = f->log[read].cached < cached ? f->log[read].cached : cached;
    pthread_mutex_unlock(&f->lock);
    return cached;
}

static uint32_t ask(struct rig *g, struct fake_shard *drafts, uint64_t salt)
{
    struct client *c = client_new(1, PROMPT, ANSWER);
    c->r.cache_salt = salt;
    infer_submit(g->infer, &c->r);
    expect_answer(c);
    client_free(c);
    assert_true(wait_for(is_idle, g));
    return seen_before(drafts);
}

/* Blocks of a tenant are its own in the draft model, too: a hit there shows in the time of an
 * answer. */
TEST(drafts_share_nothing_between_salts)
{
    static const struct fake_shard like = {.step_ms = 5, .speculate = 2};
    static const uint64_t tenant = UINT64_C(1) << 63;
    const struct infer_config plain = {.max_batch_prefill_tokens = 64};
    struct infer_config conf = plain;
    struct fake_shard *drafts = draft_shard();
    conf.draft_target = drafts->path;
    struct rig *g = rig_new(&like, &conf, 1);
    assert_int_equal(ask(g, drafts, tenant | 1), 0);
    assert_true(ask(g, drafts, tenant | 1) >= PROMPT / 2);
    assert_int_equal(ask(g, drafts, tenant | 2), 0);
    assert_int_equal(ask(g, drafts, 0), 0);
    rig_free(g);
    fake_stop(drafts);
    free(drafts);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    return tests_run(temp_begin, temp_end);
}
