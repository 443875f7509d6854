/* test_mlp.c - a whole feed-forward in one operation has the bits of its operations one by one. */
#include "model-server/backend/host/cpu_features.h"
#include "tests/check/cpu_device.h"
#include "tests/check/random.h"
#include <string.h>

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;

static struct weight *load(struct device *d, uint32_t rows, uint32_t cols, enum dtype t)
{
    struct err e = ERR_INIT;
    float *w = rng_floats(&rng, (size_t)rows * cols);
    struct mat_part part = {w, DT_F32, rows, cols, cols, 1};
    struct weight *out = ops->weight_load(d, &(struct mat_desc){&part, 1, t}, &e);
    if (!out)
        fail_msg("%s", e.msg);
    free(w);
    return out;
}

struct shape {
    uint32_t rows, hidden, ffn;
    bool gated, bias;
};

/* linear(), act() or act_mul(), linear(). */
static void one_by_one(struct device *d, float *y, const float *x, const struct shape *s,
                       const struct mlp *p)
{
    const size_t width = s->gated ? (size_t)2 * s->ffn : s->ffn;
    float *up = rng_floats(&rng, s->rows * width), *act = rng_floats(&rng, s->rows * width);
    ops->linear(d, up, x, s->rows, p->up, p->up_bias);
    if (s->gated)
        ops->act_mul(d, act, up, s->rows, s->ffn, p->act);
    else
        ops->act(d, up, s->rows, s->ffn, p->act);
    ops->linear(d, y, s->gated ? act : up, s->rows, p->down, p->down_bias);
    free(up), free(act);
}

/* True if the operation was done. */
static bool same_bits(struct device *d, const struct shape *s, enum dtype t)
{
    const size_t n = (size_t)s->rows * s->hidden;
    float *x = rng_floats(&rng, n), *want = rng_floats(&rng, n), *got = rng_floats(&rng, n + 1);
    float *biases = rng_floats(&rng, (size_t)2 * s->ffn + s->hidden), canary = got[n];
    struct weight *up = load(d, s->gated ? 2 * s->ffn : s->ffn, s->hidden, t);
    struct weight *down = load(d, s->hidden, s->ffn, t);
    const struct mlp p = {.up = up,
                          .down = down,
                          .up_bias = s->bias ? biases : NULL,
                          .down_bias = s->bias ? biases + (size_t)2 * s->ffn : NULL,
                          .act = s->gated ? ACT_SILU : ACT_GELU,
                          .gated = s->gated};
    one_by_one(d, want, x, s, &p);
    const bool done = ops->mlp(d, got, x, s->rows, &p);
    if (done && (memcmp(got, want, n * sizeof(*got)) || got[n] != canary))
        fail_msg("%s, %u rows, %u, %u: other bits", dtype_name(t), s->rows, s->hidden, s->ffn);
    ops->weight_free(d, up);
    ops->weight_free(d, down);
    free(x), free(want), free(got), free(biases);
    return done;
}

TEST(the_bits_are_those_of_the_operations)
{
    static const struct shape shapes[] = {
        {230, 96, 1000, false, true}, /* several times some columns, and a panel that is not full */
        {500, 33, 40, false, true},    {233, 130, 784, true, true},   {400, 64, 256, true, false},
        {777, 384, 1536, false, true}, {250, 1000, 300, false, false}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        for (int threads = 1; threads <= 3; threads++)
            for (int wide = 0; wide < 2; wide++) {
                struct device *d = device(threads, wide ? ~(uint64_t)CPU_AMX_BF16 : 1);
                for (enum dtype t = 0; t < DT_N; t++)
                    if (!same_bits(d, &shapes[i], t))
                        fail_msg("shape %zu, %d threads: not done", i, threads);
                ops->close(d);
            }
}

/* Pairs of 16 bits: those of bfloat16 are done, those of float16 need a factor for each row. */
TEST(rounded_activations)
{
    struct err e = ERR_INIT;
    const struct device_options o = {.threads = 2, .features = ~0ull, .arith = ARITH_HALF};
    struct device *d = ops->open(&o, &e);
    assert_non_null(d);
    const struct shape s = {300, 97, 801, false, true};
    for (enum dtype t = 0; t < DT_N; t++)
        same_bits(d, &s, t);
    ops->close(d);
}

/* Few rows, and rows that do not fit the memory of a thread. */
TEST(other_shapes_are_left_to_the_operations)
{
    struct device *d = device(2, ~0ull);
    const struct shape few = {17, 64, 128, false, true}, wide = {300, 4096, 256, false, true};
    assert_false(same_bits(d, &few, DT_F32));
    assert_false(same_bits(d, &wide, DT_F32));
    ops->close(d);
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
