/* A decode step allocates nothing: engine, sampler, detokenizer, model and CPU backend, over the
 * bundled model. Every allocation of the process is counted between the end of the warm-up and the
 * last step but one; the first one that is found is printed with its callers. And the memory of a
 * long prompt, in pages that the process has touched. */
#include "common/tokenizer/tokenizer.h"
#include "model-server/engine/engine.h"
#include "tests/unit/test.h"
#include <execinfo.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "models/demo"
enum { BLOCK = 16, MOST = 6, PROMPT = 200, NEW = 500, WARM = 4 };

/* ---------------------------------------------------------------- counting */

static atomic_bool counting;
static atomic_uint counted;

static void count(void)
{
    if (!atomic_load(&counting) || atomic_fetch_add(&counted, 1))
        return;
    void *callers[24];
    backtrace_symbols_fd(callers, backtrace(callers, 24), 2);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *));
static void on_malloc(const volatile void *p, size_t n) { (void)p, (void)n, count(); }
static void on_free(const volatile void *p) { (void)p; }
static void watch(void) { __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free); }
#else
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void *malloc(size_t n) { return count(), __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return count(), __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return count(), __libc_realloc(p, n); }
void *aligned_alloc(size_t align, size_t n) { return count(), __libc_memalign(align, n); }
void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    count();
    return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}
static void watch(void) {}
#endif

/* ---------------------------------------------------------------- an engine */

struct rig {
    const struct backend_ops *ops;
    struct device *dev;
    struct model *model;
    struct tokenizer *tok;
    struct engine *engine;
};

static void open_rig(struct rig *r, const char *dir, enum quant quant)
{
    struct err e = ERR_INIT;
    static const uint32_t some[] = {2, 3, 4, 5};
    struct seq_spec s = {.prompt = some, .n_prompt = 4, .sampling = sampling_neutral()};
    struct warmup w = {.specs = &s, .n = 1, .max_prefill_tokens = MOST * PROMPT};
    r->ops = backend_find("cpu", &e);
    r->dev = r->ops->open(&(struct device_options){.threads = 2, .features = ~0ull}, &e);
    r->tok = tokenizer_load(dir, &e);
    struct model_options m = {
        .ops = r->ops, .dev = r->dev, .comm = comm_solo(), .dtype = -1, .quant = quant};
    r->model = model_load(dir, &m, &e);
    if (!r->dev || !r->tok || !r->model)
        fail_msg("%s (run from the top of the repository)", e.msg);
    struct engine_options o = {.model = r->model,
                               .tok = r->tok,
                               .ops = r->ops,
                               .dev = r->dev,
                               .comm = m.comm,
                               .block_size = BLOCK,
                               .kv_dtype = KV_BF16,
                               .memory_fraction = 1,
                               .kv_limit = 64 << 20};
    r->engine = engine_new(&o, &e);
    if (!r->engine || engine_warmup(r->engine, &w, &e))
        fail_msg("%s", e.msg);
}

static void close_rig(struct rig *r)
{
    engine_free(r->engine);
    model_free(r->model);
    tokenizer_free(r->tok);
    r->ops->close(r->dev);
}

/* ---------------------------------------------------------------- requests */

/* The last one goes far enough for the attention to be split over the threads, and past the table
 * that rotations might have begun with. */
static struct seq_spec request(uint64_t id, uint32_t vocab)
{
    static uint32_t prompt[PROMPT];
    static char *stops[] = {"never said", "nor this"};
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = 2 + i * 7 % (vocab < 1902 ? vocab - 2 : 1900);
    struct seq_spec s = {.id = id,
                         .prompt = prompt,
                         .n_prompt = PROMPT,
                         .max_new_tokens = NEW,
                         .ignore_eos = true,
                         .sampling = sampling_neutral()};
    s.sampling.seed = id;
    if (id & 1) {
        s.sampling.temperature = 0.8f;
        s.sampling.top_p = 0.95f;
    }
    if (id == 2)
        s.sampling.penalties.repetition = 1.1f;
    if (id == 3) {
        s.sampling.top_k = 50;
        s.sampling.typical_p = 0.9f;
        s.stops = stops;
        s.n_stops = 2;
    }
    s.top_n = id == 4 ? 5 : 0;
    if (id == 5)
        s.sampling.min_p = 0.05f;
    return s;
}

/* As the service calls it: each answer, then the next step ahead of its being asked for. */
static unsigned allocations(struct rig *r, uint64_t first, uint32_t n)
{
    struct err e = ERR_INIT;
    struct answer a;
    struct seq_spec specs[MOST];
    const uint64_t batch = 1;
    for (uint32_t i = 0; i < n; i++) {
        specs[i] = request(first + i, model_info(r->model)->vocab);
        struct seq_limits lim = engine_limits(r->engine);
        uint32_t blocks = (PROMPT + NEW + BLOCK - 1) / BLOCK;
        assert_true(lim.n_blocks >= blocks * n);
        uint32_t *v = calloc(blocks, sizeof(*v));
        assert_non_null(v);
        for (uint32_t k = 0; k < blocks; k++)
            v[k] = i * blocks + k;
        specs[i].blocks = v;
        specs[i].n_blocks = blocks;
    }
    assert_int_equal(engine_prefill(r->engine, batch, specs, n, NULL, NULL, &a, &e), 0);
    atomic_store(&counted, 0);
    for (uint32_t step = 1; step < NEW; step++) {
        atomic_store(&counting, step > WARM && step < NEW - 1);
        int rc = engine_decode(r->engine, &batch, 1, NULL, &a, &e);
        rc = rc ? rc : engine_ahead(r->engine, &e);
        atomic_store(&counting, false);
        assert_int_equal(rc, 0);
        assert_int_equal(a.out->n_gen, n);
        for (uint32_t i = 0; i < n; i++)
            assert_string_equal(a.out->gen[i].seq->error, "");
    }
    assert_null(a.batch);
    for (uint32_t i = 0; i < n; i++)
        free((uint32_t *)specs[i].blocks);
    return atomic_load(&counted);
}

static void steps(const char *dir, enum quant quant)
{
    struct rig r;
    open_rig(&r, dir, quant);
    assert_int_equal(allocations(&r, 0, 1), 0); /* greedy */
    assert_int_equal(allocations(&r, 1, 1), 0); /* sampled */
    assert_int_equal(allocations(&r, 0, MOST), 0);
    close_rig(&r);
}

static void a_decode_step_allocates_nothing(void **state)
{
    (void)state;
    steps(MODEL, QUANT_NONE);
}

static void nor_with_integer_weights(void **state)
{
    (void)state;
    steps(MODEL, QUANT_W8A8);
}

/* The next n tokens of MOST sequences that have computed `at`, by the model alone: the text of
 * these models is bytes that are no characters, which the detokenizer holds back in buffers of its
 * own. */
static void model_steps(struct rig *r, uint32_t n, uint32_t at)
{
    enum { PER_SEQ = 8 };
    static uint32_t ids[MOST * PROMPT], pos[MOST * PROMPT], slots[MOST * PROMPT], rows[MOST],
        blocks[MOST][PER_SEQ];
    static float logits[MOST * 512];
    struct span spans[MOST];
    struct err e = ERR_INIT;
    for (uint32_t s = 0, t = 0; s < MOST; s++) {
        for (uint32_t b = 0; b < PER_SEQ; b++)
            blocks[s][b] = s * PER_SEQ + b;
        for (uint32_t i = 0; i < n; i++, t++) {
            ids[t] = 3 + (at + i) * 7 % 300, pos[t] = at + i;
            slots[t] = s * PER_SEQ * BLOCK + at + i;
        }
        spans[s] = (struct span){.first = s * n,
                                 .n = n,
                                 .kv_len = at + n,
                                 .blocks = blocks[s],
                                 .state_in = 2 * s + at % 2,
                                 .state_out = 2 * s + (at + 1) % 2};
        rows[s] = s * n + n - 1;
    }
    const struct ragged b = {.n_tokens = MOST * n,
                             .n_spans = MOST,
                             .n_out = MOST,
                             .ids = ids,
                             .pos = pos,
                             .slots = slots,
                             .spans = spans,
                             .out_rows = rows};
    if (model_forward(r->model, &b, logits, &e))
        fail_msg("%s", e.msg);
}

static void nor_with_recurrent_layers(void **state)
{
    static const char *const models[] = {"arch/qwen3_next/config.json",
                                         "arch/nemotron_h/config.json", "arch/lfm2/config.json"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const char *path = test_data(models[i]);
        char dir[PATH_MAX];
        if (!path) {
            TEST_SKIPPED(1, "no config.json under TEST_DATA");
            continue;
        }
        snprintf(dir, sizeof(dir), "%.*s", (int)(strlen(path) - strlen("/config.json")), path);
        struct rig r;
        open_rig(&r, dir, QUANT_NONE);
        model_steps(&r, 40, 0); /* buffers grow to the largest step */
        atomic_store(&counted, 0);
        atomic_store(&counting, true);
        for (uint32_t at = 40; at < 90; at++)
            model_steps(&r, 1, at);
        atomic_store(&counting, false);
        assert_int_equal(atomic_load(&counted), 0);
        close_rig(&r);
    }
}

/* ---------------------------------------------------------------- the pages of a prompt */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* Bytes of anonymous memory that are resident. */
static uint64_t resident(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) && sscanf(line, "Anonymous: %llu", &kib) != 1)
        ;
    fclose(f);
    return kib * 1024;
}

/* A feed-forward that is wide beside the rest, as in large models: its rows are what a pass takes.
 * They are for a tile, not for a pass. Beside them are rows of x, packed, at most as much as a
 * third of them, the other rows of a pass, and parts of huge pages. */
static void a_long_prompt_touches_the_rows_of_a_tile(void **state)
{
    enum { FFN = 8192, OTHERS = 8 << 20 };
    struct err e = ERR_INIT;
    struct rig r = {.ops = backend_find("cpu", &e)};
    (void)state;
    if (SANITIZED) {
        TEST_SKIPPED(1, "the sanitizer's own memory");
        return;
    }
    r.dev = r.ops->open(&(struct device_options){.threads = 2, .features = ~0ull}, &e);
    const struct model_options m = {.ops = r.ops,
                                    .dev = r.dev,
                                    .comm = comm_solo(),
                                    .dtype = -1,
                                    .random_config =
                                        "{\"model_type\":\"llama\",\"hidden_size\":256,"
                                        "\"intermediate_size\":8192,\"num_hidden_layers\":2,"
                                        "\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                                        "\"vocab_size\":512,\"max_position_embeddings\":256,"
                                        "\"rms_norm_eps\":1e-5}"};
    r.model = model_load("wide", &m, &e);
    if (!r.model || model_kv_resize(r.model, MOST * 8, BLOCK, KV_BF16, &e))
        fail_msg("%s", e.msg);
    const uint64_t tile = (uint64_t)r.ops->tile_rows(r.dev) * 3 * FFN * sizeof(float);
    model_steps(&r, 1, 0);
    const uint64_t before = resident();
    model_steps(&r, 120, 1);
    const uint64_t grown = resident() - before;
    if (grown > tile + tile / 3 + OTHERS)
        fail_msg("a prompt of %u tokens touched %llu bytes more, of which a tile has %llu",
                 MOST * 120, (unsigned long long)grown, (unsigned long long)tile);
    model_free(r.model);
    r.ops->close(r.dev);
}

/* Or the zeroes above would mean nothing. */
static void what_allocates_is_counted(void **state)
{
    void *volatile p;
    (void)state;
    atomic_store(&counted, 0);
    atomic_store(&counting, true);
    p = malloc(10);
    p = realloc(p, 100000);
    free(p);
    p = calloc(3, 7);
    free(p);
    atomic_store(&counting, false);
    assert_int_equal(atomic_load(&counted), 3);
}

int main(void)
{
    void *once[4];
    backtrace(once, 4); /* the first call loads a library */
    watch();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_allocates_is_counted),
        cmocka_unit_test(a_decode_step_allocates_nothing),
        cmocka_unit_test(nor_with_integer_weights),
        cmocka_unit_test(nor_with_recurrent_layers),
        cmocka_unit_test(a_long_prompt_touches_the_rows_of_a_tile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
