/* Checkpoints that are stored quantised against the logits of their dequantised weights (fp32
 * arithmetic), whole and split over ranks. */
#include "tests/golden/ranks.h"

/* Largest errors as stored. 1e-4: all matrices stay packed and products are exact; 0.02: products
 * of a code and a scale are rounded to the 11 bits of the embedding's type. (desc_act: q, k and v,
 * and gate and up, have orders of their own here, so that they cannot be packed together.) */
static const struct dir {
    const char *name;
    double exact;
    double rounded; /* with activations in 8 bits: 0.3 where the checkpoint was made for those with
                     * a scale a token; its own arithmetic errs by 0.29; e4m3: not rounded */
} dirs[] = {
    {"quant/gptq_g32", 1e-4, 0.2},       {"quant/gptq_g32_desc_act", 0.02, 0.2},
    {"quant/awq_gemm_g32", 1e-4, 0.2},   {"quant/ct_fp8_channel", 1e-4, 1e-4},
    {"quant/ct_fp8_tensor", 1e-4, 1e-4}, {"quant/ct_w8a8_int8", 1e-4, 0.3},
    {"quant/fp8_static", 1e-4, 1e-4},
};
enum { N_DIRS = sizeof(dirs) / sizeof(dirs[0]) };
static int skipped;

static void check_as(const struct bench_setup *u, const struct golden *g, int world,
                     double tolerance)
{
    struct verdict found[MOST_RANKS];
    const char *dir = u->dir;
    const int dtype = u->dtype;
    judge_ranks(u, g, world, found);
    for (int i = 0; i < world; i++) {
        const struct verdict *v = &found[i];
        if (i == 0 && getenv("GOLDEN_TABLE"))
            printf("%s, %d ranks, %s: largest logit error %.1e\n", dir, world,
                   dtype < 0 ? "as stored" : dtype_name((enum dtype)dtype), v->logits);
        const bool rounded = u->activations == ACTIVATIONS_8; /* then ties may fall otherwise */
        if (!(v->logits < tolerance && v->logprobs < tolerance) ||
            (v->greedy_right != v->greedy && !rounded))
            fail_msg("rank %d of %d: off by %g, log-probabilities by %g, %u of %u ids", i, world,
                     v->logits, v->logprobs, v->greedy_right, v->greedy);
    }
}

static void check(const char *dir, const struct golden *g, int world, int dtype, double tolerance)
{
    check_as(&(struct bench_setup){.dir = dir, .dtype = dtype}, g, world, tolerance);
}

static void test_dequantised(void **state)
{
    const struct dir *of = *state;
    char file[128], dir[PATH_LEN];
    struct golden g;
    snprintf(file, sizeof(file), "%s/golden.json", of->name);
    const char *path = test_data(file);
    if (!path) {
        skipped++;
        return;
    }
    snprintf(dir, sizeof(dir), "%.*s", (int)(strlen(path) - strlen("/golden.json")), path);
    assert_true(golden_load(&g, dir, MAX_PROMPTS));
    check(dir, &g, 1, DT_F32, 1e-4);
    check(dir, &g, 2, DT_F32, 1e-4);
    check(dir, &g, 4, DT_F32, 1e-4);
    check(dir, &g, 1, -1, of->exact);
    check_as(&(struct bench_setup){.dir = dir, .dtype = -1, .activations = ACTIVATIONS_8}, &g, 1,
             of->rounded);
    golden_free(&g);
}

int main(void)
{
    static struct CMUnitTest tests[N_DIRS];
    for (int i = 0; i < N_DIRS; i++)
        tests[i] = (struct CMUnitTest){
            .name = dirs[i].name, .test_func = test_dequantised, .initial_state = (void *)&dirs[i]};
    int failed = _cmocka_run_group_tests("quantized", tests, N_DIRS, NULL, NULL);
    if (skipped)
        TEST_SKIPPED(skipped, "no golden.json under TEST_DATA");
    return failed;
}
