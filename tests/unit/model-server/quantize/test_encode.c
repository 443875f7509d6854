/* Blocks of ggml through the reader of this program: errors are what so many bits cost, and below
 * what the nearest plain grid costs. */
#include "model-server/model/checkpoint/quant/blocks.h"
#include "model-server/quantize/encode.h"
#include "tests/unit/test.h"
#include <math.h>
#include <string.h>

enum { N = 256 };
static const struct {
    enum gguf_packing p;
    double most; /* rms of the error / rms of the numbers, of a normal distribution */
} rows[] = {{GGUF_Q4_0, 0.090}, {GGUF_Q4_1, 0.080}, {GGUF_Q5_0, 0.045},
            {GGUF_Q5_1, 0.040}, {GGUF_Q8_0, 0.006}, {GGUF_Q4_K, 0.080},
            {GGUF_Q5_K, 0.040}, {GGUF_Q6_K, 0.019}, {GGUF_MXFP4, 0.125}};

static float normal(void)
{
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += (double)rand() / RAND_MAX;
    return (float)(sum - 6) * 0.02F;
}

static void decode(enum gguf_packing p, const uint8_t *b, float *out)
{
    const struct gguf_packing_info *k = &gguf_packings[p];
    for (uint32_t i = 0; i < N; i += k->elements)
        block_numbers(p, b + i / k->elements * k->bytes, out + i);
}

TEST(test_errors_of_each_type)
{
    float x[N], y[BLOCK_MAX * 2];
    uint8_t b[1024];
    srand(test_seed(1));
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        double error = 0, all = 0;
        for (int round = 0; round < 40; round++) {
            for (int i = 0; i < N; i++)
                x[i] = normal();
            encode_row(rows[r].p, x, NULL, N, b);
            decode(rows[r].p, b, y);
            for (int i = 0; i < N; i++) {
                error += (double)(x[i] - y[i]) * (double)(x[i] - y[i]);
                all += (double)x[i] * (double)x[i];
            }
        }
        if (!(sqrt(error / all) < rows[r].most))
            printf("%s: %g\n", gguf_packings[rows[r].p].name, sqrt(error / all));
        assert_true(sqrt(error / all) < rows[r].most);
    }
}

/* Columns that weigh a hundred times as much have smaller errors than without weights. */
TEST(test_weights)
{
    float x[N], y[BLOCK_MAX * 2], weight[N];
    uint8_t b[1024];
    srand(test_seed(2));
    for (int i = 0; i < N; i++)
        weight[i] = i % 8 ? 0.01F : 1;
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        double error[2] = {0};
        if (rows[r].p == GGUF_Q8_0) /* as llama.cpp: no choice is made */
            continue;
        for (int round = 0; round < 60; round++) {
            for (int i = 0; i < N; i++)
                x[i] = normal();
            for (int way = 0; way < 2; way++) {
                encode_row(rows[r].p, x, way ? weight : NULL, N, b);
                decode(rows[r].p, b, y);
                for (int i = 0; i < N; i++)
                    error[way] += (double)weight[i] * (double)(x[i] - y[i]) * (double)(x[i] - y[i]);
            }
        }
        assert_true(error[1] < error[0]);
    }
}

/* Zeros, one number, a constant, tiny and large ones: finite, and near. */
TEST(test_edges)
{
    float x[N], y[BLOCK_MAX * 2];
    uint8_t b[1024];
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
        for (int way = 0; way < 6; way++) {
            for (int i = 0; i < N; i++)
                x[i] = way == 0   ? 0
                       : way == 1 ? (i == 5 ? -0.3F : 0)
                       : way == 2 ? 0.25F
                       : way == 3 ? -0.25F
                       : way == 4 ? 1e-30F * (float)i
                                  : 1000 * sinf((float)i);
            encode_row(rows[r].p, x, NULL, N, b);
            decode(rows[r].p, b, y);
            float top = 0;
            for (int i = 0; i < N; i++)
                top = fmaxf(top, fabsf(x[i]));
            for (int i = 0; i < N; i++) {
                assert_true(isfinite(y[i]));
                assert_true(fabsf(x[i] - y[i]) <= 0.2F * top + 1e-7F);
            }
        }
}

int main(void) { return tests_run(NULL, NULL); }
