/* Mixed residual streams on a GPU against those of the CPU: widths below, at and above a block's
 * threads. Without a GPU: on the double. */
#include "tests/check/cuda/cuda_sides.h"

enum { ROWS = 5 };
static const uint32_t widths[] = {1, 33, 256, 1003};
static const double WITHIN = 2e-5;

/* Inputs of all kinds, one after the other: streams, x, factors, base, three scales. */
struct shape {
    uint32_t streams, rounds, n;
    bool last;
};

static size_t streams_of(const struct shape *k) { return (size_t)ROWS * k->streams * k->n; }

static struct mix mix_of(const struct shape *k)
{
    return (struct mix){.n = k->streams,
                        .rounds = k->rounds,
                        .last = k->last,
                        .eps = 1e-5f,
                        .floor = 1e-4f,
                        .magnitude = 2,
                        .result_floor = 1e-3f};
}

static void take(struct side s, float *dst, const float *src, size_t n)
{
    struct err e = ERR_INIT;
    if (s.ops->download(s.d, dst, src, n * sizeof(*dst), &e))
        fail_msg("%s", e.msg);
}

/* A sublayer's read and write; x, then streams, then the factors of the result and of exchanges. */
static float *read_and_write(struct side s, const struct shape *k, const float *in)
{
    struct mix p = mix_of(k);
    const uint32_t count = mix_factors(&p);
    const size_t streams = streams_of(k), x = (size_t)ROWS * k->n, factors = (size_t)ROWS * count;
    float *out = malloc((x + streams + factors) * sizeof(*out));
    float *ds = up(s, in, streams * 4), *dx = up(s, in + streams, x * 4);
    float *df = up(s, in + streams + x, factors * 4);
    float *db = up(s, in + streams + x + factors, (count + 3) * 4);
    p.streams = ds, p.factors = df, p.scale = db, p.base = db + 3;
    p.kind = MIX_READ;
    s.ops->mix(s.d, dx, ROWS, k->n, &p);
    p.kind = MIX_WRITE;
    if (!k->last)
        s.ops->mix(s.d, dx, ROWS, k->n, &p);
    take(s, out, dx, x), take(s, out + x, ds, streams), take(s, out + x + streams, df, factors);
    for (size_t i = 0; i < factors; i++) /* those of the sum are undefined afterwards */
        if (i % count < k->streams)
            out[x + streams + i] = 0;
    s.ops->free(s.d, ds), s.ops->free(s.d, dx), s.ops->free(s.d, df), s.ops->free(s.d, db);
    return out;
}

TEST(sublayers_are_those_of_the_cpu)
{
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    for (uint32_t i = 0; i < 5 * sizeof(widths) / sizeof(*widths); i++) {
        const uint32_t kind = i % 5;
        const struct shape k = {.streams = kind == 4 ? 8 : 4,
                                .rounds = kind == 1                ? 1
                                          : kind == 2 || kind == 4 ? 20
                                                                   : 0,
                                .n = widths[i / 5],
                                .last = kind == 3};
        const struct mix p = mix_of(&k);
        const size_t factors = (size_t)ROWS * mix_factors(&p), x = (size_t)ROWS * k.n;
        float *in = units(streams_of(&k) + x + factors + mix_factors(&p) + 3);
        float *got = read_and_write(g, &k, in), *want = read_and_write(c, &k, in);
        assert_near(got, want, x + streams_of(&k) + factors, WITHIN, "mixed");
        free(in), free(got), free(want);
    }
    close_side(g), close_side(c);
}

/* The beginning, the addition by the first factors of the input, and the mean: x, then the
 * streams. */
static float *ends_of(struct side s, const float *in, uint32_t n)
{
    enum { STREAMS = 4 };
    const size_t x = (size_t)ROWS * n;
    float *out = malloc(5 * x * sizeof(*out)), *dx = up(s, in, x * 4);
    float *streams = up(s, in + x, 4 * x * 4);
    float *factors = up(s, in, (size_t)ROWS * STREAMS * 4);
    struct mix p = {.kind = MIX_MEAN, .n = STREAMS, .streams = streams, .factors = factors};
    s.ops->mix(s.d, dx, ROWS, n, &p);
    p.kind = MIX_SPREAD;
    s.ops->mix(s.d, dx, ROWS, n, &p);
    p.kind = MIX_ADD;
    s.ops->mix(s.d, dx, ROWS, n, &p);
    s.ops->free(s.d, factors);
    down(s, out, dx, x * 4), down(s, out + x, streams, 4 * x * 4);
    return out;
}

TEST(ends_are_those_of_the_cpu)
{
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    for (size_t w = 0; w < sizeof(widths) / sizeof(*widths); w++) {
        const uint32_t n = widths[w];
        float *in = units((size_t)ROWS * n * 5), *got = ends_of(g, in, n),
              *want = ends_of(c, in, n);
        assert_near(got, want, (size_t)ROWS * n * 5, WITHIN, "ends");
        free(in), free(got), free(want);
    }
    close_side(g), close_side(c);
}

int main(void) { return cuda_tests_run(); }
