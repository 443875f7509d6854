/* Encoders and decoders that embed on the CUDA backend against the CPU backend, and the bits of a
 * text's vector against its neighbours. Which device: see tests/check/cuda/cuda_sides.h. */
#include "tests/cuda_double/cuda_runtime_api.h"
#include "tests/golden/cuda/cuda_plugin.h"
#include "tests/golden/embed.h"
#include <dlfcn.h>
#include <unistd.h>

/* On the double a token takes milliseconds. */
enum { MOST_TOKENS = 40, MOST = 5 };

/* Those in build/ are made by tests/golden/make_embed.py. */
#define MADE "build/golden/embed/"
// clang-format off: one a line, for make gpu-kit
static const char *const dirs[] = {
    "embed/bert_mean",
    "embed/bert_cls",
    "embed/xlm_roberta_cls",
    "embed/qwen3_embedding",
    "embed/xlm_roberta_rerank",
    MADE "mpnet",
    MADE "deberta",
    MADE "albert",
    MADE "ernie",
    MADE "rembert",
    MADE "roformer",
    MADE "xlm_roberta_xl",
    MADE "jina_v2",
    MADE "nomic_moe",
    MADE "deberta_1",
    MADE "longformer",
    MADE "squeezebert",
    MADE "mobilebert",
    MADE "xlnet",
    MADE "convbert",
    MADE "nystromformer",
    MADE "fnet",
    MADE "splade_bert",
    MADE "flan_t5",
    MADE "umt5",
    MADE "bart_classify",
    MADE "clip",
};
// clang-format on
enum { N_DIRS = sizeof(dirs) / sizeof(dirs[0]) };

static const struct backend_ops *gpu;
static int skipped;

static void open_or_fail(struct encode_bench *b, const struct backend_ops *ops, const char *dir)
{
    struct err e = ERR_INIT;
    if (encode_open_on(b, ops, dir, 1, comm_solo(), &e))
        fail_msg("%s: %s", dir, e.msg);
}

static float *run(struct encode_bench *b, const struct model_text *v, uint32_t n)
{
    return encode_run(b, v, n, false);
}

/* ||a - b|| / ||b|| */
static double distance(const float *a, const float *b, size_t n)
{
    double d = 0, r = 0;
    for (size_t i = 0; i < n; i++)
        d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]), r += (double)b[i] * b[i];
    return sqrt(d / r);
}

static void a_text_has_the_vector_that_the_cpu_gives_it(void **state)
{
    const char *name = *(const char *const *)*state;
    char file[128], dir[1024];
    struct texts t;
    struct model_text v[MOST];
    snprintf(file, sizeof(file), "%s/golden.json", name);
    const char *path = strncmp(name, MADE, strlen(MADE)) != 0 ? test_data(file)
                       : access(file, F_OK) == 0              ? file
                                                              : NULL;
    if (!path) {
        skipped++;
        return;
    }
    snprintf(dir, sizeof(dir), "%.*s", (int)(strlen(path) - strlen("/golden.json")), path);
    assert_true(texts_load(&t, dir));
    const uint32_t n = t.n < MOST ? t.n : MOST;
    for (uint32_t i = 0; i < n; i++) {
        v[i] = t.text[i].in;
        v[i].n = v[i].n < MOST_TOKENS ? v[i].n : MOST_TOKENS;
    }
    struct encode_bench c, g;
    open_or_fail(&c, &backend_cpu, dir), open_or_fail(&g, gpu, dir);
    const uint32_t width = model_info(c.model)->width;
    float *want = run(&c, v, n), *got = run(&g, v, n);
    const double d = distance(got, want, (size_t)n * width);
    printf("%s: ||d|| / ||r|| = %.2g\n", name, d);
    if (!(d < 5e-2)) /* products round to bfloat16 */
        fail_msg("%s: off by %g", name, d);
    for (uint32_t i = 0; i < n; i++) {
        float *alone = run(&g, &v[i], 1);
        assert_memory_equal(alone, got + (size_t)i * width, width * sizeof(float));
        free(alone);
    }
    free(want), free(got);
    encode_close(&c), encode_close(&g);
    texts_free(&t);
}

int main(void)
{
    int rc;
    if (!(gpu = cuda_plugin(N_DIRS, &rc)))
        return rc;
    struct CMUnitTest tests[N_DIRS];
    for (int i = 0; i < N_DIRS; i++)
        tests[i] = (struct CMUnitTest){.name = dirs[i],
                                       .test_func = a_text_has_the_vector_that_the_cpu_gives_it,
                                       .initial_state = (void *)&dirs[i]};
    rc = cmocka_run_group_tests_name("cuda_embed", tests, NULL, NULL);
    if (skipped)
        printf("skipped: %d cases (no reference data)\n", skipped);
    return rc;
}
