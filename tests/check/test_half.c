/* test_half.c - products of bfloat16 weights with activations rounded to bfloat16, or split into
 * bfloat16 parts: how far from double precision they may be, and that a row's bits depend on
 * nothing but the row. The device is
 * told to do it, whether this CPU is fast at it or not. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/numbers.h"
#include "tests/check/random.h"
#include "tests/unit/test.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;

/* How pairs of bfloat16 are multiplied; of the last one weights are fp32. */
enum form { IN_PAIRS, IN_SQUARES, IN_PARTS, IN_F16, BOTH_IN_PARTS };

static struct device *half_device(int threads, uint64_t features, enum form form)
{
    struct err e = ERR_INIT;
    const struct device_options o = {.threads = threads, .features = features};
    struct device *d = ops->open(&o, &e);
    if (!d)
        fail_msg("%s", e.msg);
    d->half = form == IN_PAIRS;
    d->squares = form == IN_SQUARES                          ? 1
                 : form == IN_PARTS || form == BOTH_IN_PARTS ? SQUARE_PARTS
                                                             : 0;
    d->half_f16 = form == IN_F16;
    return d;
}

static struct weight *load(struct device *d, enum form form, const float *w, uint32_t rows,
                           uint32_t cols)
{
    struct err e = ERR_INIT;
    struct mat_part part = {w, DT_F32, rows, cols, cols, 1};
    const enum dtype type = form == IN_F16 ? DT_F16 : form == BOTH_IN_PARTS ? DT_F32 : DT_BF16;
    const struct mat_desc m = {.parts = &part, .n_parts = 1, .dtype = type, .whole = true};
    struct weight *out = ops->weight_load(d, &m, &e);
    if (!out)
        fail_msg("%s", e.msg);
    assert_true(out->half == (d->half || d->half_f16) && out->squares == d->squares);
    return out;
}

static void same_bits_everywhere(enum form form)
{
    static const uint32_t rows[] = {1, 2, 5, 8, 12, 13, 33, 100, 130};
    static const uint64_t features[] = {0, 3, ~0ull}; /* the reference; none for pairs; all */
    enum { N = 50, K = 2301, ROWS = 130 };
    float *w = rng_floats(&rng, N * K), *x = rng_floats(&rng, ROWS * K), *b = rng_floats(&rng, N);
    float *want = malloc(ROWS * N * sizeof(float)), *got = malloc(ROWS * N * sizeof(float));
    for (size_t f = 0; f < sizeof(features) / sizeof(*features); f++)
        for (int threads = 1; threads <= 3; threads += 2) {
            struct device *d = half_device(threads, features[f], form);
            struct weight *pw = load(d, form, w, N, K);
            for (size_t r = 0; f == 0 && threads == 1 && r < ROWS; r++)
                ops->linear(d, want + r * N, x + r * K, 1, pw, b);
            /* the first two are slow */
            for (size_t i = f < 2 ? 5 : 0; i < sizeof(rows) / sizeof(*rows) - 2 * (f < 2); i++) {
                uint32_t first = rng_below(&rng, ROWS - rows[i] + 1);
                ops->linear(d, got, x + (size_t)first * K, rows[i], pw, b);
                if (memcmp(got, want + (size_t)first * N, rows[i] * N * sizeof(float)))
                    fail_msg("features %llu, %d threads, %u rows: other bits",
                             (unsigned long long)features[f], threads, rows[i]);
            }
            ops->weight_free(d, pw);
            ops->close(d);
        }
    free(w), free(x), free(b), free(want), free(got);
}

TEST(a_row_has_the_same_bits_everywhere) { same_bits_everywhere(IN_PAIRS); }

TEST(a_row_has_the_same_bits_in_float16) { same_bits_everywhere(IN_F16); }

TEST(a_row_has_the_same_bits_in_squares)
{
    same_bits_everywhere(IN_SQUARES);
    same_bits_everywhere(IN_PARTS);
    same_bits_everywhere(BOTH_IN_PARTS);
}

struct error {
    double rms;   /* of the errors, in units of the exact results' */
    double worst; /* error / sum of |w x| */
};

/* Half of x and w repeats the other with the opposite sign, but for `part` of it. */
static struct error error_of(enum form form, uint32_t k, bool cancelling, float part)
{
    enum { N = 64, ROWS = 13 };
    float *w = rng_floats(&rng, (size_t)N * k), *x = rng_floats(&rng, (size_t)ROWS * k);
    float y[N * ROWS];
    for (uint32_t i = 0; cancelling && i < N; i++)
        for (uint32_t c = 0; c + 1 < k; c += 2)
            w[(size_t)i * k + c + 1] = -w[(size_t)i * k + c];
    for (uint32_t r = 0; cancelling && r < ROWS; r++)
        for (uint32_t c = 0; c + 1 < k; c += 2)
            x[(size_t)r * k + c + 1] = x[(size_t)r * k + c] * (1 + part * rng_unit(&rng));
    struct device *d = half_device(2, ~0ull, form);
    struct weight *pw = load(d, form, w, N, k);
    ops->linear(d, y, x, ROWS, pw, NULL);
    double sq_err = 0, sq = 0, worst = 0;
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < N; i++) {
            double sum = 0, mag = 0;
            for (uint32_t c = 0; c < k; c++) {
                const float f = w[(size_t)i * k + c];
                const float as = form == IN_F16          ? f32_of_f16(f16_of_f32(f))
                                 : form == BOTH_IN_PARTS ? f
                                                         : f32_of_bf16(bf16_of_f32(f));
                const double term = (double)as * (double)x[(size_t)r * k + c];
                sum += term, mag += fabs(term);
            }
            double err = fabs((double)y[r * N + i] - sum);
            sq_err += err * err, sq += sum * sum;
            worst = fmax(worst, err / mag);
        }
    ops->weight_free(d, pw);
    ops->close(d);
    free(w), free(x);
    return (struct error){sqrt(sq_err / sq), worst};
}

/* Sums of long rows wait in memory between blocks of columns; one row takes them at once. */
static void long_rows_have_the_same_bits(enum form form)
{
    enum { N = 150, K = 4096 * 2 + 38, ROWS = 70 };
    float *w = rng_floats(&rng, (size_t)N * K), *x = rng_floats(&rng, (size_t)ROWS * K);
    float want[N * ROWS], got[N * ROWS];
    struct device *d = half_device(1, ~0ull, form);
    struct weight *pw = load(d, form, w, N, K);
    for (uint32_t r = 0; r < ROWS; r++)
        ops->linear(d, want + r * N, x + (size_t)r * K, 1, pw, NULL);
    ops->linear(d, got, x, ROWS, pw, NULL);
    assert_memory_equal(got, want, sizeof(got));
    ops->weight_free(d, pw);
    ops->close(d);
    free(w), free(x);
}

TEST(long_rows_have_the_same_bits_in_squares)
{
    long_rows_have_the_same_bits(IN_SQUARES);
    long_rows_have_the_same_bits(IN_PARTS);
    long_rows_have_the_same_bits(BOTH_IN_PARTS);
}

/* Large and small numbers that would leave the range of float16: rows are scaled by powers of two,
 * so that the bits are those of rows that stay within it. */
TEST(float16_does_not_overflow)
{
    enum { N = 33, K = 700, ROWS = 14 };
    float *w = rng_floats(&rng, N * K), *x = rng_floats(&rng, ROWS * K);
    float want[N * ROWS], got[N * ROWS];
    struct device *d = half_device(2, ~0ull, IN_F16);
    struct weight *pw = load(d, IN_F16, w, N, K);
    ops->linear(d, want, x, ROWS, pw, NULL);
    for (int power = -50; power <= 50; power += 20) {
        for (uint32_t i = 0; i < ROWS * K; i++)
            x[i] = ldexpf(x[i], power);
        ops->linear(d, got, x, ROWS, pw, NULL);
        for (uint32_t i = 0; i < N * ROWS; i++)
            assert_true(isfinite(got[i]) && got[i] == ldexpf(want[i], power));
        for (uint32_t i = 0; i < ROWS * K; i++)
            x[i] = ldexpf(x[i], -power);
    }
    x[5 * K] = INFINITY; /* a row that is lost takes no other with it */
    ops->linear(d, got, x, ROWS, pw, NULL);
    assert_memory_equal(got, want, 5 * N * sizeof(float));
    assert_memory_equal(got + 6 * N, want + 6 * N, (ROWS - 6) * N * sizeof(float));
    ops->weight_free(d, pw);
    ops->close(d);
    free(w), free(x);
}

/* The same bits as tiles, whatever a CPU is fast at. */
TEST(eight_bits_have_the_same_bits_in_squares)
{
    enum { N = 77, ROWS = 70 };
    static const uint32_t ks[] = {4, 63, 64, 200, 1021, 8192 + 70};
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof(ks) / sizeof(*ks); i++) {
        const uint32_t k = ks[i];
        float *w = rng_floats(&rng, (size_t)N * k), *x = rng_floats(&rng, (size_t)ROWS * k);
        float *b = rng_floats(&rng, N), want[N * ROWS], got[N * ROWS];
        struct mat_part part = {w, DT_F32, N, k, k, 1};
        struct mat_desc m = {.parts = &part, .n_parts = 1, .quant = QUANT_W8A8};
        for (int features = 0; features < 2; features++) {
            struct device *d = half_device(1 + features, features ? ~0ull : 0, IN_PAIRS);
            struct weight *pw = ops->weight_load(d, &m, &e);
            d->squares_i8 = false;
            ops->linear(d, want, x, ROWS, pw, b);
            d->squares_i8 = true;
            ops->linear(d, got, x, ROWS, pw, b);
            assert_memory_equal(got, want, sizeof(got));
            ops->weight_free(d, pw);
            ops->close(d);
        }
        free(w), free(x), free(b);
    }
}

/* Rounding x to 8 bits errs by 2^-8 of each product at most: that bounds the sum's error whatever
 * the data. Independent errors on independent products: 1.7e-3 of the result, for any k. float16
 * rounds x to 11 bits, and each sum of up to F16_FLUSH: that bounds it, and is less in practice. */
static void errors_are_small(enum form form)
{
    static const uint32_t ks[] = {1, 63, 64, 576, 2048, 8191};
    double rms = 0, worst = 0;
    for (size_t i = 0; i < sizeof(ks) / sizeof(*ks); i++) {
        struct error plain = error_of(form, ks[i], false, 0),
                     bad = error_of(form, ks[i], true, 0.01f);
        double bound = (form == IN_F16 ? (F16_FLUSH + 3) * 0x1p-11 : 0x1p-8) + ks[i] * 0x1p-24;
        assert_true(plain.worst <= bound && bad.worst <= bound);
        assert_true(ks[i] == 1 || plain.rms <= 2.2e-3); /* of 1, there are 13 errors only */
        rms = fmax(rms, ks[i] == 1 ? 0 : plain.rms),
        worst = fmax(worst, fmax(plain.worst, bad.worst));
        if (i == 4)
            print_message("results that cancel to 1/100: %.1e of them\n", bad.rms);
    }
    print_message("random: %.2e of the results' rms; at most %.2e of the sum of magnitudes\n", rms,
                  worst);
}

/* Three parts of x are x: only sums are rounded, in chains of 16 and then once for a part of a
 * step. That is a smaller bound than that of one chain over all columns. */
TEST(parts_are_as_exact_as_fp32)
{
    static const uint32_t ks[] = {1, 63, 64, 576, 2048, 8191};
    for (size_t i = 0; i < sizeof(ks) / sizeof(*ks); i++) {
        const double steps = ceil(ks[i] / 32.0);
        const struct error plain = error_of(IN_PARTS, ks[i], false, 0),
                           bad = error_of(IN_PARTS, ks[i], true, 0.01f);
        assert_true(plain.worst <= (SQUARE_PARTS * steps + 17) * 0x1p-24);
        assert_true(bad.worst <= (SQUARE_PARTS * steps + 17) * 0x1p-24);
        assert_true(plain.rms <= 1e-6);
        if (i == 4)
            print_message("three parts: %.1e of the results' rms; of results that cancel to 1/100 "
                          "%.1e\n",
                          plain.rms, bad.rms);
    }
}

/* fp32 weights in three parts, too: six of nine products of parts. Those that are left out are less
 * than 2^-21 of the sum of magnitudes. */
TEST(weights_in_parts_are_as_exact_as_fp32)
{
    static const uint32_t ks[] = {1, 31, 64, 384, 1536, 8191};
    for (size_t i = 0; i < sizeof(ks) / sizeof(*ks); i++) {
        const double bound = (SQUARE_PRODUCTS * ceil(ks[i] / 32.0) + 17 + 8) * 0x1p-24;
        const struct error plain = error_of(BOTH_IN_PARTS, ks[i], false, 0),
                           bad = error_of(BOTH_IN_PARTS, ks[i], true, 0.01f);
        assert_true(plain.worst <= bound && bad.worst <= bound);
        assert_true(plain.rms <= 1e-6);
        print_message("%u columns in parts: %.1e of the results' rms\n", ks[i], plain.rms);
    }
}

/* A matrix that may multiply the row of a next token alone stays in fp32. */
TEST(only_whole_passes_split_weights)
{
    struct device *d = half_device(1, ~0ull, BOTH_IN_PARTS);
    struct err e = ERR_INIT;
    float one[4] = {1, 2, 3, 4};
    struct mat_part part = {one, DT_F32, 1, 4, 4, 1};
    for (int whole = 0; whole < 2; whole++) {
        struct weight *w = ops->weight_load(
            d, &(struct mat_desc){.parts = &part, .n_parts = 1, .dtype = DT_F32, .whole = whole},
            &e);
        assert_non_null(w);
        assert_int_equal(w->squares, whole ? SQUARE_PARTS : 0);
        struct weight_image image;
        assert_true(ops->weight_image(w, &image));
        struct weight *again = ops->weight_mapped(d, &image, &e);
        assert_non_null(again);
        assert_int_equal(again->squares, w->squares);
        ops->weight_free(d, again);
        ops->weight_free(d, w);
    }
    ops->close(d);
}

/* Rows that are not finite take no other with them, and huge numbers are split without overflow. */
TEST(parts_of_extreme_rows)
{
    enum { N = 16, K = 64, ROWS = 4 };
    float w[N * K], x[ROWS * K] = {0}, y[N * ROWS];
    for (uint32_t i = 0; i < N * K; i++)
        w[i] = i % K == 3 ? 0.5f : 0.0f;
    x[0 * K + 3] = FLT_MAX, x[1 * K + 3] = INFINITY, x[2 * K + 3] = NAN,
              x[3 * K + 3] = 1.1754944e-30f;
    struct device *d = half_device(1, ~0ull, IN_PARTS);
    struct weight *pw = load(d, IN_PARTS, w, N, K);
    ops->linear(d, y, x, ROWS, pw, NULL);
    assert_true(y[0] == FLT_MAX * 0.5f);
    assert_true(isinf(y[N]) && y[N] > 0);
    assert_true(isnan(y[2 * N]));
    assert_true(y[3 * N] == 1.1754944e-30f * 0.5f);
    ops->weight_free(d, pw);
    ops->close(d);
}

TEST(errors_are_as_small_as_documented)
{
    errors_are_small(IN_PAIRS);
    errors_are_small(IN_SQUARES);
    errors_are_small(IN_F16);
}

TEST(exact_arithmetic_is_the_default)
{
    struct err e = ERR_INIT;
    struct device *d = ops->open(&(struct device_options){.threads = 1, .features = ~0ull}, &e);
    assert_non_null(d);
    assert_false(d->half || d->squares == 1);
    ops->close(d);
    const struct device_options asked = {.threads = 1, .features = 3, .arith = ARITH_HALF};
    d = ops->open(&asked, &e);
    assert_non_null(d);
    assert_false(d->half || d->squares || d->squares_i8); /* no instruction for it */
    ops->close(d);
}

/* What changes bits depends on the CPU and on what was asked for. */
TEST(the_choice_is_not_measured)
{
    struct err e = ERR_INIT;
    const unsigned here = cpu_detect();
    for (unsigned lacks = 0; lacks <= (CPU_AVX512_BF16 | CPU_AVX512_FP16 | CPU_AMX_BF16);
         lacks += CPU_AVX512_BF16) {
        const unsigned has = here & ~lacks;
        const bool amx = has & CPU_AMX_BF16;
        struct device *d =
            ops->open(&(struct device_options){.threads = 1, .features = ~(uint64_t)lacks}, &e);
        assert_non_null(d);
        assert_int_equal(d->squares, amx ? SQUARE_PARTS : 0);
        assert_int_equal(d->kv[false].squares, d->squares);
        assert_false(d->kv[false].pairs);
        assert_int_equal(d->kv[true].squares, amx);
        assert_true(!d->kv[true].pairs || (!amx && has & CPU_AVX512_BF16));
        assert_false(d->half || d->half_f16);
        ops->close(d);
        const struct device_options asked = {
            .threads = 1, .features = ~(uint64_t)lacks, .arith = ARITH_HALF};
        assert_non_null(d = ops->open(&asked, &e));
        assert_int_equal(d->squares, amx);
        assert_int_equal(d->kv[false].squares, d->kv[true].squares);
        assert_int_equal(d->kv[false].pairs, d->kv[true].pairs);
        assert_true(!d->kv[false].quads && d->kv[true].quads);
        assert_true(!d->half || (!amx && has & CPU_AVX512_BF16));
        assert_int_equal(d->half_f16, (has & (CPU_AVX512_FP16 | CPU_NEON_FP16)) != 0);
        ops->close(d);
    }
}

/* Only matrices of bfloat16 are multiplied so. */
TEST(other_weights_stay_exact)
{
    struct device *d = half_device(1, ~0ull, IN_PAIRS);
    struct err e = ERR_INIT;
    float one[4] = {1, 2, 3, 4};
    struct mat_part part = {one, DT_F32, 1, 4, 4, 1};
    for (enum dtype t = 0; t < DT_N; t++) {
        struct weight *w =
            ops->weight_load(d, &(struct mat_desc){.parts = &part, .n_parts = 1, .dtype = t}, &e);
        assert_non_null(w);
        assert_int_equal(w->half, t == DT_BF16);
        ops->weight_free(d, w);
    }
    ops->close(d);
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
