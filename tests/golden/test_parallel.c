/* Models whose layers are divided over stages and whose experts are divided over ranks, against
 * transformers; and the bits of stages against those of one stage. Ranks are threads here. */
#include "tests/golden/golden.h"
#include <pthread.h>
#include <unistd.h>

#define TOLERANCE 1e-4
#define MADE      "build/golden/arch/" /* by make_arch.py */

enum { MOST_RANKS = 6, SEQS = 3, BLOCKS = SEQS * MAX_SEQ_BLOCKS };

/* Families by what differs in them: layers, keys, state, experts. */
struct family {
    const char *dir;
    bool experts;
    int most; /* stages; 0: three */
};
static const struct family families[] = {
    {"arch/llama", false},
    {"arch/llama_tied_bias", false},
    {"arch/olmo2_mha", false},
    {"arch/gpt2", false},
    {"arch/gemma3_text", false},
    {"arch/cohere2", false},
    {"arch/qwen3_next", true},
    {"arch/granitemoehybrid", true},
    {"arch/nemotron_h", true},
    {"arch/lfm2", false},
    {"arch/deepseek_v2", true},
    {"arch/deepseek_v3_noq", true},
    {"arch/mixtral", true, 2},
    {"arch/qwen3_moe", true},
    {"arch/gemma4_text_moe", true},
    {"arch/llama4_text", true},
    {MADE "deepseek_v32", true},
    {MADE "glm_moe_dsa", true, 2},
    {MADE "longcat_flash", true, 2},
    {MADE "hy_v4", true, 2},
    {MADE "glm5_next", true},
    {MADE "deepseek_v4", true},
    {MADE "axk2", true},
    {MADE "mistral_large4", true, 2},
    {MADE "qwen4_exp", true},
    {MADE "dots3_note", true},
    {MADE "step3p7", true},
    {MADE "molmo2", false},
    {MADE "inkling", true},
    {MADE "inkling2", true},
    {MADE "kimi_k3", true},
    {MADE "muse_spark", true},
    {MADE "solar", false, 2},
};

/* How a model is divided: stages x ranks of each. */
struct shape {
    int stages, ranks;
    bool experts;
};

struct rank_run {
    pthread_t thread;
    const char *dir, *group;
    const struct golden *golden;
    struct shape shape;
    int rank, rc;
    uint32_t vocab, first_layer, layers;
    uint64_t weights;
    struct verdict verdict;
    struct bench_seq seqs[SEQS];
    struct err e;
};

/* ---------------------------------------------------------------- what a rank computes */

/* Chunks that are computed together, one of them so large that stages take it in passes; then
 * token by token. */
static int feed(struct bench *b, struct rank_run *r)
{
    static const uint32_t takes[][SEQS] = {{7, 0, 16},      {1, 33, 0}, {0, 1, 1},
                                           {290, 250, 280}, {1, 1, 1},  {1, 1, 1}};
    struct bench_seq *const all[] = {&r->seqs[0], &r->seqs[1], &r->seqs[2]};
    struct rng random = {.state = 20261125};
    struct prompt p = {0};
    uint32_t order[BLOCKS];
    shuffled(&random, order, BLOCKS);
    for (int i = 0; i < SEQS; i++) {
        p.n = 0;
        for (size_t k = 0; k < sizeof(takes) / sizeof(takes[0]); k++)
            p.n += takes[k][i];
        for (uint32_t k = 0; k < p.n; k++)
            p.ids[k] = rng_below(&random, b->vocab);
        seq_init(&r->seqs[i], b, &p, order + i * MAX_SEQ_BLOCKS);
    }
    for (size_t k = 0; k < sizeof(takes) / sizeof(takes[0]); k++)
        if (bench_step(b, all, takes[k], SEQS, &r->e))
            return -1;
    return 0;
}

static int compute(struct rank_run *r, struct comm *stage, struct comm *across)
{
    struct bench b = {0};
    const struct bench_setup u = {
        .dir = r->dir, .dtype = -1, .stages = across, .expert_parallel = r->shape.experts};
    int rc = bench_open_as(&b, &u, stage, 1, BLOCKS, &r->e);
    if (rc == 0) {
        r->vocab = b.vocab;
        r->first_layer = model_info(b.model)->first_layer;
        r->layers = model_info(b.model)->layers_here;
        r->weights = model_info(b.model)->weight_bytes;
        rc = judge(&b, r->golden, &r->verdict, &r->e) || feed(&b, r) ? -1 : 0;
    }
    bench_close(&b);
    return rc;
}

static void *rank_main(void *arg)
{
    struct rank_run *r = arg;
    const int each = r->shape.ranks, world = r->shape.stages * each;
    struct comm *all = comm_solo(), *stage = all, *across = NULL;
    r->rc = -1;
    if (world > 1 && !(all = comm_shm_open(r->group, r->rank, world, 120000, &r->e)))
        return NULL;
    stage = comm_split(all, r->rank / each, &r->e);
    across = stage ? comm_split(all, r->rank % each, &r->e) : NULL;
    if (across)
        r->rc = compute(r, stage, across);
    comm_close(across);
    comm_close(stage);
    comm_close(all);
    return NULL;
}

/* ---------------------------------------------------------------- a shape, and its bits */

static void run(const char *dir, const struct golden *g, struct shape shape, struct rank_run *ranks)
{
    static int n;
    char group[64];
    const int world = shape.stages * shape.ranks;
    snprintf(group, sizeof(group), "parallel-%d-%d", (int)getpid(), n++);
    assert_true(world <= MOST_RANKS);
    for (int i = 0; i < world; i++) {
        ranks[i] =
            (struct rank_run){.dir = dir, .group = group, .golden = g, .shape = shape, .rank = i};
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), 0);
    }
    for (int i = 0; i < world; i++)
        assert_int_equal(pthread_join(ranks[i].thread, NULL), 0);
    for (int i = 0; i < world; i++) {
        const struct verdict *v = &ranks[i].verdict;
        if (ranks[i].rc)
            fail_msg("%s, rank %d of %d x %d: %s", dir, i, shape.stages, shape.ranks,
                     ranks[i].e.msg);
        if (!(v->logits < TOLERANCE) || !(v->logprobs < 2 * TOLERANCE) ||
            v->greedy_right != v->greedy)
            fail_msg("%s, rank %d of %d x %d: logits %g, log-probabilities %g, greedy %u of %u",
                     dir, i, shape.stages, shape.ranks, v->logits, v->logprobs, v->greedy_right,
                     v->greedy);
    }
}

static void release(struct rank_run *ranks, int world)
{
    for (int i = 0; i < world; i++)
        for (int k = 0; k < SEQS; k++)
            free(ranks[i].seqs[k].rows);
}

static void assert_same_bits(const struct rank_run *want, const struct rank_run *got, int world)
{
    for (int i = 0; i < world; i++)
        for (int k = 0; k < SEQS; k++) {
            const struct bench_seq *a = &want->seqs[k], *b = &got[i].seqs[k];
            assert_int_equal(a->done, b->done);
            for (uint32_t j = 0; j < a->done * want->vocab; j++)
                if (memcmp(&a->rows[j], &b->rows[j], sizeof(float)) != 0)
                    fail_msg("%s: row %u of sequence %d differs on rank %d of %d: %.9g and %.9g",
                             want->dir, j / want->vocab, k, i, world, a->rows[j], b->rows[j]);
        }
}

/* Stages follow each other and hold a part of the weights each. */
static void assert_divided(const struct rank_run *whole, const struct rank_run *ranks,
                           struct shape shape)
{
    uint32_t at = 0;
    for (int s = 0; s < shape.stages; s++) {
        const struct rank_run *r = &ranks[s * shape.ranks];
        assert_int_equal(r->first_layer, at);
        assert_true(r->layers > 0);
        at += r->layers;
        assert_true(shape.stages == 1 || r->weights < whole->weights);
    }
    assert_int_equal(at, whole->layers);
}

static void against_one_stage(const char *dir, const struct golden *g, struct shape shape)
{
    static struct rank_run one[MOST_RANKS], all[MOST_RANKS];
    const struct shape flat = {1, shape.ranks, shape.experts};
    run(dir, g, flat, one);
    run(dir, g, shape, all);
    assert_same_bits(one, all, shape.stages * shape.ranks);
    assert_divided(one, all, shape);
    release(one, shape.ranks);
    release(all, shape.stages * shape.ranks);
}

/* ---------------------------------------------------------------- tests */

static int skipped;

static const char *folder(const struct family *f, struct golden *g)
{
    static char dir[PATH_LEN];
    char file[128];
    snprintf(file, sizeof(file), "%s/golden.json", f->dir);
    const bool made = strncmp(f->dir, MADE, strlen(MADE)) == 0;
    const char *path = !made ? test_data(file) : access(file, F_OK) == 0 ? file : NULL;
    if (!path) {
        skipped++;
        return NULL;
    }
    snprintf(dir, sizeof(dir), "%.*s", (int)(strlen(path) - strlen("/golden.json")), path);
    assert_true(golden_load(g, dir, 2));
    return dir;
}

static void stages_have_the_bits_of_one(void **state)
{
    const struct family *f = *state;
    struct golden g;
    const char *dir = folder(f, &g);
    if (!dir)
        return;
    against_one_stage(dir, &g, (struct shape){2, 1, false});
    if (f->most != 2)
        against_one_stage(dir, &g, (struct shape){3, 1, false});
    against_one_stage(dir, &g, (struct shape){2, 2, false});
    golden_free(&g);
}

static void experts_are_divided_in_whole(void **state)
{
    static struct rank_run ranks[MOST_RANKS];
    const struct family *f = *state;
    struct golden g;
    const char *dir = f->experts ? folder(f, &g) : NULL;
    if (!dir)
        return;
    for (int n = 2; n <= 4; n += 2) {
        run(dir, &g, (struct shape){1, n, true}, ranks);
        assert_same_bits(ranks, ranks, n);
        release(ranks, n);
    }
    against_one_stage(dir, &g, (struct shape){2, 2, true});
    golden_free(&g);
}

int main(void)
{
    enum { N = sizeof(families) / sizeof(families[0]) };
    static struct CMUnitTest tests[2 * N];
    static char names[2 * N][96];
    for (int i = 0; i < N; i++) {
        snprintf(names[2 * i], sizeof(names[0]), "%s stages", families[i].dir);
        snprintf(names[2 * i + 1], sizeof(names[0]), "%s experts", families[i].dir);
        tests[2 * i] = (struct CMUnitTest){.name = names[2 * i],
                                           .test_func = stages_have_the_bits_of_one,
                                           .initial_state = (void *)&families[i]};
        tests[2 * i + 1] = (struct CMUnitTest){.name = names[2 * i + 1],
                                               .test_func = experts_are_divided_in_whole,
                                               .initial_state = (void *)&families[i]};
    }
    int failed = _cmocka_run_group_tests("parallel", tests, 2 * N, NULL, NULL);
    if (skipped)
        TEST_SKIPPED(skipped, "no golden.json under TEST_DATA");
    return failed;
}
