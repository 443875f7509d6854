/* rig.h - the engine with a hash as its model. The next token of a sequence is a function of all
 * ids that its block table refers to in the fake KV cache, or of the tokens that led to its
 * recurrent state. A wrong block, slot, position or length changes the answer; other sequences
 * cannot. The tokenizer is fake too: the text of token 17 is "<17>". */
#ifndef TEST_ENGINE_RIG_H
#define TEST_ENGINE_RIG_H
#include "common/hash.h"
#include "model-server/engine/engine.h"
#include "tests/unit/model-server/engine/rig_pictures.h"
#include "tests/unit/test.h"
#include <math.h>
#include <string.h>

enum { VOCAB = 97, BS = 4, BLOCKS = 4096, SLOTS = 64, EOS = 5 };
enum { CELLS = 256 };
enum { ROW = 4 };       /* numbers per token for the draft head */
static bool recurrent;  /* the model of the next set-up has recurrent state */
static uint32_t window; /* window of the next set-up's model, with a separate cache; 0: none */
static bool headed;     /* the model of the next set-up has a draft head */
static int head_wrong;  /* percent of wrong drafts; then the right one is the second-best */
static int no_numbers;  /* from this forward pass on all scores are NaN; 0: never */

/* ---------------------------------------------------------------- the fakes */

struct model {
    struct model_info info;
    struct fake_state {
        uint64_t h; /* hash of the n preceding tokens */
        uint32_t n;
    } state[CELLS];
    uint32_t n_cells;
    uint32_t kv[BLOCKS * BS], swap[SLOTS * BS], n_blocks, n_slots;
    uint32_t windows[BLOCKS * BS], n_windows;
    int fail_in, forwards;    /* fail_in: the pass that fails, counted from now; 0: none */
    int fed;                  /* passes that were enqueued before their tokens were known */
    uint32_t largest, tokens; /* of one pass; of all passes */
    /* The draft head: where the next pass stores its rows, the position of its keys plus 1 (0:
     * none), passes with rows, passes of the head. */
    float *capture;
    uint32_t head_keys[BLOCKS * BS];
    int captured, passes;
};
static const uint32_t eos[] = {EOS};
static struct model fake;
static void run_jobs(struct model *m, int set); /* rig_draws.h */

const struct model_info *model_info(const struct model *m) { return &m->info; }
struct adapters *model_adapters(struct model *m)
{
    (void)m;
    return NULL;
}
uint64_t model_scratch_held(const struct model *m)
{
    (void)m;
    return 0;
}

uint64_t model_scratch_bytes(const struct model *m, uint32_t tokens, uint32_t rows)
{
    (void)m, (void)rows;
    return tokens;
}

int model_reserve(struct model *m, uint32_t tokens, uint32_t rows, struct err *e)
{
    (void)m, (void)rows;
    return tokens > 1000000 ? err_nomem(e) : 0;
}
int model_rehearse(struct model *m, uint32_t tokens, uint32_t rows, uint32_t longest, uint32_t bs,
                   enum kv_dtype t, bool apart, struct err *e)
{
    (void)m, (void)tokens, (void)rows, (void)longest, (void)bs, (void)t, (void)apart, (void)e;
    return 0;
}
uint64_t model_kv_block_bytes(const struct model *m, uint32_t bs, enum kv_dtype t)
{
    (void)m;
    return bs * kv_dtype_bytes(t, 100);
}
struct kv_apart model_kv_apart(const struct model *m, uint32_t bs, enum kv_dtype t)
{
    const uint64_t half = model_kv_block_bytes(m, bs, t) / 2;
    return (struct kv_apart){half, half};
}
int model_kv_resize_apart(struct model *m, uint32_t n, uint32_t n_windows, uint32_t bs,
                          enum kv_dtype t, struct err *e)
{
    (void)bs, (void)t;
    m->n_blocks = n;
    m->n_windows = n_windows;
    return n > BLOCKS || n_windows > BLOCKS ? err_nomem(e) : 0;
}

int model_window_copy(struct model *m, const uint32_t *src, const uint32_t *dst, uint32_t n,
                      struct err *e)
{
    (void)e;
    run_jobs(m, -1);
    for (uint32_t i = 0; i < n; i++)
        memcpy(&m->windows[dst[i] * BS], &m->windows[src[i] * BS], BS * sizeof(m->windows[0]));
    return 0;
}

int model_kv_copy(struct model *m, const uint32_t *src, const uint32_t *dst, uint32_t n,
                  struct err *e)
{
    (void)e;
    run_jobs(m, -1);
    for (uint32_t i = 0; i < n; i++)
        memcpy(&m->kv[dst[i] * BS], &m->kv[src[i] * BS], BS * sizeof(m->kv[0]));
    return 0;
}

int model_state_resize(struct model *m, uint32_t n, struct err *e)
{
    memset(m->state, 0xee, sizeof(m->state));
    m->n_cells = n;
    return n > CELLS ? err_nomem(e) : 0;
}

int model_state_copy(struct model *m, const uint32_t *src, const uint32_t *dst, uint32_t n,
                     struct err *e)
{
    (void)e;
    run_jobs(m, -1);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(src[i] < m->n_cells && dst[i] < m->n_cells);
        m->state[dst[i]] = m->state[src[i]];
    }
    return 0;
}

int model_swap_resize(struct model *m, uint32_t n, int64_t *block_ns, struct err *e)
{
    (void)e;
    *block_ns = 1;
    return n > SLOTS ? err_nomem(e) : (m->n_slots = n, 0);
}
int model_swap_out(struct model *m, const uint32_t *blocks, const uint32_t *slots, uint32_t n,
                   struct err *e)
{
    (void)e;
    run_jobs(m, -1);
    for (uint32_t i = 0; i < n; i++)
        memcpy(m->swap + slots[i] * BS, m->kv + blocks[i] * BS, BS * sizeof(uint32_t));
    return 0;
}
int model_swap_in(struct model *m, const uint32_t *blocks, const uint32_t *slots, uint32_t n,
                  struct err *e)
{
    (void)e;
    run_jobs(m, -1);
    for (uint32_t i = 0; i < n; i++)
        memcpy(m->kv + blocks[i] * BS, m->swap + slots[i] * BS, BS * sizeof(uint32_t));
    return 0;
}

static uint64_t hash_of(const struct model *m, const struct span *s, uint32_t len)
{
    uint64_t h = 1;
    for (uint32_t p = 0; p < len; p++)
        h = hash_mix(h * 31 + m->kv[s->blocks[p / BS] * BS + p % BS]);
    for (uint32_t p = len > window ? len - window : 0; m->n_windows && p < len; p++) {
        assert_int_equal(m->windows[s->windows[p / BS] * BS + p % BS],
                         m->kv[s->blocks[p / BS] * BS + p % BS]);
        h = hash_mix(h * 31 + m->windows[s->windows[p / BS] * BS + p % BS]);
    }
    return h;
}

/* The hash state as exact numbers, and back. */
static void put_row(uint64_t h, float row[ROW])
{
    for (int i = 0; i < ROW; i++)
        row[i] = (float)(h >> 16 * i & 0xffff);
}
static uint64_t take_row(const float row[ROW])
{
    uint64_t h = 0;
    for (int i = 0; i < ROW; i++)
        h |= (uint64_t)row[i] << 16 * i;
    return h;
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
            if (!m->n_windows)
                continue;
            assert_in_range(s->windows[p / BS], 1, m->n_windows - 1);
            assert_int_equal(b->window_slots[row], s->windows[p / BS] * BS + p % BS);
        }
    }
    assert_int_equal(row, b->n_tokens);
}

/* The state after the first `len` tokens of the sequence; `from` is the state before the span. */
static struct fake_state state_after(const struct ragged *b, const struct span *s,
                                     struct fake_state from, uint32_t len)
{
    for (; from.n < len; from.n++)
        from.h = hash_mix(from.h * 31 + b->ids[s->first + (from.n - (s->kv_len - s->n))]);
    return from;
}

/* The initial state of a span: a wrong cell has a state after other tokens. */
static struct fake_state state_before(const struct model *m, const struct span *s)
{
    if (s->kv_len == s->n)
        return (struct fake_state){.h = 1};
    assert_true(s->state_in < m->n_cells);
    assert_int_equal(m->state[s->state_in].n, s->kv_len - s->n);
    return m->state[s->state_in];
}

static void run_states(struct model *m, const struct ragged *b)
{
    for (uint32_t i = 0; i < b->n_spans && m->info.state_bytes; i++) {
        const struct span *s = &b->spans[i];
        assert_true(s->state_out < m->n_cells);
        m->state[s->state_out] = state_after(b, s, state_before(m, s), s->kv_len);
    }
}

/* The token after the first `len` ones. */
static uint32_t next_of(const struct model *m, const struct ragged *b, const struct span *s,
                        uint32_t len)
{
    if (!m->info.state_bytes)
        return (uint32_t)(hash_of(m, s, len) % VOCAB);
    return (uint32_t)(state_after(b, s, state_before(m, s), len).h % VOCAB);
}

static void put_token(struct model *m, const struct ragged *b, uint32_t i)
{
    m->kv[b->slots[i]] = b->ids[i];
    if (m->n_windows)
        m->windows[b->window_slots[i]] = b->ids[i];
}

static void run_model(struct model *m, const struct ragged *b, float *logits)
{
    check_ragged(m, b);
    m->tokens += b->n_tokens;
    m->largest = b->n_tokens > m->largest ? b->n_tokens : m->largest;
    for (uint32_t i = 0; i < b->n_tokens; i++)
        put_token(m, b, i);
    uint32_t out = 0;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        const struct span *s = &b->spans[i];
        for (; out < b->n_out && b->out_rows[out] < s->first + s->n; out++) {
            uint32_t len = s->kv_len - s->n + (b->out_rows[out] - s->first) + 1;
            for (uint32_t v = 0; v < VOCAB; v++)
                logits[(size_t)out * VOCAB + v] = 0.01f * (float)(v % 7);
            logits[(size_t)out * VOCAB + next_of(m, b, s, len)] =
                no_numbers && m->forwards >= no_numbers ? NAN : 3;
        }
    }
    assert_int_equal(out, b->n_out);
    for (uint32_t i = 0; m->capture && i < b->n_spans; i++)
        for (uint32_t k = 0; k < b->spans[i].n; k++)
            put_row(hash_of(m, &b->spans[i], b->spans[i].kv_len - b->spans[i].n + k + 1),
                    m->capture + (size_t)(b->spans[i].first + k) * ROW);
    m->captured += m->capture != NULL;
    m->capture = NULL;
    run_states(m, b);
}

void model_capture(struct model *m, float *rows)
{
    assert_true(m->info.draft.kind || !rows);
    m->capture = rows;
}

/* Right if its rows and tokens are, except for head_wrong. It reads its keys of all positions of
 * the span. */
int model_draft(struct model *m, const struct draft_step *x, struct err *e)
{
    const struct ragged *b = &x->b;
    uint32_t out = 0;
    (void)e;
    assert_non_null(m->info.draft.kind);
    m->passes++;
    for (uint32_t i = 0; i < b->n_tokens; i++)
        m->head_keys[b->slots[i]] = b->pos[i] + 1;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        const struct span *s = &b->spans[i];
        for (uint32_t k = 0; k < s->n; k++) {
            const uint32_t row = s->first + k, at = s->kv_len - s->n + k;
            for (uint32_t q = 0; q <= at; q++)
                assert_int_equal(m->head_keys[s->blocks[q / BS] * BS + q % BS],
                                 b->pos[row] - (at - q) + 1);
            if (out == b->n_out || b->out_rows[out] != row)
                continue;
            const uint64_t h = hash_mix(take_row(x->rows[row]) * 31 + b->ids[row]);
            for (uint32_t v = 0; v < VOCAB; v++)
                x->logits[(size_t)out * VOCAB + v] = 0.01f * (float)(v % 7);
            x->logits[(size_t)out * VOCAB + h % VOCAB] = 3;
            if ((int)(h / VOCAB % 100) < head_wrong)
                x->logits[(size_t)out * VOCAB + (h + 1) % VOCAB] = 60;
            put_row(h, x->next + (size_t)out++ * ROW);
        }
    }
    assert_int_equal(out, b->n_out);
    return 0;
}

int model_forward(struct model *m, const struct ragged *b, float *logits, struct err *e)
{
    run_jobs(m, -1);
    m->forwards++;
    if (m->fail_in && --m->fail_in == 0) {
        for (uint32_t i = 0; i < b->n_tokens; i++)
            put_token(m, b, i);
        for (uint32_t i = 0; i < b->n_spans && m->info.state_bytes; i++)
            m->state[b->spans[i].state_out] = (struct fake_state){0xbad, 0xbad};
        return err_set(e, ERR_SYSTEM, "broken on purpose");
    }
    run_model(m, b, logits);
    return 0;
}

uint32_t tokenizer_vocab_size(const struct tokenizer *t) { return (void)t, VOCAB; }
int tokenizer_token_bytes(const struct tokenizer *t, struct buf *bytes, size_t *end)
{
    (void)t;
    for (uint32_t id = 0; id < VOCAB; id++) {
        buf_fmt(bytes, "<%u>", id);
        end[id] = bytes->len;
    }
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
#include "tests/unit/model-server/engine/rig_draws.h"
#include "tests/unit/model-server/engine/rig_embed.h"
static const struct backend_ops ops = {
    .name = "cpu", .memory = memory, .host_threads = two, .host_run = in_turn};
static const struct backend_ops drawing_ops = {.name = "cpu",
                                               .memory = memory,
                                               .host_threads = two,
                                               .host_run = in_turn,
                                               .draw = draw_unused,
                                               .drawn = drawn};
static struct comm_ops no_ops;
static struct comm solo = {.ops = &no_ops, .world = 1, .nodes = 1};

/* ---------------------------------------------------------------- helpers */

static struct engine *g;
static uint32_t next_block;
static uint32_t speculate; /* speculate of engine_options in the next set-up */
static struct err set_up;  /* why the last one failed */

static int setup_on(const struct backend_ops *which)
{
    memset(&fake, 0, sizeof(fake));
    set_up = (struct err)ERR_INIT;
    n_jobs = 0;
    fake.info = (struct model_info){
        .vocab = VOCAB, .eos = eos, .n_eos = 1, .max_positions = 3000, .enqueues = true};
    fake.info.task = TASK_GENERATE;
    fake.info.state_bytes = recurrent ? 100 : 0;
    fake.info.kv_window = window;
    fake.info.max_positions = window ? 100 : fake.info.max_positions;
    if (headed) {
        fake.info.hidden = ROW;
        fake.info.draft =
            (struct model_draft){.kind = "fake", .width = ROW, .keeps = true, .chains = true};
    }
    struct engine_options o = {.model = &fake,
                               .tok = (const struct tokenizer *)&fake,
                               .ops = which,
                               .comm = &solo,
                               .block_size = BS,
                               .memory_fraction = 1,
                               .speculate = speculate,
                               .swap_bytes = window ? 0 : SLOTS * BS * 400};
    device_free = 3230 * 1000 + o.swap_bytes + (recurrent ? 2 * CELLS * 100 : 0);
    g = engine_new(&o, &set_up);
    struct seq_spec s = {
        .prompt = (uint32_t[]){1, 2, 3}, .n_prompt = 3, .sampling = sampling_neutral()};
    struct warmup w = {.specs = &s, .n = 1, .max_prefill_tokens = 16, .windows = window > 0};
    next_block = 0;
    return g && !engine_warmup(g, &w, &set_up) ? 0 : -1;
}
UNUSED static int setup(void **state) { return (void)state, setup_on(&ops); }
/* On a device that samples. */
UNUSED static int setup_draws(void **state) { return (void)state, setup_on(&drawing_ops); }
/* The same with a recurrent model. */
UNUSED static int setup_recurrent(void **state)
{
    (void)state;
    recurrent = true;
    return setup_on(&ops);
}
UNUSED static int setup_recurrent_draws(void **state)
{
    (void)state;
    recurrent = true;
    return setup_on(&drawing_ops);
}
/* And with sliding-window layers that have a separate cache. */
UNUSED static int setup_windows(void **state)
{
    (void)state;
    window = 10;
    return setup_on(&ops);
}
UNUSED static int setup_windows_draws(void **state)
{
    (void)state;
    window = 10;
    return setup_on(&drawing_ops);
}
static int teardown(void **state)
{
    (void)state;
    recurrent = headed = false;
    head_wrong = 0;
    window = 0;
    run_jobs(&fake, -1);
    engine_free(g);
    return 0;
}

enum { MAX_NEW = 12, MOST = 40, POOL = 1009 };
struct asked {
    uint32_t prompt[60], blocks[40];
    struct seq_spec spec;
    uint32_t got[MAX_NEW], n_got, alone[MAX_NEW], n_alone;
    uint32_t words[3], lengths[2];
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
    /* scattered; unique among POOL consecutive ones */
    for (uint32_t i = 0; i < a->spec.n_blocks; i++)
        a->blocks[i] = next_block++ * 7 % POOL;
}

/* Forbids, on a second request, what it generates alone: a token, or two consecutive ones. */
UNUSED static void avoid(struct asked *q, bool pair)
{
    assert_true(q->n_alone > 3);
    memcpy(q->words, q->alone + 1, sizeof(q->words));
    q->lengths[0] = 1, q->lengths[1] = 2;
    q->spec.bad_words = (struct bad_words){
        .id = q->words, .len = q->lengths, .n_ids = pair ? 3 : 1, .n = pair ? 2 : 1};
}

/* Does it? */
UNUSED static bool says_bad_words(const uint32_t *said, uint32_t n, const struct asked *q)
{
    const struct bad_words *b = &q->spec.bad_words;
    for (uint32_t i = 0; b->n && i < n; i++)
        if (said[i] == b->id[0] ||
            (b->n > 1 && i > 0 && said[i - 1] == b->id[1] && said[i] == b->id[2]))
            return true;
    return false;
}

/* Also with run-ahead, most of the time: the results must not change. */
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

/* Decodes and filters until batch `id` is finished. */
UNUSED static void finish(uint64_t id, struct asked *v)
{
    struct err e = ERR_INIT;
    struct answer a;
    for (;;) {
        assert_int_equal(engine_decode(g, &id, 1, NULL, &a, &e), 0);
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

UNUSED static void run_alone(struct asked *q, struct asked *all)
{
    struct err e = ERR_INIT;
    struct answer a;
    assert_int_equal(engine_prefill(g, 1000, &q->spec, 1, NULL, NULL, &a, &e), 0);
    take(&a, all);
    if (a.batch)
        finish(1000, all);
    memcpy(q->alone, q->got, sizeof(q->got));
    q->n_alone = q->n_got;
    assert_true(q->over && (q->n_got == MAX_NEW || q->got[q->n_got - 1] == EOS));
    q->n_got = 0, q->over = false;
}
#endif
