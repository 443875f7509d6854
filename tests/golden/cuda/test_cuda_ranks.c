/* Ranks with a device each: sums in rank order by every way (peers' memory, NCCL, the hosts), steps
 * with collectives replayed as graphs, and what happens when a rank ends, is absent or differs.
 *
 * Every rank is a process (cuda_ranks.h). What needs the double is left out on a GPU. */
#include "tests/golden/cuda/cuda_ranks.h"
#include "tests/golden/fp8_made.h"
#include "tests/golden/golden.h"
#include <sys/mman.h>

/* Of the tokens after the prompt the first two are run and captured, the others replayed. */
enum { LEN = 24, PROMPT = 20 };

/* ---------------------------------------------------------------- sums */

/* A value whose sum over ranks depends on the order of addition. */
static float value(int rank, size_t i)
{
    uint32_t h = ((uint32_t)i * 2654435761u) ^ ((uint32_t)rank * 0x9e3779b9u);
    h ^= h >> 15, h *= 0x85ebca6bu, h ^= h >> 13;
    return ((float)(h & 0xffff) - 32768.0f) * (float)(1 << (h >> 28));
}

static void sum_once(struct rank *r, float *dev, float *x, size_t n, int round)
{
    struct err e = ERR_INIT;
    for (size_t i = 0; i < n; i++)
        x[i] = value(r->rank + round, i);
    NEED(!gpu->upload(r->dev, dev, x, n * sizeof(*x), &e));
    NEED(!comm_all_reduce(r->comm, dev, n, &e));
    NEED(!gpu->download(r->dev, x, dev, n * sizeof(*x), &e));
    for (size_t i = 0; i < n; i++) {
        float want = value(round, i);
        for (int k = 1; k < r->world; k++)
            want += value(k + round, i);
        NEED(x[i] == want);
    }
}

/* Around the limits of every way: a chunk of one shot and its largest message, pieces of the double
 * and what scattering leaves over. */
static void sums(struct rank *r)
{
    static const size_t sizes[] = {4, 1, 1000, 1024, 1028, 65536, 65540, 16385, 100003, 128};
    struct err e = ERR_INIT;
    float *x = malloc(100003 * sizeof(*x)), *dev;
    join_rank(r);
    NEED(dev = gpu->alloc(r->dev, 100003 * sizeof(*x), &e));
    for (int round = 0; round < 12; round++)
        sum_once(r, dev, x, sizes[round % 10], round);
    gpu->free(r->dev, dev);
    free(x);
    close_rank(r);
}

static void all_ways_add_in_rank_order(void **state)
{
    (void)state;
    for (int w = 0; w < N_WAYS; w++)
        for (int world = 2; !skips(w) && world <= (machine ? MAX_RANKS : 2); world++) {
            take_way(&ways[w]);
            run_ranks(sums, world, NULL);
        }
    if (!machine)
        return;
    take_way(&ways[0]);
    setenv("CUDA_DOUBLE_PEERS", "0", 1); /* devices that do not see each other's memory */
    wants_peers = false;
    run_ranks(sums, 3, NULL);
    unsetenv("CUDA_DOUBLE_PEERS");
}

/* ---------------------------------------------------------------- models */

static const char *folder = "models/demo"; /* of the model of all ranks */

static void open_model(struct bench *b, const struct backend_ops *ops, struct device *dev,
                       struct comm *comm, struct comm *stages, int dtype, struct err *e)
{
    struct model_options o = {
        .ops = ops, .dev = dev, .comm = comm, .stages = stages, .dtype = dtype};
    *b = (struct bench){.ops = ops, .dev = dev, .model = model_load(folder, &o, e)};
    if (b->model)
        b->vocab = model_info(b->model)->vocab;
}

static void make_seq(struct bench_seq *s, const struct bench *b)
{
    struct prompt p = {.n = LEN};
    uint32_t order[MAX_SEQ_BLOCKS];
    for (uint32_t i = 0; i < LEN; i++)
        p.ids[i] = (i * 2654435761u >> 7) % b->vocab;
    for (uint32_t i = 0; i < MAX_SEQ_BLOCKS; i++)
        order[i] = MAX_SEQ_BLOCKS - 1 - i;
    seq_init(s, b, &p, order);
}

struct outcome {
    int dtype, stages; /* 0: one */
    struct {
        uint64_t graphs; /* launched, on the double */
        float rows[LEN * 2048];
    } of[MAX_RANKS];
};

/* The prompt, then a token at a time. */
static void demo(struct rank *r)
{
    static struct bench_seq s;
    struct outcome *out = r->arg;
    struct comm *stage = NULL, *across = NULL;
    struct err e = ERR_INIT;
    struct bench b;
    open_rank(r);
    if (out->stages) {
        const int each = r->world / out->stages;
        NEED(stage = comm_split(r->host, r->rank / each, &e));
        NEED(across = comm_split(r->host, r->rank % each, &e));
    }
    open_model(&b, gpu, r->dev, stage ? stage : r->host, across, out->dtype, &e);
    NEED(b.model && b.vocab == 2048);
    NEED(!across || !strstr(gpu->describe(r->dev), "messages by NCCL") != wants_nccl);
    NEED(!model_kv_resize(b.model, MAX_SEQ_BLOCKS, BLOCK_SIZE, model_kv_dtype(b.model), &e));
    make_seq(&s, &b);
    while (s.done < LEN)
        NEED(!bench_step(&b, (struct bench_seq *const[]){&s}, (uint32_t[]){s.done ? 1 : PROMPT}, 1,
                         &e));
    memcpy(out->of[r->rank].rows, s.rows, sizeof(out->of[0].rows));
    out->of[r->rank].graphs = machine ? machine->graph_launches : 0;
    model_free(b.model);
    gpu->close(r->dev);
    comm_close(across), comm_close(stage);
    comm_close(r->host);
}

static void want_of_one_cpu(int dtype, float *rows)
{
    static struct bench_seq s;
    struct err e = ERR_INIT;
    struct bench b;
    struct device_options o = {.threads = 1, .features = ~0ull};
    open_model(&b, &backend_cpu, backend_cpu.open(&o, &e), comm_solo(), NULL, dtype, &e);
    if (!b.model ||
        model_kv_resize(b.model, MAX_SEQ_BLOCKS, BLOCK_SIZE, model_kv_dtype(b.model), &e))
        fail_msg("%s", e.msg);
    make_seq(&s, &b);
    if (bench_step(&b, (struct bench_seq *const[]){&s}, (uint32_t[]){LEN}, 1, &e))
        fail_msg("%s", e.msg);
    memcpy(rows, s.rows, LEN * 2048 * sizeof(float));
    free(s.rows);
    bench_close(&b);
}

/* ||a - b|| / ||b|| */
static double distance(const float *a, const float *b, size_t n)
{
    double d = 0, r = 0;
    for (size_t i = 0; i < n; i++)
        d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]), r += (double)b[i] * b[i];
    return sqrt(d / r);
}

/* `n` of the ways; sums are of float32 in every type of weights. */
static void compare_ways(struct outcome *out, int world, int dtype, int n)
{
    static float first[LEN * 2048], want[LEN * 2048];
    want_of_one_cpu(dtype, want);
    for (int w = 0, seen = 0; w < N_WAYS; w++) {
        if (skips(w) || seen == n)
            continue;
        *out = (struct outcome){.dtype = dtype};
        take_way(&ways[w]);
        run_ranks(demo, world, out);
        if (!seen++)
            memcpy(first, out->of[0].rows, sizeof(first));
        assert_memory_equal(out->of[0].rows, first, sizeof(first));
        if (machine && ways[w].nccl)
            assert_true(out->of[0].graphs > 0);
    }
    double d = distance(first, want, LEN * 2048);
    printf("%d ranks, %s: ||d|| / ||r|| = %.2g\n", world, dtype < 0 ? "as stored" : "float32", d);
    assert_true(d < (dtype == DT_F32 ? 1e-5 : 1e-2));
}

static void ranks_agree_with_one_and_by_all_ways(void **state)
{
    struct outcome *out =
        mmap(NULL, sizeof(*out), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)state;
    compare_ways(out, 2, -1, N_WAYS);
    compare_ways(out, 2, DT_F32, 1);
    if (machine)
        compare_ways(out, 4, -1, N_WAYS);
    munmap(out, sizeof(*out));
}

/* Blocks of 128 x 128: two ranks cut the columns of a matrix in the middle of one, four ranks where
 * a block has 32 columns, which are widened. */
static void ranks_cut_blocks_of_fp8(void **state)
{
    struct outcome *out =
        mmap(NULL, sizeof(*out), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char dir[] = "/tmp/test-cuda-ranks-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(dir));
    made_fp8(folder, dir);
    folder = dir;
    compare_ways(out, 2, -1, 1);
    if (machine)
        compare_ways(out, 4, -1, 1);
    fp8_remove(dir);
    folder = "models/demo";
    munmap(out, sizeof(*out));
}

static void run_stages(struct outcome *out, int stages, int each)
{
    *out = (struct outcome){.dtype = -1, .stages = stages > 1 ? stages : 0};
    run_ranks(demo, stages * each, out);
}

/* The logits of all ranks are `want`; a stage's part is replayed. */
static void compare_stages(struct outcome *out, int stages, int each, const struct way *way,
                           const float *want)
{
    run_stages(out, stages, each);
    for (int r = 0; r < stages * each; r++) {
        assert_memory_equal(out->of[r].rows, want, sizeof(out->of[r].rows));
        if (machine && (each == 1 || way->nccl))
            assert_true(out->of[r].graphs > 0);
    }
}

/* One stage has the same bits by all ways: the test before. */
static void stages_have_the_bits_of_one(void **state)
{
    struct outcome *out =
        mmap(NULL, sizeof(*out), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static float want[LEN * 2048];
    (void)state;
    for (int each = 1; each <= (machine ? 2 : 1); each++) {
        for (int w = 0, seen = 0; w < N_WAYS; w++) {
            if (skips(w))
                continue;
            take_way(&ways[w]);
            if (!seen++) {
                run_stages(out, 1, each);
                memcpy(want, out->of[0].rows, sizeof(want));
            }
            compare_stages(out, 2, each, &ways[w], want);
            if (machine && each == 1 && w % 3 == 0) /* the last stage sends to several */
                compare_stages(out, 4, 1, &ways[w], want);
        }
    }
    munmap(out, sizeof(*out));
}

/* Rank 1, another stage, ends before it sends; the error of rank 0 names it, with collectives
 * around. */
static void lose_stage(struct rank *r)
{
    struct err e = ERR_INIT;
    struct comm *link;
    float *dev, x[64];
    join_rank(r);
    NEED(!gpu->link_open(r->dev, r->host, &link, &e) && link);
    NEED(dev = gpu->alloc(r->dev, sizeof(x), &e));
    if (r->rank == 1)
        _exit(0);
    NEED(comm_recv(link, 1, dev, 64, &e) || gpu->download(r->dev, x, dev, sizeof(x), &e));
    NEED(strstr(e.msg, "rank 1 (pid ") && strstr(e.msg, "rank 0 of 2"));
    e.msg[0] = '\0';
    NEED(comm_all_reduce(r->comm, dev, 64, &e) && strstr(e.msg, "rank 1 (pid "));
    gpu->free(r->dev, dev);
    comm_close(link);
    close_rank(r);
}

static void a_lost_stage_is_an_error(void **state)
{
    (void)state;
    if (skips(0))
        skip();
    take_way(&ways[0]);
    setenv("CUDA_DOUBLE_NCCL_S", "1", 1);
    run_ranks(lose_stage, 2, NULL);
    unsetenv("CUDA_DOUBLE_NCCL_S");
}

/* ---------------------------------------------------------------- steps that differ */

/* Decode steps that consist of sums; rank 1 uses other memory in each second one, so that its steps
 * repeat at other times than those of rank 0. */
static void differ(struct rank *r)
{
    enum { N = 512, STEPS = 12 };
    struct err e = ERR_INIT;
    float *dev[2], x[N];
    uint32_t zero = 0;
    struct span span = {0, 1, 1, &zero, 0};
    struct ragged batch = {1, 1, 1, &zero, &zero, &zero, &span, &zero};
    join_rank(r);
    for (int i = 0; i < 2; i++)
        NEED(dev[i] = gpu->alloc(r->dev, sizeof(x), &e));
    for (int step = 0; step < STEPS; step++) {
        float *at = dev[r->rank == 1 && step % 2];
        for (size_t i = 0; i < N; i++)
            x[i] = value(r->rank + step, i);
        NEED(!gpu->upload(r->dev, at, x, sizeof(x), &e));
        NEED(!gpu->step_begin(r->dev, &batch, &e));
        NEED(!comm_all_reduce(r->comm, at, N, &e));
        NEED(!gpu->step_end(r->dev, &e));
        NEED(!gpu->download(r->dev, x, at, sizeof(x), &e));
        for (size_t i = 0; i < N; i++)
            NEED(x[i] == value(step, i) + value(1 + step, i));
    }
    uint64_t *graphs = r->arg;
    graphs[r->rank] = machine ? machine->graph_launches : 0;
    for (int i = 0; i < 2; i++)
        gpu->free(r->dev, dev[i]);
    close_rank(r);
}

static void ranks_replay_together_or_not_at_all(void **state)
{
    uint64_t *graphs = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)state;
    for (int w = 0; w < 2; w++) {
        if (skips(w))
            continue;
        take_way(&ways[w]);
        run_ranks(differ, 2, graphs);
        assert_int_equal(graphs[0], graphs[1]);
        if (machine)
            assert_int_equal(graphs[0], 10); /* all but the first of each kind */
    }
    munmap(graphs, 4096);
}

/* ---------------------------------------------------------------- losses */

/* Rank 1 ends after a sum; every later call of rank 0 fails in time and names it. */
static void lose_one(struct rank *r)
{
    struct err e = ERR_INIT;
    const bool away = r->arg; /* stays away instead */
    float *dev, x[64] = {1};
    char words[64];
    join_rank(r);
    NEED(dev = gpu->alloc(r->dev, sizeof(x), &e));
    NEED(!comm_all_reduce(r->comm, dev, 64, &e));
    NEED(!gpu->download(r->dev, x, dev, sizeof(x), &e));
    if (r->rank == 1) {
        sleep(away ? 5 : 0);
        _exit(0);
    }
    snprintf(words, sizeof(words), away ? "rank 1 did not come" : "rank 1 (pid ");
    NEED(comm_all_reduce(r->comm, dev, 64, &e) || gpu->download(r->dev, x, dev, sizeof(x), &e));
    NEED(strstr(e.msg, words) && strstr(e.msg, "rank 0 of 2"));
    e.msg[0] = '\0';
    NEED(comm_all_reduce(r->comm, dev, 64, &e) && strstr(e.msg, words));
    gpu->free(r->dev, dev);
    close_rank(r);
}

static void a_lost_rank_is_an_error(void **state)
{
    (void)state;
    setenv("CUDA_DOUBLE_NCCL_S", "2", 1);
    for (int w = 0; w < N_WAYS; w++) {
        if (skips(w))
            continue;
        take_way(&ways[w]);
        run_ranks(lose_one, 2, NULL);
    }
    if (machine) { /* whose clock makes 120 s of 2 s */
        take_way(&ways[0]);
        run_ranks(lose_one, 2, &machine);
    }
    unsetenv("CUDA_DOUBLE_NCCL_S");
}

/* Rank 1 fails inside a step of decodes, on its own: no memory. Rank 0 fails in that step, too. */
static void fail_one(struct rank *r)
{
    static struct bench_seq s;
    struct err e = ERR_INIT;
    struct bench b;
    open_rank(r);
    open_model(&b, gpu, r->dev, r->host, NULL, -1, &e);
    NEED(b.model && !model_kv_resize(b.model, MAX_SEQ_BLOCKS, BLOCK_SIZE, KV_F32, &e));
    make_seq(&s, &b);
    if (r->rank == 1)
        machine->fail_after = 0;
    NEED(bench_step(&b, (struct bench_seq *const[]){&s}, (uint32_t[]){1}, 1, &e));
    NEED(strstr(e.msg, r->rank ? "no memory for" : "rank 1"));
    model_free(b.model);
    gpu->close(r->dev);
    comm_close(r->host);
}

static void a_rank_that_fails_tells_the_others(void **state)
{
    (void)state;
    if (!machine)
        skip();
    take_way(&ways[1]);
    run_ranks(fail_one, 2, NULL);
}

/* ---------------------------------------------------------------- ranks that do not fit */

static void other_version(struct rank *r)
{
    struct err e = ERR_INIT;
    setenv("CUDA_DOUBLE_NCCL", r->rank ? "23007" : "22809", 1);
    open_rank(r);
    NEED(!gpu->comm_open(r->dev, r->host, &e));
    NEED(!strcmp(e.msg, "NCCL is 2.28.9 on rank 0 and 2.30.7 on rank 1: install the same, or name "
                        "one by NCCL_LIBRARY"));
    gpu->close(r->dev);
    comm_close(r->host);
}

/* Graphs and peers' memory are used by all ranks or by none. */
static void fewer_features(struct rank *r)
{
    uint64_t *graphs = r->arg;
    setenv("CUDA_FEATURES", r->rank ? "0x5" : "0x4f", 1);
    wants_peers = false;
    differ(r);
    if (graphs[r->rank])
        _exit(2);
}

static void too_many(struct rank *r)
{
    struct err e = ERR_INIT;
    setenv("CUDA_DOUBLE_DEVICES", "1", 1);
    struct device_options o = {.index = r->rank, .threads = 1, .features = ~0ull};
    struct device *d = gpu->open(&o, &e);
    NEED(r->rank ? !d && strstr(e.msg, "GPU 1 is wanted, and there is 1") : d != NULL);
    if (d)
        gpu->close(d);
}

static void two_on_one_gpu(struct rank *r)
{
    setenv("CUDA_DOUBLE_DEVICES", "1", 1);
    setenv("CUDA_SHARE_GPU", "1", 1);
    setenv("CUDA_DOUBLE_NCCL", r->arg ? "23007" : "22809", 1);
    sums(r);
    const char *enable = getenv("NCCL_MULTI_RANK_GPU_ENABLE"), *host = getenv("NCCL_HOSTID");
    if (r->arg ? !enable || host : enable || !host || host[5] != '0' + r->rank)
        _exit(3);
}

static void ranks_must_fit_together(void **state)
{
    uint64_t *graphs = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)state;
    if (!machine)
        skip();
    take_way(&ways[0]);
    run_ranks(other_version, 2, NULL);
    run_ranks(fewer_features, 2, graphs);
    run_ranks(too_many, 2, NULL);
    run_ranks(two_on_one_gpu, 2, NULL);
    run_ranks(two_on_one_gpu, 2, graphs);
    munmap(graphs, 4096);
}

int main(void)
{
    int rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ways_add_in_rank_order),
        cmocka_unit_test(ranks_agree_with_one_and_by_all_ways),
        cmocka_unit_test(ranks_cut_blocks_of_fp8),
        cmocka_unit_test(stages_have_the_bits_of_one),
        cmocka_unit_test(a_lost_stage_is_an_error),
        cmocka_unit_test(ranks_replay_together_or_not_at_all),
        cmocka_unit_test(a_lost_rank_is_an_error),
        cmocka_unit_test(a_rank_that_fails_tells_the_others),
        cmocka_unit_test(ranks_must_fit_together),
    };
    if (!find_machine(sizeof(tests) / sizeof(tests[0]), &rc))
        return rc;
    return cmocka_run_group_tests_name("cuda_ranks", tests, NULL, NULL);
}
