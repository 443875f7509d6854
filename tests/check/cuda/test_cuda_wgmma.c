/* test_cuda_wgmma.c - products by wgmma: against the CPU's, and their bits against those of
 * mma.sync, whatever the tile, the number of blocks and
 * the order in which threads run and copies come; and the check at start-up that decides whether
 * they are taken at all.
 *
 * On a GPU that takes none, by its kind or by the check, the same products go another way and the
 * cases still hold. */
#include "tests/check/codes_made.h"
#include "tests/check/cuda/cuda_sides.h"

enum { WGMMA = 16, WGMMA_ANY = 32 };

/* Of the side that takes products by wgmma. */
static uint64_t features = ~0ull;

/* Asked for though bits may differ: `make gpu-check` does, to see the kernel alone. */
static bool bits_may_differ(void)
{
    const char *f = getenv("CUDA_FEATURES");
    return f && strtoul(f, NULL, 0) & WGMMA_ANY;
}

static void set_sms(int n)
{
    if (machine)
        machine->sms = n;
}

/* Of this side's products since the last call some were taken by wgmma: only the double counts
 * them. */
static void assert_by_wgmma(bool expected)
{
    static uint64_t before;
    if (machine && !getenv("CUDA_FEATURES"))
        assert_true((machine->wgmmas > before) == expected);
    before = machine ? machine->wgmmas : 0;
}

static struct side open_wgmma(int sms)
{
    set_sms(sms);
    struct side g = open_side(gpu, features);
    if (machine && !getenv("CUDA_FEATURES"))
        assert_non_null(strstr(gpu->describe(g.d), ", wgmma"));
    return g;
}

static const double steps[DT_N] = {0, 0x1p-11, 0x1p-8};

TEST(products_are_right)
{
    /* rows, outputs, columns: the edges of tiles, slices and stages */
    static const uint32_t edges[][3] = {{17, 1, 1},      {128, 128, 64},  {192, 128, 512},
                                        {193, 129, 576}, {129, 257, 513}, {400, 70, 1100}};
    enum { EDGES = sizeof(edges) / sizeof(*edges) };
    for (int sms = 1; sms <= 132; sms += sms == 1 ? 2 : 129) {
        struct side g = open_wgmma(sms), c = open_side(cpu, ~0ull);
        for (uint32_t i = 0; i < EDGES + 4; i++) {
            uint32_t rows = i < EDGES ? edges[i][0] : 17 + rng_below(&rng, 300);
            uint32_t n = i < EDGES ? edges[i][1] : 1 + rng_below(&rng, 300);
            uint32_t k = i < EDGES ? edges[i][2] : 1 + rng_below(&rng, 900);
            enum dtype t = (i + (uint32_t)sms) % 4 < 2 ? DT_F16 : DT_BF16;
            check_linear(g, c, rows, n, k, t, steps[t]);
            assert_by_wgmma(true);
        }
        close_side(g), close_side(c);
    }
}

TEST(few_rows_and_floats_go_another_way)
{
    struct side g = open_wgmma(132), c = open_side(cpu, ~0ull);
    printf("wgmma: %s\n", gpu->describe(g.d)); /* for the log of a machine with a GPU */
    check_linear(g, c, 16, 40, 100, DT_BF16, steps[DT_BF16]);
    check_linear(g, c, 100, 40, 100, DT_F32, 0);
    assert_by_wgmma(false);
    close_side(g), close_side(c);
}

/* Weights of a scheme, or codes of a format unless that is NULL. */
struct kind {
    enum dtype dtype;
    enum quant quant;
    const struct format *format;
};

struct numbers {
    const struct kind *kind;
    uint32_t n, k;
    float *w;
    struct mat_codes codes;
};

static struct numbers numbers_of(const struct kind *kind, uint32_t n, uint32_t k)
{
    struct numbers m = {.kind = kind, .n = n, .k = k, .w = rng_floats(&rng, (size_t)n * k)};
    if (kind->format) {
        m.codes.format = *kind->format;
        fill_codes(&rng, &m.codes, n, k, m.w);
    }
    return m;
}

static void numbers_free(struct numbers *m)
{
    if (m->kind->format)
        free_codes(&m->codes);
    free(m->w);
}

static struct weight *load_numbers(struct side s, const struct numbers *m)
{
    if (m->kind->format)
        return load_codes(s, &m->codes, m->n, m->k, m->kind->dtype);
    return load_quant(s, m->w, m->n, m->k, m->kind->dtype, m->kind->quant);
}

static const char *kind_name(const struct kind *k)
{
    return k->format ? k->format->name : quant_name(k->quant);
}

/* The same product with and without wgmma, bit by bit, and a row of it alone. */
static void compare_kind(int sms, const struct kind *kind, uint32_t rows, uint32_t n, uint32_t k)
{
    struct numbers m = numbers_of(kind, n, k);
    float *x = rng_floats(&rng, (size_t)rows * k), *bias = units(n), *y[2], *one;
    uint32_t r = rng_below(&rng, rows);
    for (int i = 0; i < 2; i++) {
        struct side g = i ? open_wgmma(sms) : open_side(gpu, (uint64_t)~WGMMA);
        struct weight *gw = load_numbers(g, &m);
        assert_by_wgmma(false);
        y[i] = linear(g, x, rows, gw, n, k, bias);
        assert_by_wgmma(i);
        if (i && (one = linear(g, x + (size_t)r * k, 1, gw, n, k, bias))) {
            assert_memory_equal(one, y[i] + (size_t)r * n, n * 4);
            free(one);
        }
        g.ops->weight_free(g.d, gw);
        close_side(g);
    }
    for (size_t i = 0; i < (size_t)rows * n; i++)
        if (memcmp(&y[0][i], &y[1][i], 4))
            fail_msg("%s, %s [%u, %u] x %u rows on %d: y[%zu] is %.9g by wgmma, %.9g else",
                     dtype_name(kind->dtype), kind_name(kind), n, k, rows, sms, i, y[1][i],
                     y[0][i]);
    free(x), free(bias), free(y[0]), free(y[1]);
    numbers_free(&m);
}

static void compare_ways(int sms, enum dtype t, uint32_t rows, uint32_t n, uint32_t k)
{
    compare_kind(sms, &(struct kind){t, QUANT_NONE, NULL}, rows, n, k);
}

/* What the kernels take besides 16 bits: see wgmma_takes(). */
static const struct kind widened[] = {
    {DT_BF16, QUANT_W8A8, NULL},
    {DT_BF16, QUANT_NONE, &formats[FORMAT_Q4_K]},
    {DT_BF16, QUANT_NONE, &formats[FORMAT_Q6_K]},
    {DT_BF16, QUANT_NONE, &formats[FORMAT_Q5_K]},
    {DT_F16, QUANT_W8A8, NULL},
    {DT_F16, QUANT_NONE, &formats[FORMAT_Q4_1]},
    {DT_F16, QUANT_NONE, &formats[FORMAT_Q3_K]},
    {DT_F16, QUANT_NONE, &formats[FORMAT_Q2_K]},
    {DT_BF16, QUANT_INT8, NULL},
    {DT_BF16, QUANT_FP8, NULL},
    {DT_BF16, QUANT_INT4, NULL},
    {DT_BF16, QUANT_NONE, &formats[FORMAT_MXFP4]},
    {DT_BF16, QUANT_NONE, &formats[FORMAT_Q4_0]},
    {DT_BF16, QUANT_NONE, &formats[FORMAT_IQ4_NL]},
    {DT_BF16, QUANT_NONE, &e4m3_of_blocks},
    {DT_F16, QUANT_INT8, NULL},
    {DT_F16, QUANT_FP8, NULL},
    {DT_F16, QUANT_INT4, NULL},
    {DT_F16, QUANT_NONE, &formats[FORMAT_MXFP4]},
    {DT_F16, QUANT_NONE, &formats[FORMAT_Q4_0]},
    {DT_F16, QUANT_NONE, &formats[FORMAT_IQ4_NL]},
    {DT_F16, QUANT_NONE, &e4m3_of_blocks},
};
enum { WIDENED = sizeof(widened) / sizeof(*widened) };

TEST(weights_of_few_bits_have_the_bits_of_other_products)
{
    static const int sms[] = {1, 2, 132};
    if (bits_may_differ())
        skip();
    for (uint32_t i = 0; i < 2 * WIDENED; i++)
        compare_kind(sms[i % 3], &widened[i % WIDENED],
                     i % 2 ? 17 + rng_below(&rng, 48) : 65 + rng_below(&rng, 100),
                     1 + rng_below(&rng, 270), 32 * (1 + rng_below(&rng, 36)));
    for (uint32_t i = 0; i < WIDENED / 2; i++) /* long slices, see above */
        compare_kind(1, &widened[i], 200, 270, 2080);
}

/* Sums times scales that are too small for fp32: finish() has zeros of both signs, and a bias that
 * is not there changes none. */
TEST(products_without_a_bias_keep_the_sign_of_zeros)
{
    static const enum quant quants[] = {QUANT_INT8, QUANT_FP8};
    const uint32_t rows = 70, n = 130, k = 320;
    if (bits_may_differ())
        skip();
    for (int j = 0; j < 2; j++) {
        float *w = units((size_t)n * k), *x = units((size_t)rows * k), *y[2];
        for (size_t i = 0; i < (size_t)n * k; i++)
            w[i] *= 1e-25f;
        for (size_t i = 0; i < (size_t)rows * k; i++)
            x[i] *= 1e-24f;
        for (int i = 0; i < 2; i++) {
            struct side g = i ? open_wgmma(1) : open_side(gpu, (uint64_t)~WGMMA);
            struct weight *gw = load_quant(g, w, n, k, DT_BF16, quants[j]);
            y[i] = linear(g, x, rows, gw, n, k, NULL);
            assert_by_wgmma(i);
            g.ops->weight_free(g.d, gw);
            close_side(g);
        }
        assert_memory_equal(y[0], y[1], (size_t)rows * n * 4);
        free(w), free(x), free(y[0]), free(y[1]);
    }
}

TEST(bits_do_not_depend_on_the_instruction)
{
    static const int sms[] = {1, 2, 132};
    if (bits_may_differ())
        skip();
    for (int i = 0; i < 12; i++) {
        enum dtype t = i % 2 ? DT_BF16 : DT_F16;
        compare_ways(sms[i / 2 % 3], t,
                     i % 3 ? 17 + rng_below(&rng, 48) : 65 + rng_below(&rng, 330),
                     1 + rng_below(&rng, 270), 1 + rng_below(&rng, 1200));
    }
    /* slices long enough for the previous tile's results to be stored while they are multiplied */
    compare_ways(1, DT_BF16, 200, 270, 2080);
    compare_ways(1, DT_F16, 390, 140, 2500);
}

TEST(bits_do_not_depend_on_the_order_of_threads_and_copies)
{
    if (!machine || bits_may_differ())
        skip();
    for (uint32_t seed = 1; seed <= 6; seed++) {
        machine->shuffle = seed * 77;
        compare_ways(seed % 2 ? 1 : 132, seed % 4 < 2 ? DT_BF16 : DT_F16, 70 + 60 * seed, 150,
                     64 * seed + 500);
    }
    machine->shuffle = 0;
}

/* ---------------------------------------------------------------- gates */

/* act_mul() of a product, and how many kernels that took. */
static float *gated(struct side s, const float *x, uint32_t rows, struct weight *w, uint32_t n,
                    uint32_t k, const float *bias, enum act act, uint64_t *launches)
{
    size_t bytes = (size_t)rows * n * 4;
    float *y = malloc(bytes), *dx = up(s, x, (size_t)rows * k * 4), *db = up(s, bias, 2 * n * 4);
    float *hidden = up(s, NULL, 2 * bytes), *dy = up(s, NULL, bytes);
    *launches = machine ? machine->launches : 0;
    s.ops->linear(s.d, hidden, dx, rows, w, bias ? db : NULL);
    s.ops->act_mul(s.d, dy, hidden, rows, n, act);
    down(s, y, dy, bytes);
    *launches = machine ? machine->launches - *launches : 0;
    s.ops->free(s.d, dx), s.ops->free(s.d, db), s.ops->free(s.d, hidden);
    return y;
}

/* Bit by bit the same as two operations; `kernels`: expected of the fused way. */
static void compare_gated_kind(int sms, const struct kind *kind, uint32_t rows, uint32_t n,
                               uint32_t k, bool biased, enum act act, uint64_t kernels)
{
    struct numbers m = numbers_of(kind, 2 * n, k);
    float *x = units((size_t)rows * k), *bias = units(2 * n), *y[2];
    uint64_t launches;
    for (int i = 0; i < 2; i++) {
        struct side g = i ? open_wgmma(sms) : open_side(gpu, (uint64_t)~WGMMA);
        struct weight *gw = load_numbers(g, &m);
        y[i] = gated(g, x, rows, gw, n, k, biased ? bias : NULL, act, &launches);
        g.ops->weight_free(g.d, gw);
        close_side(g);
    }
    assert_by_wgmma(true);
    if (machine && !getenv("CUDA_FEATURES"))
        assert_int_equal(launches, kernels);
    assert_memory_equal(y[0], y[1], (size_t)rows * n * 4);
    free(x), free(bias), free(y[0]), free(y[1]);
    numbers_free(&m);
}

static void compare_gated(int sms, uint32_t rows, uint32_t n, uint32_t k, bool biased, enum act act,
                          uint64_t kernels)
{
    const struct kind kind = {n % 2 ? DT_F16 : DT_BF16, QUANT_NONE, NULL};
    compare_gated_kind(sms, &kind, rows, n, k, biased, act, kernels);
}

TEST(a_gate_is_part_of_its_product)
{
    if (bits_may_differ())
        skip();
    /* rows to 16 bits, the product */
    compare_gated(1, 20, 1, 70, true, ACT_SILU, 2);
    compare_gated(2, 193, 64, 200, false, ACT_GELU_TANH, 2);
    compare_gated(2, 70 + rng_below(&rng, 300), 1 + rng_below(&rng, 200), 1 + rng_below(&rng, 700),
                  true, ACT_SILU, 2);
    compare_gated(1, 150, 140, 2100, true, ACT_SILU, 2);
    compare_gated(1, 200, 130, 2048, false, ACT_GELU_TANH, 2);
    compare_gated(1, 150, 100, 300, true, ACT_GELU, 3);   /* not this one */
    compare_gated(132, 20, 100, 4000, true, ACT_SILU, 4); /* slices side by side */
    for (uint32_t i = 0; i < WIDENED; i++) {
        const enum quant quant = widened[i].quant;
        const bool by_8 = quant == QUANT_INT8 || quant == QUANT_FP8 || quant == QUANT_W8A8;
        const struct format *f = widened[i].format;
        const uint64_t sums = f && (f->offsets || f->zeros); /* of x, by a kernel */
        compare_gated_kind(1, &widened[i], 70 + 10 * i, 96, 320, i % 2, ACT_SILU, 2 + sums);
        /* outputs that gate are not 16 by 16 */
        compare_gated_kind(1, &widened[i], 70, 100, 320, true, ACT_SILU, (by_8 ? 2 : 3) + sums);
    }
}

/* ---------------------------------------------------------------- norms */

/* W norm(x), the norm storing what the product takes and not: in a launch less. */
static void compare_normed(uint32_t rows, uint32_t n, uint32_t k)
{
    enum { FUSE = 64 };
    const enum dtype t = n % 2 ? DT_F16 : DT_BF16;
    float *w = units((size_t)n * k), *x = units((size_t)rows * k), *weights = units(k), *y[2];
    uint64_t launches[2];
    for (int i = 0; i < 2; i++) {
        struct side g = open_side(gpu, i ? features : features & ~(uint64_t)FUSE);
        struct weight *gw = load(g, w, n, k, t);
        float *dx = up(g, x, (size_t)rows * k * 4), *dw = up(g, weights, k * 4);
        float *dy = up(g, NULL, (size_t)rows * n * 4);
        launches[i] = machine ? machine->launches : 0;
        y[i] = malloc((size_t)rows * n * 4);
        g.ops->norm(g.d, dx, dx, rows, k, &(struct norm){NORM_LAYER, dw, dw, 1e-5f});
        g.ops->linear(g.d, dy, dx, rows, gw, NULL);
        down(g, y[i], dy, (size_t)rows * n * 4);
        launches[i] = machine ? machine->launches - launches[i] : 0;
        g.ops->free(g.d, dx), g.ops->free(g.d, dw), g.ops->weight_free(g.d, gw);
        close_side(g);
    }
    assert_by_wgmma(true);
    if (machine && !getenv("CUDA_FEATURES"))
        assert_int_equal(launches[0] - launches[1], 1);
    assert_memory_equal(y[0], y[1], (size_t)rows * n * 4);
    free(w), free(x), free(weights), free(y[0]), free(y[1]);
}

TEST(norms_store_what_products_take)
{
    compare_normed(150, 70, 333);
    compare_normed(33, 101, 700);
}

/* ---------------------------------------------------------------- the check at start-up */

static void assert_describes(const char *mask, const char *with, const char *without)
{
    if (mask)
        setenv("CUDA_FEATURES", mask, 1);
    struct side g = open_side(gpu, ~0ull);
    const char *text = gpu->describe(g.d);
    if ((with && !strstr(text, with)) || (without && strstr(text, without)))
        fail_msg("with features %s: %s", mask ? mask : "as they are", text);
    unsetenv("CUDA_FEATURES");
    close_side(g);
}

TEST(other_bits_are_found_at_start_up)
{
    if (!machine || getenv("CUDA_FEATURES"))
        skip();
    check_at_start = true;
    assert_describes(NULL, ", wgmma", "bits");
    assert_describes("15", NULL, "wgmma");
    assert_describes("30", NULL, "wgmma");  /* not without tensor cores */
    assert_describes("-17", NULL, "wgmma"); /* 32 alone enables nothing */
    machine->major = 8;
    assert_describes("63", NULL, "wgmma");
    machine->major = 10;
    assert_describes("63", NULL, "wgmma");
    machine->major = 9;
    machine->wgmma_truncates = true;
    assert_describes(NULL, ", no wgmma (its sums have other bits)", NULL);
    assert_by_wgmma(true);
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    assert_by_wgmma(true);
    check_linear(g, c, 100, 40, 100, DT_BF16, steps[DT_BF16]);
    assert_by_wgmma(false);
    close_side(g);
    /* asked for in so many words: right within rounding, but other bits */
    assert_describes("63", ", wgmma though its sums have other bits", NULL);
    setenv("CUDA_FEATURES", "63", 1);
    g = open_side(gpu, ~0ull);
    unsetenv("CUDA_FEATURES");
    assert_by_wgmma(true);
    check_linear(g, c, 100, 40, 100, DT_BF16, steps[DT_BF16]);
    assert_by_wgmma(true);
    close_side(g), close_side(c);
    machine->wgmma_truncates = check_at_start = false;
}

int main(void) { return cuda_tests_run(); }
