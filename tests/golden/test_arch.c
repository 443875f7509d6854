/* Every supported family against transformers (fp32 arithmetic on the stored weights), and the bits
 * of a result against batch, chunks, blocks and ranks.
 *
 *   GOLDEN_TABLE=1 build/tests/golden/test_arch     also prints the table of
 * docs/results/architectures.md
 *   build/tests/golden/test_arch '*gemma*'          runs the tests of that name
 */
#include "common/buf.h"
#include "model-server/model/arch.h"
#include "tests/golden/arch_dirs.h"
#include "tests/golden/ranks.h"
#include "tests/temp_folder.h"
#include <sys/stat.h>
#include <unistd.h>

#define TOLERANCE 1e-4

enum { N_DIRS = sizeof(dirs) / sizeof(dirs[0]), N_TOGETHER = 3 };

/* Of the folder at hand. One has logits of up to 37, and 1e-3 in the README of its data. */
static double tolerance;
static struct verdict verdicts[N_DIRS];
static int skipped, not_made;

/* ---------------------------------------------------------------- finding, checking */

/* The folder of a case with up to `most` prompts, or NULL (and counted) where the data is not
 * there. */
static const char *folder(void **state, struct golden *g, int most)
{
    static char dir[PATH_LEN];
    char file[128];
    const char *name = *(const char *const *)*state;
    tolerance = strcmp(name, "vision/qwen3_5") == 0 ? 1e-3 : TOLERANCE;
    bool made = strncmp(name, MADE, strlen(MADE)) == 0;
    snprintf(file, sizeof(file), "%s/golden.json", name);
    const char *path = !made ? test_data(file) : access(file, F_OK) == 0 ? file : NULL;
    if (!path) {
        *(made ? &not_made : &skipped) += 1;
        return NULL;
    }
    snprintf(dir, sizeof(dir), "%.*s", (int)(strlen(path) - strlen("/golden.json")), path);
    assert_true(golden_load(g, dir, most));
    return dir;
}

static void assert_verdict(const struct verdict *v)
{
    assert_true(v->logits < tolerance);
    assert_true(v->logprobs < 2 * tolerance); /* a logit less a mean of logits */
    assert_int_equal(v->greedy_right, v->greedy);
}

static void open_or_fail(struct bench *b, const char *dir, int threads, uint32_t n_blocks)
{
    struct err e = ERR_INIT;
    if (bench_open(b, dir, comm_solo(), threads, n_blocks, &e))
        fail_msg("%s", e.msg);
}

static void judge_or_fail(struct bench *b, const struct golden *g, struct verdict *v)
{
    struct err e = ERR_INIT;
    if (judge(b, g, v, &e))
        fail_msg("%s", e.msg);
}

/* ---------------------------------------------------------------- against transformers */

static void test_golden(void **state)
{
    struct golden g;
    struct bench b;
    const char *dir = folder(state, &g, MAX_PROMPTS);
    struct verdict *v = &verdicts[(const char *const *)*state - dirs];
    if (!dir)
        return;
    open_or_fail(&b, dir, 1, MAX_SEQ_BLOCKS);
    judge_or_fail(&b, &g, v);
    bench_close(&b);
    golden_free(&g);
    assert_verdict(v);
}

/* The same folder with config.v5.json in the place of config.json. */
static void link_v5(const char *dir, const char *to)
{
    static const char *const weights[] = {"model.safetensors",
                                          "model.safetensors.index.json",
                                          "model-00001-of-00004.safetensors",
                                          "model-00002-of-00004.safetensors",
                                          "model-00003-of-00004.safetensors",
                                          "model-00004-of-00004.safetensors",
                                          "config.v5.json",
                                          "pytorch_model.bin"};
    char *real = realpath(dir, NULL), from[2 * PATH_LEN], name[PATH_LEN];
    assert_non_null(real);
    for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++) {
        bool v5 = strcmp(weights[i], "config.v5.json") == 0;
        snprintf(from, sizeof(from), "%s/%s", real, weights[i]);
        snprintf(name, sizeof(name), "%s/%s", to, v5 ? "config.json" : weights[i]);
        if (access(from, F_OK) == 0)
            assert_int_equal(symlink(from, name), 0);
    }
    free(real);
}

static void unlink_all(const char *dir) { assert_int_equal(temp_folder_remove(dir), 0); }

static void test_config_v5(void **state)
{
    char tmp[] = "/tmp/test-arch-XXXXXX";
    struct golden g;
    struct bench b;
    struct verdict v;
    const char *dir = folder(state, &g, N_TOGETHER);
    if (!dir)
        return;
    assert_non_null(mkdtemp(tmp));
    link_v5(dir, tmp);
    open_or_fail(&b, tmp, 1, MAX_SEQ_BLOCKS);
    judge_or_fail(&b, &g, &v);
    bench_close(&b);
    unlink_all(tmp);
    golden_free(&g);
    assert_verdict(&v);
}

/* ---------------------------------------------------------------- within a vision file
 */

static char *read_all(const char *dir, const char *file, size_t *n)
{
    char path[PATH_LEN + 32];
    struct stat st;
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    char *p = malloc((size_t)st.st_size + 1);
    *n = fread(p, 1, (size_t)st.st_size, f);
    p[*n] = 0;
    fclose(f);
    return p;
}

static FILE *create(const char *dir, const char *file)
{
    char path[PATH_LEN + 32];
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    return f;
}

/* The checkpoint with the names of its tensors as vision files have them: `inner` for "model.", and
 * `head` before "lm_head". */
static void rename_tensors(const char *from, const char *to, const char *inner, const char *head)
{
    size_t n;
    uint64_t old;
    char *file = read_all(from, "model.safetensors", &n), *name = file + 8;
    struct buf header = BUF_INIT;
    memcpy(&old, file, 8);
    for (const char *end = name + old; name < end;) {
        const bool body = strncmp(name, "\"model.", 7) == 0;
        if (body)
            buf_fmt(&header, "\"%s", inner);
        else if (strncmp(name, "\"lm_head", 8) == 0)
            buf_fmt(&header, "\"%slm_head", head);
        else
            buf_add(&header, name, 1);
        name += body ? 7 : strncmp(name, "\"lm_head", 8) == 0 ? 8 : 1;
    }
    const uint64_t now = header.len;
    FILE *f = create(to, "model.safetensors");
    fwrite(&now, 8, 1, f);
    fwrite(header.p, header.len, 1, f);
    fwrite(file + 8 + old, n - 8 - old, 1, f);
    assert_int_equal(fclose(f), 0);
    buf_free(&header);
    free(file);
}

static void judge_nested(const char *dir, const struct golden *g, const char *inner,
                         const char *head)
{
    char tmp[] = "/tmp/test-arch-XXXXXX";
    struct bench b;
    struct verdict v;
    size_t n;
    char *config = read_all(dir, "config.json", &n);
    assert_non_null(mkdtemp(tmp));
    FILE *f = create(tmp, "config.json");
    fprintf(f, "{\"model_type\": \"some_vision\", \"text_config\": %s}", config);
    assert_int_equal(fclose(f), 0);
    rename_tensors(dir, tmp, inner, head);
    open_or_fail(&b, tmp, 1, MAX_SEQ_BLOCKS);
    judge_or_fail(&b, g, &v);
    bench_close(&b);
    unlink_all(tmp);
    free(config);
    assert_verdict(&v);
}

/* Llama 4, Gemma 4 and Kimi-VL are stored so. */
static void test_nested(void **state)
{
    static const char *const nested[] = {"arch/llama4_text", "arch/gemma4_text_moe",
                                         "arch/gemma4_text_ple", "arch/deepseek_v3_noq",
                                         MADE "gemma3n"};
    (void)state;
    for (size_t i = 0; i < sizeof(nested) / sizeof(nested[0]); i++) {
        struct golden g;
        const char *dir = folder((void *[]){(void *)&nested[i]}, &g, N_TOGETHER);
        if (!dir)
            continue;
        judge_nested(dir, &g, "model.language_model.", "");
        judge_nested(dir, &g, "language_model.model.", "language_model.");
        golden_free(&g);
    }
}

/* ---------------------------------------------------------------- the same bits, however it is fed
 */

enum { TOGETHER_BLOCKS = N_TOGETHER * MAX_SEQ_BLOCKS };

static void step_or_fail(struct bench *b, struct bench_seq *const *seqs, const uint32_t *take,
                         int n)
{
    struct err e = ERR_INIT;
    if (bench_step(b, seqs, take, n, &e))
        fail_msg("%s", e.msg);
}

/* Rows from `first` on. */
static void assert_same_rows(const struct bench *b, const struct bench_seq *want,
                             const struct bench_seq *got, uint32_t first)
{
    for (uint32_t i = first; i < want->n; i++)
        if (memcmp(want->rows + (size_t)i * b->vocab, got->rows + (size_t)i * b->vocab,
                   b->vocab * sizeof(float)) != 0)
            fail_msg("row %u of %u differs", i, want->n);
}

/* Up to `most` tokens of each unfinished sequence in every step, until all are done. */
static void feed(struct bench *b, struct rng *r, struct bench_seq *const *seqs, int n,
                 uint32_t most)
{
    for (bool more = true; more;) {
        uint32_t take[N_TOGETHER] = {0}, total = 0;
        more = false;
        for (int i = 0; i < n; i++) {
            uint32_t left = seqs[i]->n - seqs[i]->done,
                     want = most > 1 ? rng_below(r, most + 1) : 1;
            take[i] = want < left ? want : left;
            total += take[i];
            more |= left > 0;
        }
        if (total)
            step_or_fail(b, seqs, take, n);
    }
}

static void test_same_bits(void **state)
{
    static struct bench_seq whole[N_TOGETHER], parts[N_TOGETHER];
    struct rng r = rng_new();
    uint32_t order[TOGETHER_BLOCKS];
    struct golden g;
    struct bench b;
    const char *dir = folder(state, &g, N_TOGETHER);
    struct bench_seq *const all[] = {&parts[0], &parts[1], &parts[2]};
    if (!dir)
        return;
    open_or_fail(&b, dir, 2, TOGETHER_BLOCKS);
    shuffled(&r, order, TOGETHER_BLOCKS);
    for (int i = 0; i < N_TOGETHER; i++) {
        seq_init(&whole[i], &b, &g.prompts[i % g.n], order);
        step_or_fail(&b, &(struct bench_seq *){&whole[i]}, &whole[i].n, 1);
    }
    /* one by one, together; then chunks of up to 7 and 40 tokens, together, also with logits of the
     * last tokens alone; each on fresh scattered blocks */
    static const struct {
        uint32_t most;
        bool ends;
    } ways[] = {{1, false}, {7, false}, {40, false}, {7, true}, {40, true}};
    for (size_t way = 0; way < sizeof(ways) / sizeof(ways[0]); way++) {
        b.ends = ways[way].ends;
        shuffled(&r, order, TOGETHER_BLOCKS);
        for (int i = 0; i < N_TOGETHER; i++)
            seq_init(&parts[i], &b, &g.prompts[i % g.n], order + i * MAX_SEQ_BLOCKS);
        feed(&b, &r, all, N_TOGETHER, ways[way].most);
        for (int i = 0; i < N_TOGETHER; i++) {
            assert_same_rows(&b, &whole[i], &parts[i], b.ends ? whole[i].n - 1 : 0);
            free(parts[i].rows);
        }
    }
    for (int i = 0; i < N_TOGETHER; i++)
        free(whole[i].rows);
    bench_close(&b);
    golden_free(&g);
}

/* ---------------------------------------------------------------- ranks */

static void run_world(const char *dir, const struct golden *g, int world)
{
    struct verdict found[MOST_RANKS];
    judge_ranks(&(struct bench_setup){.dir = dir, .dtype = -1}, g, world, found);
    for (int i = 0; i < world; i++)
        assert_verdict(&found[i]);
}

static uint32_t heads_of(const char *dir)
{
    static struct decoder_spec spec;
    const struct arch *arch;
    const char *type;
    char path[PATH_LEN + 16];
    struct err e = ERR_INIT;
    snprintf(path, sizeof(path), "%s/config.json", dir);
    assert_int_equal(arch_configure(path, NULL, NULL, 0, &arch, &type, &spec, &e), 0);
    return spec.n_heads;
}

static void test_ranks(void **state)
{
    struct golden g;
    const char *dir = folder(state, &g, N_TOGETHER);
    if (!dir)
        return;
    run_world(dir, &g, 2);
    struct golden first = g; /* slices are what differs; four ranks on fewer cores mostly wait */
    first.n = 1;
    run_world(dir, &first, heads_of(dir) % 4 ? 3 : 4);
    golden_free(&g);
}

/* ---------------------------------------------------------------- all of them */

static void print_table(void)
{
    printf("| checkpoint | prompts | max logit error | max log-probability error | greedy ids "
           "equal |\n"
           "|---|---|---|---|---|\n");
    for (int i = 0; i < N_DIRS; i++) {
        const struct verdict *v = &verdicts[i];
        if (v->prompts)
            printf("| %s | %u | %.1e | %.1e | %u of %u |\n", dirs[i], v->prompts, v->logits,
                   v->logprobs, v->greedy_right, v->greedy);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void **state);
    } kinds[] = {
        {"golden", test_golden},
        {"config_v5", test_config_v5},
        {"same_bits", test_same_bits},
        {"ranks", test_ranks},
    };
    enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };
    static struct CMUnitTest tests[N_DIRS * N_KINDS + 1];
    static char names[N_DIRS * N_KINDS][96];
    int n = 0;
    for (int i = 0; i < N_DIRS; i++)
        for (int k = 0; k < N_KINDS; k++, n++) {
            snprintf(names[n], sizeof(names[n]), "%s %s", dirs[i], kinds[k].name);
            tests[n] = (struct CMUnitTest){
                .name = names[n], .test_func = kinds[k].run, .initial_state = (void *)&dirs[i]};
        }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_nested);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    int failed = _cmocka_run_group_tests("arch", tests, (size_t)n, NULL, NULL);
    if (skipped)
        TEST_SKIPPED(skipped, "no golden.json under TEST_DATA");
    if (not_made)
        TEST_SKIPPED(not_made, "tests/golden/make_arch.py did not run");
    if (getenv("GOLDEN_TABLE"))
        print_table();
    return failed;
}
