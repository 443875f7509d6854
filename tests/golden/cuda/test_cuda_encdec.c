/* test_cuda_encdec.c - a model of an encoder and a decoder on the CUDA backend against the CPU
 * backend, and the bits of a row against its neighbours. Which device: see
 * tests/check/cuda/cuda_sides.h. */
#include "tests/cuda_double/cuda_runtime_api.h"
#include "tests/golden/cuda/cuda_plugin.h"
#include "tests/golden/encdec.h"
#include <dlfcn.h>

/* On the double a token takes milliseconds. */
enum { STEPS = 6, FEW = 3 };

// clang-format off: one a line, for make gpu-kit
static const char *const dirs[] = {
    "tests/data/encdec/bart", "tests/data/encdec/flan_t5",   "tests/data/encdec/t5gemma2",
    "tests/data/encdec/umt5", "tests/data/encdec/bert2bert", "tests/data/encdec/nllb_moe",
};
// clang-format on
enum { N_DIRS = sizeof(dirs) / sizeof(dirs[0]) };

static const struct backend_ops *gpu;

/* The first steps of the answers to the first texts, each alone; rows of [FEW][STEPS][vocab]. */
static void run(const struct backend_ops *ops, const char *dir, struct encdec *g, bool together,
                float *out)
{
    struct encdec_bench m;
    struct err e = ERR_INIT;
    struct encdec_seq s[FEW], *seqs[FEW];
    const uint32_t ones[FEW] = {1, 1, 1};
    if (encdec_open(&m, ops, dir, comm_solo(), &e))
        fail_msg("%s: %s", dir, e.msg);
    int rc = 0;
    for (uint32_t i = 0; i < FEW; i++) {
        seqs[i] = &s[i];
        encdec_seq_init(&s[i], g, i, together ? i : 0);
        rc = rc ? rc : encdec_show(&m, &s[i], together ? 20000 : UINT64_MAX, &e);
        for (uint32_t t = 0; !together && rc == 0 && t < STEPS; t++)
            rc = encdec_step(&m.b, &seqs[i], ones, 1, &e);
    }
    for (uint32_t t = 0; together && rc == 0 && t < STEPS; t++)
        rc = encdec_step(&m.b, seqs, ones, FEW, &e);
    if (rc)
        fail_msg("%s: %s", dir, e.msg);
    for (uint32_t i = 0; i < FEW; i++) {
        memcpy(out + (size_t)i * STEPS * g->vocab, s[i].rows, (size_t)STEPS * g->vocab * 4);
        free(s[i].rows);
    }
    encdec_close(&m);
}

static void a_text_is_answered_as_on_the_cpu(void **state)
{
    const char *dir = *(const char *const *)*state;
    struct encdec g;
    if (!encdec_load(&g, dir))
        fail_msg("%s: no data", dir);
    const size_t n = (size_t)FEW * STEPS * g.vocab;
    float *want = malloc(n * 4), *got = malloc(n * 4), *beside = malloc(n * 4);
    assert_true(want && got && beside);
    run(&backend_cpu, dir, &g, false, want);
    run(gpu, dir, &g, false, got);
    run(gpu, dir, &g, true, beside);
    double d = 0, r = 0;
    for (size_t i = 0; i < n; i++)
        d += ((double)got[i] - want[i]) * ((double)got[i] - want[i]),
            r += (double)want[i] * want[i];
    printf("%s: ||d|| / ||r|| = %.2g\n", dir, sqrt(d / r));
    if (!(sqrt(d / r) < 5e-2)) /* products round to bfloat16 */
        fail_msg("%s: off by %g", dir, sqrt(d / r));
    assert_memory_equal(got, beside, n * 4); /* the encoder in parts, the decoder in a batch */
    free(want), free(got), free(beside);
    encdec_free(&g);
}

int main(void)
{
    int rc;
    if (!(gpu = cuda_plugin(N_DIRS, &rc)))
        return rc;
    struct CMUnitTest tests[N_DIRS];
    for (int i = 0; i < N_DIRS; i++)
        tests[i] = (struct CMUnitTest){.name = dirs[i],
                                       .test_func = a_text_is_answered_as_on_the_cpu,
                                       .initial_state = (void *)&dirs[i]};
    return cmocka_run_group_tests_name("cuda_encdec", tests, NULL, NULL);
}
