/* The operations of parallel residual streams on a GPU against those of the CPU: widths below, at
 * and above a block's threads. Without a GPU: on the double. */
#include "tests/check/cuda/cuda_sides.h"

enum { ROWS = 5, STREAMS = 4, ACTIVE = 1 };
static const uint32_t widths[] = {1, 33, 256, 1003};
static const double WITHIN = 2e-5;

/* All steps of a layer; the streams and x, side by side. */
static float *altup_of(struct side s, const float *streams, const float *coefs, const float *x,
                       uint32_t n)
{
    const size_t each = (size_t)ROWS * n, all = (STREAMS + 1) * each;
    float *out = malloc(all * sizeof(*out));
    float *ds = up(s, streams, STREAMS * each * 4), *dx = up(s, x, each * 4);
    float *dc = up(s, coefs, (size_t)ROWS * STREAMS * STREAMS * 4);
    for (enum altup_kind kind = ALTUP_PREDICT; kind <= ALTUP_SPREAD; kind++) {
        const struct altup p = {kind, STREAMS, ACTIVE, ds, dc};
        s.ops->altup(s.d, dx, ROWS, n, &p);
    }
    s.ops->match_rows(s.d, dx, dx, ds, ROWS, n, false);
    s.ops->match_rows(s.d, dx, ds + each, ds, ROWS, n, true);
    down(s, out, ds, STREAMS * each * 4);
    down(s, out + STREAMS * each, dx, each * 4);
    s.ops->free(s.d, dc);
    return out;
}

TEST(streams_are_those_of_the_cpu)
{
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    for (size_t w = 0; w < sizeof(widths) / sizeof(*widths); w++) {
        const uint32_t n = widths[w];
        const size_t each = (size_t)ROWS * n;
        float *streams = units(STREAMS * each), *x = units(each);
        float *coefs = units((size_t)ROWS * STREAMS * STREAMS);
        float *got = altup_of(g, streams, coefs, x, n), *want = altup_of(c, streams, coefs, x, n);
        assert_near(got, want, (STREAMS + 1) * each, WITHIN, "streams");
        free(streams), free(x), free(coefs), free(got), free(want);
    }
    close_side(g), close_side(c);
}

static float *sparse_of(struct side s, const float *x, uint32_t n)
{
    const size_t bytes = (size_t)ROWS * 2 * n * 4;
    float *out = malloc(bytes), *dx = up(s, x, bytes), *m = up(s, NULL, ROWS * SQUARES * 4);
    const struct sparsify p = {m, n, 0.84f};
    s.ops->row_moments(s.d, m, dx, 2 * n, ROWS, n);
    s.ops->sparsify(s.d, dx, 2 * n, ROWS, n, &p);
    down(s, out, dx, bytes);
    s.ops->free(s.d, m);
    return out;
}

/* The first half of each row. */
TEST(cut_off_activations_are_those_of_the_cpu)
{
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    for (size_t w = 0; w < sizeof(widths) / sizeof(*widths); w++) {
        const uint32_t n = widths[w];
        float *x = units((size_t)ROWS * 2 * n);
        float *got = sparse_of(g, x, n), *want = sparse_of(c, x, n);
        assert_near(got, want, (size_t)ROWS * 2 * n, WITHIN, "sparse");
        free(x), free(got), free(want);
    }
    close_side(g), close_side(c);
}

TEST(rows_stand_side_by_side)
{
    struct side g = open_side(gpu, ~0ull);
    for (size_t w = 0; w < sizeof(widths) / sizeof(*widths); w++) {
        const uint32_t n = widths[w];
        const size_t each = (size_t)ROWS * n;
        float *a = units(each), *b = units(each), *got = malloc(2 * each * 4);
        float *da = up(g, a, each * 4), *db = up(g, b, each * 4), *y = up(g, NULL, 2 * each * 4);
        g.ops->beside(g.d, y, da, db, ROWS, n);
        g.ops->beside(g.d, da, db, NULL, ROWS, n);
        down(g, got, y, 2 * each * 4);
        for (size_t t = 0; t < ROWS; t++) {
            assert_memory_equal(got + 2 * t * n, a + t * n, n * sizeof(*a));
            assert_memory_equal(got + (2 * t + 1) * n, b + t * n, n * sizeof(*b));
        }
        down(g, got, da, each * 4);
        assert_memory_equal(got, b, each * 4);
        g.ops->free(g.d, db);
        free(a), free(b), free(got);
    }
    close_side(g);
}

static float *gated_by(struct side s, const float *x, const float *gate, uint32_t n, bool softplus)
{
    const size_t bytes = (size_t)ROWS * n * 4;
    float *out = malloc(bytes), *dx = up(s, x, bytes), *dg = up(s, gate, ROWS * 4);
    s.ops->gate_rows(s.d, dx, ROWS, n, dg, softplus);
    down(s, out, dx, bytes);
    s.ops->free(s.d, dg);
    return out;
}

TEST(gated_rows_are_those_of_the_cpu)
{
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    for (size_t w = 0; w < 2 * sizeof(widths) / sizeof(*widths); w++) {
        const uint32_t n = widths[w / 2];
        float *x = units((size_t)ROWS * n), *gate = units(ROWS);
        float *got = gated_by(g, x, gate, n, w % 2), *want = gated_by(c, x, gate, n, w % 2);
        assert_near(got, want, (size_t)ROWS * n, WITHIN, "gated");
        free(x), free(gate), free(got), free(want);
    }
    close_side(g), close_side(c);
}

/* Rows that are set, added to and read together; then those that were read, of limited length. */
static float *blended_by(struct side s, const float *streams, const float *x, const float *query,
                         uint32_t n, bool raw)
{
    const size_t each = (size_t)ROWS * n;
    float *out = malloc((STREAMS + 1) * each * sizeof(*out));
    float *ds = up(s, streams, STREAMS * each * 4), *dx = up(s, x, each * 4);
    float *dq = up(s, query, (size_t)n * 4);
    for (enum blend_kind kind = BLEND_SET; kind <= BLEND_READ; kind++) {
        const struct blend p = {kind, STREAMS, STREAMS - 2, ds, dq, 1e-6f, raw};
        s.ops->blend(s.d, dx, ROWS, n, &p);
    }
    s.ops->shorten(s.d, dx, n, ROWS, 1, n, dq, 0.5f * sqrtf((float)n));
    down(s, out, ds, STREAMS * each * 4);
    down(s, out + STREAMS * each, dx, each * 4);
    s.ops->free(s.d, dq);
    return out;
}

TEST(blended_rows_are_those_of_the_cpu)
{
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    for (size_t w = 0; w < 2 * sizeof(widths) / sizeof(*widths); w++) {
        const uint32_t n = widths[w / 2];
        const size_t each = (size_t)ROWS * n;
        float *streams = units(STREAMS * each), *x = units(each), *query = units(n);
        float *got = blended_by(g, streams, x, query, n, w % 2),
              *want = blended_by(c, streams, x, query, n, w % 2);
        assert_near(got, want, (STREAMS + 1) * each, WITHIN, "blended");
        free(streams), free(x), free(query), free(got), free(want);
    }
    close_side(g), close_side(c);
}

/* With ROWS rows of as many heads. */
static float *scaled_by(struct side s, const float *x, const float *factors, uint32_t n)
{
    const size_t bytes = (size_t)ROWS * ROWS * n * 4;
    float *out = malloc(bytes), *dx = up(s, x, bytes), *by = up(s, factors, (size_t)3 * ROWS * 4);
    s.ops->scale_heads(s.d, dx, ROWS, ROWS, n, by, by + ROWS, by + (size_t)2 * ROWS);
    down(s, out, dx, bytes);
    s.ops->free(s.d, by);
    return out;
}

TEST(scaled_heads_are_those_of_the_cpu)
{
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    for (size_t w = 0; w < sizeof(widths) / sizeof(*widths); w++) {
        const uint32_t n = widths[w];
        float *x = units((size_t)ROWS * ROWS * n), *factors = units((size_t)3 * ROWS);
        float *got = scaled_by(g, x, factors, n), *want = scaled_by(c, x, factors, n);
        assert_near(got, want, (size_t)ROWS * ROWS * n, WITHIN, "scaled");
        free(x), free(factors), free(got), free(want);
    }
    close_side(g), close_side(c);
}

static float *softmax_of(struct side s, const float *x, uint32_t n)
{
    const size_t bytes = (size_t)ROWS * n * 4;
    float *out = malloc(bytes), *dx = up(s, x, bytes);
    s.ops->softmax(s.d, dx, ROWS, n);
    down(s, out, dx, bytes);
    return out;
}

TEST(probabilities_are_those_of_the_cpu)
{
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    for (size_t w = 0; w < sizeof(widths) / sizeof(*widths); w++) {
        const uint32_t n = widths[w];
        float *x = units((size_t)ROWS * n);
        for (uint32_t i = 0; i < n; i++)
            x[i] *= 300;
        float *got = softmax_of(g, x, n), *want = softmax_of(c, x, n);
        assert_near(got, want, (size_t)ROWS * n, WITHIN, "softmax");
        free(x), free(got), free(want);
    }
    close_side(g), close_side(c);
}

static float *merge_of(struct side s, const float *y, const float *x, const float *sums, uint32_t n)
{
    const size_t bytes = (size_t)ROWS * n * 4, each = (size_t)ROWS * ATTN_SUMS;
    float *out = malloc(bytes), *dy = up(s, y, bytes), *dx = up(s, x, bytes);
    float *ds = up(s, sums, 2 * each * 4);
    s.ops->merge_attention(s.d, dy, ds, dx, ds + each, ROWS, n);
    down(s, out, dy, bytes);
    s.ops->free(s.d, dx), s.ops->free(s.d, ds);
    return out;
}

/* The largest scores are in log2 on a GPU. */
TEST(two_sources_are_merged_as_on_the_cpu)
{
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    for (size_t w = 0; w < sizeof(widths) / sizeof(*widths); w++) {
        const uint32_t n = widths[w];
        float *x = units((size_t)ROWS * n), *y = units((size_t)ROWS * n);
        float *sums = units((size_t)2 * ROWS * ATTN_SUMS);
        for (uint32_t i = 0; i < 2 * ROWS * ATTN_SUMS; i++)
            sums[i] = i % ATTN_SUMS ? 1 + fabsf(sums[i]) : 5 * sums[i];
        float *want = merge_of(c, y, x, sums, n);
        for (uint32_t i = 0; i < 2 * ROWS * ATTN_SUMS; i += ATTN_SUMS)
            sums[i] *= 1.44269504f;
        float *got = merge_of(g, y, x, sums, n);
        assert_near(got, want, (size_t)ROWS * n, WITHIN, "merged");
        free(x), free(y), free(sums), free(got), free(want);
    }
    close_side(g), close_side(c);
}

int main(void) { return cuda_tests_run(); }
