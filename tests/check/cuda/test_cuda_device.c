/* test_cuda_device.c - operations on rows of the CUDA backend against the CPU's; what is taken is
 * given back; every refusal says why. */
#include "model-server/backend/act.h"
#include "tests/check/cuda/cuda_sides.h"

enum row_op { NORM, LAYER_NORM, ADD_NORM, ADD, ACT, ACT_MUL, SCALE, CAP, N_ROW_OPS };

static float *run_rows(struct side s, enum row_op op, uint32_t rows, uint32_t n, const float *x,
                       const float *r, const float *w)
{
    size_t bytes = (size_t)rows * n * 4;
    float *out = malloc(bytes), *dx = up(s, x, 2 * bytes), *dr = up(s, r, bytes);
    float *dw = up(s, w, 2 * n * 4), *dy = up(s, NULL, bytes);
    struct norm p = {op == LAYER_NORM ? NORM_LAYER : NORM_RMS, dw, op == NORM ? NULL : dw + n,
                     1e-5f};
    switch (op) {
    case NORM:
    case LAYER_NORM:
        s.ops->norm(s.d, dy, dx, rows, n, &p);
        break;
    case ADD_NORM:
        s.ops->add_norm(s.d, dy, dx, dr, 0.7f, rows, n, &p);
        break;
    case ADD:
        s.ops->add_norm(s.d, dy, dx, dr, 0.7f, rows, n, NULL);
        break;
    case ACT:
        s.ops->act(s.d, dx, rows, n, ACT_GELU);
        break;
    case ACT_MUL:
        s.ops->act_mul(s.d, dy, dx, rows, n, ACT_SILU);
        break;
    default:
        s.ops->logit_scale(s.d, dx, rows, n, 0.3f, op == CAP ? 2.0f : 0);
    }
    bool in_place = op == ADD || op == ACT || op == SCALE || op == CAP;
    down(s, out, in_place ? dx : dy, bytes);
    s.ops->free(s.d, in_place ? dy : dx), s.ops->free(s.d, dr), s.ops->free(s.d, dw);
    return out;
}

TEST(operations_on_rows_are_right)
{
    static const uint32_t widths[] = {1, 31, 256, 300, 2049};
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    for (int op = 0; op < N_ROW_OPS; op++)
        for (size_t i = 0; i < sizeof(widths) / sizeof(*widths); i++) {
            uint32_t n = widths[i], rows = 1 + rng_below(&rng, 5);
            float *x = rng_floats(&rng, 2 * (size_t)rows * n), *r = units((size_t)rows * n);
            float *w = units(2 * (size_t)n);
            float *got = run_rows(g, op, rows, n, x, r, w);
            float *want = run_rows(c, op, rows, n, x, r, w);
            if (op <= ADD_NORM)
                assert_near(got, want, (size_t)rows * n, 2e-5, "norm");
            else if (memcmp(got, want, (size_t)rows * n * 4)) /* one number at a time: no excuse */
                fail_msg("operation %d, %u x %u: not the bits of the CPU", op, rows, n);
            free(x), free(r), free(w), free(got), free(want);
        }
    close_side(g), close_side(c);
}

static float *run_gate(struct side s, const float *x, uint32_t rows, uint32_t n, enum act act)
{
    const size_t bytes = (size_t)rows * n * 4;
    float *out = malloc(bytes), *dx = up(s, x, 2 * bytes), *dy = up(s, NULL, bytes);
    s.ops->act_mul(s.d, dy, dx, rows, n, act);
    down(s, out, dy, bytes);
    s.ops->free(s.d, dx);
    return out;
}

/* Those that have a limit with their own one and with others; most numbers are beyond it. */
TEST(gates_are_right_with_any_limit)
{
    enum { ROWS = 3, N = 301 };
    static const float limits[] = {0, 0.125f, 1.5f, 3.5f, 64};
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    float *x = rng_floats(&rng, 2 * ROWS * N);
    for (int i = 0; i < 2 * ROWS * N; i++)
        x[i] *= i % 3 ? 4 : 0.5f;
    for (int k = 0; k < ACT_N; k++)
        for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
            const bool limited = i > 0;
            if (limited && !act_gated_only((enum act)k))
                continue;
            assert_true(!limited || act_limit_fits(limits[i]));
            const enum act a = limited ? act_limited((enum act)k, limits[i]) : (enum act)k;
            float *got = run_gate(g, x, ROWS, N, a), *want = run_gate(c, x, ROWS, N, a);
            if (memcmp(got, want, ROWS * N * 4) != 0)
                fail_msg("activation %d, limit %g: not the bits of the CPU", k, limits[i]);
            free(got), free(want);
        }
    free(x);
    close_side(g), close_side(c);
}

static void embed_once(struct side s, const float *table, enum dtype t, float *out, float *picked)
{
    enum { N = 45, V = 20, T = 6 };
    static const uint32_t ids[T] = {7, 3, 26, 9, 100, 7}, pos[T] = {0, 1, 2, 5, 6, 17};
    static const uint32_t out_rows[] = {1, 5};
    struct err e = ERR_INIT;
    const struct span span = {.n = T};
    const struct ragged b = {T, 1, 2, ids, pos, pos, &span, out_rows};
    struct weight *w = load(s, table, V, N, t);
    float *y = up(s, NULL, T * N * 4), *z = up(s, NULL, 2 * N * 4);
    assert_int_equal(s.ops->step_begin(s.d, &b, &e), 0);
    s.ops->embed(s.d, y, w, 7, 1.5f);
    s.ops->embed_pos(s.d, y, w, 2);
    s.ops->gather_out(s.d, z, y, N);
    assert_int_equal(s.ops->step_end(s.d, &e), 0);
    down(s, out, y, T * N * 4);
    down(s, picked, z, 2 * N * 4);
    s.ops->weight_free(s.d, w);
}

TEST(embedding_and_gathering_are_right)
{
    float *table = units(20 * 45), a[6 * 45], b[6 * 45], pa[90], pb[90];
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    for (enum dtype t = 0; t < DT_N; t++) {
        embed_once(g, table, t, a, pa);
        embed_once(c, table, t, b, pb);
        assert_memory_equal(a, b, sizeof(a));
        assert_memory_equal(pa, pb, sizeof(pa));
        assert_memory_equal(pa, a + 45, 45 * 4);
    }
    free(table);
    close_side(g), close_side(c);
}

/* ---------------------------------------------------------------- profiling */

struct reported {
    char names[256];
    bool timed;
};

static void take_launch(void *arg, const char *what, uint64_t bytes, double us)
{
    struct reported *r = arg;
    size_t n = strlen(r->names);
    (void)bytes;
    snprintf(r->names + n, sizeof(r->names) - n, "%s ", what);
    r->timed &= us > 0;
}

TEST(a_profiled_step_reports_its_launches_and_has_the_same_bits)
{
    float *table = units(20 * 45), a[6 * 45], b[6 * 45], pa[90], pb[90];
    struct reported r = {"", true};
    struct side g = open_side(gpu, ~0ull);
    embed_once(g, table, DT_BF16, a, pa);
    g.ops->profile(g.d, take_launch, &r);
    embed_once(g, table, DT_BF16, b, pb);
    g.ops->profile(g.d, NULL, NULL);
    assert_string_equal(r.names, "(an empty kernel) embed_launch embed_launch gather_launch ");
    assert_true(r.timed);
    assert_memory_equal(a, b, sizeof(a));
    assert_memory_equal(pa, pb, sizeof(pa));
    embed_once(g, table, DT_BF16, b, pb);
    assert_memory_equal(a, b, sizeof(a));
    assert_true(strlen(r.names) < 80); /* nothing more */
    free(table);
    close_side(g);
}

/* ---------------------------------------------------------------- what only the double can show */

TEST(every_refusal_says_why)
{
    struct err e = ERR_INIT;
    if (!machine)
        skip();
    machine->driver = 0;
    assert_int_equal(plugin->available(&e), -1);
    assert_non_null(strstr(e.msg, "no NVIDIA driver"));
    machine->driver = 12040;
    assert_int_equal(plugin->available(&e), -1);
    assert_non_null(strstr(e.msg, "supports CUDA 12.4, this program needs 13.0"));
    machine->driver = 13000, machine->devices = 0;
    assert_int_equal(plugin->available(&e), -1);
    assert_non_null(strstr(e.msg, "no GPU is visible"));
    machine->devices = 2;
    assert_null(gpu->open(&(struct device_options){.index = 2, .features = ~0ull}, &e));
    assert_string_equal(e.msg,
                        "GPU 2 is wanted, and there are 2, numbered from 0: a rank needs a GPU "
                        "of its own (--num-shard, CUDA_VISIBLE_DEVICES)");
    machine->devices = 1, machine->major = 7;
    assert_null(gpu->open(&(struct device_options){.features = ~0ull}, &e));
    assert_non_null(strstr(e.msg, "compute capability 7.0; 8.0 or later is needed"));
    machine->major = 9;
    struct side g = open_side(gpu, ~0ull);
    struct kv_desc kd = {32, 100000, 16, KV_BF16, {8, 128, 128}};
    assert_null(g.ops->kv_new(g.d, &kd, &e));
    assert_non_null(strstr(e.msg, "no memory for a KV cache of 100000 blocks: 195.31 GiB are"));
    assert_non_null(strstr(e.msg, "lower --kv-cache-memory"));
    close_side(g);
    assert_null(backend_plugin_load("/no/such/backend-cuda.so", &e));
    assert_non_null(strstr(e.msg, "/no/such/backend-cuda.so"));
    assert_null(backend_plugin_load("libm.so.6", &e));
    assert_non_null(strstr(e.msg, "is not of this build"));
}

static int use_all(struct side g, const float *w, struct err *e)
{
    struct mat_part part = {w, DT_F32, 40, 40, 40, 1};
    struct kv_desc kd = {2, 4, 16, KV_BF16, {2, 64, 64}};
    struct weight *m = g.ops->weight_load(g.d, &(struct mat_desc){&part, 1, DT_BF16}, e);
    float *v = m ? g.ops->vector_load(g.d, &part, 1, e) : NULL, *y = NULL;
    struct kv_cache *kv = v ? g.ops->kv_new(g.d, &kd, e) : NULL;
    uint32_t pos[20] = {0}, blocks[2] = {0, 1};
    struct span span = {0, 20, 20, blocks, 0};
    struct ragged b = {20, 1, 0, pos, pos, pos, &span, pos};
    int rc = kv && (y = g.ops->alloc(g.d, 4000, e)) ? g.ops->step_begin(g.d, &b, e) : -1;
    if (rc == 0) {
        g.ops->linear(g.d, y, v, 20, m, NULL);
        rc = g.ops->step_end(g.d, e);
    }
    g.ops->weight_free(g.d, m);
    g.ops->free(g.d, v), g.ops->free(g.d, y);
    g.ops->kv_free(g.d, kv);
    return rc;
}

/* Let the n-th allocation fail, for n = 0, 1, 2 ... until all goes well. */
TEST(a_failed_allocation_is_an_error_and_leaks_nothing)
{
    if (!machine)
        skip();
    float *w = units(40 * 40);
    int n = 0, rc = -1;
    for (; rc && n < 100; n++) {
        struct err e = ERR_INIT;
        struct side g = open_side(gpu, ~0ull);
        machine->fail_after = n;
        rc = use_all(g, w, &e);
        machine->fail_after = -1;
        if (rc)
            assert_non_null(strstr(e.msg, "GPU 0: no memory for "));
        close_side(g);
    }
    assert_in_range(n, 5, 50);
    free(w);
}

int main(void) { return cuda_tests_run(); }
