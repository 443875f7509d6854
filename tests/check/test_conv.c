/* test_conv.c - convolutions on grids against sums place by place, and the inner loop of each
 * instruction set against its reference, bit by bit; random shapes of a fixed seed. */
#include "model-server/encoder/conv.h"
#include "model-server/encoder/conv_spec.h"
#include "model-server/encoder/resample_kernels.h"
#include "tests/check/random.h"
#include "tests/unit/test.h"
#include <math.h>
#include <string.h>

static struct rng rng;
enum { ROUNDS = 300 };

static float *random_floats(size_t n)
{
    float *v = malloc((n + 1) * sizeof(*v));
    assert_non_null(v);
    for (size_t i = 0; i < n; i++)
        v[i] = (float)rng_below(&rng, 2001) / 1000 - 1;
    return v;
}

static struct conv_shape random_shape(void)
{
    return (struct conv_shape){1 + rng_below(&rng, 9), 1 + rng_below(&rng, 9),
                               1 + rng_below(&rng, 70)};
}

/* The number at (y, x) of a padded grid; 0 outside. */
static float at(const float *from, struct conv_shape s, int64_t y, int64_t x, uint32_t c)
{
    if (y < 0 || x < 0 || y >= s.height || x >= s.width)
        return 0;
    return from[((size_t)y * s.width + (size_t)x) * s.channels + c];
}

/* Output sizes and padding as TensorFlow's SAME, and as size / 2 zeros on each side. */
TEST(windows_lie_where_they_are_said_to)
{
    static const struct {
        uint32_t n, size, stride, same, out, before;
    } all[] = {{8, 3, 1, 1, 8, 1},     {8, 3, 2, 1, 4, 0},    {9, 3, 2, 1, 5, 1},
               {768, 3, 2, 1, 384, 0}, {192, 5, 2, 1, 96, 1}, {1, 5, 2, 1, 1, 2},
               {8, 3, 2, 0, 4, 1},     {9, 7, 2, 0, 5, 3},    {1, 7, 1, 0, 1, 3},
               {5, 1, 2, 1, 3, 0},     {64, 7, 2, 0, 32, 3}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct conv_shape out = {0};
        const struct conv_window w = conv_over((struct conv_shape){all[i].n, all[i].n, 1},
                                               all[i].size, all[i].stride, all[i].same, &out);
        assert_int_equal(out.height, all[i].out);
        assert_int_equal(out.width, all[i].out);
        assert_int_equal(w.above, all[i].before);
        assert_int_equal(w.left, all[i].before);
    }
}

static void check_gather(const float *from, struct conv_shape in, struct conv_shape out,
                         const struct conv_window *w)
{
    const size_t each = (size_t)w->size * w->size * in.channels, rows = conv_rows(out);
    float *got = random_floats(rows * each);
    const size_t cut = rows / 2;
    conv_gather(got, from, in, out, w, 0, cut);
    conv_gather(got + cut * each, from, in, out, w, cut, rows);
    for (size_t i = 0; i < rows; i++)
        for (uint32_t k = 0; k < each; k++) {
            const uint32_t place = k / in.channels;
            const int64_t y = (int64_t)(i / out.width * w->stride + place / w->size) - w->above;
            const int64_t x = (int64_t)(i % out.width * w->stride + place % w->size) - w->left;
            if (got[i * each + k] != at(from, in, y, x, k % in.channels))
                fail_msg("window of place %zu, number %u", i, k);
        }
    free(got);
}

/* The sums of one depthwise convolution, in double precision. */
static void check_depth(const float *from, struct conv_shape in, struct conv_shape out,
                        const struct conv_window *w)
{
    const uint32_t each = 1 + rng_below(&rng, 3), n = in.channels, places = w->size * w->size;
    float *kernel = random_floats((size_t)each * places * n),
          *bias = random_floats((size_t)each * n);
    out.channels = each * n;
    float *want = random_floats(conv_floats(out)), *got = random_floats(conv_floats(out));
    struct conv_kernels k = {conv_sum_ref};
    conv_depth(want, from, in, out, w, kernel, bias, &k, 0, conv_rows(out));
    for (size_t i = 0; i < conv_rows(out); i++)
        for (uint32_t o = 0; o < out.channels; o++) {
            const uint32_t c = o / each, part = o % each;
            double sum = bias[part * n + c];
            for (uint32_t p = 0; p < places; p++) {
                const int64_t y = (int64_t)(i / out.width * w->stride + p / w->size) - w->above;
                const int64_t x = (int64_t)(i % out.width * w->stride + p % w->size) - w->left;
                sum += (double)at(from, in, y, x, c) * kernel[(part * places + p) * n + c];
            }
            if (fabs(want[i * out.channels + o] - sum) > 1e-4)
                fail_msg("place %zu, channel %u: %g, not %g", i, o,
                         (double)want[i * out.channels + o], sum);
        }
    for (unsigned features = 0; features < 4; features++) { /* CPU_AVX2, CPU_AVX512 */
        const size_t cut = rng_below(&rng, (uint32_t)conv_rows(out) + 1);
        conv_kernels_init(&k, features & resample_features());
        conv_depth(got, from, in, out, w, kernel, bias, &k, 0, cut);
        conv_depth(got, from, in, out, w, kernel, bias, &k, cut, conv_rows(out));
        if (memcmp(got, want, conv_floats(out) * sizeof(float)) != 0)
            fail_msg("features %u: other bits", features);
    }
    free(kernel), free(bias), free(want), free(got);
}

TEST(convolutions_are_sums_over_windows)
{
    static const uint32_t sizes[] = {1, 3, 5, 7};
    for (int i = 0; i < ROUNDS; i++) {
        const struct conv_shape in = random_shape();
        struct conv_shape out = in;
        const struct conv_window w = conv_over(in, sizes[rng_below(&rng, 4)],
                                               1 + rng_below(&rng, 2), rng_below(&rng, 2), &out);
        float *from = random_floats(conv_floats(in));
        check_gather(from, in, out, &w);
        check_depth(from, in, out, &w);
        free(from);
    }
}

TEST(means_and_joins)
{
    for (int i = 0; i < ROUNDS; i++) {
        const struct conv_shape small = random_shape();
        const uint32_t side = 1 + rng_below(&rng, 3), more = 1 + rng_below(&rng, 5);
        const struct conv_shape large = {small.height * side, small.width * side, more};
        struct conv_shape joined = large, mean = small;
        joined.channels += small.channels;
        mean.channels = more;
        float *a = random_floats(conv_floats(large)), *b = random_floats(conv_floats(small));
        float *got = random_floats(conv_floats(joined)), *means = random_floats(conv_floats(mean));
        conv_join(got, a, large, b, small, 0, conv_rows(large));
        conv_mean(means, a, large, mean, 0, conv_rows(mean));
        for (size_t r = 0; r < conv_rows(large); r++) {
            const size_t y = r / large.width / side, x = r % large.width / side;
            const float *row = got + r * joined.channels;
            assert_memory_equal(row, a + r * more, more * sizeof(float));
            assert_memory_equal(row + more, b + (y * small.width + x) * small.channels,
                                small.channels * sizeof(float));
        }
        double all = 0, of_means = 0;
        for (size_t k = 0; k < conv_floats(large); k++)
            all += a[k];
        for (size_t k = 0; k < conv_floats(mean); k++)
            of_means += means[k];
        assert_true(fabs(all / (side * side) - of_means) < 1e-3);
        free(a), free(b), free(got), free(means);
    }
}

TEST(windows_hold_the_grid)
{
    for (int i = 0; i < ROUNDS; i++) {
        const struct conv_shape s = random_shape();
        const uint32_t size = 1 + rng_below(&rng, 5), n = s.channels;
        const struct conv_shape split = conv_windows(s, size);
        const uint32_t across = (s.width + size - 1) / size;
        float *from = random_floats(conv_floats(s)), *back = random_floats(conv_floats(s));
        float *windows = random_floats(conv_floats(split));
        const size_t cut = rng_below(&rng, (uint32_t)conv_rows(split) + 1);
        conv_split(windows, from, s, size, 0, cut);
        conv_split(windows, from, s, size, cut, conv_rows(split));
        for (uint32_t r = 0; r < conv_rows(split); r++) {
            const uint32_t y = r / split.width / across * size + r % split.width / size;
            const uint32_t x = r / split.width % across * size + r % size;
            for (uint32_t c = 0; c < n; c++)
                if (windows[(size_t)r * n + c] != at(from, s, y, x, c))
                    fail_msg("row %u of windows of %u", r, size);
        }
        conv_merge(back, windows, s, size, 0, conv_rows(s));
        assert_memory_equal(back, from, conv_floats(s) * sizeof(float));
        free(from), free(back), free(windows);
    }
}

/* q * k of what conv_relate() writes, against the sum that it stands for. */
TEST(relations_are_scores)
{
    for (int i = 0; i < ROUNDS / 10; i++) {
        const uint32_t side = 1 + rng_below(&rng, 5), dim = 1 + rng_below(&rng, 20), heads = 2;
        const uint32_t n = side * side, wide = dim + 2 * side + rng_below(&rng, 3);
        const size_t row = (size_t)heads * (2 * wide + dim), each = (size_t)heads * dim;
        const size_t entries = (2 * (size_t)side - 1) * dim;
        float *from = random_floats(n * 3 * each), *to = random_floats(n * row);
        float *rows = random_floats(entries), *columns = random_floats(entries);
        conv_relate(to, from, &(struct conv_relation){side, heads, dim, wide, rows, columns}, 0, n);
        for (uint32_t q = 0; q < n; q++)
            for (uint32_t k = 0; k < n; k++) {
                const uint32_t h = (q + k) % heads;
                const float *own = from + q * 3 * each + (size_t)h * dim;
                const float *key = from + k * 3 * each + each + (size_t)h * dim;
                const float *by = rows + (q / side + side - 1 - k / side) * (size_t)dim;
                const float *across = columns + (q % side + side - 1 - k % side) * (size_t)dim;
                double want = 0, got = 0;
                for (uint32_t c = 0; c < dim; c++)
                    want += own[c] * (key[c] / sqrt(dim) + (double)by[c] + across[c]);
                for (uint32_t c = 0; c < wide; c++)
                    got += (double)to[q * row + (size_t)h * wide + c] *
                           to[k * row + ((size_t)heads + h) * wide + c];
                if (fabs(want - got) > 1e-5)
                    fail_msg("query %u, key %u: %g, not %g", q, k, got, want);
            }
        assert_memory_equal(to + 2 * (size_t)heads * wide, from + 2 * each, each * sizeof(float));
        free(from), free(to), free(rows), free(columns);
    }
}

/* Tables keep what is linear, away from the ends, and are themselves at their own size. */
TEST(tables_are_fitted)
{
    enum { OF = 24, TO = 17, N = 5 };
    float from[OF * N], to[OF * N], grid[OF * OF], all[OF * OF], scratch[OF * (OF + 1)];
    for (int i = 0; i < OF * N; i++)
        from[i] = (float)(i / N) * 3 + (float)(i % N);
    conv_fit_rows(to, OF, from, OF, N);
    for (int i = 0; i < OF * N; i++)
        assert_float_equal(to[i], from[i], 1e-5);
    conv_fit_rows(to, TO, from, OF, N);
    for (int i = 0; i < TO * N; i++) {
        const float place = ((float)(i / N) + 0.5F) * OF / TO - 0.5F;
        assert_float_equal(to[i], place * 3 + (float)(i % N), 1e-3);
    }
    for (int i = 0; i < OF * OF; i++)
        grid[i] = (float)(i / OF) * 2 - (float)(i % OF);
    conv_fit_places(all, (struct conv_shape){OF, OF, 1}, grid, OF, scratch);
    for (int i = 0; i < OF * OF; i++)
        assert_float_equal(all[i], grid[i], 1e-4);
    conv_fit_places(all, (struct conv_shape){OF / 2, TO, 1}, grid, OF, scratch);
    for (int i = 3 * TO; i < (OF / 2 - 3) * TO; i++) {
        const float y = 2 * ((float)(i / TO) + 0.5F) - 0.5F;
        const float x = ((float)(i % TO) + 0.5F) * OF / TO - 0.5F;
        if (i % TO > 2 && i % TO < TO - 3)
            assert_float_equal(all[i], 2 * y - x, 0.05);
    }
}

/* Sums of grids of other shapes, and means of what does not divide, are refused. */
TEST(steps_that_do_not_fit_are_refused)
{
    struct conv_spec *s = calloc(1, sizeof(*s));
    struct conv_shape shape[CONV_GRIDS];
    assert_non_null(s);
    conv_add(s, (struct conv_step){.kind = CONV_DENSE,
                                   .from = 0,
                                   .to = 1,
                                   .size = 3,
                                   .stride = 2,
                                   .same = true,
                                   .out = 4});
    conv_add(s, (struct conv_step){.kind = CONV_MEAN, .from = 1, .to = 2, .size = 3});
    assert_true(conv_shapes(s, s->n, 12, 12, shape));
    assert_int_equal(shape[2].height, 3);
    assert_int_equal(shape[2].channels, 4);
    assert_false(conv_shapes(s, s->n, 16, 16, shape));
    assert_false(conv_shapes(s, s->n, 12, 24, shape));
    s->step[1].add = true;
    assert_false(conv_shapes(s, s->n, 12, 12, shape));
    free(s);
}

/* ---------------------------------------------------------------- channels */

/* In doubles. */
static void attend_channels(double *to, const float *from, size_t rows, uint32_t width,
                            uint32_t dim)
{
    for (uint32_t c = 0; c < width; c++) {
        const uint32_t first = c / dim * dim;
        double by[CONV_MOST_CHANNELS], sum = 0;
        for (uint32_t i = 0; i < dim; i++) {
            double product = 0;
            for (size_t r = 0; r < rows; r++)
                product += (double)from[r * 3 * width + c] * from[(r * 3 + 1) * width + first + i];
            sum += by[i] = exp(product / sqrt((double)rows));
        }
        for (size_t r = 0; r < rows; r++) {
            to[r * width + c] = 0;
            for (uint32_t i = 0; i < dim; i++)
                to[r * width + c] += by[i] / sum * from[(r * 3 + 2) * width + first + i];
        }
    }
}

TEST(channels_attend_to_those_of_their_group)
{
    for (int i = 0; i < ROUNDS / 10; i++) {
        const uint32_t groups = 1 + rng_below(&rng, 4), dim = 1 + rng_below(&rng, 9);
        const uint32_t width = groups * dim, cut = rng_below(&rng, width + 1);
        const struct conv_shape in = {1 + rng_below(&rng, 20), 1 + rng_below(&rng, 20), 3 * width};
        const size_t rows = conv_rows(in), half = rows / 2;
        float *from = random_floats(conv_floats(in)), *by = random_floats((size_t)width * dim);
        float *got = random_floats(rows * width);
        double *want = malloc(rows * width * sizeof(*want));
        attend_channels(want, from, rows, width, dim);
        conv_channel_factors(by, from, in, groups, cut, width); /* in any division */
        conv_channel_factors(by, from, in, groups, 0, cut);
        conv_channels(got, from, in, groups, by, half, rows);
        conv_channels(got, from, in, groups, by, 0, half);
        for (size_t k = 0; k < rows * width; k++)
            assert_true(fabs(got[k] - want[k]) < 1e-5);
        free(from), free(by), free(got), free(want);
    }
}

TEST(rows_follow_rows_and_get_their_positions)
{
    static const float a[] = {1, 2, 3}, b[] = {4, 5, 6, 7, 8, 9};
    static const float columns[] = {10, 20, 30, 40}, rows[] = {100, 200}, all[] = {1, 2, 3};
    static const float grid[12] = {0};
    float to[12];
    conv_append(to, a, 1, b, 3, 0, 3);
    for (int i = 0; i < 9; i++)
        assert_true(to[i] == (float)(i + 1));
    conv_axes(to, grid, (struct conv_shape){2, 2, 3}, columns, rows, all, 0, 4);
    assert_true(to[0] == 11 && to[1] == 22 && to[2] == 103); /* row 0, column 0 */
    assert_true(to[9] == 31 && to[10] == 42 && to[11] == 203);
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
