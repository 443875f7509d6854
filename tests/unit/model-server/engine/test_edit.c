/* What the router changes between two steps: blocks that are allocated on demand, requests that are
 * preempted and resume, recomputed or swapped in, with the same tokens. */
#include "tests/unit/model-server/engine/rig.h"

enum { TIGHT = 64, ROUNDS = 40, ALL = 24, LOT = 64 };

/* A router in small: TIGHT blocks for everybody. */
struct table {
    uint32_t ids[40], n, told;   /* told: the engine has them */
    uint32_t slots[40], swapped; /* tokens in the swap region */
    enum { WAITS, RUNS, OVER } state;
};
struct little_router {
    struct asked v[ALL];
    struct table t[ALL];
    uint32_t free[TIGHT], n_free, slot[SLOTS], n_slot;
    uint64_t leave[ALL];
    uint32_t out_b[LOT], out_s[LOT], in_b[LOT], in_s[LOT], tokens[ALL][100];
    struct kv_more more[ALL];
    struct edits x;
    bool live;
    uint32_t n_preempted, n_swapped;
};
static struct little_router r;

static uint32_t known(uint32_t i) { return r.v[i].spec.n_prompt + r.v[i].n_got; }

static void give_back(uint32_t i)
{
    for (uint32_t k = 0; k < r.t[i].n; k++)
        r.free[r.n_free++] = r.t[i].ids[k];
    r.t[i].n = r.t[i].told = 0;
}

static bool grow(uint32_t i, uint32_t tokens)
{
    struct table *t = &r.t[i];
    uint32_t most = r.v[i].spec.n_prompt + MAX_NEW - 1; /* the last token is not cached */
    tokens = tokens < most ? tokens : most;
    while (t->n * BS < tokens) {
        if (!r.n_free)
            return false;
        t->ids[t->n++] = r.free[--r.n_free];
    }
    return true;
}

/* All but the newest token is in the cache. None may be in the middle of a prompt here. */
static void preempt(uint32_t i, bool swap)
{
    struct table *t = &r.t[i];
    uint32_t n = (known(i) - 1 + BS - 1) / BS;
    r.leave[r.x.n_leave++] = i;
    r.n_preempted++;
    if (swap && n && n <= r.n_slot && r.x.out.n_blocks + n <= LOT) {
        for (uint32_t k = 0; k < n; k++) {
            r.out_b[r.x.out.n_blocks] = t->ids[k];
            r.out_s[r.x.out.n_blocks++] = t->slots[k] = r.slot[--r.n_slot];
        }
        t->swapped = known(i) - 1;
        r.n_swapped++;
    }
    r.x.out.n_slots = r.x.out.n_blocks;
    give_back(i);
    t->state = WAITS;
}

/* The same request, all that is known of it. */
static bool come_back(uint32_t i, struct seq_spec *spec)
{
    struct table *t = &r.t[i];
    struct asked *q = &r.v[i];
    uint32_t n = (t->swapped + BS - 1) / BS;
    if (!grow(i, known(i)) || r.x.in.n_blocks + n > LOT)
        return give_back(i), false;
    memcpy(r.tokens[i], q->prompt, q->spec.n_prompt * 4);
    memcpy(r.tokens[i] + q->spec.n_prompt, q->got, q->n_got * 4);
    *spec = q->spec;
    spec->prompt = r.tokens[i];
    spec->n_prompt = known(i);
    spec->n_generated = q->n_got;
    spec->blocks = t->ids;
    spec->n_blocks = t->told = t->n;
    spec->cache_len = t->swapped;
    for (uint32_t k = 0; k < n; k++) {
        r.in_b[r.x.in.n_blocks] = t->ids[k];
        r.in_s[r.x.in.n_blocks++] = r.slot[r.n_slot++] = t->slots[k];
    }
    r.x.in.n_slots = r.x.in.n_blocks;
    t->swapped = 0;
    t->state = RUNS;
    return true;
}

static void begin_edits(void)
{
    r.x = (struct edits){.leave = r.leave,
                         .out = {.blocks = r.out_b, .slots = r.out_s},
                         .in = {.blocks = r.in_b, .slots = r.in_s},
                         .more = r.more};
    for (uint32_t i = 0; i < ALL; i++)
        if (r.t[i].state == RUNS && r.v[i].over) {
            if (r.live) /* else the engine has let go of all */
                r.leave[r.x.n_leave++] = i;
            give_back(i);
            r.t[i].state = OVER;
        }
}

static void tell_more(void)
{
    for (uint32_t i = 0; i < ALL; i++)
        if (r.t[i].state == RUNS && r.t[i].told < r.t[i].n) {
            r.more[r.x.n_more++] =
                (struct kv_more){i, r.t[i].told, r.t[i].ids + r.t[i].told, r.t[i].n - r.t[i].told};
            r.t[i].told = r.t[i].n;
        }
}

/* The newest is preempted. Sometimes one token fits only, and nothing can run ahead. */
static void make_room(void)
{
    for (uint32_t i = 0; i < ALL; i++)
        while (r.t[i].state == RUNS && !grow(i, known(i) + (rand() % 4 > 0))) {
            uint32_t newest = ALL;
            while (r.t[--newest].state != RUNS)
                ;
            preempt(newest, rand() % 2);
        }
}

static void step(void)
{
    struct err e = ERR_INIT;
    struct answer a;
    struct seq_spec specs[ALL];
    uint32_t n = 0, running = 0;
    uint64_t id = 5;
    begin_edits();
    make_room();
    bool none_was_preempted = r.x.out.n_blocks == 0;
    for (uint32_t i = 0; i < ALL; i++)
        running += r.t[i].state == RUNS;
    for (uint32_t i = 0; i < ALL && none_was_preempted && (!running || rand() % 3); i++)
        if (r.t[i].state == WAITS && !come_back(i, &specs[n++]) && n--)
            break;
    for (uint32_t i = 0; i < n; i++) { /* whole prompts: the helper counts on it */
        specs[i].chunk_len = 0;
        specs[i].sampling.penalties.repetition = specs[i].id % 2 ? 1.4f : 1;
    }
    uint32_t joined = n;
    for (uint32_t i = 0; i < joined; i++)
        r.t[specs[i].id].told = r.t[specs[i].id].n;
    tell_more();
    int rc = n ? engine_prefill(g, id, specs, n, r.live ? &id : NULL, &r.x, &a, &e)
               : engine_decode(g, &id, 1, &r.x, &a, &e);
    if (rc)
        print_error("%s\n", e.msg);
    assert_int_equal(rc, 0);
    take(&a, r.v);
    r.live = a.batch != NULL;
}

static bool all_over(void)
{
    for (uint32_t i = 0; i < ALL; i++)
        if (!r.v[i].over)
            return false;
    return true;
}

TEST_WITH(preempted_requests_go_on_exactly, setup, teardown)
{
    uint32_t n_preempted = 0, n_swapped = 0;
    srand(test_seed(7));
    for (int round = 0; round < ROUNDS; round++) {
        struct err e = ERR_INIT;
        struct warmup w = {.max_prefill_tokens = 4000};
        assert_int_equal(engine_warmup(g, &w, &e), 0);
        memset(&r, 0, sizeof(r));
        next_block = 0;
        for (uint32_t i = 0; i < ALL; i++) {
            ask(&r.v[i], i, (uint32_t)rand() % 10000, rand() % 2);
            r.v[i].spec.sampling.penalties.repetition = i % 2 ? 1.4f : 1;
            r.v[i].spec.ignore_eos = rand() % 3;
            run_alone(&r.v[i], r.v);
        }
        for (; r.n_free < TIGHT; r.n_free++)
            r.free[r.n_free] = 1 + r.n_free;
        for (; r.n_slot < SLOTS; r.n_slot++)
            r.slot[r.n_slot] = r.n_slot;
        while (!all_over())
            step();
        for (uint32_t i = 0; i < ALL; i++) {
            assert_int_equal(r.v[i].n_got, r.v[i].n_alone);
            assert_memory_equal(r.v[i].got, r.v[i].alone, r.v[i].n_got * sizeof(uint32_t));
        }
        n_preempted += r.n_preempted;
        n_swapped += r.n_swapped;
        engine_clear(g, NULL);
    }
    print_message("%u made way, %u of them to the swap region\n", n_preempted, n_swapped);
    assert_true(n_preempted > 2 * ROUNDS);
    assert_true(n_swapped > ROUNDS / 2 && n_swapped < n_preempted);
}
TEST_ALSO(preempted_requests_go_on_exactly, setup_draws, teardown)

/* A stop text that is half generated when its request is preempted is found after it resumes. */
TEST_WITH(a_stop_text_goes_on, setup, teardown)
{
    static struct asked v[1];
    struct err e = ERR_INIT;
    struct answer a;
    char stop[64], *stops[1] = {stop};
    ask(&v[0], 0, 25, false);
    v[0].spec.ignore_eos = true;
    run_alone(&v[0], v);
    snprintf(stop, sizeof(stop), "<%u><%u>", v[0].alone[5], v[0].alone[6]);
    uint32_t tokens[100], n = v[0].spec.n_prompt;
    memcpy(tokens, v[0].prompt, n * 4);
    memcpy(tokens + n, v[0].alone, 6 * 4);
    struct seq_spec again = v[0].spec;
    again.prompt = tokens, again.n_prompt = n + 6, again.n_generated = 6;
    again.stops = stops, again.n_stops = 1;
    assert_int_equal(engine_prefill(g, 1, &again, 1, NULL, NULL, &a, &e), 0);
    assert_int_equal(a.out->n_gen, 1);
    const struct gen *x = &a.out->gen[0];
    assert_int_equal(x->reason, STOP_SEQUENCE);
    assert_int_equal(x->seq->stop.generated, 7);
    assert_int_equal(x->token.id, v[0].alone[6]);
    assert_false(x->first); /* no log-probabilities of the prompt again */
    char want[200] = "";
    for (int i = 0; i < 7; i++)
        snprintf(want + strlen(want), 20, "<%u>", v[0].alone[i]);
    assert_int_equal(x->whole_len, strlen(want));
    assert_memory_equal(a.out->text.p + x->whole, want, x->whole_len);
}
TEST_ALSO(a_stop_text_goes_on, setup_draws, teardown)

/* A sequence that got no block fails alone; nothing is written elsewhere, nothing runs ahead. */
TEST_WITH(no_block_no_step, setup, teardown)
{
    static struct asked v[2];
    struct err e = ERR_INIT;
    struct answer a;
    struct seq_spec specs[2];
    for (uint32_t i = 0; i < 2; i++) {
        ask(&v[i], i, 4, false); /* 29 tokens */
        v[i].spec.ignore_eos = true;
        specs[i] = v[i].spec;
    }
    specs[1].n_blocks = 8; /* 32 tokens: the prompt, and three more */
    assert_int_equal(engine_prefill(g, 1, specs, 2, NULL, NULL, &a, &e), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(engine_decode(g, (uint64_t[]){1}, 1, NULL, &a, &e), 0);
    int before = fake.forwards;
    assert_int_equal(engine_ahead(g, &e), 0);
    assert_int_equal(fake.forwards, before);
    assert_int_equal(engine_decode(g, (uint64_t[]){1}, 1, NULL, &a, &e), 0);
    assert_int_equal(a.out->n_gen, 2);
    assert_string_equal(a.out->gen[0].seq->error, "");
    assert_non_null(strstr(a.out->gen[1].seq->error, "no KV block"));
    assert_int_equal(a.batch->n, 1);
}
TEST_ALSO(no_block_no_step, setup_draws, teardown)

/* All of an edit or nothing; and what was done stays done when the step fails. */
TEST_WITH(edits_are_whole, setup, teardown)
{
    static struct asked v[3];
    struct err e = ERR_INIT;
    struct answer a;
    struct seq_spec specs[3];
    uint32_t block[2] = {900, 901}, far[1] = {4000};
    for (uint32_t i = 0; i < 3; i++) {
        ask(&v[i], i, 4, false);
        v[i].spec.ignore_eos = true;
        specs[i] = v[i].spec;
        specs[i].n_blocks = 8;
    }
    assert_int_equal(engine_prefill(g, 1, specs, 3, NULL, NULL, &a, &e), 0);
    const struct kv_more unknown = {7, 8, block, 1}, gone = {0, 8, block, 1},
                         two = {1, 8, block, 2},
                         again = {1, 7, (uint32_t[]){v[1].blocks[7], 900, 901}, 3},
                         other = {1, 7, block, 2}, hole = {1, 9, block, 1},
                         outside = {1, 8, far, 1},
                         twice[2] = {{1, 8, block, 1}, {1, 9, block + 1, 1}};
    const struct edits bad[] = {
        {.leave = (uint64_t[]){0, 9}, .n_leave = 2},
        {.leave = (uint64_t[]){0, 0}, .n_leave = 2},
        {.leave = (uint64_t[]){0}, .n_leave = 1, .more = &unknown, .n_more = 1},
        {.leave = (uint64_t[]){0}, .n_leave = 1, .more = &gone, .n_more = 1},
        {.leave = (uint64_t[]){0}, .n_leave = 1, .more = &outside, .n_more = 1},
        {.leave = (uint64_t[]){0}, .n_leave = 1, .more = twice, .n_more = 2},
        {.more = (struct kv_more[]){{1, 8, v[0].blocks, 40}}, .n_more = 1},
        {.more = &other, .n_more = 1},
        {.more = &hole, .n_more = 1},
        {.out = {block, (uint32_t[]){SLOTS}, 1, 1}},
        {.out = {block, (uint32_t[]){0}, 2, 1}},
        {.in = {far, (uint32_t[]){0}, 1, 1}},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(engine_decode(g, (uint64_t[]){1}, 1, &bad[i], &a, &e), -1);
        assert_int_equal(e.kind, ERR_VALIDATION);
        assert_false(engine_broken(g));
    }
    const struct edits good = {.leave = (uint64_t[]){0}, .n_leave = 1, .more = &two, .n_more = 1};
    fake.fail_in = 1;
    assert_int_equal(engine_decode(g, (uint64_t[]){1}, 1, &good, &a, &e), -1);
    const struct edits said_again = {.more = &again, .n_more = 1};
    for (int i = 0; i < 4; i++)
        assert_int_equal(engine_decode(g, (uint64_t[]){1}, 1, &said_again, &a, &e), 0);
    assert_int_equal(a.out->n_gen, 2); /* 0 is out, 1 has blocks, 2 has none */
    assert_string_equal(a.out->gen[0].seq->error, "");
    assert_int_equal(a.out->gen[0].seq->id, 1);
    assert_non_null(strstr(a.out->gen[1].seq->error, "no KV block"));
    /* all leave: the answer is that none is left */
    const struct edits last = {.leave = (uint64_t[]){1}, .n_leave = 1};
    assert_int_equal(engine_decode(g, (uint64_t[]){1}, 1, &last, &a, &e), 0);
    assert_null(a.batch);
    assert_int_equal(engine_decode(g, (uint64_t[]){1}, 1, NULL, &a, &e), -1);
}
TEST_ALSO(edits_are_whole, setup_draws, teardown)

/* Prompts in parts of any size, none at all included, in the company of others that decode: each
 * answer is what it is alone. A chunk larger than the rest is refused and changes nothing. */
TEST_WITH(chunks_are_as_the_router_says, setup, teardown)
{
    static struct asked v[4];
    struct err e = ERR_INIT;
    struct answer a;
    uint64_t id = 1;
    srand(test_seed(11));
    for (int round = 0; round < 40; round++) {
        struct seq_spec specs[4];
        uint32_t done[4], forwards = 0;
        next_block = 0;
        for (uint32_t i = 0; i < 4; i++) {
            ask(&v[i], i, 1 + (uint32_t)rand() % 3000 * 3, i % 2);
            run_alone(&v[i], v);
            specs[i] = v[i].spec;
            specs[i].chunk_len = done[i] = 1 + (uint32_t)rand() % specs[i].n_prompt;
        }
        assert_int_equal(engine_prefill(g, id, specs, 4, NULL, NULL, &a, &e), 0);
        take(&a, v);
        while (a.batch && forwards++ < 500) {
            uint64_t ids[4];
            uint32_t tokens[4];
            struct edits x = {.names_chunks = true, .chunks = {.ids = ids, .tokens = tokens}};
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t left = v[i].spec.n_prompt - done[i];
                if (left <= 1 || rand() % 3 == 0)
                    continue;
                ids[x.chunks.n_ids] = i;
                tokens[x.chunks.n_ids++] = left + 1;
                x.chunks.n_tokens = x.chunks.n_ids;
                assert_int_equal(engine_decode(g, &id, 1, &x, &a, &e), -1);
                tokens[x.chunks.n_ids - 1] = (uint32_t)rand() % (left + 1);
            }
            for (uint32_t k = 0; k < x.chunks.n_ids; k++)
                done[ids[k]] += tokens[k];
            for (uint32_t i = 0; i < 4; i++) /* a last token rides along */
                if (v[i].spec.n_prompt - done[i] == 1) {
                    bool named = false;
                    for (uint32_t k = 0; k < x.chunks.n_ids; k++)
                        named |= ids[k] == i;
                    done[i] += !named;
                }
            assert_int_equal(engine_decode(g, &id, 1, &x, &a, &e), 0);
            take(&a, v);
        }
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(v[i].n_got, v[i].n_alone);
            assert_memory_equal(v[i].got, v[i].alone, v[i].n_got * sizeof(uint32_t));
        }
    }
    struct edits odd = {.names_chunks = true, .chunks = {.n_ids = 1}};
    assert_int_equal(engine_prefill(g, id, &v[0].spec, 1, NULL, NULL, &a, &e), 0);
    assert_int_equal(engine_decode(g, &id, 1, &odd, &a, &e), -1);
}
TEST_ALSO(chunks_are_as_the_router_says, setup_draws, teardown)

TEST_WITH(nonsense_cannot_go_on, setup, teardown)
{
    static struct asked v[3];
    struct err e = ERR_INIT;
    struct answer a;
    struct seq_spec specs[3];
    for (uint32_t i = 0; i < 3; i++) {
        ask(&v[i], i, 4, false);
        specs[i] = v[i].spec;
    }
    specs[0].n_generated = specs[0].n_prompt; /* no prompt is left */
    specs[1].n_generated = MAX_NEW;           /* has had all */
    specs[2].prompt = (uint32_t[]){1, 2, EOS, 3};
    specs[2].n_prompt = 4, specs[2].n_generated = 2, specs[2].ignore_eos = false; /* had ended */
    assert_int_equal(engine_prefill(g, 1, specs, 3, NULL, NULL, &a, &e), 0);
    for (int i = 0; i < 2; i++)
        assert_non_null(strstr(a.out->gen[i].seq->error, "cannot have been generated before"));
    assert_non_null(strstr(a.out->gen[2].seq->error, "has ended already"));
}

int main(void) { return tests_run(NULL, NULL); }
