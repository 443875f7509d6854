/* test_image.c - packed matrices as bytes: one that is made of the bytes of another gives the same
 * bits, and heads that do not fit are refused. The sums at the end are of all that is packed here,
 * by every instruction set: where they change, files of packed weights are no longer right, and
 * PANEL_LAYOUT of image.c has to change, too. */
#include "common/hash.h"
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/numbers.h"
#include "tests/check/cpu_device.h"
#include "tests/check/random.h"
#include <string.h>

static const struct backend_ops *const ops = &backend_cpu;
enum { ROWS = 37, COLS = 256, X_ROWS = 19 };
enum { START = 12345 };

/* ---------------------------------------------------------------- matrices of every kind */

struct made {
    float *numbers;
    uint16_t *halves;
    struct mat_codes codes;
    struct mat_part part;
};

/* Panels read the two halves of the columns in turn. */
static void make_bands(struct made *s)
{
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < COLS; k++)
            if ((k < COLS / 2) != (r / LANES % 2 == 0))
                s->numbers[r * COLS + k] = 0;
}

static void made_of_numbers(struct made *s, enum dtype t, bool banded)
{
    struct rng rng = {START, START};
    *s = (struct made){.numbers = malloc(sizeof(float) * ROWS * COLS),
                       .halves = malloc(sizeof(uint16_t) * ROWS * COLS)};
    assert_true(s->numbers && s->halves);
    for (int i = 0; i < ROWS * COLS; i++) {
        s->numbers[i] = rng_unit(&rng);
        s->halves[i] = t == DT_F16 ? f16_of_f32(s->numbers[i]) : bf16_of_f32(s->numbers[i]);
    }
    if (banded)
        make_bands(s);
    s->part = (struct mat_part){.data = t == DT_F32 ? (void *)s->numbers : (void *)s->halves,
                                .dtype = t,
                                .rows = ROWS,
                                .cols = COLS,
                                .row_stride = COLS,
                                .col_stride = 1};
}

static void made_of_codes(struct made *s, const struct format *f)
{
    enum { N = ROWS * COLS };
    struct rng rng = {START, START};
    *s = (struct made){.codes = {.format = *f}};
    struct mat_codes *c = &s->codes;
    const uint32_t block = f->block ? f->block : COLS, group = f->group;
    c->scales = malloc(sizeof(float) * N / block);
    assert_non_null(c->scales);
    for (uint32_t i = 0; i < N / block; i++)
        c->scales[i] = rng_unit(&rng);
    c->format.ordered = f->group == 32 && !f->nested;
    c->codes = malloc(N), c->scale = malloc(N), c->offset = malloc(N), c->by = malloc(N);
    c->less = malloc(N), c->factor = malloc(sizeof(float) * ROWS);
    c->order = malloc(sizeof(uint32_t) * COLS);
    assert_true(c->codes && c->scale && c->offset && c->by && c->less && c->factor && c->order);
    for (uint32_t i = 0; i < N; i++) {
        c->codes[i] = (uint8_t)rng_below(&rng, 1u << f->bits);
        c->by[i] = (int8_t)rng_below(&rng, 64), c->less[i] = (int8_t)rng_below(&rng, 64);
    }
    for (uint32_t i = 0; i < N / block && group; i++) {
        c->scale[i] = f16_of_f32(rng_unit(&rng));
        c->offset[i] = f16_of_f32(rng_unit(&rng));
    }
    for (uint32_t i = 0; i < ROWS; i++)
        c->factor[i] = rng_unit(&rng);
    for (uint32_t i = 0; i < COLS; i++)
        c->order[i] = (i * 5 + 3) % COLS;
    s->part = (struct mat_part){.rows = ROWS, .cols = COLS, .source = SOURCE_CODES, .codes = c};
}

static void made_free(struct made *s)
{
    struct mat_codes *c = &s->codes;
    free(s->numbers), free(s->halves), free(c->codes), free(c->scale), free(c->offset);
    free(c->by), free(c->less), free(c->factor), free(c->order), free(c->scales);
}

/* Kind number i; NULL: there are no more. `d` takes all of them. */
static struct weight *matrix(struct device *d, uint32_t i, struct made *s)
{
    enum { QUANTS = DT_N + QUANT_N - 1, FORMATS = FORMAT_N - FORMAT_Q4_0 };
    struct err e = ERR_INIT;
    struct mat_desc m = {.n_parts = 1, .parts = &s->part};
    if (i < DT_N) {
        made_of_numbers(s, m.dtype = (enum dtype)i, false);
    } else if (i < QUANTS) {
        made_of_numbers(s, m.dtype = DT_BF16, false);
        m.quant = (enum quant)(i - DT_N + 1);
    } else if (i < QUANTS + 2 * FORMATS) {
        made_of_codes(s, &formats[FORMAT_Q4_0 + (i - QUANTS) / 2]);
        m.dtype = DT_BF16;
        m.arith = (i - QUANTS) % 2 ? ARITH_INT8 : ARITH_EXACT;
    } else if (i < QUANTS + 2 * FORMATS + 2) {
        struct format f = formats[FORMAT_FP8];
        f.block = i % 2 ? 0 : 128;
        made_of_codes(s, &f);
        m.dtype = DT_BF16;
    } else if (i == QUANTS + 2 * FORMATS + 2) {
        made_of_numbers(s, m.dtype = DT_F32, true);
    } else {
        return NULL;
    }
    struct weight *w = ops->weight_load(d, &m, &e);
    if (!w)
        fail_msg("%s", e.msg);
    return w;
}

/* ---------------------------------------------------------------- copies */

/* The pieces of an image where they could be in a file. */
static void copy_pieces(struct weight_image *im)
{
    for (int i = 0; i < WEIGHT_PIECES; i++) {
        const size_t n = im->piece[i].bytes;
        char *p =
            n ? aligned_alloc(WEIGHT_ALIGN, (n + WEIGHT_ALIGN - 1) / WEIGHT_ALIGN * WEIGHT_ALIGN)
              : NULL;
        assert_true(p || !n);
        if (n)
            memcpy(p, im->piece[i].data, n);
        im->piece[i].data = p;
    }
}

static void free_pieces(struct weight_image *im)
{
    for (int i = 0; i < WEIGHT_PIECES; i++)
        free((void *)(uintptr_t)im->piece[i].data);
}

static void product(struct device *d, const struct weight *w, const float *x, float *y)
{
    struct err e = ERR_INIT;
    const struct ragged none = {0};
    assert_int_equal(ops->step_begin(d, &none, &e), 0);
    ops->linear(d, y, x, X_ROWS, w, NULL);
    assert_int_equal(ops->step_end(d, &e), 0);
}

TEST(test_a_copy_has_the_same_bits)
{
    struct err e = ERR_INIT;
    struct device *d = device(2, ~0ull);
    struct rng rng = rng_new();
    float *x = rng_floats(&rng, (size_t)X_ROWS * COLS), y[2][X_ROWS * ROWS];
    struct made s;
    uint32_t n = 0;
    for (struct weight *w; (w = matrix(d, n, &s)); n++) {
        struct weight_image im;
        assert_true(ops->weight_image(w, &im));
        product(d, w, x, y[0]);
        copy_pieces(&im);
        const uint64_t bytes = ops->weight_bytes(w);
        ops->weight_free(d, w);
        w = ops->weight_mapped(d, &im, &e);
        if (!w)
            fail_msg("kind %u: %s", n, e.msg);
        assert_int_equal(ops->weight_bytes(w), bytes);
        product(d, w, x, y[1]);
        assert_memory_equal(y[0], y[1], sizeof(y[0]));
        ops->weight_free(d, w);
        free_pieces(&im);
        made_free(&s);
    }
    assert_true(n > 2 * (FORMAT_N - FORMAT_Q4_0));
    free(x);
    ops->close(d);
}

/* A head that is wrong in one byte gives an error, or numbers; never a read outside the pieces. */
TEST(test_damaged_heads)
{
    struct device *d = device(1, ~0ull);
    struct rng rng = rng_new();
    float *x = rng_floats(&rng, (size_t)X_ROWS * COLS), y[X_ROWS * ROWS];
    uint32_t refused = 0;
    struct made s;
    static const uint32_t kinds[] = {0,
                                     3,
                                     6,
                                     9,
                                     12,
                                     15,
                                     7 + 2 * (FORMAT_N - FORMAT_Q4_0),
                                     8 + 2 * (FORMAT_N - FORMAT_Q4_0),
                                     9 + 2 * (FORMAT_N - FORMAT_Q4_0)};
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        struct weight_image im;
        struct weight *w = matrix(d, kinds[k], &s);
        assert_true(ops->weight_image(w, &im));
        copy_pieces(&im);
        ops->weight_free(d, w);
        for (uint32_t i = 0; i < WEIGHT_HEAD; i++)
            for (uint32_t bit = 1; bit < 256; bit *= 4) {
                struct weight_image bad = im;
                struct err e = ERR_INIT;
                bad.head[i] ^= (uint8_t)bit;
                if (!(w = ops->weight_mapped(d, &bad, &e))) {
                    assert_int_equal(e.kind, ERR_VALIDATION);
                    refused++;
                    continue;
                }
                struct weight_image now;
                assert_true(ops->weight_image(w, &now));
                if (memcmp(im.head, now.head, 24) == 0) /* rows and columns that y and x have */
                    product(d, w, x, y);
                ops->weight_free(d, w);
            }
        free_pieces(&im);
        made_free(&s);
    }
    assert_true(refused > 500);
    free(x);
    ops->close(d);
}

/* Of a matrix with an order, or with first columns of panels. */
static void check_sizes_and_columns(struct device *d, struct weight *w, uint32_t last)
{
    struct weight_image im, bad;
    struct err e = ERR_INIT;
    assert_true(ops->weight_image(w, &im));
    copy_pieces(&im);
    for (int i = 0; i < 2; i++) {
        bad = im;
        bad.piece[i].bytes -= 4;
        assert_null(ops->weight_mapped(d, &bad, &e));
    }
    ((uint32_t *)(uintptr_t)im.piece[1].data)[last] = COLS;
    assert_null(ops->weight_mapped(d, &im, &e));
    free_pieces(&im);
}

TEST(test_other_sizes_and_columns)
{
    struct device *d = device(1, ~0ull);
    struct made s;
    struct weight *w;
    uint32_t orders = 0, bands = 0;
    for (uint32_t n = 0; (w = matrix(d, n, &s)); n++) {
        if (w->order && !orders++)
            check_sizes_and_columns(d, w, 7);
        if (w->from && !bands++)
            check_sizes_and_columns(d, w, 2);
        ops->weight_free(d, w);
        made_free(&s);
    }
    assert_true(orders && bands);
    ops->close(d);
}

/* ---------------------------------------------------------------- what the layout is */

static uint64_t sum_of_all(uint64_t features, char *layout, size_t max)
{
    struct device *d = device(2, features);
    struct made s;
    uint64_t sum = 0;
    uint32_t i = 0;
    for (struct weight *w; (w = matrix(d, i, &s)); i++) {
        struct weight_image im;
        assert_true(ops->weight_image(w, &im));
        sum = hash_bytes(sum, im.head, sizeof(im.head));
        for (int k = 0; k < WEIGHT_PIECES; k++)
            sum = hash_bytes(sum, im.piece[k].data, im.piece[k].bytes);
        ops->weight_free(d, w);
        made_free(&s);
    }
    ops->weight_layout(d, layout, max);
    ops->close(d);
    return sum;
}

TEST(test_sums_of_the_layout)
{
    static const uint64_t features[] = {~0ull, 0, 1};
    for (int i = 0; i < 3; i++) {
        char layout[64];
        const uint64_t sum = sum_of_all(features[i], layout, sizeof(layout));
        if (strcmp(layout, "cpu panels 6 of 16, heads by 0") != 0 || sum != 0x2adf171879a62e8b)
            fail_msg("\"%s\" with features %llx packs to %#llx: a new PANEL_LAYOUT?", layout,
                     (unsigned long long)features[i], (unsigned long long)sum);
    }
}

int main(void) { return tests_run(NULL, NULL); }
