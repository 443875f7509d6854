/* Whole models on the CUDA backend against the CPU backend: the families of TEST_DATA/arch, the
 * tiny models and the demo, as stored and in bfloat16; and the bits of a result against chunks,
 * neighbours and replay. Which device: see tests/check/test_backend_cuda.c. */
#include "model-server/backend/plugin.h"
#include "tests/golden/golden.h"
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

/* On the double a token takes milliseconds. */
enum { LEN = 29, NEIGHBOUR = 11 };

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
    "arch/opt",
    "models/stories260K",
    "models/stories260K-bf16",
    "models/stories260K-fp16",
};
// clang-format on
enum { N_DIRS = sizeof(dirs) / sizeof(dirs[0]) };

static const struct backend_ops *gpu;
static const char *plugin_path;
static bool on_double;
static int skipped;

static void open_on(struct bench *b, const struct backend_ops *ops, const char *dir, int dtype,
                    struct comm *comm)
{
    struct err e = ERR_INIT;
    int index = ops == gpu ? comm->rank : 0;
    *b = (struct bench){.ops = ops};
    b->dev =
        ops->open(&(struct device_options){.index = index, .threads = 1, .features = ~0ull}, &e);
    if (b->dev)
        b->model = model_load(
            dir, &(struct model_options){.ops = ops, .dev = b->dev, .comm = comm, .dtype = dtype},
            &e);
    if (!b->model ||
        model_kv_resize(b->model, 2 * MAX_SEQ_BLOCKS, BLOCK_SIZE, model_kv_dtype(b->model), &e))
        fail_msg("%s: %s", dir, e.msg);
    b->vocab = model_info(b->model)->vocab;
}

static void make_seq(struct seq *s, const struct bench *b, uint32_t n, uint32_t first_block)
{
    struct prompt p = {.n = n};
    uint32_t order[MAX_SEQ_BLOCKS];
    for (uint32_t i = 0; i < n; i++)
        p.ids[i] = (i * 2654435761u >> 7) % b->vocab;
    for (uint32_t i = 0; i < MAX_SEQ_BLOCKS; i++)
        order[i] = first_block + MAX_SEQ_BLOCKS - 1 - i;
    seq_init(s, b, &p, order);
}

static void step(struct bench *b, struct seq *s, uint32_t n, struct seq *other, uint32_t m)
{
    struct err e = ERR_INIT;
    if (bench_step(b, (struct seq *const[]){other, s}, (uint32_t[]){m, n}, 2, &e))
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

static void check(const char *dir, int dtype)
{
    static struct seq want, whole, parts, other;
    struct bench c, g;
    open_on(&c, &backend_cpu, dir, dtype, comm_solo());
    open_on(&g, gpu, dir, dtype, comm_solo());
    make_seq(&want, &c, LEN, 0), make_seq(&whole, &g, LEN, 0);
    make_seq(&parts, &g, LEN, 0), make_seq(&other, &g, LEN, MAX_SEQ_BLOCKS);
    step(&c, &want, LEN, &other, 0);
    step(&g, &whole, LEN, &other, 0);
    enum dtype t = model_info(g.model)->dtype;
    double d = distance(whole.rows, want.rows, (size_t)LEN * c.vocab);
    printf("%s %s: ||d|| / ||r|| = %.2g\n", dir, dtype_name(t), d);
    /* rounding to bfloat16 can send a token to another expert */
    if (!(d < (t == DT_F32 ? 1e-5 : t == DT_F16 ? 5e-3 : 5e-2)))
        fail_msg("%s %s: off by %g", dir, dtype_name(t), d);
    step(&g, &parts, 9, &other, NEIGHBOUR);
    while (parts.done < LEN) /* beside a neighbour, from the third step on replayed */
        step(&g, &parts, 1, &other, 1);
    assert_memory_equal(parts.rows, whole.rows, (size_t)LEN * g.vocab * sizeof(float));
    free(want.rows), free(whole.rows), free(parts.rows), free(other.rows);
    bench_close(&c), bench_close(&g);
}

static void a_model_agrees_with_the_cpu(void **state)
{
    char file[128], dir[PATH_LEN];
    snprintf(file, sizeof(file), "%s/config.json", *(const char *const *)*state);
    const char *path = test_data(file);
    if (!path) {
        skipped++;
        return;
    }
    snprintf(dir, sizeof(dir), "%.*s", (int)(strlen(path) - strlen("/config.json")), path);
    check(dir, -1);
    check(dir, DT_BF16);
}

static void the_demo_agrees_with_the_cpu(void **state)
{
    (void)state;
    check("models/demo", -1);
    check("models/demo", DT_F16);
}

/* One rank of two: the prompt, then a token at a time; its logits into `rows` if given. */
static void run_rank(int rank, const char *group, int dtype, float *rows)
{
    static struct seq s, other;
    struct err e = ERR_INIT;
    struct bench b;
    struct comm *comm = comm_shm_open(group, rank, 2, 20000, &e);
    if (!comm)
        fail_msg("%s", e.msg);
    open_on(&b, gpu, "models/demo", dtype, comm);
    make_seq(&s, &b, LEN, 0);
    step(&b, &s, LEN - 4, &other, 0);
    while (s.done < LEN)
        step(&b, &s, 1, &other, 0);
    if (rows)
        memcpy(rows, s.rows, (size_t)LEN * b.vocab * sizeof(float));
    free(s.rows);
    bench_close(&b);
    comm_close(comm);
}

/* The demo's logits by two processes, as the launcher has them. */
static void run_two(int dtype, float *rows)
{
    char group[64];
    int status = -1;
    snprintf(group, sizeof(group), "test-cuda-%d", (int)getpid());
    pid_t child = fork();
    if (child == 0) {
        run_rank(1, group, dtype, NULL);
        _exit(0);
    }
    run_rank(0, group, dtype, rows);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void two_ranks_agree_with_one(void **state)
{
    static struct seq want, other;
    struct bench c;
    (void)state;
    if (!on_double) /* a GPU's driver does not survive fork(), and a second GPU is needed */
        skip();
    setenv("CUDA_DOUBLE_DEVICES", "2", 1);
    for (int t = -1; t <= DT_F32; t++) {
        open_on(&c, &backend_cpu, "models/demo", t, comm_solo());
        make_seq(&want, &c, LEN, 0);
        step(&c, &want, LEN, &other, 0);
        size_t n = (size_t)LEN * c.vocab;
        float *nccl = malloc(n * sizeof(float)), *host = malloc(n * sizeof(float));
        setenv("NCCL_LIBRARY", plugin_path, 1);
        run_two(t, nccl);
        setenv("NCCL_LIBRARY", "/no/such/libnccl.so", 1);
        run_two(t, host); /* sums travel through the host instead */
        assert_memory_equal(nccl, host, n * sizeof(float));
        double d = distance(nccl, want.rows, n);
        printf("two ranks, %s: ||d|| / ||r|| = %.2g\n", t == DT_F32 ? "float32" : "as stored", d);
        assert_true(d < (t == DT_F32 ? 1e-5 : 1e-2));
        free(nccl), free(host), free(want.rows);
        bench_close(&c);
    }
}

/* A rank that dies between two steps is an error of the other one, not a hang. */
static void a_lost_rank_is_an_error(void **state)
{
    static struct seq s, other;
    char group[64];
    struct err e = ERR_INIT;
    struct bench b;
    int status;
    (void)state;
    if (!on_double)
        skip();
    setenv("CUDA_DOUBLE_DEVICES", "2", 1);
    setenv("NCCL_LIBRARY", plugin_path, 1);
    snprintf(group, sizeof(group), "test-cuda-lost-%d", (int)getpid());
    pid_t child = fork();
    int rank = child == 0;
    struct comm *comm = comm_shm_open(group, rank, 2, 20000, &e);
    if (!comm)
        fail_msg("%s", e.msg);
    open_on(&b, gpu, "models/demo", -1, comm);
    make_seq(&s, &b, LEN, 0);
    step(&b, &s, 2, &other, 0);
    if (rank)
        _exit(0);
    waitpid(child, &status, 0);
    assert_int_equal(bench_step(&b, (struct seq *const[]){&s}, (uint32_t[]){1}, 1, &e), -1);
    assert_string_equal(e.msg, "GPU 0, rank 0 of 2: NCCL: unhandled system error");
    assert_int_equal(bench_step(&b, (struct seq *const[]){&s}, (uint32_t[]){1}, 1, &e), -1);
    free(s.rows);
    bench_close(&b);
    comm_close(comm);
}

int main(void)
{
    const char *stand_in = getenv("CUDA_DOUBLE");
    struct err e = ERR_INIT;
    plugin_path = getenv("BACKEND_CUDA") ? getenv("BACKEND_CUDA") : stand_in;
    if (!plugin_path) {
        printf("skipped: %d cases (no GPU plugin is given, and the double runs on x86-64 only)\n",
               N_DIRS + 3);
        return 0;
    }
    const struct backend_plugin *p = backend_plugin_load(plugin_path, &e);
    if (!p || p->available(&e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    gpu = p->ops;
    on_double = dlsym(dlopen(plugin_path, RTLD_NOW), "cuda_double");
    struct CMUnitTest tests[N_DIRS + 3];
    for (int i = 0; i < N_DIRS; i++)
        tests[i] = (struct CMUnitTest){.name = dirs[i],
                                       .test_func = a_model_agrees_with_the_cpu,
                                       .initial_state = (void *)&dirs[i]};
    tests[N_DIRS] = (struct CMUnitTest)cmocka_unit_test(the_demo_agrees_with_the_cpu);
    tests[N_DIRS + 1] = (struct CMUnitTest)cmocka_unit_test(two_ranks_agree_with_one);
    tests[N_DIRS + 2] = (struct CMUnitTest)cmocka_unit_test(a_lost_rank_is_an_error);
    int rc = cmocka_run_group_tests_name("cuda_models", tests, NULL, NULL);
    if (skipped)
        printf("skipped: %d cases (no reference data)\n", skipped);
    return rc;
}
