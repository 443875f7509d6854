/* Whole models on the CUDA backend against the CPU backend: the families of TEST_DATA/arch, the
 * tiny models and the demo, as stored and in bfloat16; and the bits of a result against chunks,
 * neighbours and replay. Which device: see tests/check/cuda/cuda_sides.h. */
#include "tests/cuda_double/cuda_runtime_api.h"
#include "tests/golden/cuda/cuda_plugin.h"
#include "tests/golden/fp8_made.h"
#include "tests/golden/golden.h"
#include <dlfcn.h>
#include <unistd.h>

/* On the double a step takes milliseconds. The single tokens of a sequence begin before a block of
 * 16 ends; from the third on they are replayed, and the fourth begins the next block. */
enum { LEN = 29, NEIGHBOUR = 11, FIRST = 13, SINGLE = 4 };

// clang-format off: one a line, for make gpu-kit
static const char *const dirs[] = {
    "arch/llama_hd64",
    "arch/llama_hd128",
    "arch/llama_mqa",
    "arch/llama_tied_bias",
    "arch/mistral",
    "arch/mixtral",
    "arch/qwen2",
    "arch/gemma",
    "arch/phi3",
    "arch/gpt2",
    "arch/gemma3_text",
    "arch/qwen3_moe",
    "arch/stablelm",
    "arch/phi",
    "arch/gpt_neox",
    "arch/gptj",
    "arch/cohere",
    "arch/cohere_qknorm",
    "arch/opt",
    "arch/olmo2_mha",
    "arch/olmo3",
    "arch/minimax_m2",
    "arch/glm4_moe_qknorm",
    "arch/ernie4_5_moe",
    "arch/qwen2_moe",
    "arch/bloom",
    "arch/mpt",
    "arch/falcon_40b",
    "arch/gpt_bigcode",
    "arch/cohere2",
    "arch/glm4",
    "arch/qwen3_next",
    "arch/qwen3_5_text",
    "arch/granitemoehybrid",
    "arch/nemotron_h",
    "arch/lfm2",
    "arch/deepseek_v2",
    "arch/deepseek_v2_lite",
    "arch/deepseek_v3_noq",
    "arch/gemma4_text",
    "arch/gemma4_text_moe",
    "arch/gemma4_text_ple",
    "arch/llama4_text",
    "arch/falcon_alibi",
    "build/golden/arch/inkling",
    "build/golden/arch/inkling2_mm",
    "build/golden/arch/muse_spark_listed",
    "build/golden/arch/solar",
    "build/golden/arch/grok",
    "build/golden/arch/zaya",
    "build/golden/arch/zaya_wide",
    "build/golden/arch/rwkv7",
    "build/golden/arch/dory",
    "build/golden/arch/chameleon_swin", /* without logits of -FLT_MAX */
    "build/golden/arch/diffllama",
    "build/golden/arch/diffllama_bias",
    "build/golden/arch/rwkv7_tied",
    "build/golden/arch/phimoe",
    "build/golden/arch/dbrx",
    "build/golden/arch/mamba",
    "build/golden/arch/jamba",
    "build/golden/arch/plamo2",
    "build/golden/arch/maple",
    "build/golden/arch/plm",
    "build/golden/arch/kimi_linear",
    "build/golden/arch/kimi_k3",
    "build/golden/arch/kimi_k3_few",
    "build/golden/arch/bailing_hybrid",
    "build/golden/arch/minimax_m3",
    "build/golden/arch/olmo_hybrid",
    "build/golden/arch/minimax",
    "build/golden/arch/mimo_v2_flash",
    "build/golden/arch/apertus",
    "build/golden/arch/afmoe",
    "build/golden/arch/ouro",
    "build/golden/arch/hrm_text",
    "build/golden/arch/nanbeige",
    "build/golden/arch/spark2_5",
    "build/golden/arch/deci",
    "build/golden/arch/smallthinker",
    "build/golden/arch/stablelm_qk_norm",
    "build/golden/arch/opt_350m",
    "build/golden/arch/nanochat",
    "build/golden/arch/bitnet",
    "build/golden/arch/zamba2",
    "build/golden/arch/zamba",
    "build/golden/arch/persimmon",
    "build/golden/arch/kolibri1",
    "build/golden/arch/laguna",
    "build/golden/arch/lfm3",
    "build/golden/arch/axk1",
    "build/golden/arch/mistral4",
    "build/golden/arch/deepseek_v32",
    "build/golden/arch/glm_moe_dsa",
    "build/golden/arch/longcat_flash",
    "build/golden/arch/hy_v4",
    "build/golden/arch/glm5_next",
    "build/golden/arch/qwen4_exp_plain",
    "build/golden/arch/qwen4_exp_vision",
    "build/golden/arch/deepseek_v4",
    "build/golden/arch/axk2",
    "build/golden/arch/mistral_large4",
    "build/golden/arch/dots3_note",
    "build/golden/arch/step3p7",
    "build/golden/arch/molmo2",
    "build/golden/arch/muse_glimmer",
    "build/golden/arch/hunyuan_ocr",
    "build/golden/arch/modernbert_decoder",
    "build/golden/arch/gemma3n",
    "build/golden/arch/baichuan_13b",
    "build/golden/arch/cohere2_moe",
    "build/golden/arch/nemotron_h_latent",
    "build/golden/arch/lara_mini",
    "build/golden/arch/beam",
    "build/golden/arch/recurrent_gemma",
    "models/stories260K",
    "models/stories260K-bf16",
    "models/stories260K-fp16",
};
// clang-format on
enum { N_DIRS = sizeof(dirs) / sizeof(dirs[0]) };

static const struct backend_ops *gpu;
static struct cuda_double *machine; /* NULL: a real GPU */
static int skipped;

static void open_on(struct bench *b, const struct backend_ops *ops, const char *dir, int dtype,
                    int kv, enum quant quant)
{
    struct err e = ERR_INIT;
    *b = (struct bench){.ops = ops};
    if (machine) /* the check of wgmma takes longer than a small model: see cuda_sides.h */
        machine->idle = true;
    b->dev = ops->open(&(struct device_options){.threads = 1, .features = ~0ull}, &e);
    if (machine)
        machine->idle = false;
    if (b->dev)
        b->model = model_load(
            dir,
            &(struct model_options){.ops = ops,
                                    .dev = b->dev,
                                    .comm = comm_solo(),
                                    .dtype = dtype,
                                    .quant = quant,
                                    .activations = quant ? ACTIVATIONS_AUTO : ACTIVATIONS_EXACT},
            &e);
    if (!b->model ||
        model_kv_resize(b->model, 2 * MAX_SEQ_BLOCKS, BLOCK_SIZE,
                        kv < 0 ? model_kv_dtype(b->model) : (enum kv_dtype)kv, &e) ||
        model_state_resize(b->model, 2 * MAX_SEQ_BLOCKS, &e))
        fail_msg("%s: %s", dir, e.msg);
    b->vocab = model_info(b->model)->vocab;
}

static void make_seq(struct bench_seq *s, const struct bench *b, uint32_t n, uint32_t first_block)
{
    struct prompt p = {.n = n};
    uint32_t order[MAX_SEQ_BLOCKS];
    for (uint32_t i = 0; i < n; i++)
        p.ids[i] = (i * 2654435761u >> 7) % b->vocab;
    for (uint32_t i = 0; i < MAX_SEQ_BLOCKS; i++)
        order[i] = first_block + MAX_SEQ_BLOCKS - 1 - i;
    seq_init(s, b, &p, order);
}

static void step(struct bench *b, struct bench_seq *s, uint32_t n, struct bench_seq *other,
                 uint32_t m)
{
    struct err e = ERR_INIT;
    if (bench_step(b, (struct bench_seq *const[]){other, s}, (uint32_t[]){m, n}, 2, &e))
        fail_msg("%s", e.msg);
}

/* ||a - b|| / ||b|| */
static double distance(const float *a, const float *b, size_t n)
{
    double d = 0, r = 0;
    for (size_t i = 0; i < n; i++)
        d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]), r += (double)b[i] * b[i];
    return sqrt(d / r);
}

static int by_value(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* The distance that three of four rows stay below: of a few, another expert is chosen. */
static double upper_quartile(const float *a, const float *b, size_t rows, size_t n)
{
    double d[LEN];
    assert_true(rows <= LEN);
    for (size_t i = 0; i < rows; i++)
        d[i] = distance(a + i * n, b + i * n, n);
    qsort(d, rows, sizeof(d[0]), by_value);
    return d[rows * 3 / 4];
}

/* How far from the CPU: rounding to bfloat16, or of x to 8 bits, can send a token to another
 * expert; with int4 it is the CPU that rounds x to 8 bits, and quantised weights meet x in 16 bits
 * here. */
static double bound(enum dtype t, enum quant q, bool experts)
{
    if (q == QUANT_NONE && t != DT_BF16)
        return t == DT_F32 ? 1e-5 : 5e-3;
    return q == QUANT_INT4 || experts ? 0.1 : 5e-2;
}

/* The bits of `whole`, in chunks and beside a neighbour. */
static void check_chunks(struct bench *g, const struct bench_seq *whole)
{
    static struct bench_seq parts, other;
    make_seq(&parts, g, LEN, 0), make_seq(&other, g, LEN, MAX_SEQ_BLOCKS);
    step(g, &parts, FIRST, &other, NEIGHBOUR);
    while (parts.done < FIRST + SINGLE)
        step(g, &parts, 1, &other, 1);
    step(g, &parts, LEN - parts.done, &other, 1);
    assert_memory_equal(parts.rows, whole->rows, (size_t)LEN * g->vocab * sizeof(float));
    free(parts.rows), free(other.rows);
}

/* `kv`: type of both caches; -1: as the weights are stored. Returns how far from the CPU it is,
 * which may also be `least`. */
static double check_within(const char *dir, int dtype, int kv, enum quant quant, double least,
                           bool chunks)
{
    static struct bench_seq want, whole, none;
    struct bench c, g;
    open_on(&c, &backend_cpu, dir, dtype, kv, quant);
    open_on(&g, gpu, dir, dtype, kv, quant);
    make_seq(&want, &c, LEN, 0), make_seq(&whole, &g, LEN, 0);
    make_seq(&none, &g, LEN, MAX_SEQ_BLOCKS);
    step(&c, &want, LEN, &none, 0);
    step(&g, &whole, LEN, &none, 0);
    enum dtype t = model_info(g.model)->dtype;
    double d = distance(whole.rows, want.rows, (size_t)LEN * c.vocab);
    printf("%s %s %s, %s: ||d|| / ||r|| = %.2g\n", dir, dtype_name(t),
           kv < 0 ? "" : kv_dtype_name(kv), quant_name(quant), d);
    const bool experts = model_info(g.model)->expert_share > 0;
    double most = experts ? upper_quartile(whole.rows, want.rows, LEN, c.vocab) : d;
    if (!(most < fmax(least, bound(t, quant, experts))))
        fail_msg("%s %s, %s: off by %g", dir, dtype_name(t), quant_name(quant), d);
    if (chunks)
        check_chunks(&g, &whole);
    free(want.rows), free(whole.rows), free(none.rows);
    bench_close(&c), bench_close(&g);
    return most;
}

static void check(const char *dir, int dtype, int kv, enum quant quant)
{
    check_within(dir, dtype, kv, quant, 0, true);
}

/* The folder of a model of the reference data; false and counted where it is not there. */
static bool find_model(const char *name, char dir[PATH_LEN])
{
    char file[128];
    const bool made = strncmp(name, "build/", strlen("build/")) == 0; /* by make_arch.py */
    snprintf(file, sizeof(file), "%s/config.json", name);
    const char *path = !made ? test_data(file) : access(file, F_OK) == 0 ? file : NULL;
    if (!path) {
        skipped++;
        return false;
    }
    snprintf(dir, PATH_LEN, "%.*s", (int)(strlen(path) - strlen("/config.json")), path);
    return true;
}

static void a_model_agrees_with_the_cpu(void **state)
{
    char dir[PATH_LEN];
    if (!find_model(*(const char *const *)*state, dir))
        return;
    /* The same arithmetic. bfloat16 rounds 2^16 times as much: a model that amplifies what float32
     * rounds (Zamba's, of random weights) is as much further off. Chunks of a family are those of
     * bfloat16, which more kernels serve; float32's are those of the tiny models. */
    const bool tiny = strncmp(*(const char *const *)*state, "models/", strlen("models/")) == 0;
    const double exact = check_within(dir, DT_F32, -1, QUANT_NONE, 0, tiny);
    check_within(dir, DT_BF16, -1, QUANT_NONE, 0x1p15 * exact, true);
}

/* A number of 4 bits that a difference of fp32 rounds the other way changes those of later layers:
 * test_cuda_kv compares the numbers. */
static void check_in_4_bits(const char *dir)
{
    check_within(dir, DT_F32, KV_I4, QUANT_NONE, 0.1, true);
}

/* Logits of a prompt, in seq->rows. */
static void run_prompt(const struct backend_ops *ops, const char *dir, enum kv_dtype kv,
                       struct bench_seq *seq, size_t *n)
{
    static struct bench_seq none;
    struct bench b;
    open_on(&b, ops, dir, DT_F32, kv, QUANT_NONE);
    make_seq(seq, &b, LEN, 0), make_seq(&none, &b, LEN, MAX_SEQ_BLOCKS);
    step(&b, seq, LEN, &none, 0);
    *n = (size_t)LEN * b.vocab;
    free(none.rows);
    bench_close(&b);
}

/* A latent value is rotated as a part of its key, on the CPU by itself. So numbers differ, but not
 * how far they are from what was stored. */
static void check_latent_in_4_bits(const char *dir)
{
    static struct bench_seq exact, want, got;
    size_t n;
    run_prompt(&backend_cpu, dir, KV_F32, &exact, &n);
    run_prompt(&backend_cpu, dir, KV_I4, &want, &n);
    run_prompt(gpu, dir, KV_I4, &got, &n);
    const double here = distance(got.rows, exact.rows, n),
                 there = distance(want.rows, exact.rows, n);
    printf("%s int4 of latents: ||d|| / ||r|| = %.2g, the CPU's %.2g\n", dir, here, there);
    if (!(here < 1.3 * there))
        fail_msg("%s in 4 bits is off by %g, the CPU by %g", dir, here, there);
    free(exact.rows), free(want.rows), free(got.rows);
}

static void caches_of_few_bits_agree_with_the_cpu(void **state)
{
    static const char *const models[] = {"arch/llama_hd64", "arch/llama_hd128"};
    char dir[PATH_LEN];
    (void)state;
    for (int i = 0; i < 2; i++)
        for (int kv = KV_I8; kv < KV_I4 && find_model(models[i], dir); kv++)
            check(dir, DT_BF16, kv, QUANT_NONE);
    check("models/demo", -1, KV_I8, QUANT_NONE);
    check("models/demo", -1, KV_FP8, QUANT_NONE);
    check_in_4_bits("models/demo"); /* heads of 32: without tensor cores */
    for (int i = 0; i < 2; i++)
        if (find_model(models[i], dir))
            check_in_4_bits(dir);
    if (find_model("arch/deepseek_v2", dir))
        check_latent_in_4_bits(dir);
}

static void the_demo_agrees_with_the_cpu(void **state)
{
    (void)state;
    check("models/demo", -1, -1, QUANT_NONE);
    check("models/demo", DT_F16, -1, QUANT_NONE);
}

static void quantised_models_agree_with_the_cpu(void **state)
{
    char dir[PATH_LEN];
    (void)state;
    for (enum quant q = QUANT_INT8; q < QUANT_N; q++) {
        check("models/demo", -1, -1, q);
        if (find_model("arch/mixtral", dir))
            check(dir, DT_BF16, -1, q);
    }
}

/* GPTQ, AWQ and BitNet, whose codes stay packed, but for those whose columns are in another order.
 */
static void packed_models_agree_with_the_cpu(void **state)
{
    static const char *const models[] = {
        "quant/gptq_g32",
        "quant/awq_gemm_g32",
        "build/golden/arch/bitnet_packed",
        "build/golden/arch/bitnet_online",
        "build/golden/arch/bitlinear",
        "quant/gptq_g32_desc_act",
    };
    enum { N = sizeof(models) / sizeof(models[0]) };
    char dir[PATH_LEN];
    (void)state;
    for (int i = 0; i < N; i++) {
        struct bench g;
        if (!find_model(models[i], dir))
            continue;
        open_on(&g, gpu, dir, -1, -1, QUANT_NONE);
        assert_true(!strstr(model_info(g.model)->matrices, "widened") == (i < N - 1));
        bench_close(&g);
        check(dir, -1, -1, QUANT_NONE);
    }
}

/* The demo in e4m3 with scales of blocks of 128 x 128: its codes stay packed. */
static void a_model_in_fp8_of_blocks_agrees_with_the_cpu(void **state)
{
    char dir[] = "/tmp/test-cuda-fp8-XXXXXX";
    struct bench g;
    (void)state;
    assert_non_null(mkdtemp(dir));
    made_fp8("models/demo", dir);
    open_on(&g, gpu, dir, -1, -1, QUANT_NONE);
    assert_null(strstr(model_info(g.model)->matrices, "widened"));
    bench_close(&g);
    check(dir, -1, -1, QUANT_NONE);
    fp8_remove(dir);
}

/* A prompt of more than 64 tokens, whose products may go by wgmma with a gate as part of them, and
 * its chunks, whose products do not. On few multiprocessors slices are not taken side by side. */
static void a_long_prompt_has_the_bits_of_its_chunks(void **state)
{
    enum { LONG = 90 };
    static const char *const models[] = {"arch/llama_hd64", "arch/gemma"}; /* SiLU, GELU */
    static struct bench_seq whole, parts, other;
    char dir[PATH_LEN];
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct bench g;
        if (!find_model(models[i % 2], dir))
            continue;
        if (machine)
            machine->sms = i < 2 ? 132 : 2;
        open_on(&g, gpu, dir, DT_BF16, -1, QUANT_NONE);
        make_seq(&whole, &g, LONG, 0), make_seq(&parts, &g, LONG, MAX_SEQ_BLOCKS);
        make_seq(&other, &g, LONG, 0);
        uint64_t before = machine ? machine->wgmmas : 0;
        step(&g, &whole, LONG, &other, 0);
        if (machine && !getenv("CUDA_FEATURES"))
            assert_true(machine->wgmmas > before);
        for (uint32_t n = 40; parts.done < LONG; n -= 10) /* 40, 30, 20 */
            step(&g, &parts, n, &other, 0);
        assert_memory_equal(parts.rows, whole.rows, (size_t)LONG * g.vocab * sizeof(float));
        free(whole.rows), free(parts.rows), free(other.rows);
        bench_close(&g);
    }
    if (machine)
        machine->sms = 132;
}

int main(void)
{
    int rc;
    if (!(gpu = cuda_plugin(N_DIRS + 6, &rc)))
        return rc;
    struct cuda_double *(*get)(void);
    *(void **)&get = dlsym(dlopen(cuda_plugin_path(), RTLD_NOW), "cuda_double");
    machine = get ? get() : NULL;
    struct CMUnitTest tests[N_DIRS + 6];
    for (int i = 0; i < N_DIRS; i++)
        tests[i] = (struct CMUnitTest){.name = dirs[i],
                                       .test_func = a_model_agrees_with_the_cpu,
                                       .initial_state = (void *)&dirs[i]};
    tests[N_DIRS] = (struct CMUnitTest)cmocka_unit_test(the_demo_agrees_with_the_cpu);
    tests[N_DIRS + 1] = (struct CMUnitTest)cmocka_unit_test(caches_of_few_bits_agree_with_the_cpu);
    tests[N_DIRS + 2] =
        (struct CMUnitTest)cmocka_unit_test(a_long_prompt_has_the_bits_of_its_chunks);
    tests[N_DIRS + 3] = (struct CMUnitTest)cmocka_unit_test(quantised_models_agree_with_the_cpu);
    tests[N_DIRS + 4] = (struct CMUnitTest)cmocka_unit_test(packed_models_agree_with_the_cpu);
    tests[N_DIRS + 5] =
        (struct CMUnitTest)cmocka_unit_test(a_model_in_fp8_of_blocks_agrees_with_the_cpu);
    rc = cmocka_run_group_tests_name("cuda_models", tests, NULL, NULL);
    if (skipped)
        printf("skipped: %d cases (no reference data)\n", skipped);
    return rc;
}
