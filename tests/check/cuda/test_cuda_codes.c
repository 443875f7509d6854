/* test_cuda_codes.c - matrices that come as codes on the CUDA backend: they are kept packed, their
 * numbers are those of the codes, so is their product with x, fused or not, and for experts; and a
 * row's bits do not depend on the others. */
#include "tests/check/codes_made.h"
#include "tests/check/cuda/cuda_sides.h"

enum { MAX_PARTS = 3, E4M3_TOP = 448 };

/* A matrix of parts in formats of their own. */
struct stack {
    struct mat_codes c[MAX_PARTS];
    int parts;
    uint32_t rows_of[MAX_PARTS], rows, cols;
    float *numbers;
    double *sizes; /* of the terms that a number is the difference of */
};

/* What is rounded of number i of a part: its scale times the greatest n, its offset. */
static double size_of(const struct mat_codes *c, size_t i, uint32_t cols)
{
    const struct format *f = &c->format;
    if (f->element == ELEMENT_E4M3)
        return fabs(c->scales[i / cols * format_blocks(f, cols) + i % cols / f->block]) * E4M3_TOP;
    const double scale =
        f32_of_f16(c->scale[i / f->block]) * (f->nested ? (double)c->by[i / f->group] : 1);
    const double less = f->offsets ? f32_of_f16(c->offset[i / f->block]) *
                                         (f->nested ? (double)c->less[i / f->group] : 1)
                                   : 0;
    const double codes = f->table ? 128 : 1 << f->bits;
    return (fabs(scale) * codes + fabs(less)) * (f->factors ? c->factor[i / cols] : 1);
}

static void stack_add(struct stack *s, const struct format *f, uint32_t rows)
{
    struct mat_codes *c = &s->c[s->parts];
    const size_t n = (size_t)rows * s->cols, before = (size_t)s->rows * s->cols;
    c->format = *f;
    s->numbers = realloc(s->numbers, (before + n) * sizeof(*s->numbers));
    s->sizes = realloc(s->sizes, (before + n) * sizeof(*s->sizes));
    assert_true(s->numbers && s->sizes);
    fill_codes(&rng, c, rows, s->cols, s->numbers + before);
    for (size_t i = 0; i < n; i++)
        s->sizes[before + i] = size_of(c, i, s->cols);
    s->rows_of[s->parts++] = rows;
    s->rows += rows;
}

static void stack_free(struct stack *s)
{
    for (int i = 0; i < s->parts; i++)
        free_codes(&s->c[i]);
    free(s->numbers), free(s->sizes);
}

static struct weight *stack_load(struct side g, const struct stack *s, enum dtype t, enum arith a)
{
    struct err e = ERR_INIT;
    struct mat_part parts[MAX_PARTS];
    for (int i = 0; i < s->parts; i++) {
        assert_int_equal(
            g.ops->weight_takes(&s->c[i].format, format_arith(&s->c[i].format, ARITH_INT8)),
            TAKE_NATIVE);
        parts[i] = (struct mat_part){
            .rows = s->rows_of[i], .cols = s->cols, .source = SOURCE_CODES, .codes = &s->c[i]};
    }
    struct weight *w =
        g.ops->weight_load(g.d,
                           &(struct mat_desc){.parts = parts,
                                              .n_parts = s->parts,
                                              .dtype = t,
                                              .arith = format_arith(&s->c[0].format, a)},
                           &e);
    if (!w)
        fail_msg("%s", e.msg);
    return w;
}

static struct stack one_of(const struct format *f, uint32_t rows, uint32_t cols)
{
    struct stack s = {.cols = cols};
    stack_add(&s, f, rows);
    return s;
}

/* ---------------------------------------------------------------- numbers */

static void check_numbers(struct side g, const struct stack *s)
{
    struct weight *w = stack_load(g, s, DT_BF16, ARITH_INT8);
    float *got = looked_up(g, w, s->rows, s->cols);
    bool exact = true;
    for (int i = 0; i < s->parts; i++) {
        const struct format *f = &s->c[i].format;
        exact &= !f->nested && !f->offsets && !f->zeros;
    }
    for (size_t i = 0; i < (size_t)s->rows * s->cols; i++)
        if (exact ? got[i] != s->numbers[i]
                  : !(fabs((double)got[i] - s->numbers[i]) <= s->sizes[i] * 0x1p-11))
            fail_msg("%s (%d parts): number (%zu, %zu) is %g, not %g", s->c[0].format.name,
                     s->parts, i / s->cols, i % s->cols, got[i], s->numbers[i]);
    assert_true(g.ops->weight_bytes(w) <
                (uint64_t)(s->rows + 15) / 16 * 16 * (s->cols + 127) * 5 / 4);
    g.ops->weight_free(g.d, w), free(got);
}

/* Of each format alone, and of some of them in one matrix. */
TEST(codes_are_the_numbers_of_the_checkpoint)
{
    struct side g = open_side(gpu, ~0ull);
    for (uint32_t i = 0; i < FORMS; i++) {
        struct stack s = one_of(any_format(i), 1 + rng_below(&rng, 40), i % 2 ? 256 : 768);
        check_numbers(g, &s);
        stack_free(&s);
    }
    for (int round = 0; round < 20; round++) {
        struct stack s = {.cols = 32 * (1 + rng_below(&rng, 20))};
        while (s.parts < MAX_PARTS)
            stack_add(&s, drawn_format(&rng, s.cols), 1 + rng_below(&rng, 20));
        check_numbers(g, &s);
        stack_free(&s);
    }
    for (uint32_t block = 64; block <= 2048; block *= 2) { /* beside others in one matrix */
        struct format f = e4m3_of_blocks;
        struct stack s = {.cols = 1 + rng_below(&rng, 3000)};
        stack_add(&s, &f, 1 + rng_below(&rng, 20));
        f.block = block;
        stack_add(&s, &f, 1 + rng_below(&rng, 20));
        check_numbers(g, &s);
        stack_free(&s);
    }
    close_side(g);
}

/* How few bits a number takes. Q4_K: 4, and 16 for a scale and for an offset of 32 columns. e4m3:
 * 8, and 32 for a scale of 64 columns. */
TEST(codes_stay_small)
{
    enum { N = 64, K = 1024, FACTORS = N * 4 };
    static const struct {
        const struct format *format;
        double bits;
    } want[] = {{&formats[FORMAT_Q4_0], 4.5},  {&formats[FORMAT_Q4_K], 5},
                {&formats[FORMAT_MXFP4], 4.5}, {&formats[FORMAT_IQ4_XS], 4.5},
                {&formats[FORMAT_Q8_0], 9},    {&formats[FORMAT_Q6_K], 9},
                {&formats[FORMAT_Q5_K], 10},   {&e4m3_of_blocks, 8.5}};
    struct side g = open_side(gpu, ~0ull);
    for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
        struct stack s = one_of(want[i].format, N, K);
        struct weight *w = stack_load(g, &s, DT_BF16, ARITH_INT8);
        const uint64_t factors = want[i].format->element == ELEMENT_E4M3 ? 0 : FACTORS;
        assert_true((double)(g.ops->weight_bytes(w) - factors) == want[i].bits / 8 * N * K);
        g.ops->weight_free(g.d, w), stack_free(&s);
    }
    close_side(g);
}

/* Columns in another order, exact sums of a rounded table, e4m3 with scales of fewer than 64
 * columns. */
TEST(what_has_no_kernel_is_widened)
{
    struct format f = formats[FORMAT_Q4_0];
    assert_int_equal(gpu->weight_takes(&f, ARITH_EXACT), TAKE_NATIVE);
    f.ordered = true;
    assert_int_equal(gpu->weight_takes(&f, ARITH_INT8), TAKE_WIDEN);
    assert_int_equal(gpu->weight_takes(&formats[FORMAT_NF4], ARITH_EXACT), TAKE_WIDEN);
    assert_int_equal(gpu->weight_takes(&formats[FORMAT_NF4], ARITH_INT8), TAKE_NATIVE);
    f = formats[FORMAT_FP8];
    assert_int_equal(gpu->weight_takes(&f, ARITH_EXACT), TAKE_NATIVE);
    for (f.block = 32; f.block <= 2048; f.block *= 2) {
        assert_int_equal(gpu->weight_takes(&f, ARITH_EXACT),
                         f.block < 64 ? TAKE_WIDEN : TAKE_NATIVE);
        assert_int_equal(gpu->weight_takes(&f, ARITH_INT8), TAKE_NO);
    }
}

/* The numbers of the CPU, which keeps the same codes, and its products to the rounding of x. A code
 * that is no number spoils its output. */
TEST(e4m3_of_blocks_has_the_results_of_the_cpu)
{
    enum { N = 70, K = 700, X_ROWS = 40, NO_NUMBER = 17 };
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    for (int spoilt = 0; spoilt < 2; spoilt++) {
        struct stack s = one_of(&e4m3_of_blocks, N, K);
        if (spoilt)
            s.c[0].codes[NO_NUMBER * K + K / 2] = 0xff;
        float *x = units((size_t)X_ROWS * K), *bias = units(N);
        struct weight *gw = stack_load(g, &s, DT_BF16, ARITH_EXACT);
        struct weight *cw = stack_load(c, &s, DT_BF16, ARITH_EXACT);
        float *gn = looked_up(g, gw, N, K), *cn = looked_up(c, cw, N, K);
        float *got = linear(g, x, X_ROWS, gw, N, K, bias);
        float *want = linear(c, x, X_ROWS, cw, N, K, bias);
        if (!spoilt)
            assert_memory_equal(gn, cn, sizeof(*gn) * N * K);
        for (uint32_t i = 0; i < X_ROWS * N; i++) {
            double size = 1e-30;
            for (uint32_t k = 0; k < K; k++)
                size += fabs((double)cn[i % N * K + k] * x[i / N * K + k]);
            if (spoilt && i % N == NO_NUMBER)
                assert_true(isnan(got[i]) && isnan(want[i]));
            else if (!(fabs((double)got[i] - want[i]) <= size * 0x1p-8))
                fail_msg("y[%u][%u] is %g, the CPU's is %g", i / N, i % N, got[i], want[i]);
        }
        g.ops->weight_free(g.d, gw), c.ops->weight_free(c.d, cw);
        free(x), free(bias), free(gn), free(cn), free(got), free(want);
        stack_free(&s);
    }
    close_side(g), close_side(c);
}

/* e4m3 of a checkpoint, with a scale for each row, is what --quantize fp8 makes of its numbers, if
 * the greatest code of a row is e4m3's greatest number. */
TEST(e4m3_is_that_of_quantize)
{
    enum { N = 70, K = 333, X_ROWS = 5, TOP = 0x7e, NOT_A_NUMBER = 0x7f };
    struct side g = open_side(gpu, 0);
    static uint8_t codes[N * K];
    float scales[N], *numbers = units((size_t)N * K);
    float *x = units((size_t)X_ROWS * K), *bias = units(N), *y[2];
    for (uint32_t i = 0; i < N * K; i++) {
        scales[i / K] = ldexpf(1, -(int)(i / K % 9));
        codes[i] = i % K ? (uint8_t)rng_u32(&rng) : TOP;
        codes[i] ^= (codes[i] & NOT_A_NUMBER) == NOT_A_NUMBER;
        numbers[i] = f32_of_e4m3(codes[i]) * scales[i / K];
    }
    const struct mat_codes c = {.format = formats[FORMAT_FP8], .codes = codes, .scales = scales};
    struct weight *w[] = {load_codes(g, &c, N, K, DT_BF16),
                          load_quant(g, numbers, N, K, DT_BF16, QUANT_FP8)};
    assert_int_equal(g.ops->weight_bytes(w[0]), g.ops->weight_bytes(w[1]));
    for (int i = 0; i < 2; i++)
        y[i] = linear(g, x, X_ROWS, w[i], N, K, bias);
    assert_memory_equal(y[0], y[1], sizeof(float) * X_ROWS * N);
    for (int i = 0; i < 2; i++)
        g.ops->weight_free(g.d, w[i]), free(y[i]);
    close_side(g);
    free(numbers), free(x), free(bias);
}

/* ---------------------------------------------------------------- products */

/* Against the sum in double precision of the numbers that the device says it has. `step`: what
 * rounding x may change. Terms of a difference are rounded in fp32, as sums are. */
static void check_product(struct side g, const struct stack *s, enum dtype t, enum arith a,
                          uint32_t rows, double step)
{
    const uint32_t n = s->rows, k = s->cols;
    float *x = units((size_t)rows * k), *bias = units(n);
    struct weight *w = stack_load(g, s, t, a);
    float *numbers = looked_up(g, w, n, k), *got = linear(g, x, rows, w, n, k, bias);
    for (uint32_t i = 0; i < rows * n; i++) {
        double sum = bias[i % n], size = fabs(sum) * 1e-6;
        for (uint32_t j = 0; j < k; j++) {
            const size_t at = (size_t)(i % n) * k + j;
            const double xj = x[(size_t)(i / n) * k + j];
            sum += numbers[at] * xj;
            size += fabs(numbers[at] * xj) * step * 1.02 + s->sizes[at] * fabs(xj) * 1e-6;
        }
        if (!(fabs((double)got[i] - sum) <= size))
            fail_msg("%s, %s [%u, %u] x %u rows: y[%u][%u] = %g, exact %g", s->c[0].format.name,
                     dtype_name(t), n, k, rows, i / n, i % n, got[i], sum);
    }
    g.ops->weight_free(g.d, w);
    free(x), free(bias), free(numbers), free(got);
}

TEST(products_are_right)
{
    static const uint32_t rows[] = {1, 3, 8, 9, 16, 17, 33, 130};
    for (int features = TENSOR; features >= 0; features--) {
        struct side g = open_side(gpu, (uint64_t)features);
        for (uint32_t i = 0; i <= FORMS; i++) {
            struct stack s = one_of(i < FORMS ? any_format(i) : &e4m3_of_blocks,
                                    1 + rng_below(&rng, 150), i % 3 ? 512 : 256 + 768 * (i % 2));
            const uint32_t n = rows[(i + (features ? 0 : 3)) % 8];
            check_product(g, &s, DT_F16, ARITH_INT8, n, features ? 0x1p-11 : 0);
            check_product(g, &s, DT_BF16, ARITH_INT8, rows[i * 5 % 8], features ? 0x1p-8 : 0);
            check_product(g, &s, DT_F32, ARITH_INT8, 2, features ? 0x1p-8 : 0);
            check_product(g, &s, DT_F32, ARITH_EXACT, 2, 0);
            stack_free(&s);
        }
        close_side(g);
    }
}

/* One format a layout: 4 bits without and with offsets, looked up, 8 bits without and with them,
 * e4m3 of blocks. */
static const struct format *const layouts[] = {&formats[FORMAT_Q4_0],  &formats[FORMAT_Q4_K],
                                               &formats[FORMAT_MXFP4], &formats[FORMAT_Q6_K],
                                               &formats[FORMAT_Q5_K],  &e4m3_of_blocks};
enum { N_LAYOUTS = sizeof(layouts) / sizeof(layouts[0]) };

TEST(a_row_of_a_packed_product_does_not_depend_on_the_others)
{
    enum { N = 150, K = 1280, ROWS = 140 };
    static const uint32_t rows[] = {2, 9, 16, 17, 33, 140};
    float *x = units(ROWS * K), *bias = units(N), *want = malloc(ROWS * N * sizeof(*want));
    for (int sms = 1; sms <= 132; sms += 131) /* slices one after the other, side by side */
        for (uint32_t f = 0; f < N_LAYOUTS; f++) {
            if (machine)
                machine->sms = sms;
            struct side g = open_side(gpu, ~0ull);
            struct stack s = one_of(layouts[f], N, K);
            struct weight *w = stack_load(g, &s, sms == 1 ? DT_F16 : DT_BF16, ARITH_INT8);
            for (uint32_t r = 0; r < ROWS; r += 8) {
                const uint32_t n = ROWS - r < 8 ? ROWS - r : r % 16 ? 8 : 1;
                float *few = linear(g, x + r * K, n, w, N, K, bias);
                memcpy(want + r * N, few, n * N * 4);
                free(few);
            }
            for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
                const uint32_t first = rng_below(&rng, ROWS - rows[i] + 1);
                float *got = linear(g, x + first * K, rows[i], w, N, K, bias);
                for (uint32_t r = first; r < first + rows[i]; r++)
                    if ((r % 16 == 0 || r % 16 >= 8) &&
                        memcmp(got + (r - first) * N, want + r * N, N * 4))
                        fail_msg("%s, %u rows, %d multiprocessors: other bits in row %u",
                                 s.c[0].format.name, rows[i], sms, r);
                free(got);
            }
            g.ops->weight_free(g.d, w), stack_free(&s);
            close_side(g);
        }
    free(x), free(bias), free(want);
}

/* ---------------------------------------------------------------- norm and product */

enum { NORM_N = 40, NORM_K = 512, FUSE = 64 };

/* y = W norm(x); returns the launches that it took. */
static uint64_t norm_and_product(const struct stack *s, enum dtype t, bool fuse, const float *x,
                                 const float *weights, uint32_t rows, float *y)
{
    struct side g = open_side(gpu, fuse ? ~0ull : ~(uint64_t)FUSE);
    struct weight *w = stack_load(g, s, t, ARITH_INT8);
    const size_t bytes = (size_t)rows * NORM_K * 4;
    float *dx = up(g, x, bytes), *dn = up(g, NULL, bytes), *dw = up(g, weights, NORM_K * 4);
    float *dy = up(g, NULL, (size_t)rows * NORM_N * 4);
    const uint64_t before = machine ? machine->launches : 0;
    g.ops->norm(g.d, dn, dx, rows, NORM_K, &(struct norm){NORM_RMS, dw, NULL, 1e-5f});
    g.ops->linear(g.d, dy, dn, rows, w, NULL);
    down(g, y, dy, (size_t)rows * NORM_N * 4);
    const uint64_t launches = machine ? machine->launches - before : 0;
    g.ops->free(g.d, dx), g.ops->free(g.d, dn), g.ops->free(g.d, dw);
    g.ops->weight_free(g.d, w);
    close_side(g);
    return launches;
}

/* Few rows: one launch instead of two. Many: the norm stores them in 16 bits, too. */
TEST(a_norm_before_it_changes_no_bit)
{
    static const uint32_t rows[] = {3, 40};
    for (uint32_t i = 0; i < 2 * N_LAYOUTS; i++) {
        const uint32_t n = rows[i % 2];
        const enum dtype t = i / 2 % 2 ? DT_F16 : DT_BF16;
        struct stack s = one_of(layouts[i / 2], NORM_N, NORM_K);
        float *x = units((size_t)n * NORM_K), *weights = units(NORM_K);
        float *got = malloc((size_t)n * NORM_N * 4), *want = malloc((size_t)n * NORM_N * 4);
        const uint64_t apart = norm_and_product(&s, t, false, x, weights, n, want);
        const uint64_t fused = norm_and_product(&s, t, true, x, weights, n, got);
        if (machine && !getenv("CUDA_FEATURES"))
            assert_int_equal(apart - fused, 1);
        assert_memory_equal(got, want, (size_t)n * NORM_N * 4);
        free(x), free(weights), free(got), free(want);
        stack_free(&s);
    }
}

/* ---------------------------------------------------------------- experts */

enum { EXPERTS = 4, HIDDEN = 256, FFN = 256 };

struct experts {
    struct stack up[EXPERTS], down[EXPERTS];
    float *router;
};

/* Packed, or (on the CPU) of the same numbers in fp32. */
static float *run_experts(struct side s, const struct experts *m, bool packed, const float *x,
                          uint32_t rows)
{
    struct weight *up_w[EXPERTS], *down_w[EXPERTS];
    struct weight *router = load(s, m->router, EXPERTS, HIDDEN, DT_F32);
    for (int i = 0; i < EXPERTS; i++) {
        const struct stack *u = &m->up[i], *d = &m->down[i];
        up_w[i] = packed ? stack_load(s, u, DT_F16, ARITH_INT8)
                         : load(s, u->numbers, u->rows, u->cols, DT_F32);
        down_w[i] = packed ? stack_load(s, d, DT_F16, ARITH_INT8)
                           : load(s, d->numbers, d->rows, d->cols, DT_F32);
    }
    const struct moe p = {.router = router,
                          .up = up_w,
                          .down = down_w,
                          .n_experts = EXPERTS,
                          .top_k = 2,
                          .renormalise = true,
                          .scale = 1,
                          .act = ACT_SILU};
    float *y = malloc(rows * HIDDEN * sizeof(*y));
    float *dx = up(s, x, rows * HIDDEN * 4), *dy = up(s, NULL, rows * HIDDEN * 4);
    s.ops->moe(s.d, dy, dx, rows, &p);
    down(s, y, dy, rows * HIDDEN * 4);
    s.ops->free(s.d, dx), s.ops->weight_free(s.d, router);
    for (int i = 0; i < EXPERTS; i++)
        s.ops->weight_free(s.d, up_w[i]), s.ops->weight_free(s.d, down_w[i]);
    return y;
}

/* Scales small enough that nothing overflows on its way. */
static void shrink(struct stack *s)
{
    struct mat_codes *c = &s->c[0];
    const struct format *f = &c->format;
    const size_t n = (size_t)s->rows * s->cols;
    if (f->element == ELEMENT_E4M3)
        return; /* they are */
    const double by = f->nested ? 0x1p-14 : 0x1p-8;
    for (size_t i = 0; i < n / f->block; i++) {
        c->scale[i] = f16_of_f32((float)(((int)rng_below(&rng, 9) - 4) * by));
        c->offset[i] = f16_of_f32((float)(rng_below(&rng, 9) * by));
    }
    for (size_t i = 0; i < n; i++) {
        const double scale =
            f32_of_f16(c->scale[i / f->block]) * (f->nested ? (double)c->by[i / f->group] : 1);
        const double less = f->offsets ? f32_of_f16(c->offset[i / f->block]) * c->less[i / f->group]
                                       : scale * f->zero;
        const int code = f->table ? f->table[c->codes[i]] : c->codes[i];
        s->numbers[i] = (float)(scale * code - less);
    }
}

TEST(experts_are_right_and_rows_independent)
{
    enum { ROWS = 19 };
    float *x = units(ROWS * HIDDEN);
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    for (uint32_t f = 0; f < N_LAYOUTS; f++) {
        struct experts m = {.router = units(EXPERTS * HIDDEN)};
        for (int i = 0; i < EXPERTS; i++) {
            m.up[i] = one_of(layouts[f], 2 * FFN, HIDDEN);
            m.down[i] = one_of(layouts[f], HIDDEN, FFN);
            shrink(&m.up[i]), shrink(&m.down[i]);
        }
        float *got = run_experts(g, &m, true, x, ROWS), *want = run_experts(c, &m, false, x, ROWS);
        float most = 0;
        for (int i = 0; i < ROWS * HIDDEN; i++)
            most = fmaxf(most, fabsf(want[i]));
        for (int i = 0; i < ROWS * HIDDEN; i++)
            if (!(fabsf(got[i] - want[i]) <= 4e-3f * most))
                fail_msg("%s: element %d is %g, the CPU's is %g of %g", m.up[0].c[0].format.name, i,
                         got[i], want[i], most);
        for (int r = 0; r < ROWS; r += 6) {
            float *one = run_experts(g, &m, true, x + r * HIDDEN, 1);
            assert_memory_equal(one, got + r * HIDDEN, HIDDEN * 4);
            free(one);
        }
        for (int i = 0; i < EXPERTS; i++)
            stack_free(&m.up[i]), stack_free(&m.down[i]);
        free(got), free(want), free(m.router);
    }
    close_side(g), close_side(c);
    free(x);
}

int main(void) { return cuda_tests_run(); }
