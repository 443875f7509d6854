/* A cache of windows: its blocks go from behind a sequence's window to its front, while steps are
 * cut, joined, run ahead and repeated, and no answer changes. */
#include "model-server/engine/kv_pool.h"
#include "tests/unit/model-server/engine/rig.h"

enum { N = 12, CHUNK = 16, WINDOW = 10, RING = (WINDOW + CHUNK + 2 * BS - 1) / BS };
static struct asked v[N];
static uint32_t windows[N][64];

/* Without numbers: a request alone has a block of windows for each of its blocks. */
static void answer_alone(uint32_t i)
{
    struct err e = ERR_INIT;
    struct answer a;
    struct seq_spec alone = v[i].spec;
    alone.blocks = NULL, alone.n_blocks = 0;
    v[i].n_got = 0, v[i].over = false;
    assert_int_equal(engine_prefill(g, 900, &alone, 1, NULL, NULL, &a, &e), 0);
    take(&a, v);
    while (a.batch) {
        assert_int_equal(engine_decode(g, (uint64_t[]){900}, 1, NULL, &a, &e), 0);
        take(&a, v);
    }
    v[i].n_alone = v[i].n_got;
    memcpy(v[i].alone, v[i].got, sizeof(v[i].got));
    v[i].n_got = 0, v[i].over = false;
}

/* Block `b` of request i: a ring, as a router would hand it out. */
static uint32_t ring(uint32_t i, uint32_t b) { return 1 + i * RING + b % RING; }

static void ask_in_a_ring(uint32_t i, uint32_t seed)
{
    ask(&v[i], i, seed, i % 2);
    v[i].spec.ignore_eos = true;
    answer_alone(i);
    for (uint32_t b = 0; b < RING; b++)
        windows[i][b] = ring(i, b);
    v[i].spec.windows = windows[i];
    v[i].spec.n_windows = RING < v[i].spec.n_blocks ? RING : v[i].spec.n_blocks;
    v[i].spec.chunk_len = CHUNK;
}

/* What the sequences of a batch may write next, where nothing is seen any more. */
static void go_on(const struct batch *b, struct kv_more *more, struct edits *x)
{
    static uint32_t next[N][64];
    *x = (struct edits){.more = more};
    for (uint32_t k = 0; k < b->n; k++) {
        const struct seq *s = b->v[k];
        const uint32_t i = (uint32_t)s->id;
        const uint32_t first = s->cached + 1 > WINDOW ? (s->cached + 1 - WINDOW) / BS : 0;
        struct kv_more *m = &more[x->n_more];
        *m = (struct kv_more){.id = s->id, .from = s->n_blocks};
        m->window_from = s->windows_end - (s->windows_end > 0); /* one is said again */
        m->windows = next[i];
        for (uint32_t at = m->window_from; at < first + RING && at < s->max_blocks; at++)
            next[i][m->n_windows++] = ring(i, at);
        x->n_more += seq_live(s);
    }
}

static void run_to_the_end(const struct answer *begun)
{
    struct err e = ERR_INIT;
    struct answer a = *begun;
    while (a.batch) {
        struct kv_more more[N];
        struct edits x;
        go_on(a.batch, more, &x);
        const uint64_t id = a.batch->id;
        if (rand() % 6 == 0) { /* a step that fails is repeated */
            fake.fail_in = 1;
            const struct batch *was = a.batch;
            if (engine_decode(g, &id, 1, &x, &a, &e) == 0) /* it was run ahead already */
                take(&a, v);
            else
                a.batch = was;
            fake.fail_in = 0;
            e = (struct err)ERR_INIT;
            continue;
        }
        assert_int_equal(engine_decode(g, &id, 1, &x, &a, &e), 0);
        take(&a, v);
    }
}

TEST_WITH(blocks_behind_the_window_are_used_again, setup_windows, teardown)
{
    struct err e = ERR_INIT;
    struct answer a;
    struct seq_spec specs[N];
    assert_true(fake.n_windows > N * RING);
    for (uint32_t i = 0; i < N; i++) {
        ask_in_a_ring(i, i * 5 + 6);
        specs[i] = v[i].spec;
    }
    assert_int_equal(engine_prefill(g, 1, specs, N, NULL, NULL, &a, &e), 0);
    take(&a, v);
    run_to_the_end(&a);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(v[i].n_got, v[i].n_alone);
        assert_memory_equal(v[i].got, v[i].alone, v[i].n_got * sizeof(uint32_t));
    }
}
TEST_ALSO(blocks_behind_the_window_are_used_again, setup_windows_draws, teardown)

/* A prefix that others computed comes with the blocks that its end sees. */
TEST_WITH(a_cached_beginning_has_its_last_window, setup_windows, teardown)
{
    struct err e = ERR_INIT;
    struct answer a;
    ask_in_a_ring(0, 6); /* 43 tokens */
    assert_int_equal(v[0].spec.n_prompt, 43);
    for (uint32_t p = 0; p < 24; p++)
        fake.kv[v[0].blocks[p / BS] * BS + p % BS] = v[0].prompt[p];
    for (uint32_t p = 12; p < 24; p++) /* 24 + 1 - WINDOW is in block 3 */
        fake.windows[ring(0, p / BS) * BS + p % BS] = v[0].prompt[p];
    struct seq_spec s = v[0].spec;
    s.cache_len = 24;
    s.windows = &windows[0][3], s.window_from = 3, s.n_windows = RING - 3;
    s.chunk_len = 4;
    assert_int_equal(engine_prefill(g, 1, &s, 1, NULL, NULL, &a, &e), 0);
    take(&a, v);
    run_to_the_end(&a);
    assert_memory_equal(v[0].got, v[0].alone, v[0].n_alone * sizeof(uint32_t));
}

static const char *refusal(const struct seq_spec *s)
{
    static char why[200];
    struct err e = ERR_INIT;
    struct answer a;
    assert_int_equal(engine_prefill(g, 7, s, 1, NULL, NULL, &a, &e), 0);
    assert_int_equal(a.out->n_gen, 1);
    snprintf(why, sizeof(why), "%s", a.out->gen[0].seq->error);
    engine_clear(g, NULL);
    return why;
}

TEST_WITH(numbers_from_the_wire_are_not_believed, setup_windows, teardown)
{
    struct err e = ERR_INIT;
    struct answer a;
    ask_in_a_ring(0, 6);
    struct seq_spec s = v[0].spec;
    s.n_windows = 0;
    assert_non_null(strstr(refusal(&s), "windows from block 0 on: block 0 is seen"));
    s = v[0].spec;
    s.window_from = 1;
    assert_non_null(strstr(refusal(&s), "block 0 is seen"));
    s = v[0].spec;
    windows[0][2] = fake.n_windows;
    assert_non_null(strstr(refusal(&s), "of windows: there are"));
    windows[0][2] = ring(0, 2);
    s.n_windows = 2; /* 8 tokens, of the 16 of its chunk */
    assert_string_equal(refusal(&s), "the router gave no KV block for its next token");
    s.n_windows = 64;
    assert_non_null(strstr(refusal(&s), "do not follow"));
    assert_int_equal(engine_prefill(g, 1, &v[0].spec, 1, NULL, NULL, &a, &e), 0);
    struct kv_more more = {.id = 0, .from = v[0].spec.n_blocks, .windows = windows[0]};
    more.window_from = RING + 1, more.n_windows = 1;
    struct edits x = {.more = &more, .n_more = 1};
    assert_int_equal(engine_decode(g, (uint64_t[]){1}, 1, &x, &a, &e), -1);
    assert_non_null(strstr(e.msg, "do not follow those of its 8"));
    assert_int_equal(engine_copy_windows(g, &(uint32_t){1}, &fake.n_windows, 1, &e), -1);
}

TEST(warm_up_divides_the_memory)
{
    struct kv_memory m = {.free = 100000000,
                          .total = 1000000000,
                          .shared = true,
                          .world = 1,
                          .fraction = 1,
                          .block_bytes = 1000,
                          .block_size = 16,
                          .longest = 32768,
                          .window_bytes = 5000,
                          .window = 1024,
                          .prefill = 4096};
    const struct kv_plan p = kv_plan(&m);
    const uint32_t step = (1024 + 4096) / 16 + 4; /* what is left is divided four to one */
    assert_int_equal(p.n_blocks, (50000000 - step * 5000) / (1000 + 5000 / 4));
    assert_int_equal(p.n_windows, step + p.n_blocks / 4);
    assert_true(p.bytes <= 50000000);
    assert_int_equal(kv_request_bytes(&m, 32768), 2048 * 1000 + (uint64_t)step * 5000);
    assert_int_equal(kv_request_bytes(&m, 160), 10 * 6000);
    m.free = 2000000; /* a step's prompts get half of it at most */
    assert_int_equal(kv_plan(&m).n_windows, 100 + kv_plan(&m).n_blocks / 4);
    assert_true(kv_windows_pay(1024, 32768) && kv_windows_pay(1024, 0));
    assert_true(kv_windows_pay(4096, 32768) && !kv_windows_pay(4096, 8192));
}

int main(void) { return tests_run(NULL, NULL); }
