/* A model in GGUF gives the bits of the same model in a folder: every family that is read, plain
 * and packed, in one file and in several, on one rank and on two. */
#include "tests/golden/gguf_made.h"
#include "tests/golden/ranks.h"
#include "tests/temp_folder.h"
#include <sys/stat.h>

#define MADE "build/golden/arch/"

static const struct model_case {
    const char *name;
    bool close; /* not the same bits: the file says a scaling in another way */
} cases[] = {
    {"arch/llama", false},
    {"arch/llama_sharded", false},
    {"arch/llama_mqa", false},
    {"arch/llama_hd64", false},
    {"arch/llama_tied_bias", false},
    {"arch/llama_rope_linear", false},
    {"arch/llama_rope_yarn", false},
    {"arch/llama_rope_llama3", true},
    {"arch/mixtral", false},
    {"arch/qwen2", false},
    {"arch/qwen3_moe", false},
    {"arch/gemma", false},
    {"arch/gemma3_text", false},
    {"arch/phi3", false},
    {"arch/phi3_longrope", false},
    {"arch/cohere", false},
    {"arch/stablelm", false},
    {"models/stories260K", false},
    {"models/stories260K-bf16", false},
    {"models/stories260K-fp16", false},
    {MADE "gemma2", false},
    {MADE "qwen3", false},
    {MADE "granite", false},
    {MADE "phi3_partial", false},
    {MADE "starcoder2", false},
    {MADE "stablelm_parallel", false},
    {MADE "gemma3n", false},
    {MADE "rwkv7_joined", false},
};
enum { N_CASES = sizeof(cases) / sizeof(cases[0]) };
static int skipped, not_made;

/* ---------------------------------------------------------------- before and after */

struct place {
    char root[64], folder[PATH_LEN], file[PATH_LEN];
};

static void place_make(struct place *p)
{
    strcpy(p->root, "/tmp/gguf-golden-XXXXXX");
    assert_non_null(mkdtemp(p->root));
    snprintf(p->folder, sizeof(p->folder), "%s/folder", p->root);
    assert_int_equal(mkdir(p->folder, 0700), 0);
    snprintf(p->file, sizeof(p->file), "%s/model.gguf", p->root);
}

static void place_drop(const struct place *p) { assert_int_equal(temp_folder_remove(p->root), 0); }

/* The folder of a case; NULL, and counted, where it is not there. */
static const char *source(const char *name)
{
    static char dir[PATH_LEN];
    char file[128];
    const bool made = strncmp(name, MADE, strlen(MADE)) == 0;
    snprintf(file, sizeof(file), "%s/config.json", name);
    const char *path = !made ? test_data(file) : access(file, F_OK) == 0 ? file : NULL;
    if (!path) {
        *(made ? &not_made : &skipped) += 1;
        return NULL;
    }
    snprintf(dir, sizeof(dir), "%.*s", (int)(strlen(path) - strlen("/config.json")), path);
    return dir;
}

/* What the file cannot say as the folder does is changed in the folder first: q.k is divided by the
 * root of the head's size. NULL: nothing. */
static cJSON *sayable(const char *dir)
{
    char path[PATH_LEN];
    struct err e = ERR_INIT;
    snprintf(path, sizeof(path), "%s/config.json", dir);
    cJSON *c = json_load(path, 1 << 20, &e);
    assert_non_null(c);
    if (!json_get(c, "query_pre_attn_scalar")) {
        cJSON_Delete(c);
        return NULL;
    }
    cJSON_ReplaceItemInObject(c, "query_pre_attn_scalar",
                              cJSON_CreateNumber(json_num(c, "head_dim", 0)));
    return c;
}

/* Logits of a prompt of 96 ids. */
static float *logits_of(const char *dir, int dtype, enum activations activations, uint32_t *vocab)
{
    struct bench b;
    struct err e = ERR_INIT;
    struct prompt p = {.n = 96};
    static struct bench_seq s;
    struct bench_seq *const one[] = {&s};
    uint32_t order[MAX_SEQ_BLOCKS];
    for (uint32_t i = 0; i < MAX_SEQ_BLOCKS; i++)
        order[i] = i;
    const struct bench_setup u = {.dir = dir, .dtype = dtype, .activations = activations};
    if (bench_open_with(&b, &u, comm_solo(), 1, MAX_SEQ_BLOCKS, &e))
        fail_msg("%s", e.msg);
    for (uint32_t i = 0; i < p.n; i++)
        p.ids[i] = (i * i * 31 + i * 7 + 5) % b.vocab;
    seq_init(&s, &b, &p, order);
    if (bench_step(&b, one, &p.n, 1, &e))
        fail_msg("%s", e.msg);
    *vocab = b.vocab;
    bench_close(&b);
    return s.rows;
}

static void assert_same(const char *a, const char *b, int dtype, bool close)
{
    uint32_t va, vb;
    float *x = logits_of(a, dtype, ACTIVATIONS_EXACT, &va),
          *y = logits_of(b, dtype, ACTIVATIONS_EXACT, &vb);
    assert_int_equal(va, vb);
    double worst = 0;
    for (size_t i = 0; i < (size_t)96 * va; i++)
        worst = larger(worst, (double)x[i] - y[i]);
    if (close ? worst > 1e-4 : memcmp(x, y, (size_t)96 * va * sizeof(float)) != 0)
        fail_msg("%s and %s differ by up to %g", a, b, worst);
    free(x), free(y);
}

/* ---------------------------------------------------------------- tests */

/* As stored: every bit. */
static void a_file_is_its_folder(void **state)
{
    const struct model_case *k = *state;
    const char *dir = source(k->name);
    struct place p;
    if (!dir)
        return;
    place_make(&p);
    cJSON *config = sayable(dir);
    const struct gguf_how how = {.packing = -1, .dequantised = config ? p.folder : NULL};
    gguf_made(dir, config, &how, p.root, "model");
    assert_same(config ? p.folder : dir, p.file, config ? DT_F32 : -1, k->close);
    cJSON_Delete(config);
    place_drop(&p);
}

/* Packed: the bits of the numbers that are left. */
static void packed_is_what_is_left(void **state)
{
    static const enum gguf_packing packings[] = {GGUF_F16, GGUF_BF16, GGUF_Q8_0, GGUF_Q4_0};
    const struct model_case *k = *state;
    const char *dir = source(k->name);
    if (!dir)
        return;
    cJSON *config = sayable(dir);
    for (size_t i = 0; i < sizeof(packings) / sizeof(packings[0]); i++) {
        struct place p;
        place_make(&p);
        const struct gguf_how how = {.packing = (int)packings[i], .dequantised = p.folder};
        gguf_made(dir, config, &how, p.root, "model");
        assert_same(p.folder, p.file, DT_F32, k->close);
        assert_same(p.folder, p.file, DT_BF16, k->close);
        place_drop(&p);
    }
    cJSON_Delete(config);
}

/* Activations in 8 bits: not the same, and near. */
static void rounded_activations_are_near(void **state)
{
    static const enum gguf_packing packings[] = {GGUF_Q8_0, GGUF_Q4_0};
    static const char *const names[] = {"models/demo", "arch/llama", "models/stories260K"};
    (void)state;
    for (int i = 0; i < 6; i++) {
        const char *dir = source(names[i / 2]);
        struct place p;
        uint32_t vocab;
        double error = 0, all = 0;
        if (!dir)
            continue;
        place_make(&p);
        const struct gguf_how how = {.packing = (int)packings[i % 2]};
        gguf_made(dir, NULL, &how, p.root, "model");
        float *exact = logits_of(p.file, -1, ACTIVATIONS_EXACT, &vocab);
        float *other = logits_of(p.file, -1, ACTIVATIONS_8, &vocab);
        for (size_t j = 0; j < (size_t)96 * vocab; j++) {
            error += pow((double)exact[j] - other[j], 2);
            all += pow(exact[j], 2);
        }
        printf("%s, %s: relative error %.4f\n", names[i / 2], i % 2 ? "Q4_0" : "Q8_0",
               sqrt(error / all));
        assert_true(error > 0 && sqrt(error / all) < 0.05);
        free(exact), free(other);
        place_drop(&p);
    }
}

static void in_parts_as_in_one(void **state)
{
    (void)state;
    const char *dir = source("arch/llama");
    struct place p;
    if (!dir)
        return;
    place_make(&p);
    gguf_made(dir, NULL, &(struct gguf_how){.packing = -1, .files = 3}, p.root, "model");
    snprintf(p.file, sizeof(p.file), "%s/model-00001-of-00003.gguf", p.root);
    assert_same(dir, p.file, -1, false);
    place_drop(&p);
}

/* Two ranks, whose slices begin inside of blocks. */
static void two_ranks(void **state)
{
    static const char *const names[] = {"arch/llama", "models/stories260K", "arch/mixtral"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct golden g;
        struct verdict v[MOST_RANKS];
        struct place p;
        const char *dir = source(names[i]);
        if (!dir)
            continue;
        place_make(&p);
        assert_true(golden_load(&g, dir, MAX_PROMPTS));
        gguf_made(dir, NULL, &(struct gguf_how){.packing = -1}, p.root, "model");
        judge_ranks(&(struct bench_setup){.dir = p.file, .dtype = -1}, &g, 2, v);
        for (int r = 0; r < 2; r++) {
            assert_true(v[r].logits < 1e-4);
            assert_int_equal(v[r].greedy_right, v[r].greedy);
        }
        golden_free(&g);
        place_drop(&p);
    }
}

int main(void)
{
    static struct CMUnitTest tests[2 * N_CASES + 3] = {
        cmocka_unit_test(in_parts_as_in_one),
        cmocka_unit_test(two_ranks),
        cmocka_unit_test(rounded_activations_are_near),
    };
    static char titles[2 * N_CASES][80];
    for (size_t i = 0; i < N_CASES; i++) {
        snprintf(titles[2 * i], sizeof(titles[0]), "a file is its folder: %s", cases[i].name);
        snprintf(titles[2 * i + 1], sizeof(titles[0]), "packed: %s", cases[i].name);
        for (int j = 0; j < 2; j++)
            tests[3 + 2 * i + (size_t)j] =
                (struct CMUnitTest){.name = titles[2 * i + (size_t)j],
                                    .test_func = j ? packed_is_what_is_left : a_file_is_its_folder,
                                    .initial_state = (void *)(uintptr_t)&cases[i]};
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (skipped)
        TEST_SKIPPED(skipped, "no checkpoints under TEST_DATA");
    if (not_made)
        TEST_SKIPPED(not_made, "not made (tests/golden/make_arch.py)");
    return failed;
}
