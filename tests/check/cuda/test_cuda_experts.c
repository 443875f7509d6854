/* test_cuda_experts.c - mixtures of experts of the CUDA backend: by wgmma, dealt out to blocks,
 * with what is fused to their products, against each operation by itself: the same bits, whatever
 * the shape, the routing, the number of rows and of multiprocessors, and the order of threads; and
 * how many launches that takes. */
#include "tests/check/codes_made.h"
#include "tests/check/cuda/cuda_sides.h"

enum { WGMMA = 16, FUSE = 64, X_SHARED = 128, EXPERTS_BIT = 16384, MIX = 32768, CHAIN = 65536 };
static const uint64_t plain = ~(uint64_t)(WGMMA | FUSE | X_SHARED | EXPERTS_BIT | MIX | CHAIN);

/* A layer's experts and the rows that it gets. */
struct rig {
    uint32_t rows, hidden, ffn, experts, top_k;
    enum dtype dtype;
    enum quant quant;
    const struct format *format; /* NULL: weights of `quant`, else they come as codes */
    enum act act;
    bool biased, gates, scale_input, summed;
    uint32_t first, here; /* experts of this rank; here 0: all */
};
static bool has(const struct rig *r, uint32_t expert)
{
    return !r->here || expert - r->first < r->here;
}

static struct rig any_rig(uint32_t rows)
{
    struct rig r = {
        .rows = rows, .hidden = 1 + rng_below(&rng, 300), .ffn = 1 + rng_below(&rng, 200)};
    r.experts = 1 + rng_below(&rng, 40);
    r.top_k = 1 + rng_below(&rng, r.experts < 6 ? r.experts : 6);
    r.dtype = rng_below(&rng, 2) ? DT_BF16 : DT_F16;
    r.act = rng_below(&rng, 2) ? ACT_SILU : rng_below(&rng, 2) ? ACT_GELU_TANH : ACT_RELU2;
    r.biased = rng_below(&rng, 2), r.gates = rng_below(&rng, 4);
    r.scale_input = !rng_below(&rng, 4), r.summed = rng_below(&rng, 2);
    return r;
}

/* Everything random that a rig needs. */
struct numbers {
    float *router, *up, *down, *biases, *x, *residual;
    struct mat_codes codes[2][64]; /* with a format: of each expert's up and down */
};
static struct numbers numbers_of(const struct rig *r)
{
    const size_t up = (size_t)(r->gates ? 2 : 1) * r->ffn * r->hidden;
    struct numbers n = {.router = units((size_t)r->experts * r->hidden),
                        .up = units(r->experts * up),
                        .down = units((size_t)r->experts * r->ffn * r->hidden),
                        .biases = units((size_t)r->experts * (1 + 2 * r->ffn + r->hidden)),
                        .x = units((size_t)r->rows * r->hidden),
                        .residual = units((size_t)r->rows * r->hidden)};
    for (size_t i = 0; i < r->experts * up; i++)
        n.up[i] *= 0.1f;
    for (uint32_t i = 0; r->format && i < r->experts; i++) {
        n.codes[0][i].format = n.codes[1][i].format = *r->format;
        fill_codes(&rng, &n.codes[0][i], (uint32_t)(up / r->hidden), r->hidden, n.up + i * up);
        fill_codes(&rng, &n.codes[1][i], r->hidden, r->ffn,
                   n.down + (size_t)i * r->ffn * r->hidden);
    }
    return n;
}
static void numbers_free(const struct rig *r, struct numbers *n)
{
    for (uint32_t i = 0; r->format && i < r->experts; i++)
        free_codes(&n->codes[0][i]), free_codes(&n->codes[1][i]);
    free(n->router), free(n->up), free(n->down), free(n->biases), free(n->x), free(n->residual);
}

static struct weight *load_expert(struct side s, const struct rig *r, const float *w,
                                  const struct mat_codes *codes, uint32_t rows, uint32_t cols)
{
    return r->format ? load_codes(s, codes, rows, cols, r->dtype)
                     : load_quant(s, w, rows, cols, r->dtype, r->quant);
}

/* Rows [first, first + rows) of the layer, added to the residual stream if it is summed. */
static float *run(struct side s, const struct rig *r, const struct numbers *n, uint32_t first,
                  uint32_t rows, uint64_t *launches)
{
    const size_t width = (size_t)(r->gates ? 2 : 1) * r->ffn, bytes = (size_t)rows * r->hidden * 4;
    struct weight *ups[64], *downs[64];
    struct weight *router = load(s, n->router, r->experts, r->hidden, DT_F32);
    for (uint32_t i = 0; i < r->experts; i++) {
        ups[i] = downs[i] = NULL;
        if (!has(r, i))
            continue;
        ups[i] = load_expert(s, r, n->up + i * width * r->hidden, &n->codes[0][i], (uint32_t)width,
                             r->hidden);
        downs[i] = load_expert(s, r, n->down + (size_t)i * r->ffn * r->hidden, &n->codes[1][i],
                               r->hidden, r->ffn);
    }
    float *biases = up(s, n->biases, (size_t)r->experts * (1 + 2 * r->ffn + r->hidden) * 4);
    const struct moe m = {.router = router,
                          .up = ups,
                          .down = downs,
                          .n_experts = r->experts,
                          .top_k = r->top_k,
                          .renormalise = true,
                          .scale = 1.5f,
                          .act = r->act,
                          .plain = !r->gates,
                          .scale_input = r->scale_input,
                          .router_bias = r->biased ? biases : NULL,
                          .up_bias = r->biased ? biases + r->experts : NULL,
                          .down_bias = r->biased ? biases + r->experts * (1 + 2 * r->ffn) : NULL};
    float *dx = up(s, n->x + (size_t)first * r->hidden, bytes), *dy = up(s, NULL, bytes);
    float *to = up(s, n->residual + (size_t)first * r->hidden, bytes), *out = malloc(bytes);
    const uint64_t before = machine ? machine->launches : 0;
    s.ops->moe(s.d, dy, dx, rows, &m);
    if (r->summed)
        s.ops->add_norm(s.d, NULL, to, dy, 0.7f, rows, r->hidden, NULL);
    down(s, out, r->summed ? to : dy, bytes);
    if (launches)
        *launches = machine ? machine->launches - before : 0;
    s.ops->free(s.d, dx), s.ops->free(s.d, biases), s.ops->free(s.d, r->summed ? dy : to);
    s.ops->weight_free(s.d, router);
    for (uint32_t i = 0; i < r->experts; i++)
        if (has(r, i))
            s.ops->weight_free(s.d, ups[i]), s.ops->weight_free(s.d, downs[i]);
    return out;
}

static void compare_bits(const struct rig *r, const float *got, const float *want, uint32_t rows,
                         const char *what)
{
    for (size_t i = 0; i < (size_t)rows * r->hidden; i++)
        if (memcmp(&got[i], &want[i], 4))
            fail_msg("y[%zu] is %.9g %s, %.9g by itself: %u rows, hidden %u, ffn %u, %u of %u "
                     "experts, %s %s, act %d%s%s%s%s",
                     i, got[i], what, want[i], r->rows, r->hidden, r->ffn, r->top_k, r->experts,
                     dtype_name(r->dtype), r->format ? r->format->name : quant_name(r->quant),
                     (int)r->act, r->biased ? ", biased" : "", r->gates ? ", gates" : "",
                     r->scale_input ? ", scaled" : "", r->summed ? ", summed" : "");
}

/* With these features against each operation by itself; and a row alone. Returns the launches. */
static uint64_t compare(const struct rig *r, uint64_t features)
{
    struct numbers n = numbers_of(r);
    const int sms = machine ? machine->sms : 0;
    uint64_t launches = 0;
    struct side s = open_side(gpu, plain);
    float *want = run(s, r, &n, 0, r->rows, NULL);
    close_side(s);
    if (machine)
        machine->sms = sms;
    s = open_side(gpu, features);
    float *got = run(s, r, &n, 0, r->rows, &launches);
    compare_bits(r, got, want, r->rows, "together");
    const uint32_t row = rng_below(&rng, r->rows);
    float *one = run(s, r, &n, row, 1, NULL);
    compare_bits(r, one, want + (size_t)row * r->hidden, 1, "alone");
    close_side(s);
    free(want), free(got), free(one);
    numbers_free(r, &n);
    return launches;
}

TEST(ways_have_the_same_bits)
{
    static const uint32_t rows[] = {1, 2, 4, 5, 9, 16, 33, 70};
    static const uint64_t features[] = {~0ull, ~(uint64_t)EXPERTS_BIT, ~(uint64_t)MIX,
                                        ~(uint64_t)X_SHARED};
    for (uint32_t i = 0; i < 24; i++) {
        struct rig r = any_rig(rows[i % 8]);
        if (machine)
            machine->sms = i % 3 == 0 ? 1 : i % 3 == 1 ? 7 : 132;
        compare(&r, features[i / 2 % 4]);
    }
}

/* What two ranks compute with the experts that they have adds up to what one computes with all. A
 * rank may have none of a row's experts, or of any row's. */
static void parts_add_up(const struct rig *all, uint32_t cut)
{
    struct numbers n = numbers_of(all);
    const struct side s = open_side(gpu, ~0ull);
    struct rig low = *all, high = *all;
    low.here = cut, high.first = cut, high.here = all->experts - cut;
    float *want = run(s, all, &n, 0, all->rows, NULL);
    float *a = run(s, &low, &n, 0, all->rows, NULL), *b = run(s, &high, &n, 0, all->rows, NULL);
    for (uint32_t row = 0; row < all->rows; row++) {
        float mag = 0;
        for (uint32_t i = row * all->hidden; i < (row + 1) * all->hidden; i++)
            mag = fmaxf(mag, fmaxf(fabsf(a[i]), fabsf(b[i])));
        for (uint32_t i = row * all->hidden; i < (row + 1) * all->hidden; i++)
            if (!(fabsf(a[i] + b[i] - want[i]) <= 1e-5f * mag))
                fail_msg("row %u: %g and %g of two ranks, %g of one", row, a[i], b[i], want[i]);
    }
    close_side(s);
    free(want), free(a), free(b);
    numbers_free(all, &n);
}

TEST(experts_of_two_ranks_add_up)
{
    static const uint32_t rows[] = {1, 3, 16, 33, 150};
    for (uint32_t i = 0; i < 15; i++) {
        struct rig r = any_rig(rows[i % 5]);
        r.experts += r.experts == 1, r.summed = false;
        const uint32_t cut = 1 + rng_below(&rng, r.experts - 1);
        if (machine)
            machine->sms = i % 2 ? 1 : 132; /* of one, the product of few rows adds the results */
        parts_add_up(&r, cut);
        r.first = i % 2 ? cut : 0, r.here = i % 2 ? r.experts - cut : cut;
        compare(&r, ~0ull);
    }
    if (machine)
        machine->sms = 132;
}

TEST(tiles_of_many_rows_have_the_same_bits)
{
    for (uint32_t i = 0; i < 4; i++) { /* an expert with several tiles, some with none */
        struct rig r = any_rig(150 + rng_below(&rng, 120));
        r.experts = 1 + i, r.top_k = 1 + i / 2, r.gates = i != 2;
        r.act = i == 3 ? ACT_GELU : ACT_SILU;
        if (machine)
            machine->sms = i % 2 ? 132 : 3;
        compare(&r, ~0ull);
    }
    if (machine)
        machine->sms = 132;
}

TEST(quantised_experts_have_the_same_bits)
{
    for (enum quant q = QUANT_INT8; q < QUANT_N; q++) {
        struct rig r = any_rig(q % 2 ? 3 : 11);
        r.quant = q;
        compare(&r, ~0ull);
    }
}

/* By wgmma: only the double counts them. Of more rows than experts_stream takes, which fill a tile
 * or not; whose gate is part of the product or not. */
TEST(many_rows_of_quantised_experts_have_the_same_bits)
{
    static const struct {
        enum dtype dtype;
        enum quant quant;
        const struct format *format;
    } kinds[] = {
        {DT_BF16, QUANT_INT8, NULL},
        {DT_F16, QUANT_FP8, NULL},
        {DT_BF16, QUANT_INT4, NULL},
        {DT_BF16, QUANT_NONE, &formats[FORMAT_MXFP4]},
        {DT_BF16, QUANT_NONE, &formats[FORMAT_Q4_0]},
        {DT_BF16, QUANT_NONE, &formats[FORMAT_IQ4_NL]},
        {DT_BF16, QUANT_NONE, &e4m3_of_blocks},
    };
    enum { KINDS = sizeof(kinds) / sizeof(*kinds) };
    for (uint32_t i = 0; i < 2 * KINDS; i++) {
        struct rig r = any_rig(i % 2 ? 24 + rng_below(&rng, 40) : 100 + rng_below(&rng, 60));
        r.dtype = kinds[i % KINDS].dtype, r.quant = kinds[i % KINDS].quant;
        r.format = kinds[i % KINDS].format;
        r.experts = 1 + i % 5, r.top_k = 1 + i % 5 / 2, r.gates = true;
        r.hidden = 32 * (1 + rng_below(&rng, 9)), r.ffn = i < KINDS ? 128 : 96;
        r.act = i % 3 ? ACT_SILU : ACT_SWIGLU_CLAMPED;
        const uint64_t before = machine ? machine->wgmmas : 0;
        compare(&r, ~(uint64_t)WGMMA);
        const uint64_t without = machine ? machine->wgmmas : 0;
        compare(&r, ~0ull);
        if (machine && !getenv("CUDA_FEATURES")) {
            assert_int_equal(without, before);
            assert_true(machine->wgmmas > without);
        }
    }
}

TEST(no_bit_depends_on_the_order_of_threads_and_copies)
{
    if (!machine)
        skip();
    for (uint32_t i = 1; i <= 6; i++) {
        struct rig r = any_rig(i % 2 ? 1 + i / 2 : 20 * i);
        machine->shuffle = i * 77;
        machine->sms = i % 3 ? 132 : 2;
        compare(&r, ~0ull);
    }
    machine->shuffle = 0, machine->sms = 132;
}

TEST(a_layer_is_four_launches)
{
    if (!machine || getenv("CUDA_FEATURES"))
        skip();
    struct rig r = {.rows = 1,
                    .hidden = 2048,
                    .ffn = 64,
                    .experts = 9,
                    .top_k = 2,
                    .dtype = DT_BF16,
                    .act = ACT_SWIGLU_CLAMPED,
                    .biased = true,
                    .gates = true,
                    .summed = true};
    assert_int_equal(compare(&r, ~0ull), 4);       /* router, route and group, up, down and sums */
    r.rows = 20, r.act = ACT_SILU, r.hidden = 200; /* also x in order, and the sums by themselves */
    assert_int_equal(compare(&r, ~0ull), 6);
}

int main(void) { return cuda_tests_run(); }
