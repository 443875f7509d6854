/* test_cuda_products.c - products of the CUDA backend against the CPU's, mixtures of experts among
 * them, and their promise: a row's bits do not depend on the others. */
#include "tests/check/cuda/cuda_sides.h"

TEST(linear_is_right)
{
    static const uint32_t rows[] = {1, 2, 7, 8, 9, 16, 17, 32, 33, 130};
    static const uint32_t shapes[][2] = {{1, 1}, {16, 64}, {33, 70}, {150, 513}, {128, 1024}};
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    for (enum dtype t = 0; t < DT_N; t++)
        for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++)
            for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
                if ((r + i) % 2 == 0 || !machine)
                    check_linear(g, c, rows[r], shapes[i][0], shapes[i][1], t,
                                 t == DT_F32   ? 0
                                 : t == DT_F16 ? 0x1p-11
                                               : 0x1p-8);
    close_side(g), close_side(c);
}

TEST(without_tensor_cores_linear_has_the_bits_of_the_cpu)
{
    struct side g = open_side(gpu, (uint64_t)~TENSOR), c = open_side(cpu, ~0ull);
    for (enum dtype t = 0; t < DT_N; t++) {
        check_linear(g, c, 3, 70, 130, t, 0);
        check_linear(g, c, 66, 65, 77, t, 0);
    }
    close_side(g), close_side(c);
}

TEST(a_row_of_linear_does_not_depend_on_the_others)
{
    enum { N = 150, K = 580, ROWS = 140 };
    static const uint32_t rows[] = {2, 8, 9, 16, 17, 31, 32, 33, 128, 140};
    float *w = units(N * K), *x = units(ROWS * K), *bias = units(N), *want = malloc(ROWS * N * 4);
    for (enum dtype t = 0; t < DT_N; t++)
        for (int sms = 1; sms <= 132; sms += 131) { /* slices one after the other, side by side */
            if (machine)
                machine->sms = sms;
            struct side g = open_side(gpu, ~0ull);
            struct weight *gw = load(g, w, N, K, t);
            for (uint32_t r = 0; r < ROWS; r += sms == 1 ? 1 : 10) {
                float *one = linear(g, x + r * K, 1, gw, N, K, bias);
                if (sms > 1)
                    assert_memory_equal(one, want + r * N, N * 4);
                memcpy(want + r * N, one, N * 4);
                free(one);
            }
            for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
                uint32_t first = rng_below(&rng, ROWS - rows[i] + 1);
                float *got = linear(g, x + first * K, rows[i], gw, N, K, bias);
                if (memcmp(got, want + first * N, (size_t)rows[i] * N * 4))
                    fail_msg("%s, %u rows, %d multiprocessors: other bits", dtype_name(t), rows[i],
                             sms);
                free(got);
            }
            g.ops->weight_free(g.d, gw);
            close_side(g);
        }
    free(w), free(x), free(bias), free(want);
}

TEST(a_weight_may_be_stacked_strided_and_of_any_type)
{
    struct side g = open_side(gpu, (uint64_t)~TENSOR);
    struct err e = ERR_INIT;
    enum { K = 37, A = 19, B = 30 };
    float *a = units(A * K), *b = units(B * K), eye[K * K] = {0};
    uint16_t bt[K * B]; /* transposed bf16 */
    for (int i = 0; i < B * K; i++)
        bt[i % K * B + i / K] = bf16_of_f32(b[i]);
    for (int k = 0; k < K; k++)
        eye[k * K + k] = 1;
    struct mat_part parts[] = {{a, DT_F32, A, K, K, 1}, {bt, DT_BF16, B, K, 1, B}};
    struct weight *w = g.ops->weight_load(g.d, &(struct mat_desc){parts, 2, DT_BF16}, &e);
    assert_non_null(w);
    float *y = linear(g, eye, K, w, A + B, K, (float[A + B]){0});
    for (int k = 0; k < K; k++)
        for (int i = 0; i < A + B; i++) {
            float v = i < A ? a[i * K + k] : b[(i - A) * K + k];
            assert_true(y[k * (A + B) + i] == f32_of_bf16(bf16_of_f32(v)));
        }
    free(y);
    assert_int_equal(g.ops->weight_bytes(w), (A + B) * 64 * 2);
    g.ops->weight_free(g.d, w);
    w = g.ops->weight_load(g.d, &(struct mat_desc){parts, 2, DT_BF16, QUANT_INT8}, &e);
    assert_non_null(w);
    y = linear(g, eye, K, w, A + B, K, (float[A + B]){0});
    for (int k = 0; k < K; k++)
        for (int i = 0; i < A + B; i++) {
            float v = i < A ? a[i * K + k] : f32_of_bf16(bt[k * B + i - A]);
            assert_true(fabsf(y[k * (A + B) + i] - v) <= 0.5f / 127); /* |v| < 1 */
        }
    free(y);
    assert_int_equal(g.ops->weight_bytes(w), (A + B) * (64 + 4));
    g.ops->weight_free(g.d, w);
    parts[1].cols = K - 1;
    assert_null(g.ops->weight_load(g.d, &(struct mat_desc){parts, 2, DT_BF16}, &e));
    assert_int_equal(e.kind, ERR_VALIDATION);
    free(a), free(b);
    close_side(g);
}

/* ---------------------------------------------------------------- mixture of experts */

enum { EXPERTS = 6, HIDDEN = 70, FFN = 40 };

/* `kind` 1: renormalised; 2: also with biases and the gate of gpt-oss. */
static float *run_moe(struct side s, const float *w, enum dtype t, enum quant q, uint32_t rows,
                      const float *x, int kind)
{
    struct weight *router = load(s, w, EXPERTS, HIDDEN, DT_F32), *upw[EXPERTS], *downw[EXPERTS];
    w += EXPERTS * HIDDEN;
    for (int i = 0; i < EXPERTS; i++, w += 3 * FFN * HIDDEN) {
        upw[i] = load_quant(s, w, 2 * FFN, HIDDEN, t, q);
        downw[i] = load_quant(s, w + 2 * FFN * HIDDEN, HIDDEN, FFN, t, q);
    }
    struct moe m = {.router = router,
                    .up = upw,
                    .down = downw,
                    .n_experts = EXPERTS,
                    .top_k = 3,
                    .renormalise = kind > 0,
                    .scale = 1,
                    .act = ACT_SILU};
    float *biases = up(s, w, EXPERTS * (1 + 2 * FFN + HIDDEN) * 4);
    if (kind == 2) {
        m.act = ACT_SWIGLU_CLAMPED;
        m.router_bias = biases, m.up_bias = biases + EXPERTS;
        m.down_bias = biases + EXPERTS * (1 + 2 * FFN);
        m.sum_bias = m.down_bias; /* any numbers */
    }
    float *out = malloc(rows * HIDDEN * 4);
    float *dx = up(s, x, rows * HIDDEN * 4), *dy = up(s, NULL, rows * HIDDEN * 4);
    s.ops->moe(s.d, dy, dx, rows, &m);
    down(s, out, dy, rows * HIDDEN * 4);
    s.ops->free(s.d, dx), s.ops->free(s.d, biases);
    s.ops->weight_free(s.d, router);
    for (int i = 0; i < EXPERTS; i++)
        s.ops->weight_free(s.d, upw[i]), s.ops->weight_free(s.d, downw[i]);
    return out;
}

TEST(mixtures_are_right_and_rows_independent)
{
    enum { ROWS = 21 };
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    float *w =
        units(EXPERTS * HIDDEN + (size_t)EXPERTS * (3 * FFN * HIDDEN + 1 + 2 * FFN + HIDDEN));
    float *x = units(ROWS * HIDDEN);
    for (size_t i = 0; i < (size_t)EXPERTS * 3 * FFN * HIDDEN; i++)
        w[EXPERTS * HIDDEN + i] *= 0.2f;
    for (int i = 0; i < 2 * DT_N; i++) {
        const enum dtype t = (enum dtype)(i / 2);
        const int kind = i % 2 ? 2 : t != DT_F32;
        float *got = run_moe(g, w, t, QUANT_NONE, ROWS, x, kind);
        float *want = run_moe(c, w, t, QUANT_NONE, ROWS, x, kind);
        if (t == DT_F32 && kind < 2)
            assert_memory_equal(got, want, ROWS * HIDDEN * 4);
        assert_near(got, want, ROWS * HIDDEN, t == DT_BF16 ? 2e-2 : 2e-3, "moe");
        for (int r = 0; r < ROWS; r += 5) {
            float *one = run_moe(g, w, t, QUANT_NONE, 1, x + r * HIDDEN, kind);
            assert_memory_equal(one, got + r * HIDDEN, HIDDEN * 4);
            free(one);
        }
        free(got), free(want);
    }
    for (enum quant q = QUANT_INT8; q < QUANT_N; q++) {
        float *got = run_moe(g, w, DT_F16, q, ROWS, x, true);
        float *want = run_moe(c, w, DT_F16, q, ROWS, x, true);
        if (q == QUANT_W8A8)
            assert_memory_equal(got, want, ROWS * HIDDEN * 4);
        else /* the CPU rounds x to 8 bits with int4 */
            assert_near(got, want, ROWS * HIDDEN, q == QUANT_INT4 ? 3e-2 : 2e-3, quant_name(q));
        for (int r = 0; r < ROWS; r += 5) {
            float *one = run_moe(g, w, DT_F16, q, 1, x + r * HIDDEN, true);
            assert_memory_equal(one, got + r * HIDDEN, HIDDEN * 4);
            free(one);
        }
        free(got), free(want);
    }
    free(w), free(x);
    close_side(g), close_side(c);
}

/* ---------------------------------------------------------------- what only the double can show */

TEST(no_product_depends_on_the_order_of_threads)
{
    if (!machine)
        skip();
    float first[2][2][9 * 70], *w = units(70 * 130), *x = units(40 * 130), *bias = units(70);
    for (uint32_t i = 0; i < 6; i++) { /* 3 orders of both types */
        machine->shuffle = i / 2 * 77;
        struct side g = open_side(gpu, ~0ull);
        struct weight *gw = load(g, w, 70, 130, i % 2 ? DT_BF16 : DT_F16);
        for (uint32_t rows = 9; rows <= 40; rows += 31) {
            float *y = linear(g, x, rows, gw, 70, 130, bias);
            if (i / 2 == 0)
                memcpy(first[i][rows > 9], y, sizeof(first[0][0]));
            assert_memory_equal(y, first[i % 2][rows > 9], sizeof(first[0][0]));
            free(y);
        }
        g.ops->weight_free(g.d, gw);
        close_side(g);
    }
    machine->shuffle = 0;
    free(w), free(x), free(bias);
}

int main(void) { return cuda_tests_run(); }
