/* The scheduler against scripted shards over real gRPC: who rides with whom, chunks, prefixes,
 * turns. */
#include "tests/unit/router/infer_rig.h"

static const struct fake_shard plain;
static const struct infer_config modest = {.max_batch_prefill_tokens = 64};

TEST(many_requests_get_the_answers_they_would_get_alone)
{
    enum { N = 60 };
    struct fake_shard like = {.block_size = 4, .n_blocks = 80};
    struct infer_config conf = {.max_batch_prefill_tokens = 40, .max_batch_size = 12};
    struct rig *g = rig_new(&like, &conf, 1);
    struct client *c[N];
    for (uint32_t i = 0; i < N; i++) { /* few families of prompts: prefixes are shared */
        c[i] = client_new(i % 3, 1 + (i * 7) % 90, 1 + i % 23);
        infer_submit(g->infer, &c[i]->r);
    }
    for (uint32_t i = 0; i < N; i++)
        expect_answer(c[i]);
    const struct fake_log *log = log_of(g, 0);
    for (uint32_t i = 0; i < n_log; i++)
        assert_true(log[i].n_size <= 12);
    for (uint32_t i = 0; i < N; i++)
        client_free(c[i]);
    assert_true(n_flushed > 0);
    rig_free(g);
}

TEST(a_late_short_request_finishes_before_an_early_long_one)
{
    struct fake_shard like = {.step_ms = 3};
    struct rig *g = rig_new(&like, &modest, 1);
    struct client *slow = client_new(1, 10, 60), *quick = client_new(2, 10, 3);
    infer_submit(g->infer, &slow->r);
    assert_true(wait_for(has_token, slow));
    infer_submit(g->infer, &quick->r);
    expect_answer(quick);
    expect_answer(slow);
    assert_true(quick->last_ns < slow->last_ns);
    assert_true(quick->r.times.queued <= quick->r.times.batched);
    assert_true(quick->r.times.batched < quick->r.times.ended);
    client_free(slow);
    client_free(quick);
    rig_free(g);
}

TEST(long_prompts_come_in_chunks_and_do_not_hold_up_short_ones)
{
    struct fake_shard like = {.block_size = 4, .n_blocks = 300, .step_ms = 2};
    struct infer_config conf = {.max_batch_prefill_tokens = 16};
    struct rig *g = rig_new(&like, &conf, 1);
    struct client *first = client_new(9, 3, 80), *slow = client_new(1, 200, 4),
                  *quick = client_new(2, 6, 4);
    infer_submit(g->infer, &first->r); /* keeps the shard busy while the two queue up */
    assert_true(wait_for(has_token, first));
    g->shard[0]->hold = 1;
    assert_true(wait_for(hangs, g));
    infer_submit(g->infer, &slow->r);
    infer_submit(g->infer, &quick->r);
    g->shard[0]->hold = 0;
    expect_answer(quick);
    expect_answer(slow);
    expect_answer(first);
    assert_true(quick->first_ns < slow->first_ns);
    const struct fake_log *log = log_of(g, 0);
    for (uint32_t i = 0; i < n_log; i++)
        assert_true(log[i].n_tokens <= 16);
    client_free(first);
    client_free(slow);
    client_free(quick);
    rig_free(g);
}

static bool some_chunks(const void *g)
{
    log_of((struct rig *)(uintptr_t)g, 0);
    return n_log >= 10;
}

TEST(a_short_prompt_does_not_wait_for_the_end_of_a_long_one)
{
    struct fake_shard like = {.block_size = 4, .n_blocks = 600, .step_ms = 4};
    struct infer_config conf = {.max_batch_prefill_tokens = 16};
    struct rig *g = rig_new(&like, &conf, 1);
    struct client *slow = client_new(1, 1000, 4), *quick = client_new(2, 4, 4);
    infer_submit(g->infer, &slow->r);
    assert_true(wait_for(some_chunks, g)); /* of some eighty */
    g->shard[0]->hold = 1;
    assert_true(wait_for(hangs, g));
    log_of(g, 0);
    uint32_t before = n_log, joined;
    infer_submit(g->infer, &quick->r);
    g->shard[0]->hold = 0;
    expect_answer(quick);
    expect_answer(slow);
    assert_true(quick->last_ns < slow->first_ns);
    const struct fake_log *log = log_of(g, 0);
    for (joined = before; joined < n_log && log[joined].n_new == 0;)
        joined++;
    assert_true(joined <= before + 3); /* soon after the one that hung: of some fifty */
    client_free(slow);
    client_free(quick);
    rig_free(g);
}

TEST(a_prompt_seen_before_is_not_computed_again)
{
    struct rig *g = rig_new(&plain, &modest, 1);
    struct client *a = client_new(5, 41, 7), *b = client_new(5, 41, 7),
                  *chat = client_new(5, 41, 2);
    infer_submit(g->infer, &a->r);
    expect_answer(a);
    assert_true(wait_for(is_idle, g));
    infer_submit(g->infer, &b->r);
    expect_answer(b);
    assert_int_equal(last_prefill(g).cached, 40);
    assert_true(wait_for(is_idle, g));
    /* The next turn of a chat: prompt, answer, question. The answer's KV is there too, but for its
     * last token, which never went in: 47 tokens, eleven full blocks and a part of the next. */
    memcpy(chat->prompt + 41, a->out, 7 * sizeof(uint32_t));
    chat->prompt[48] = 77;
    chat->prompt[49] = 78;
    chat->r.n_ids = 50;
    infer_submit(g->infer, &chat->r);
    expect_answer(chat);
    assert_int_equal(last_prefill(g).cached, 47);
    client_free(a);
    client_free(b);
    client_free(chat);
    rig_free(g);
}

/* LMTP and agents send the whole conversation again for every few tokens: each time one token is
 * computed, wherever in a block the last part has ended. */
TEST(a_conversation_in_small_parts_computes_one_token_a_part)
{
    struct fake_shard like = {.block_size = 16, .n_blocks = 300};
    struct rig *g = rig_new(&like, &modest, 1);
    uint32_t n = 41;
    struct client *all = client_new(5, n, 1);
    for (uint32_t part = 1; n < 700; part++) {
        struct client *c = client_new(5, n, 1 + part % 23);
        memcpy(c->prompt, all->prompt, n * sizeof(c->prompt[0]));
        infer_submit(g->infer, &c->r);
        expect_answer(c);
        assert_true(wait_for(is_idle, g));
        if (part > 1)
            assert_int_equal(last_prefill(g).cached, n - 1);
        for (uint32_t i = 0; i < c->n_out; i++)
            all->prompt[n++] = c->out[i];
        client_free(c);
    }
    client_free(all);
    rig_free(g);
}

/* Many go on from one conversation at the same time: one in its own last block, the others in
 * copies. Everybody's answer is what it would be alone. */
TEST(many_go_on_from_one_half_filled_block)
{
    enum { N = 24 };
    struct fake_shard like = {.block_size = 16, .n_blocks = 300};
    struct rig *g = rig_new(&like, &modest, 1);
    struct client *first = client_new(5, 40, 5), *c[N];
    infer_submit(g->infer, &first->r);
    expect_answer(first);
    assert_true(wait_for(is_idle, g));
    for (uint32_t i = 0; i < N; i++) {
        c[i] = client_new(5, 48, 1 + i % 7);
        for (uint32_t k = 0; k < 8; k++)
            c[i]->prompt[40 + k] = k < i % 6 ? first->out[k] : 100 + i / 2 + k;
        infer_submit(g->infer, &c[i]->r);
    }
    for (uint32_t i = 0; i < N; i++) {
        expect_answer(c[i]);
        client_free(c[i]);
    }
    client_free(first);
    rig_free(g);
}

TEST(peers_that_do_not_copy_share_full_blocks_alone)
{
    struct fake_shard like = {.block_size = 16, .n_blocks = 300, .no_copies = true};
    struct rig *g = rig_new(&like, &modest, 1);
    struct client *a = client_new(5, 41, 7), *b = client_new(5, 41, 7);
    infer_submit(g->infer, &a->r);
    expect_answer(a);
    assert_true(wait_for(is_idle, g));
    infer_submit(g->infer, &b->r);
    expect_answer(b);
    assert_int_equal(last_prefill(g).cached, 32);
    client_free(a);
    client_free(b);
    rig_free(g);
}

/* The n answers to one prompt: it is computed once, and the blocks are there once. */
TEST(answers_to_one_prompt_compute_it_once)
{
    enum { N = 6 };
    struct fake_shard like = {.block_size = 16, .n_blocks = 60};
    struct rig *g = rig_new(&like, &modest, 1);
    struct client *c[N];
    uint32_t computed = 0;
    for (uint32_t i = 0; i < N; i++) {
        c[i] = client_new(3, 150, 12); /* the prompts alone would need 60 blocks */
        c[i]->r.same = i ? &c[0]->r : NULL;
        infer_submit(g->infer, &c[i]->r);
    }
    for (uint32_t i = 0; i < N; i++)
        expect_answer(c[i]);
    const struct fake_log *log = log_of(g, 0);
    for (uint32_t i = 0; i < n_log; i++)
        computed += log[i].n_tokens;
    assert_int_equal(computed, 150 + (N - 1) + N * 11);
    for (uint32_t i = 1; i < N; i++)
        assert_int_equal(c[i]->r.n_cached, 149);
    for (uint32_t i = 0; i < N; i++)
        client_free(c[i]);
    rig_free(g);
}

/* The one that computes the prompt for the others fails, or its client goes: another one does. */
TEST(another_takes_the_place_of_one_that_fails)
{
    enum { N = 5 };
    struct fake_shard like = {.block_size = 4, .n_blocks = 2000, .step_ms = 5};
    for (int how = 0; how < 3; how++) {
        struct rig *g = rig_new(&like, &modest, 1);
        struct client *c[N], *busy = client_new(7, 9, 200);
        infer_submit(g->infer, &busy->r);
        assert_true(wait_for(has_token, busy));
        g->shard[0]->hold = 1;
        for (uint32_t i = 0; i < N; i++) {
            c[i] = client_new(3, 1500, 5);
            c[i]->r.same = i ? &c[0]->r : NULL;
            infer_submit(g->infer, &c[i]->r);
        }
        if (how == 0)
            g->shard[0]->fail_prefill = 1;
        if (how == 2) {
            g->shard[0]->hold = 0;
            usleep(20000); /* in the middle of its prompt, of some 24 steps */
            g->shard[0]->hold = 1;
        }
        if (how > 0) {
            infer_cancel(g->infer, &c[0]->r);
            infer_cancel(g->infer, &c[2]->r);
        }
        g->shard[0]->hold = 0;
        assert_true(wait_for(is_over, c[0]));
        assert_int_equal(c[0]->kind, how ? ERR_INCOMPLETE : ERR_GENERATION);
        for (uint32_t i = 1; i < N; i++)
            if (how > 0 && i == 2)
                expect_error(c[i], ERR_INCOMPLETE, "cancelled");
            else
                expect_answer(c[i]);
        infer_cancel(g->infer, &busy->r);
        assert_true(wait_for(is_over, busy));
        for (uint32_t i = 0; i < N; i++)
            client_free(c[i]);
        client_free(busy);
        rig_free(g);
    }
}

TEST(followers_are_told_when_all_is_over)
{
    struct fake_shard like = {.block_size = 4, .n_blocks = 400, .step_ms = 60};
    struct rig *g = rig_new(&like, &modest, 1);
    struct client *c[4];
    for (uint32_t i = 0; i < 4; i++) {
        c[i] = client_new(3, 300, 100);
        c[i]->r.same = i ? &c[0]->r : NULL;
        infer_submit(g->infer, &c[i]->r);
    }
    usleep(20000);
    infer_stop(g->infer);
    for (uint32_t i = 0; i < 4; i++) {
        expect_error(c[i], ERR_GENERATION, "shutting down");
        client_free(c[i]);
    }
    fake_stop(g->shard[0]);
    free(g->shard[0]);
    metrics_free(g->metrics);
    free(g);
}

/* A key that floods the server waits for itself: another one's request is served next. */
TEST(a_key_that_floods_holds_up_nobody_else)
{
    enum { MANY = 60 };
    struct fake_shard like = {.block_size = 4, .n_blocks = 2000, .step_ms = 5};
    struct infer_config conf = {.max_batch_prefill_tokens = 64, .max_batch_size = 4};
    struct rig *g = rig_new(&like, &conf, 1);
    struct client *flood[MANY], *other = client_new(1, 30, 3);
    uint32_t before = 0, had = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        flood[i] = client_new(100 + i, 30, 8);
        flood[i]->r.tenant = 1;
        flood[i]->r.priority = -100; /* its own word */
        infer_submit(g->infer, &flood[i]->r);
    }
    assert_true(wait_for(has_token, flood[0]));
    other->r.tenant = 2;
    g->shard[0]->hold = 1;
    assert_true(wait_for(hangs, g)); /* so that it is known who was served before it came */
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < MANY; i++)
        had += flood[i]->n_out > 0;
    pthread_mutex_unlock(&lock);
    infer_submit(g->infer, &other->r);
    g->shard[0]->hold = 0;
    expect_answer(other);
    for (uint32_t i = 0; i < MANY; i++) {
        expect_answer(flood[i]);
        before += flood[i]->first_ns < other->first_ns;
    }
    assert_true(had < MANY - 8);
    assert_true(before <= had + 8); /* and those of the turn it came in */
    for (uint32_t i = 0; i < MANY; i++)
        client_free(flood[i]);
    client_free(other);
    rig_free(g);
}

/* Shards of TGI size the chunks themselves; ours are told. */
TEST(chunks_are_named_for_those_who_listen)
{
    for (int deaf = 0; deaf < 2; deaf++) {
        struct fake_shard like = {.block_size = 4, .n_blocks = 600, .no_chunks = deaf};
        struct infer_config conf = {.max_batch_prefill_tokens = 16};
        struct rig *g = rig_new(&like, &conf, 1);
        struct client *c[3] = {client_new(1, 300, 4), client_new(2, 200, 9), client_new(3, 10, 40)};
        for (int i = 0; i < 3; i++)
            infer_submit(g->infer, &c[i]->r);
        for (int i = 0; i < 3; i++)
            expect_answer(c[i]);
        const struct fake_log *log = log_of(g, 0);
        for (uint32_t i = 0; i < n_log; i++)
            assert_true(log[i].n_tokens <= 16);
        for (int i = 0; i < 3; i++)
            client_free(c[i]);
        rig_free(g);
    }
}

TEST(adapters_share_no_prefix)
{
    struct rig *g = rig_new(&plain, &modest, 1);
    const char *names[3] = {NULL, "one", "two"};
    for (int i = 0; i < 3; i++) {
        struct client *c = client_new(5, 41, 2);
        c->r.params.adapter_id = names[i];
        infer_submit(g->infer, &c->r);
        expect_answer(c);
        assert_true(wait_for(is_idle, g));
        client_free(c);
    }
    const struct fake_log *log = log_of(g, 0);
    for (uint32_t i = 0; i < n_log; i++)
        assert_int_equal(log[i].cached, 0);
    rig_free(g);
}

TEST(peers_that_neither_chunk_nor_take_ids_are_served)
{
    struct fake_shard like = {
        .no_chunking = true, .text_only = true, .n_blocks = 200, .step_ms = 1};
    struct infer_config conf = {.max_batch_prefill_tokens = 64,
                                .max_waiting_tokens = 4,
                                .waiting_served_ratio = 1.2,
                                .max_input_tokens = 100,
                                .max_total_tokens = 200};
    struct rig *g = rig_new(&like, &conf, 1);
    struct client *c[12];
    for (uint32_t i = 0; i < 12; i++) {
        c[i] = client_new(i % 2, 5 + i * 6, 10 + i);
        infer_submit(g->infer, &c[i]->r);
        usleep(2000);
    }
    for (uint32_t i = 0; i < 12; i++) {
        expect_answer(c[i]);
        client_free(c[i]);
    }
    rig_free(g);
}

int main(void) { return tests_run(temp_begin, temp_end); }
