/* Adapters that are not merged: against PEFT, against merged weights for every layout of the
 * families, against themselves in other company, and coming and going on a device that is too small
 * for all of them. */
#include "tests/golden/lora_made.h"
#include "tests/golden/ranks.h"
#include "tests/temp_folder.h"
#include <sys/stat.h>

#define TOLERANCE 1e-4

static int skipped;

/* TEST_DATA/name, or NULL (and counted). */
static const char *folder(const char *name, char out[PATH_LEN])
{
    char file[128];
    snprintf(file, sizeof(file), "%s/golden.json", name); /* one that make_arch.py made */
    if (access(file, R_OK) == 0) {
        snprintf(out, PATH_LEN, "%s", name);
        return out;
    }
    snprintf(file, sizeof(file), "%s/config.json", name);
    const char *path = test_data(file);
    if (!path) {
        snprintf(file, sizeof(file), "%s/golden.json", name);
        path = test_data(file);
    }
    skipped += !path;
    if (!path)
        return NULL;
    snprintf(out, PATH_LEN, "%.*s", (int)(strrchr(path, '/') - path), path);
    return out;
}

/* What rank 0 of the model with adapters found. */
static struct verdict run_world(const struct bench_setup *setup, const struct golden *g, int world)
{
    struct verdict found[MOST_RANKS];
    judge_ranks(setup, g, world, found);
    return found[0];
}

static void assert_close(const struct verdict *v, const char *what)
{
    /* a checkpoint that magnifies rounding: transformers is 9e-5 away without an adapter */
    const double most = strstr(what, "qwen3_5") ? 3 * TOLERANCE : TOLERANCE;
    if (!(v->logits < most && v->logprobs < most && v->greedy_right == v->greedy))
        fail_msg("%s: logits off by %g, log-probabilities by %g, %u of %u greedy tokens", what,
                 v->logits, v->logprobs, v->greedy_right, v->greedy);
}

/* ---------------------------------------------------------------- against PEFT */

static const char *const names[] = {"attn_r4", "mlp_r8"};

static void adapters_answer_as_peft_says(void **state)
{
    char base[PATH_LEN], dir[2][PATH_LEN];
    struct adapter_source list[2];
    (void)state;
    if (!folder("arch/llama", base) || !folder("lora/attn_r4", dir[0]) ||
        !folder("lora/mlp_r8", dir[1]))
        return;
    for (int i = 0; i < 2; i++)
        list[i] = (struct adapter_source){names[i], dir[i]};
    for (uint32_t a = 0; a <= 2; a++) /* 0: the model beside them is what it was */
        for (int world = 1; world <= 4; world *= 2) {
            struct golden g;
            assert_true(golden_load(&g, a ? dir[a - 1] : base, MAX_PROMPTS));
            struct verdict v = run_world(
                &(struct bench_setup){
                    .dir = base, .dtype = -1, .adapters = list, .n_adapters = 2, .adapter = a},
                &g, world);
            assert_close(&v, a ? names[a - 1] : "none");
            golden_free(&g);
        }
}

/* ---------------------------------------------------------------- against merged weights */

static const char *const families[] = {
    "arch/llama",
    "arch/llama_mqa",
    "arch/phi3",
    "arch/gpt2",
    "arch/gpt_neox",
    "arch/gptj",
    "arch/phi",
    "arch/cohere",
    "arch/gemma",
    "arch/opt",
    "arch/qwen2",
    "arch/stablelm",
    "arch/deepseek_v2",
    "arch/deepseek_v3_noq",
    "build/golden/arch/mistral_large4",
    "build/golden/arch/dots3_note",
    "arch/gemma4_text",
    "arch/qwen3_next",
    "arch/qwen3_5_text",
    "arch/granitemoehybrid_dense",
    "arch/nemotron_h",
    "arch/qwen2_moe",
    "arch/lfm2",
    "build/golden/arch/falcon_h1",
    "build/golden/arch/kimi_k3",
    "build/golden/arch/bailing_hybrid",
    "build/golden/arch/olmo_hybrid",
    "build/golden/arch/afmoe",
    "build/golden/arch/deci",
    "build/golden/arch/laguna",
    "build/golden/arch/gemma3n",
    "build/golden/arch/recurrent_gemma",
    "build/golden/arch/beam",
    "build/golden/arch/deepseek_v4",
    "build/golden/arch/rwkv7",
    "build/golden/arch/mamba",
    "build/golden/arch/jamba",
    "build/golden/arch/plamo2",
    "build/golden/arch/qwen4_exp",
    "build/golden/arch/inkling",
    "build/golden/arch/muse_spark",
    "build/golden/arch/solar",
};

/* What the merged model says of the prompts takes the place of their expectations. */
static void expect_merged(struct golden *g, const char *dir)
{
    struct err e = ERR_INIT;
    struct bench b;
    if (bench_open(&b, dir, comm_solo(), 1, MAX_SEQ_BLOCKS, &e))
        fail_msg("%s", e.msg);
    for (int i = 0; i < g->n; i++) {
        static struct bench_seq s;
        struct bench_seq *const one[] = {&s};
        struct prompt *p = &g->prompts[i];
        uint32_t order[MAX_SEQ_BLOCKS];
        for (uint32_t k = 0; k < MAX_SEQ_BLOCKS; k++)
            order[k] = k;
        seq_init(&s, &b, p, order);
        assert_int_equal(bench_step(&b, one, &p->n, 1, &e), 0);
        memcpy(p->last, s.rows + (size_t)(p->n - 1) * b.vocab, b.vocab * sizeof(float));
        for (uint32_t k = 1; k < p->n; k++)
            p->logprobs[k] = (float)logprob(s.rows + (size_t)(k - 1) * b.vocab, b.vocab, p->ids[k]);
        p->n_greedy = 0; /* margins are not known */
        free(s.rows);
    }
    bench_close(&b);
}

static void unmerged_is_merged(void **state)
{
    char base[PATH_LEN], tmp[] = "/tmp/test-lora-XXXXXX", path[64];
    char merged[64], made[64];
    struct golden g;
    const char *name = *(const char *const *)*state;
    if (!folder(name, base))
        return;
    assert_true(golden_load(&g, base, 2));
    assert_non_null(mkdtemp(tmp));
    snprintf(made, sizeof(made), "%s/adapter", tmp);
    snprintf(merged, sizeof(merged), "%s/merged", tmp);
    assert_int_equal(mkdir(made, 0700) | mkdir(merged, 0700), 0);
    made_adapter(base, tmp, strcmp(name, "arch/gpt2") == 0);
    struct golden before = g;
    float *first = g.prompts[0].last, kept = first[0];
    expect_merged(&g, merged);
    assert_true(fabsf(before.prompts[0].last[0] - kept) > 1e-3f); /* it does change something */
    struct adapter_source list = {"made", made};
    const struct bench_setup setup = {
        .dir = base, .dtype = -1, .adapters = &list, .n_adapters = 1, .adapter = 1};
    for (int world = 1; world <= 2; world++) {
        struct verdict v = run_world(&setup, &g, world);
        snprintf(path, sizeof(path), "%s, %d ranks", name, world);
        assert_close(&v, path);
    }
    golden_free(&g);
    assert_int_equal(temp_folder_remove(tmp), 0);
}

/* ---------------------------------------------------------------- in company */

/* One step of three sequences with an adapter of each kind; chunks cut differently each time. */
static void together_as_alone(void **state)
{
    char base[PATH_LEN], dir[2][PATH_LEN];
    struct err e = ERR_INIT;
    struct golden g;
    struct bench b;
    static struct bench_seq alone[3], mixed[3];
    uint32_t order[3 * MAX_SEQ_BLOCKS];
    struct rng r = rng_new();
    (void)state;
    if (!folder("arch/llama", base) || !folder("lora/attn_r4", dir[0]) ||
        !folder("lora/mlp_r8", dir[1]))
        return;
    const struct adapter_source list[] = {{names[0], dir[0]}, {names[1], dir[1]}};
    assert_true(golden_load(&g, base, 3));
    const struct bench_setup both = {.dir = base, .dtype = -1, .adapters = list, .n_adapters = 2};
    if (bench_open_as(&b, &both, comm_solo(), 2, 3 * MAX_SEQ_BLOCKS, &e))
        fail_msg("%s", e.msg);
    shuffled(&r, order, 3 * MAX_SEQ_BLOCKS);
    for (uint32_t i = 0; i < 3; i++) {
        seq_init(&alone[i], &b, &g.prompts[i], order + i * MAX_SEQ_BLOCKS);
        seq_init(&mixed[i], &b, &g.prompts[i], order + (2 - i) * MAX_SEQ_BLOCKS);
        alone[i].adapter = mixed[i].adapter = i;
        assert_int_equal(bench_step(&b, &(struct bench_seq *){&alone[i]}, &alone[i].n, 1, &e), 0);
    }
    struct bench_seq *const all[] = {&mixed[0], &mixed[1], &mixed[2]};
    for (uint32_t left = 1; left;) {
        uint32_t take[3];
        left = 0;
        for (int i = 0; i < 3; i++) {
            take[i] = rng_below(&r, 9);
            take[i] = take[i] < all[i]->n - all[i]->done ? take[i] : all[i]->n - all[i]->done;
        }
        if (take[0] + take[1] + take[2])
            assert_int_equal(bench_step(&b, all, take, 3, &e), 0);
        for (int i = 0; i < 3; i++)
            left += all[i]->n - all[i]->done;
    }
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(alone[i].rows, mixed[i].rows,
                            (size_t)alone[i].n * b.vocab * sizeof(float));
        free(alone[i].rows), free(mixed[i].rows);
    }
    bench_close(&b);
    golden_free(&g);
}

/* ---------------------------------------------------------------- too small for all */

/* One adapter under many names, and room for two. */
static void they_take_turns(void **state)
{
    enum { MANY = 7, ROOM = 2 };
    char base[PATH_LEN], dir[PATH_LEN];
    static const char *const many[MANY] = {"a", "b", "c", "d", "e", "f", "g"};
    struct adapter_source list[MANY];
    struct err e = ERR_INIT;
    struct golden g;
    struct bench b;
    struct verdict v;
    (void)state;
    if (!folder("arch/llama", base) || !folder("lora/mlp_r8", dir))
        return;
    for (int i = 0; i < MANY; i++)
        list[i] = (struct adapter_source){many[i], dir};
    assert_true(golden_load(&g, dir, 1));
    const struct bench_setup crowd = {
        .dir = base, .dtype = -1, .adapters = list, .n_adapters = MANY};
    if (bench_open_with(&b, &crowd, comm_solo(), 1, MAX_SEQ_BLOCKS, &e))
        fail_msg("%s", e.msg);
    struct adapters *a = model_adapters(b.model);
    const uint32_t each = adapters_pages(a, 1);
    assert_int_equal(adapters_reserve(a, each - 1, &e), -1);
    assert_non_null(strstr(e.msg, "--adapter-memory-fraction"));
    assert_int_equal(adapters_reserve(a, ROOM * each, &e), 0);
    for (uint32_t i = 1; i <= MANY; i++) {
        assert_int_equal(adapters_pin(a, i, &e), 0);
        b.adapter = i;
        assert_int_equal(judge(&b, &g, &v, &e), 0);
        assert_close(&v, many[i - 1]);
        adapters_unpin(a, i);
    }
    assert_int_equal(adapters_loads(a), MANY);
    assert_int_equal(adapters_pin(a, MANY, &e), 0); /* the last two are still there */
    assert_int_equal(adapters_pin(a, MANY - 1, &e), 0);
    assert_int_equal(adapters_loads(a), MANY);
    assert_int_equal(adapters_pin(a, 1, &e), -1); /* both are in use */
    assert_int_equal(e.kind, ERR_OVERLOADED);
    adapters_unpin(a, MANY);
    assert_int_equal(adapters_pin(a, 1, &e), 0);
    assert_int_equal(adapters_pin(a, MANY - 1, &e), 0); /* was not the one that went */
    assert_int_equal(adapters_loads(a), MANY + 1);
    b.adapter = MANY - 1;
    assert_int_equal(judge(&b, &g, &v, &e), 0);
    assert_close(&v, "the one that stayed");
    adapters_unpin(a, 1), adapters_unpin(a, MANY - 1), adapters_unpin(a, MANY - 1);
    bench_close(&b);
    golden_free(&g);
}

int main(void)
{
    enum { N_FAMILIES = sizeof(families) / sizeof(*families), N_OTHERS = 3 };
    static char title[N_FAMILIES][64];
    static struct CMUnitTest tests[N_FAMILIES + N_OTHERS] = {
        cmocka_unit_test(adapters_answer_as_peft_says),
        cmocka_unit_test(together_as_alone),
        cmocka_unit_test(they_take_turns),
    };
    for (int i = 0; i < N_FAMILIES; i++) {
        snprintf(title[i], sizeof(title[i]), "unmerged is merged: %s", families[i]);
        tests[N_OTHERS + i] = (struct CMUnitTest){.name = title[i],
                                                  .test_func = unmerged_is_merged,
                                                  .initial_state = (void *)&families[i]};
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (skipped)
        TEST_SKIPPED(skipped, "no adapters or checkpoints under TEST_DATA");
    return failed;
}
