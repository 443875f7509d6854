/* test_cuda_vision.c - vision towers on the CUDA backend against the CPU backend: features, what
 * the text model makes of them, and the bits of pictures that are encoded in parts. Which device:
 * see tests/check/cuda/cuda_sides.h. */
#include "tests/golden/cuda/cuda_plugin.h"
#include "tests/golden/vision/look.h"

/* One a line, for make gpu-kit. */
// clang-format off
static const char *const dirs[] = {
    "tests/data/vision/aria",
    "tests/data/vision/blip2",
    "tests/data/vision/deepseek_ocr",
    "tests/data/vision/deepseek_ocr2",
    "tests/data/vision/ernie4_5_vl",
    "tests/data/vision/fast_vlm",
    "tests/data/vision/gemma3n",
    "tests/data/vision/gemma4_e",
    "tests/data/vision/gemma4_unified",
    "tests/data/vision/gemma4_video",
    "tests/data/vision/glm4v",
    "tests/data/vision/got_ocr2",
    "tests/data/vision/granite_vision",
    "tests/data/vision/idefics2",
    "tests/data/vision/internvl_chat",
    "tests/data/vision/florence2",
    "tests/data/vision/kimi_k25",
    "tests/data/vision/lfm2_vl",
    "tests/data/vision/lfm3_vl",
    "tests/data/vision/lighton_ocr",
    "tests/data/vision/llama4",
    "tests/data/vision/llava_onevision",
    "tests/data/vision/minicpmv4_6",
    "tests/data/vision/minicpmv4_7",
    "tests/data/vision/minimax_m3",
    "tests/data/vision/mllama",
    "tests/data/vision/nemotron_h_omni",
    "tests/data/vision/ovis2",
    "tests/data/vision/paligemma2",
    "tests/data/vision/perception_lm",
    "tests/data/vision/qwen2_5_omni",
    "tests/data/vision/qwen2_5_vl_video",
    "tests/data/vision/qwen3_omni",
    "tests/data/vision/qwen3_vl_video",
    "tests/data/vision/step3p7",
    "tests/data/vision/vipllava",
};
// clang-format on
enum { N_DIRS = sizeof(dirs) / sizeof(dirs[0]), MOST_FEATURES = 512, PART = 20000 };

static const struct backend_ops *gpu;

/* Logits behind a prompt with one picture, and its features. */
struct seen {
    float *logits, *features;
    uint32_t vocab, n; /* floats of features */
};

static void seen_free(struct seen *s)
{
    free(s->logits);
    free(s->features);
}

static struct seen see(const struct backend_ops *ops, const char *dir, const cJSON *c,
                       uint64_t most)
{
    struct sight s;
    struct look k;
    struct seen out = {0};
    if (sight_open_on(&s, ops, dir, comm_solo()) || look_open(&k, &s, c, 0))
        fail_msg("%s: %s", dir, s.e.msg);
    look_encode_most = most, look_encode_parts = 0;
    if (look_prefill(&s, &k, k.n))
        fail_msg("%s: %s", dir, s.e.msg);
    look_encode_most = 0;
    const uint32_t row = tower_row(s.tower);
    out.vocab = s.b.vocab;
    out.logits = malloc(out.vocab * sizeof(float));
    out.features = malloc((size_t)MOST_FEATURES * row * sizeof(float));
    assert_true(out.logits && out.features);
    memcpy(out.logits, k.last, out.vocab * sizeof(float));
    uint32_t at = 0, nth = 0;
    for (const float *from; (from = look_row(&k, nth, &at)); nth++) {
        assert_true(nth < MOST_FEATURES);
        memcpy(out.features + (size_t)nth * row, from, row * sizeof(float));
    }
    assert_true(nth > 0);
    out.n = nth * row;
    look_close(&k);
    sight_close(&s);
    return out;
}

/* ||a - b|| / ||b||. */
static double off(const float *a, const float *b, uint32_t n)
{
    double d = 0, r = 0;
    for (uint32_t i = 0; i < n; i++) {
        d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        r += (double)b[i] * b[i];
    }
    return sqrt(d / r);
}

static void pictures_are_seen_as_on_the_cpu(void **state)
{
    const char *dir = *(const char *const *)*state;
    char path[PATH_LEN];
    struct err e = ERR_INIT;
    snprintf(path, sizeof(path), "%s/golden.json", dir);
    cJSON *golden = json_load(path, 1 << 24, &e);
    if (!golden)
        fail_msg("%s", e.msg);
    const cJSON *c = cJSON_GetArrayItem(json_get(golden, "cases"), 1); /* one picture */
    const struct backend_ops *cpu = backend_find("cpu", &e);
    struct seen want = see(cpu, dir, c, PART);
    const bool whole = look_encode_parts == 1; /* it is too small to be encoded in parts */
    struct seen got = see(gpu, dir, c, 0);
    struct seen parts = whole ? (struct seen){0} : see(gpu, dir, c, PART);
    assert_int_equal(want.n, got.n);
    const double features = off(got.features, want.features, want.n);
    const double logits = off(got.logits, want.logits, want.vocab);
    printf("%s: ||d|| / ||r|| = %.2g of features, %.2g of logits%s\n", dir, features, logits,
           whole ? "" : ", in parts, too");
    if (!(features < 5e-2 && logits < 5e-2)) /* products round to bfloat16 */
        fail_msg("%s: off by %g and %g", dir, features, logits);
    if (!whole) {
        assert_int_equal(want.n, parts.n);
        assert_memory_equal(got.features, parts.features, (size_t)want.n * sizeof(float));
        assert_memory_equal(got.logits, parts.logits, want.vocab * sizeof(float));
    }
    seen_free(&want), seen_free(&got), seen_free(&parts);
    cJSON_Delete(golden);
}

/* An argument is a pattern of the folders that are looked at. */
int main(int argc, char **argv)
{
    int rc;
    if (!(gpu = cuda_plugin(N_DIRS, &rc)))
        return rc;
    if (!test_data("vision/README.md")) {
        TEST_SKIPPED(N_DIRS, "no pictures under TEST_DATA");
        return 0;
    }
    struct CMUnitTest tests[N_DIRS];
    for (int i = 0; i < N_DIRS; i++)
        tests[i] = (struct CMUnitTest){.name = dirs[i],
                                       .test_func = pictures_are_seen_as_on_the_cpu,
                                       .initial_state = (void *)&dirs[i]};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("cuda_vision", tests, NULL, NULL);
}
