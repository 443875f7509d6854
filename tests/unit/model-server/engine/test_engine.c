/* The engine over a model that is a hash: the next token of a sequence is a function of all ids
 * that its block table leads to in the fake KV cache. A wrong block, slot, position or length
 * changes the answer; batch mates cannot. The tokenizer is fake too: token 17 reads "<17>". */
#include "common/hash.h"
#include "model-server/engine/engine.h"
#include "tests/unit/test.h"
#include <string.h>

enum { VOCAB = 97, BS = 4, BLOCKS = 4096, EOS = 5 };

/* ---------------------------------------------------------------- the fakes */

struct model {
    struct model_info info;
    uint32_t kv[BLOCKS * BS], n_blocks;
    int fail_in, forwards; /* fail_in: so many forwards from now, one fails; 0: none */
    uint32_t largest;
};
static const uint32_t eos[] = {EOS};
static struct model fake;

const struct model_info *model_info(const struct model *m) { return &m->info; }
int model_reserve(struct model *m, uint32_t tokens, uint32_t rows, struct err *e)
{
    (void)m, (void)rows;
    return tokens > 1000000 ? err_nomem(e) : 0;
}
uint64_t model_kv_block_bytes(const struct model *m, uint32_t bs, enum dtype t)
{
    (void)m;
    return bs * 100 * dtype_size(t);
}
int model_kv_resize(struct model *m, uint32_t n, uint32_t bs, enum dtype t, struct err *e)
{
    (void)bs, (void)t;
    m->n_blocks = n;
    return n > BLOCKS ? err_nomem(e) : 0;
}

int model_kv_copy(struct model *m, const uint32_t *src, const uint32_t *dst, uint32_t n,
                  struct err *e)
{
    (void)e;
    for (uint32_t i = 0; i < n; i++)
        memcpy(&m->kv[dst[i] * BS], &m->kv[src[i] * BS], BS * sizeof(m->kv[0]));
    return 0;
}

static uint32_t hash_of(const struct model *m, const struct span *s, uint32_t len)
{
    uint64_t h = 1;
    for (uint32_t p = 0; p < len; p++)
        h = hash_mix(h * 31 + m->kv[s->blocks[p / BS] * BS + p % BS]);
    return (uint32_t)(h % VOCAB);
}

static void check_ragged(const struct model *m, const struct ragged *b)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        const struct span *s = &b->spans[i];
        assert_int_equal(s->first, row);
        for (uint32_t k = 0; k < s->n; k++, row++) {
            uint32_t p = s->kv_len - s->n + k;
            assert_int_equal(b->pos[row], p);
            assert_true(s->blocks[p / BS] < m->n_blocks);
            assert_int_equal(b->slots[row], s->blocks[p / BS] * BS + p % BS);
        }
    }
    assert_int_equal(row, b->n_tokens);
}

int model_forward(struct model *m, const struct ragged *b, float *logits, struct err *e)
{
    check_ragged(m, b);
    m->forwards++;
    m->largest = b->n_tokens > m->largest ? b->n_tokens : m->largest;
    for (uint32_t i = 0; i < b->n_tokens; i++)
        m->kv[b->slots[i]] = b->ids[i];
    if (m->fail_in && --m->fail_in == 0)
        return err_set(e, ERR_SYSTEM, "broken on purpose");
    uint32_t out = 0;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        const struct span *s = &b->spans[i];
        for (; out < b->n_out && b->out_rows[out] < s->first + s->n; out++) {
            uint32_t len = s->kv_len - s->n + (b->out_rows[out] - s->first) + 1;
            for (uint32_t v = 0; v < VOCAB; v++)
                logits[(size_t)out * VOCAB + v] = 0.01f * (float)(v % 7);
            logits[(size_t)out * VOCAB + hash_of(m, s, len)] = 3;
        }
    }
    assert_int_equal(out, b->n_out);
    return 0;
}

bool tokenizer_is_special(const struct tokenizer *t, uint32_t id) { return (void)t, id == EOS; }
int detok_init(struct detok *d, const struct tokenizer *t, const uint32_t *ids, size_t n, bool skip)
{
    (void)ids, (void)n;
    *d = (struct detok){.t = t, .skip_special = skip};
    return 0;
}
void detok_free(struct detok *d) { (void)d; }
void detok_push(struct detok *d, uint32_t id, struct buf *out)
{
    if (!d->skip_special || id != EOS)
        buf_fmt(out, "<%u>", id);
}
void detok_finish(struct detok *d, struct buf *out) { (void)d, (void)out; }

static uint64_t device_free;
static int memory(struct device *d, uint64_t *f, uint64_t *t, struct err *e)
{
    (void)d, (void)e;
    *f = device_free, *t = 1 << 30;
    return 0;
}
/* Two "threads", one after the other, the second first. */
static int two(struct device *d) { return (void)d, 2; }
static void in_turn(struct device *d, void (*fn)(void *, int, size_t, size_t), void *arg, size_t n)
{
    (void)d;
    fn(arg, 1, n / 2, n);
    fn(arg, 0, 0, n / 2);
}
static const struct backend_ops ops = {
    .name = "cpu", .memory = memory, .host_threads = two, .host_run = in_turn};
static struct comm_ops no_ops;
static struct comm solo = {.ops = &no_ops, .world = 1};

/* ---------------------------------------------------------------- helpers */

static struct engine *g;
static uint32_t next_block;

static int setup(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    memset(&fake, 0, sizeof(fake));
    fake.info = (struct model_info){.vocab = VOCAB, .eos = eos, .n_eos = 1, .max_positions = 3000};
    struct engine_options o = {.model = &fake,
                               .tok = (const struct tokenizer *)&fake,
                               .ops = &ops,
                               .comm = &solo,
                               .block_size = BS,
                               .memory_fraction = 1};
    device_free = 3230 * 1000;
    g = engine_new(&o, &e);
    struct seq_spec s = {
        .prompt = (uint32_t[]){1, 2, 3}, .n_prompt = 3, .sampling = sampling_neutral()};
    struct warmup w = {.specs = &s, .n = 1, .max_prefill_tokens = 16};
    next_block = 0;
    return g && !engine_warmup(g, &w, &e) ? 0 : -1;
}
static int teardown(void **state)
{
    (void)state;
    engine_free(g);
    return 0;
}

enum { MAX_NEW = 12, MOST = 40, POOL = 1009 };
struct asked {
    uint32_t prompt[60], blocks[40];
    struct seq_spec spec;
    uint32_t got[MAX_NEW], n_got, alone[MAX_NEW], n_alone;
    bool over;
};

static void ask(struct asked *a, uint64_t id, uint32_t seed, bool sample)
{
    *a = (struct asked){0};
    uint32_t n = 1 + seed * 7 % 50, need = n + MAX_NEW - 1;
    for (uint32_t i = 0; i < n; i++)
        a->prompt[i] = (seed * 31 + i * i * 3) % VOCAB;
    a->spec = (struct seq_spec){.id = id,
                                .prompt = a->prompt,
                                .n_prompt = n,
                                .max_new_tokens = MAX_NEW,
                                .blocks = a->blocks,
                                .n_blocks = (need + BS - 1) / BS,
                                .ignore_eos = seed % 3,
                                .sampling = sampling_neutral()};
    if (sample) {
        a->spec.sampling.temperature = 2;
        a->spec.sampling.seed = seed;
        a->spec.sampling.penalties.repetition = 1.3f;
    }
    for (uint32_t i = 0; i < a->spec.n_blocks; i++) /* scattered; unique among POOL in a row */
        a->blocks[i] = next_block++ * 7 % POOL;
}

/* Also run ahead, most of the time: nobody may notice. */
static void take(const struct answer *a, struct asked *v)
{
    for (uint32_t i = 0; i < a->out->n_gen; i++) {
        const struct gen *x = &a->out->gen[i];
        struct asked *q = &v[x->seq->id];
        char text[16];
        assert_string_equal(x->seq->error, "");
        assert_false(q->over);
        q->got[q->n_got++] = x->token.id;
        snprintf(text, sizeof(text), "<%u>", x->token.id);
        assert_int_equal(x->text_len, strlen(text));
        assert_memory_equal(a->out->text.p + x->text, text, strlen(text));
        q->over = x->reason != STOP_NOT;
        assert_int_equal(x->first, q->n_got == 1);
    }
    struct err e = ERR_INIT;
    if (rand() % 4)
        assert_int_equal(engine_ahead(g, &e), 0);
}

/* Decode and filter until nothing is left of batch `id`. */
static void finish(uint64_t id, struct asked *v)
{
    struct err e = ERR_INIT;
    struct answer a;
    for (;;) {
        assert_int_equal(engine_decode(g, &id, 1, &a, &e), 0);
        take(&a, v);
        if (!a.batch)
            return;
        uint64_t live[MOST];
        size_t n = 0;
        for (uint32_t i = 0; i < a.batch->n; i++)
            if (!v[a.batch->v[i]->id].over)
                live[n++] = a.batch->v[i]->id;
        const struct batch *b;
        assert_int_equal(engine_filter(g, id, live, n, &b, &e), 0);
    }
}

static void run_alone(struct asked *q, struct asked *all)
{
    struct err e = ERR_INIT;
    struct answer a;
    assert_int_equal(engine_prefill(g, 1000, &q->spec, 1, NULL, &a, &e), 0);
    take(&a, all);
    if (a.batch)
        finish(1000, all);
    memcpy(q->alone, q->got, sizeof(q->got));
    q->n_alone = q->n_got;
    assert_true(q->over && (q->n_got == MAX_NEW || q->got[q->n_got - 1] == EOS));
    q->n_got = 0, q->over = false;
}

/* ---------------------------------------------------------------- tests */

/* Requests arrive in chunks, alone or together, behind a cached batch or as another one that is
 * joined in Decode: each gets what it gets alone. */
static void company_changes_nothing(void **state)
{
    (void)state;
    static struct asked v[MOST];
    struct err e = ERR_INIT;
    srand(3);
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
                    engine_prefill(g, next, specs, n, join ? &running[0] : NULL, &a, &e), 0);
                take(&a, v);
                if (join)
                    n_running--, running[0] = running[1];
            } else {
                assert_int_equal(engine_decode(g, running, n_running, &a, &e), 0);
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

/* A request that goes on from copies of somebody's blocks gets what it gets alone, and so does he,
 * who writes on behind them. */
static void a_copied_beginning_is_as_good_as_a_computed_one(void **state)
{
    static struct asked v[2];
    struct err e = ERR_INIT;
    struct answer a;
    uint64_t both[2] = {500, 501};
    (void)state;
    for (uint32_t seed = 4; seed < 64; seed += 6) {
        next_block = 1;
        ask(&v[0], 0, seed, false), ask(&v[1], 1, seed, true);
        run_alone(&v[0], v), run_alone(&v[1], v);
        for (uint32_t i = 0; i < v[1].spec.n_blocks; i++) /* what it left there is no help */
            for (uint32_t k = 0; k < BS; k++)
                fake.kv[v[1].blocks[i] * BS + k] = 1;
        assert_int_equal(engine_prefill(g, 500, &v[0].spec, 1, NULL, &a, &e), 0);
        take(&a, v);
        uint32_t n = v[1].spec.n_prompt / BS + 1;
        assert_int_equal(engine_copy(g, v[0].blocks, v[1].blocks, n, &e), 0);
        v[1].spec.cache_len = v[1].spec.n_prompt - 1;
        assert_int_equal(engine_prefill(g, 501, &v[1].spec, 1, NULL, &a, &e), 0);
        take(&a, v);
        assert_int_equal(engine_decode(g, both, 2, &a, &e), 0);
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

/* A step that fails leaves everything as it was: asked again, the answer is the same. */
static void failures_leave_no_trace(void **state)
{
    (void)state;
    static struct asked v[3];
    struct err e = ERR_INIT;
    struct answer a;
    for (uint32_t i = 0; i < 3; i++) {
        ask(&v[i], i, 3 * i + 2, i == 1);
        run_alone(&v[i], v);
    }
    fake.fail_in = 1;
    assert_int_equal(engine_prefill(g, 0, &v[0].spec, 1, NULL, &a, &e), -1);
    assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, &a, &e),
                     -1); /* the batch never came to be */
    assert_string_equal(e.msg, "Batch ID 0 not found in cache.");
    assert_int_equal(engine_prefill(g, 0, &v[0].spec, 1, NULL, &a, &e), 0);
    take(&a, v);
    fake.fail_in = 1;
    assert_int_equal(engine_prefill(g, 1, &v[1].spec, 1, (uint64_t[]){0}, &a, &e), -1);
    assert_int_equal(engine_prefill(g, 1, &v[1].spec, 1, NULL, &a, &e), 0);
    take(&a, v);
    fake.fail_in = 1;
    assert_int_equal(engine_decode(g, (uint64_t[]){1, 0}, 2, &a, &e), -1);
    fake.fail_in = 1;
    assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, &a, &e), -1);
    assert_int_equal(engine_decode(g, (uint64_t[]){1, 0}, 2, &a, &e), 0);
    take(&a, v);
    assert_int_equal(a.batch->id, 1);
    assert_false(engine_broken(g));
    finish(1, v);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(v[i].n_got, v[i].n_alone);
        assert_memory_equal(v[i].got, v[i].alone, v[i].n_got * sizeof(uint32_t));
    }
}

/* After a run-ahead the next Decode finds its logits there, also after a filter and in new company;
 * a failed run-ahead is as if there had been none. */
static void running_ahead(void **state)
{
    (void)state;
    static struct asked v[3];
    struct err e = ERR_INIT;
    struct answer a;
    const struct batch *b;
    for (uint32_t i = 0; i < 3; i++) {
        ask(&v[i], i, 6 * i + 1, i == 1);
        v[i].spec.ignore_eos = true;
    }
    struct seq_spec two_of[2] = {v[0].spec, v[1].spec};
    assert_int_equal(engine_prefill(g, 0, two_of, 2, NULL, &a, &e), 0);
    assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, &a, &e), 0);
    assert_int_equal(engine_ahead(g, &e), 0);
    int before = fake.forwards;
    assert_int_equal(engine_ahead(g, &e), 0); /* once is enough */
    assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, &a, &e), 0);
    assert_int_equal(a.out->n_gen, 2);
    assert_int_equal(fake.forwards, before);
    assert_int_equal(engine_ahead(g, &e), 0);
    before = fake.forwards;
    assert_int_equal(engine_prefill(g, 1, &v[2].spec, 1, NULL, &a, &e), 0);
    assert_int_equal(engine_filter(g, 0, (uint64_t[]){1}, 1, &b, &e), 0);
    assert_int_equal(engine_decode(g, (uint64_t[]){0, 1}, 2, &a, &e), 0);
    assert_int_equal(fake.forwards, before + 2); /* the prefill, and request 2 alone */
    fake.fail_in = 1;
    assert_int_equal(engine_ahead(g, &e), -1);
    assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, &a, &e), 0);
    assert_int_equal(a.out->n_gen, 2);
    assert_int_equal(fake.forwards, before + 4);
}

static void chunks_go_to_the_oldest(void **state)
{
    (void)state;
    struct seq s[4] = {{.n = 101, .n_prompt = 100, .cached = 100},
                       {.n = 50, .n_prompt = 50, .cached = 40},
                       {.n = 90, .n_prompt = 90, .cached = 10},
                       {.n = 90, .n_prompt = 90}};
    struct seq *v[4] = {&s[0], &s[1], &s[2], &s[3]};
    step_plan_chunks(v, 4, 33); /* 33 - 3 = 30 for prefills */
    assert_int_equal(s[0].step, 1);
    assert_int_equal(s[1].step, 10);
    assert_int_equal(s[2].step, 20);
    assert_int_equal(s[3].step, 1); /* nobody stands still */
    s[1].done = true;
    step_plan_chunks(v, 4, 2);
    assert_int_equal(s[2].step, 1), assert_int_equal(s[3].step, 1);
    step_plan_chunks(v, 4, UINT32_MAX);
    assert_int_equal(s[2].step, 80), assert_int_equal(s[3].step, 90);
}

static void warmup_sizes_the_pool(void **state)
{
    (void)state;
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

static void learned_positions_end(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct warmup w = {.max_prefill_tokens = 16, .max_total_tokens = 3001};
    assert_int_equal(engine_warmup(g, &w, &e), 0); /* a rotation goes on */
    fake.info.learned_positions = true;
    assert_int_equal(engine_warmup(g, &w, &e), -1);
    assert_string_equal(e.msg, "--max-total-tokens 3001: this model has 3000 positions");
    w.max_total_tokens = 3000;
    assert_int_equal(engine_warmup(g, &w, &e), 0);
}

static void bookkeeping_refuses_nonsense(void **state)
{
    (void)state;
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
    assert_int_equal(engine_prefill(g, 9, specs, 3, NULL, &a, &e), 0);
    assert_int_equal(a.out->n_gen, 3);
    assert_non_null(strstr(a.out->gen[1].seq->error, "cannot hold"));
    assert_int_equal(a.batch->n, 2);
    assert_int_equal(engine_filter(g, 9, (uint64_t[]){0, 1}, 2, &b, &e), -1); /* 1 has left */
    assert_int_equal(engine_filter(g, 9, (uint64_t[]){0, 2, 0}, 3, &b, &e), -1);
    assert_int_equal(engine_filter(g, 9, (uint64_t[]){2, 0}, 2, &b, &e), 0);
    assert_int_equal(b->v[0]->id, 2);
    assert_int_equal(engine_filter(g, 9, (uint64_t[]){0}, 1, &b, &e), 0);
    assert_int_equal(engine_decode(g, (uint64_t[]){9, 9}, 2, &a, &e), -1);
    assert_int_equal(engine_decode(g, (uint64_t[]){9}, 1, &a, &e), 0);
    assert_int_equal(a.out->n_gen, 1);
    engine_clear(g, (uint64_t[]){77});
    engine_clear(g, (uint64_t[]){9});
    assert_int_equal(engine_decode(g, (uint64_t[]){9}, 1, &a, &e), -1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest t[] = {
        T(company_changes_nothing), T(a_copied_beginning_is_as_good_as_a_computed_one),
        T(failures_leave_no_trace), T(running_ahead),
        T(chunks_go_to_the_oldest), T(warmup_sizes_the_pool),
        T(learned_positions_end),   T(bookkeeping_refuses_nonsense),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
