/* Batches, steps and run-ahead: company changes nothing. The model and the helpers are in rig.h. */
#include "tests/unit/model-server/engine/rig.h"

/* ---------------------------------------------------------------- tests */

/* Requests arrive in chunks, alone or together, behind a cached batch or as another one that is
 * joined in Decode: each gets what it gets alone. */
TEST_WITH(company_changes_nothing, setup, teardown)
{
    static struct asked v[MOST];
    struct err e = ERR_INIT;
    srand(test_seed(3));
    for (int round = 0; round < 30; round++) {
        next_block = 0;
        for (uint32_t i = 0; i < MOST; i++) {
            ask(&v[i], i, (uint32_t)rand() % 10000, rand() % 2);
            run_alone(&v[i], v);
        }
        uint64_t running[2];
        uint32_t next = 0, n_running = 0;
        while (next < MOST || n_running) {
            struct seq_spec specs[4];
            struct answer a = {0};
            uint32_t n = 0, most = 1 + (uint32_t)rand() % 4;
            while (n < most && next < MOST)
                specs[n++] = v[next++].spec;
            if (n && rand() % 2)
                specs[n - 1].chunk_len = 1 + (uint32_t)rand() % 9;
            bool join = n_running == 2 || (n_running && rand() % 2);
            if (n) {
                assert_int_equal(
                    engine_prefill(g, next, specs, n, join ? &running[0] : NULL, NULL, &a, &e), 0);
                take(&a, v);
                if (join)
                    n_running--, running[0] = running[1];
            } else {
                assert_int_equal(engine_decode(g, running, n_running, NULL, &a, &e), 0);
                take(&a, v);
                n_running = 0;
            }
            if (a.batch)
                running[n_running++] = a.batch->id;
        }
        for (uint32_t i = 0; i < MOST; i++) {
            assert_true(v[i].over);
            assert_int_equal(v[i].n_got, v[i].n_alone);
            assert_memory_equal(v[i].got, v[i].alone, v[i].n_got * sizeof(uint32_t));
        }
    }
}
TEST_ALSO(company_changes_nothing, setup_recurrent_draws, teardown)
TEST_ALSO(company_changes_nothing, setup_recurrent, teardown)
TEST_ALSO(company_changes_nothing, setup_draws, teardown)

/* A request that goes on from copies of another one's blocks gets what it gets alone; so does that
 * one, who writes on behind them. */
TEST_WITH(a_copied_beginning_is_as_good_as_a_computed_one, setup, teardown)
{
    static struct asked v[2];
    struct err e = ERR_INIT;
    struct answer a;
    uint64_t both[2] = {500, 501};
    for (uint32_t seed = 4; seed < 64; seed += 6) {
        next_block = 1;
        ask(&v[0], 0, seed, false), ask(&v[1], 1, seed, true);
        run_alone(&v[0], v), run_alone(&v[1], v);
        for (uint32_t i = 0; i < v[1].spec.n_blocks; i++) /* what it left there is no help */
            for (uint32_t k = 0; k < BS; k++)
                fake.kv[v[1].blocks[i] * BS + k] = 1;
        assert_int_equal(engine_prefill(g, 500, &v[0].spec, 1, NULL, NULL, &a, &e), 0);
        take(&a, v);
        uint32_t n = v[1].spec.n_prompt / BS + 1;
        assert_int_equal(engine_copy(g, v[0].blocks, v[1].blocks, n, &e), 0);
        v[1].spec.cache_len = v[1].spec.n_prompt - 1;
        assert_int_equal(engine_prefill(g, 501, &v[1].spec, 1, NULL, NULL, &a, &e), 0);
        take(&a, v);
        assert_int_equal(engine_decode(g, both, 2, NULL, &a, &e), 0);
        take(&a, v);
        if (a.batch)
            finish(a.batch->id, v);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(v[i].n_got, v[i].n_alone);
            assert_memory_equal(v[i].got, v[i].alone, v[i].n_got * sizeof(uint32_t));
        }
        engine_clear(g, NULL);
    }
    uint32_t inside = 1, outside = fake.n_blocks;
    assert_int_equal(engine_copy(g, &inside, &outside, 1, &e), -1);
    assert_int_equal(engine_copy(g, &outside, &inside, 1, &e), -1);
}
TEST_ALSO(a_copied_beginning_is_as_good_as_a_computed_one, setup_draws, teardown)

/* A step that fails leaves everything as it was: asked again, the answer is the same. */
TEST_WITH(failures_leave_no_trace, setup, teardown)
{
    static struct asked v[3];
    struct err e = ERR_INIT;
    struct answer a;
    for (uint32_t i = 0; i < 3; i++) {
        ask(&v[i], i, 3 * i + 2, i == 1);
        run_alone(&v[i], v);
    }
    fake.fail_in = 1;
    assert_int_equal(engine_prefill(g, 0, &v[0].spec, 1, NULL, NULL, &a, &e), -1);
    assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, NULL, &a, &e),
                     -1); /* the batch never came to be */
    assert_string_equal(e.msg, "Batch ID 0 not found in cache.");
    assert_int_equal(engine_prefill(g, 0, &v[0].spec, 1, NULL, NULL, &a, &e), 0);
    take(&a, v);
    fake.fail_in = 1;
    assert_int_equal(engine_prefill(g, 1, &v[1].spec, 1, (uint64_t[]){0}, NULL, &a, &e), -1);
    assert_int_equal(engine_prefill(g, 1, &v[1].spec, 1, NULL, NULL, &a, &e), 0);
    take(&a, v);
    fake.fail_in = 1;
    assert_int_equal(engine_decode(g, (uint64_t[]){1, 0}, 2, NULL, &a, &e), -1);
    fake.fail_in = 1;
    assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, NULL, &a, &e), -1);
    assert_int_equal(engine_decode(g, (uint64_t[]){1, 0}, 2, NULL, &a, &e), 0);
    take(&a, v);
    assert_int_equal(a.batch->id, 1);
    assert_false(engine_broken(g));
    finish(1, v);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(v[i].n_got, v[i].n_alone);
        assert_memory_equal(v[i].got, v[i].alone, v[i].n_got * sizeof(uint32_t));
    }
}
TEST_ALSO(failures_leave_no_trace, setup_recurrent_draws, teardown)
TEST_ALSO(failures_leave_no_trace, setup_recurrent, teardown)
TEST_ALSO(failures_leave_no_trace, setup_draws, teardown)

/* A constrained answer is of its language and the same in any company; an impossible constraint
 * fails its request alone. */
TEST_WITH(grammars_choose_among_the_tokens_that_fit, setup, teardown)
{
    static struct asked v[3];
    struct answer a;
    struct err e = ERR_INIT;
    for (uint32_t i = 0; i < 3; i++)
        ask(&v[i], i, 5 + i, i == 1);
    for (uint32_t i = 0; i < 2; i++) {
        v[i].spec.ignore_eos = false;
        v[i].spec.grammar = (struct grammar_spec){"(<1[0-9]>|<7>){3,5}<8>", CONSTRAINT_REGEX};
    }
    for (uint32_t i = 0; i < 3; i++)
        run_alone(&v[i], v);
    struct seq_spec all[4] = {v[0].spec, v[1].spec, v[2].spec, v[2].spec};
    all[3].id = 3;
    all[3].grammar = (struct grammar_spec){"(", CONSTRAINT_REGEX};
    assert_int_equal(engine_prefill(g, 9, all, 4, NULL, NULL, &a, &e), 0);
    assert_string_equal(a.out->gen[3].seq->error, "pattern: a group without end at byte 1");
    struct answer three = a;
    struct stepper out = *a.out;
    out.n_gen = 3;
    three.out = &out;
    take(&three, v);
    finish(9, v);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(v[i].n_got, v[i].n_alone);
        assert_memory_equal(v[i].got, v[i].alone, v[i].n_got * sizeof(uint32_t));
    }
    for (int i = 0; i < 2; i++) { /* 3 to 5 of the first kind, <8>, and the end */
        uint32_t n = v[i].n_got;
        assert_in_range(n, 5, 7);
        assert_int_equal(v[i].got[n - 1], EOS);
        assert_int_equal(v[i].got[n - 2], 8);
        for (uint32_t k = 0; k < n - 2; k++)
            assert_true(v[i].got[k] == 7 || (v[i].got[k] >= 10 && v[i].got[k] < 20));
    }
}
TEST_ALSO(grammars_choose_among_the_tokens_that_fit, setup_recurrent, teardown)
TEST_ALSO(grammars_choose_among_the_tokens_that_fit, setup_draws, teardown)

/* After a run-ahead the next Decode finds its logits there, also after a filter and in new company;
 * a failed run-ahead is as if there had been none. */
TEST_WITH(running_ahead, setup, teardown)
{
    static struct asked v[3];
    struct err e = ERR_INIT;
    struct answer a;
    const struct batch *b;
    for (uint32_t i = 0; i < 3; i++) {
        ask(&v[i], i, 6 * i + 1, i == 1);
        v[i].spec.ignore_eos = true;
    }
    struct seq_spec two_of[2] = {v[0].spec, v[1].spec};
    assert_int_equal(engine_prefill(g, 0, two_of, 2, NULL, NULL, &a, &e), 0);
    assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, NULL, &a, &e), 0);
    assert_int_equal(engine_ahead(g, &e), 0);
    int before = fake.forwards;
    assert_int_equal(engine_ahead(g, &e), 0); /* once is enough */
    assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, NULL, &a, &e), 0);
    assert_int_equal(a.out->n_gen, 2);
    assert_int_equal(fake.forwards, before);
    assert_int_equal(engine_ahead(g, &e), 0);
    before = fake.forwards;
    assert_int_equal(engine_prefill(g, 1, &v[2].spec, 1, NULL, NULL, &a, &e), 0);
    assert_int_equal(engine_filter(g, 0, (uint64_t[]){1}, 1, &b, &e), 0);
    assert_int_equal(engine_decode(g, (uint64_t[]){0, 1}, 2, NULL, &a, &e), 0);
    assert_int_equal(fake.forwards, before + 2); /* the prefill, and request 2 alone */
    fake.fail_in = 1;
    assert_int_equal(engine_ahead(g, &e), -1);
    assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, NULL, &a, &e), 0);
    assert_int_equal(a.out->n_gen, 2);
    assert_int_equal(fake.forwards, before + 4);
}
TEST_ALSO(running_ahead, setup_recurrent, teardown)

/* What the host chooses from the same logits: every parameter reaches the device, also those that
 * change with a token that only the device has yet. */
TEST_WITH(the_device_chooses_what_the_host_would, setup, teardown)
{
    enum { N = 12 };
    static struct asked v[N];
    struct err e = ERR_INIT;
    struct answer a;
    next_block = 0;
    for (uint32_t i = 0; i < N; i++) {
        ask(&v[i], i, 5 * i + 3, i % 3 != 0);
        struct sampling *p = &v[i].spec.sampling;
        p->top_k = i % 4 == 1 ? 20 : 0;
        p->top_p = i % 4 == 2 ? 0.9f : 1;
        p->penalties.openai_presence = i % 2 ? 0.5f : 0;
        p->penalties.openai_frequency = i % 5 ? 0 : 3;
        p->penalties.frequency = i % 7 == 3 ? 2 : 0;
        p->raw_logprobs = i % 2;
        p->watermark = i == 7 ? (struct watermark){0.5f, 3} : p->watermark;
        v[i].spec.top_n = i % 4;
        v[i].spec.min_new_tokens = i % 3 ? 0 : 8;
        v[i].spec.ignore_eos = false;
        run_alone(&v[i], v);
        if (i == 1 || i == 10) { /* a pair waits for the host, a single token does not */
            avoid(&v[i], i == 10);
            assert_true(says_bad_words(v[i].alone, v[i].n_alone, &v[i]));
            run_alone(&v[i], v);
            assert_false(says_bad_words(v[i].alone, v[i].n_alone, &v[i]));
        }
    }
    engine_free(g);
    assert_int_equal(setup_on(&drawing_ops), 0);
    for (uint32_t i = 0; i < N; i += 6) {
        struct seq_spec specs[6];
        for (uint32_t k = 0; k < 6; k++)
            specs[k] = v[i + k].spec;
        assert_int_equal(engine_prefill(g, 9, specs, 6, NULL, NULL, &a, &e), 0);
        take(&a, v);
        if (a.batch)
            finish(9, v);
    }
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(v[i].n_got, v[i].n_alone);
        assert_memory_equal(v[i].got, v[i].alone, v[i].n_got * sizeof(uint32_t));
    }
    assert_true(fake.fed > 0);
}

/* Decode `times` times and look each time whether the step after was enqueued at once. */
static void decode_fed(struct asked *v, uint64_t id, int times, bool fed)
{
    struct err e = ERR_INIT;
    struct answer a;
    for (int i = 0; i < times; i++) {
        int before = fake.fed, forwards = fake.forwards;
        assert_int_equal(engine_ahead(g, &e), 0);
        assert_int_equal(fake.forwards - forwards, fake.fed == 0); /* later ones are there */
        assert_int_equal(engine_decode(g, &id, 1, NULL, &a, &e), 0);
        assert_int_equal(fake.fed - before, fed);
        for (uint32_t k = 0; k < a.out->n_gen; k++) {
            struct asked *q = &v[a.out->gen[k].seq->id];
            assert_string_equal(a.out->gen[k].seq->error, "");
            q->got[q->n_got++] = a.out->gen[k].token.id;
        }
    }
}

/* In steady decoding each step is enqueued before the tokens of the one before are known, whichever
 * leaves; at the end none is left to be fed, and with a constraint none is at all. */
TEST_WITH(tokens_are_fed_to_the_next_step, setup_draws, teardown)
{
    static struct asked v[3];
    struct err e = ERR_INIT;
    struct answer a;
    const struct batch *b;
    next_block = 0;
    for (uint32_t i = 0; i < 3; i++) {
        ask(&v[i], i, 6 * i + 1, i == 1);
        v[i].spec.ignore_eos = true;
        run_alone(&v[i], v);
    }
    fake.fed = 0;
    struct seq_spec both[2] = {v[0].spec, v[1].spec};
    assert_int_equal(engine_prefill(g, 0, both, 2, NULL, NULL, &a, &e), 0);
    v[0].n_got = v[1].n_got = 0;
    for (int i = 0; i < 2; i++)
        v[i].got[v[i].n_got++] = a.out->gen[i].token.id;
    assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, NULL, &a, &e), 0);
    for (int i = 0; i < 2; i++)
        v[i].got[v[i].n_got++] = a.out->gen[i].token.id;
    decode_fed(v, 0, 4, true);
    /* one is let go; another prompt comes between */
    assert_int_equal(engine_filter(g, 0, (uint64_t[]){1}, 1, &b, &e), 0);
    assert_int_equal(engine_prefill(g, 1, &v[2].spec, 1, NULL, NULL, &a, &e), 0);
    decode_fed(v, 0, MAX_NEW - 7, true);
    decode_fed(v, 0, 1, false); /* the last one */
    assert_int_equal(v[1].n_got, MAX_NEW);
    assert_memory_equal(v[1].got, v[1].alone, MAX_NEW * sizeof(uint32_t));
    assert_memory_equal(v[0].got, v[0].alone, 6 * sizeof(uint32_t));
    v[0].spec.grammar = (struct grammar_spec){"(<1[0-9]>|<7>){12}", CONSTRAINT_REGEX};
    v[0].n_got = 0;
    assert_int_equal(engine_prefill(g, 2, &v[0].spec, 1, NULL, NULL, &a, &e), 0);
    int before = fake.fed;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(engine_decode(g, (uint64_t[]){2}, 1, NULL, &a, &e), 0);
        assert_int_equal(engine_ahead(g, &e), 0);
    }
    assert_int_equal(fake.fed, before);
}
TEST_ALSO(tokens_are_fed_to_the_next_step, setup_recurrent_draws, teardown)

TEST_WITH(chunks_go_to_the_oldest, setup, teardown)
{
    struct seq s[4] = {{.n = 101, .n_prompt = 100, .cached = 100},
                       {.n = 50, .n_prompt = 50, .cached = 40},
                       {.n = 90, .n_prompt = 90, .cached = 10},
                       {.n = 90, .n_prompt = 90}};
    struct seq *v[4] = {&s[0], &s[1], &s[2], &s[3]};
    step_plan_chunks(v, 4, 33); /* 33 - 3 = 30 for prefills */
    assert_int_equal(s[0].step, 1);
    assert_int_equal(s[1].step, 10);
    assert_int_equal(s[2].step, 20);
    assert_int_equal(s[3].step, 1); /* each gets a token */
    s[1].done = true;
    step_plan_chunks(v, 4, 2);
    assert_int_equal(s[2].step, 1), assert_int_equal(s[3].step, 1);
    step_plan_chunks(v, 4, UINT32_MAX);
    assert_int_equal(s[2].step, 80), assert_int_equal(s[3].step, 90);
}

TEST_WITH(warmup_sizes_the_pool, setup, teardown)
{
    struct err e = ERR_INIT;
    struct warmup w = {.max_prefill_tokens = 16};
    assert_int_equal(engine_warmup(g, &w, &e), 0);
    assert_int_equal(w.supported_tokens, POOL * BS);
    assert_int_equal(w.max_total_tokens, 3000); /* the model's positions */
    assert_int_equal(w.max_input_tokens, 2999);
    device_free = 100;
    w = (struct warmup){.max_prefill_tokens = 16};
    assert_int_equal(engine_warmup(g, &w, &e), -1);
    w.max_prefill_tokens = 2000000;
    assert_int_equal(engine_warmup(g, &w, &e), -1);
    assert_non_null(strstr(e.msg, "Not enough memory to handle 2000000 prefill tokens. You need to "
                                  "decrease `--max-batch-prefill-tokens`"));
}

/* A dry run comes to the numbers of the warm-up that follows it. */
TEST_WITH(a_plan_is_what_warm_up_does, setup, teardown)
{
    struct err e = ERR_INIT;
    struct engine_plan p;
    struct warmup w = {.max_prefill_tokens = 16};
    assert_int_equal(engine_plan(g, &w, &p, &e), 0);
    assert_string_equal(p.why, "");
    assert_int_equal(engine_warmup(g, &w, &e), 0);
    assert_int_equal(p.max_batch_total_tokens, w.supported_tokens);
    assert_int_equal(p.max_total_tokens, w.max_total_tokens);
    assert_int_equal(p.max_input_tokens, w.max_input_tokens);
    assert_int_equal(p.kv, (uint64_t)p.n_blocks * p.block_bytes);
    device_free = 100; /* nothing fits: it names bytes and options */
    w = (struct warmup){.max_prefill_tokens = 16};
    assert_int_equal(engine_plan(g, &w, &p, &e), 0);
    assert_non_null(strstr(p.why, " bytes "));
    assert_non_null(strstr(p.why, "--kv-cache-memory"));
    fake.info.weight_bytes = 1 << 20;
    assert_int_equal(engine_plan(g, &w, &p, &e), 0);
    assert_non_null(strstr(p.why, "weights take 1048576 bytes a rank (--quantize, --num-shard)"));
    assert_non_null(strstr(p.why, "100 bytes of"));
    fake.info.weight_bytes = 0;
}
TEST_ALSO(a_plan_is_what_warm_up_does, setup, teardown)

TEST_WITH(learned_positions_end, setup, teardown)
{
    struct err e = ERR_INIT;
    struct warmup w = {.max_prefill_tokens = 16, .max_total_tokens = 3001};
    assert_int_equal(engine_warmup(g, &w, &e), 0); /* a rotation goes on */
    fake.info.bounded = true;
    assert_int_equal(engine_warmup(g, &w, &e), -1);
    assert_string_equal(e.msg, "--max-total-tokens 3001: this model has 3000 positions");
    w.max_total_tokens = 3000;
    assert_int_equal(engine_warmup(g, &w, &e), 0);
}

TEST_WITH(bookkeeping_refuses_nonsense, setup, teardown)
{
    static struct asked v[3];
    struct err e = ERR_INIT;
    struct answer a;
    const struct batch *b;
    struct seq_spec specs[3];
    for (uint32_t i = 0; i < 3; i++) {
        ask(&v[i], i, 6 * i + 1, false);
        v[i].spec.ignore_eos = true;
        specs[i] = v[i].spec;
    }
    specs[1].n_blocks = 1;
    assert_int_equal(engine_prefill(g, 9, specs, 3, NULL, NULL, &a, &e), 0);
    assert_int_equal(a.out->n_gen, 3);
    assert_non_null(strstr(a.out->gen[1].seq->error, "cannot hold"));
    assert_int_equal(a.batch->n, 2);
    assert_int_equal(engine_filter(g, 9, (uint64_t[]){0, 1}, 2, &b, &e), -1); /* 1 has left */
    assert_int_equal(engine_filter(g, 9, (uint64_t[]){0, 2, 0}, 3, &b, &e), -1);
    assert_int_equal(engine_filter(g, 9, (uint64_t[]){2, 0}, 2, &b, &e), 0);
    assert_int_equal(b->v[0]->id, 2);
    assert_int_equal(engine_filter(g, 9, (uint64_t[]){0}, 1, &b, &e), 0);
    assert_int_equal(engine_decode(g, (uint64_t[]){9, 9}, 2, NULL, &a, &e), -1);
    assert_int_equal(engine_decode(g, (uint64_t[]){9}, 1, NULL, &a, &e), 0);
    assert_int_equal(a.out->n_gen, 1);
    engine_clear(g, (uint64_t[]){77});
    engine_clear(g, (uint64_t[]){9});
    assert_int_equal(engine_decode(g, (uint64_t[]){9}, 1, NULL, &a, &e), -1);
}
TEST_ALSO(bookkeeping_refuses_nonsense, setup_draws, teardown)

int main(void) { return tests_run(NULL, NULL); }
