/* test_cuda_random.c - weights that the CUDA backend makes are, bit for bit, those that the host
 * makes and sends: any type, cut, turned and stacked; and a model of such weights is the CPU's. */
#include "model-server/model/loader/random_weights.h"
#include "model-server/model/model.h"
#include "tests/check/cuda/cuda_sides.h"

enum { ROWS = 70, COLS = 45 };

TEST(made_weights_are_those_that_are_sent)
{
    struct err e = ERR_INIT;
    struct side g = open_side(gpu, ~0ull);
    const struct random_tensor t[2] = {random_tensor("a.weight", 0, 0.3f),
                                       random_tensor("b.weight", 1, 0.1f)};
    void *data[2];
    for (int i = 0; i < 2; i++)
        assert_non_null(data[i] = random_data(gpu, g.d, t[i], (size_t)ROWS * COLS));
    for (enum dtype to = 0; to < DT_N; to++) {
        /* rows 3 .. 32 of the first, all of the second turned around, columns from 20 on */
        struct mat_part sent[] = {{(uint16_t *)data[0] + 3 * COLS + 20, DT_BF16, 30, 25, COLS, 1},
                                  {(uint16_t *)data[1] + 20 * ROWS, DT_BF16, ROWS, 25, 1, ROWS}};
        struct mat_part made[] = {{NULL, DT_BF16, 30, 25, COLS, 1, SOURCE_RANDOM, 3 * COLS + 20},
                                  {NULL, DT_BF16, ROWS, 25, 1, ROWS, SOURCE_RANDOM, 20 * ROWS}};
        made[0].random = &t[0];
        made[1].random = &t[1];
        struct weight *a = gpu->weight_load(g.d, &(struct mat_desc){sent, 2, to}, &e);
        struct weight *b = gpu->weight_load(g.d, &(struct mat_desc){made, 2, to}, &e);
        assert_true(a && b);
        float *x = looked_up(g, a, 30 + ROWS, 25), *y = looked_up(g, b, 30 + ROWS, 25);
        assert_memory_equal(x, y, (size_t)(30 + ROWS) * 25 * 4);
        assert_true(x[0] != x[1] && fabsf(x[0]) <= 0.3f && fabsf(x[30 * 25] - 1) <= 0.11f);
        free(x), free(y);
        gpu->weight_free(g.d, a), gpu->weight_free(g.d, b);
    }
    free(data[0]), free(data[1]);
    close_side(g);
}

static void logits_of(const struct backend_ops *ops, const char *config, float *logits)
{
    struct err e = ERR_INIT;
    struct side s = open_side(ops, ~0ull);
    struct model_options o = {.ops = ops,
                              .dev = s.d,
                              .comm = comm_solo(),
                              .dtype = -1,
                              .random_config = config,
                              .rope_factor = 1};
    struct model *m = model_load("random", &o, &e);
    if (!m || model_kv_resize(m, 2, 16, KV_BF16, &e))
        fail_msg("%s", e.msg);
    uint32_t ids[12], pos[12], block = 1, last = 11;
    uint32_t slots[12];
    for (uint32_t i = 0; i < 12; i++)
        ids[i] = i * 37 % 100, pos[i] = i, slots[i] = 16 + i;
    const struct span span = {0, 12, 12, &block, 0};
    const struct ragged b = {12, 1, 1, ids, pos, slots, &span, &last};
    if (model_forward(m, &b, logits, &e))
        fail_msg("%s", e.msg);
    model_free(m);
    close_side(s);
}

TEST(a_model_made_on_the_device_is_the_cpus)
{
    enum { VOCAB = 100 };
    static const char config[] =
        "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,"
        "\"intermediate_size\":96,\"vocab_size\":100,\"max_position_embeddings\":64,"
        "\"hidden_act\":\"silu\",\"tie_word_embeddings\":false}";
    float got[VOCAB], want[VOCAB];
    double d = 0, r = 0;
    logits_of(gpu, config, got);
    logits_of(cpu, config, want);
    for (int i = 0; i < VOCAB; i++)
        d += pow((double)got[i] - want[i], 2), r += pow(want[i], 2);
    if (!(sqrt(d / r) < 2e-2))
        fail_msg("off by %g", sqrt(d / r));
}

int main(void) { return cuda_tests_run(); }
