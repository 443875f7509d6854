/* Blocks of every packing against the numbers that llama.cpp or its Python module makes of them
 * (tests/data/gguf_blocks.py), whole and in slices, in order and in pairs. */
#include "common/json/json.h"
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/quant/blocks.h"
#include "model-server/model/checkpoint/quant/stored.h"
#include "tests/check/random.h"
#include "tests/unit/test.h"
#include <string.h>

enum { N_TYPES = 25 };
static const struct backend_ops alone; /* without threads */

static int packing_of(uint32_t number)
{
    for (int i = 0; i < GGUF_N_PACKINGS; i++)
        if (gguf_packings[i].number == number)
            return i;
    return -1;
}

/* The next type of the file: its packing, blocks, numbers. */
struct part {
    enum gguf_packing packing;
    uint32_t n;
    const uint8_t *blocks, *numbers;
};

static const uint8_t *next_part(const uint8_t *p, struct part *out)
{
    uint32_t number;
    memcpy(&number, p, 4);
    memcpy(&out->n, p + 4, 4);
    int packing = packing_of(number);
    assert_true(packing >= 0);
    out->packing = (enum gguf_packing)packing;
    const struct gguf_packing_info *i = &gguf_packings[packing];
    out->blocks = p + 8;
    out->numbers = out->blocks + (size_t)out->n * i->bytes;
    return out->numbers + (size_t)out->n * i->elements * 4;
}

static char *load(size_t *n)
{
    struct err e = ERR_INIT;
    char *file = file_read("tests/data/gguf_blocks.bin", 1 << 20, n, &e);
    if (!file)
        fail_msg("%s", e.msg);
    return file;
}

TEST(every_bit)
{
    size_t n;
    char *file = load(&n);
    const uint8_t *p = (const uint8_t *)file, *end = p + n;
    int types = 0;
    for (struct part x; p < end; types++) {
        p = next_part(p, &x);
        const struct gguf_packing_info *i = &gguf_packings[x.packing];
        for (uint32_t b = 0; b < x.n; b++) {
            float got[BLOCK_MAX];
            block_numbers(x.packing, x.blocks + (size_t)b * i->bytes, got);
            if (memcmp(got, x.numbers + (size_t)b * i->elements * 4, i->elements * 4) != 0)
                fail_msg("%s, block %u", i->name, b);
        }
    }
    assert_ptr_equal(p, end);
    assert_int_equal(types, N_TYPES);
    free(file);
}

static const struct tensor *the_one(const void *ctx, const char *name)
{
    return strcmp(name, "w.weight") == 0 ? ctx : NULL;
}

/* Element (r, c) of a matrix of `cols` columns whose numbers lie in `v`. */
static float want(const uint8_t *v, const struct tensor *t, int64_t r, int64_t c)
{
    float f;
    const int64_t cols = (int64_t)t->dims[1];
    r = t->row_at ? t->row_at[r] : r;
    c = t->col_at ? t->col_at[c] : c;
    memcpy(&f, v + (r * cols + c) * 4, 4);
    return f;
}

enum { ROWS_MOST = 64, COLS_MOST = 8192 };
/* Rows 1 3 0 2 of each four; runs of 16 columns from the last to the first. */
struct moves {
    uint32_t row_at[ROWS_MOST], col_at[COLS_MOST];
};

static void move(struct moves *m, struct tensor *t, bool rows, bool cols)
{
    static const uint32_t to[] = {1, 3, 0, 2};
    const uint32_t runs = (uint32_t)t->dims[1] / 16;
    assert_true(t->dims[0] <= ROWS_MOST && t->dims[1] <= COLS_MOST && t->dims[1] % 16 == 0);
    for (uint32_t i = 0; i < t->dims[0]; i++)
        m->row_at[i] = i - i % 4 + to[i % 4];
    for (uint32_t i = 0; i < t->dims[1]; i++)
        m->col_at[i] = (runs - 1 - i / 16) * 16 + i % 16;
    t->row_at = rows ? m->row_at : NULL;
    t->col_at = cols ? m->col_at : NULL;
}

/* Columns from 5 on and up to 3 before the end: slices begin and end inside of blocks. */
static void check_slices(const struct part *x, uint32_t rows, bool rows_moved, bool cols_moved)
{
    static const struct stored how = {.format = &stored_blocks, .method = "gguf", .row_block = 1};
    const struct gguf_packing_info *i = &gguf_packings[x->packing];
    const int64_t cols = (int64_t)(x->n / rows * i->elements);
    struct tensor t = {.name = "w.weight",
                       .file = "f",
                       .type = T_BLOCKS,
                       .n_dims = 2,
                       .dims = {rows, (uint64_t)cols},
                       .bytes = (uint64_t)x->n * i->bytes,
                       .data = x->blocks,
                       .packing = (int)x->packing};
    struct stored_matrix m;
    struct moves moves;
    struct err e = ERR_INIT;
    move(&moves, &t, rows_moved, cols_moved);
    float *out = malloc((size_t)(rows * cols) * sizeof(*out));
    assert_non_null(out);
    if (stored_open(&m, &how, "w", rows, cols, the_one, &t, &e))
        fail_msg("%s", e.msg);
    const int64_t from = 5, n = cols - 8;
    stored_numbers(&m, 1, rows - 1, from, n, DT_F32, out, &alone, NULL);
    for (int64_t r = 1; r < rows; r++)
        for (int64_t c = 0; c < n; c++)
            if (out[(r - 1) * n + c] != want(x->numbers, &t, r, from + c))
                fail_msg("%s, row %d, column %d", i->name, (int)r, (int)(from + c));
    assert_int_equal(stored_open(&m, &how, "w", rows, cols + 1, the_one, &t, &e), -1);
    assert_non_null(strstr(e.msg, "f: tensor `w.weight` has shape"));
    free(out);
}

/* Of Q4_0, and of whole blocks, the scales can be had: rounded to bfloat16. */
static void check_scales(const struct part *x)
{
    static const struct stored how = {.format = &stored_blocks, .method = "gguf", .row_block = 1};
    const struct tensor t = {.name = "w.weight",
                             .file = "f",
                             .type = T_BLOCKS,
                             .n_dims = 2,
                             .dims = {4, 128},
                             .data = x->blocks,
                             .packing = (int)x->packing};
    struct stored_matrix m;
    struct err e = ERR_INIT;
    uint16_t got[4 * 4];
    assert_int_equal(stored_open(&m, &how, "w", 4, 128, the_one, &t, &e), 0);
    assert_int_equal(how.format->scales(&m, 0, 4, 0, 128, got), x->packing == GGUF_Q4_0);
    assert_false(how.format->scales(&m, 0, 4, 16, 64, got));
    assert_false(how.format->scales(&m, 0, 4, 0, 48, got));
    if (!how.format->scales(&m, 1, 3, 32, 64, got))
        return;
    for (int i = 0; i < 6; i++) { /* rows 1 to 3, blocks 1 and 2 of four */
        uint16_t half;
        memcpy(&half, x->blocks + (size_t)((1 + i / 2) * 4 + 1 + i % 2) * 18, sizeof(half));
        assert_int_equal(got[i], bf16_of_f32(f32_of_f16(half)));
    }
}

static float number_of(const struct mat_codes *c, int64_t i, int64_t cols)
{
    const struct format *f = &c->format;
    const float factor = f->factors ? c->factor[i / cols] : 1.0f;
    const float by = f->nested ? (float)c->by[i / f->group] : 1.0f;
    const float less = f->nested && f->offsets ? (float)c->less[i / f->group] : 1.0f;
    const float offset = f->offsets ? f32_of_f16(c->offset[i / f->block]) * less : 0.0f;
    const float scale = f32_of_f16(c->scale[i / f->block]) * by;
    const int n = f->table ? f->table[c->codes[i]] : c->codes[i];
    return (scale * (float)(n - (int)f->zero) - offset) * factor;
}

static enum take takes_all(const struct format *f, enum arith a)
{
    (void)f, (void)a;
    return TAKE_NATIVE;
}

/* Rows `row`, row + step, ... and columns of a matrix as codes, by a device that takes them all. */
static bool codes_of(const struct stored_matrix *m, struct stored_slice s, struct mat_codes *c)
{
    const struct backend_ops takes = {.weight_takes = takes_all};
    return stored_codes(m, &s, c, &takes, NULL);
}

/* Of whole blocks the codes can be had, unless a scale is beyond all reason. */
static void check_codes(const struct part *x, uint32_t rows)
{
    static const struct stored how = {
        .format = &stored_blocks, .method = "gguf", .row_block = 1, .keep = true};
    const struct gguf_packing_info *i = &gguf_packings[x->packing];
    const int64_t all = x->n / rows, cols = all * i->elements;
    const int64_t from = all > 2 ? i->elements : 0, n = cols - 2 * from;
    struct tensor t = {.name = "w.weight",
                       .file = "f",
                       .type = T_BLOCKS,
                       .n_dims = 2,
                       .dims = {rows, (uint64_t)cols},
                       .data = x->blocks,
                       .packing = (int)x->packing};
    struct stored_matrix m;
    struct moves moves;
    struct mat_codes c;
    struct err e = ERR_INIT;
    move(&moves, &t, rows % 4 == 0, false);
    assert_int_equal(stored_open(&m, &how, "w", rows, cols, the_one, &t, &e), 0);
    assert_false(codes_of(&m, (struct stored_slice){0, rows, 1, from + 16, n - 16}, &c));
    assert_false(codes_of(&m, (struct stored_slice){0, rows, 1, from, n - 16}, &c));
    for (int64_t step = 1; step <= 2; step++) {
        const int64_t n_rows = (rows - 2) / step + 1;
        assert_true(codes_of(&m, (struct stored_slice){1, n_rows, step, from, n}, &c));
        for (int64_t r = 0; r < n_rows; r++)
            for (int64_t k = 0; k < n; k++)
                if (number_of(&c, r * n + k, n) != want(x->numbers, &t, 1 + r * step, from + k))
                    fail_msg("%s, row %d, column %d", i->name, (int)r, (int)k);
        free(c.codes);
    }
    move(&moves, &t, rows % 4 == 0, true); /* columns that were moved, with their order */
    assert_false(all > 2 && codes_of(&m, (struct stored_slice){0, rows, 1, 16, i->elements}, &c));
    assert_true(codes_of(&m, (struct stored_slice){0, rows, 1, 0, cols}, &c));
    assert_true(c.format.ordered);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k++)
            if (number_of(&c, r * cols + k, cols) != want(x->numbers, &t, r, c.order[k]))
                fail_msg("%s, row %d, column %d of the file", i->name, (int)r, (int)k);
    free(c.codes);
    if (x->packing == GGUF_IQ1_M ||
        x->packing == GGUF_NVFP4) /* its scale lies in pieces; is small */
        return;
    static const uint16_t huge = 0xdc01; /* below -256 */
    uint8_t *other = malloc((size_t)x->n * i->bytes);
    assert_non_null(other);
    memcpy(other, x->blocks, (size_t)x->n * i->bytes);
    const uint32_t scale = x->packing == GGUF_Q6_K    ? 208
                           : x->packing == GGUF_Q3_K  ? 108
                           : x->packing == GGUF_Q2_K  ? 80
                           : x->packing == GGUF_TQ1_0 ? 52
                           : x->packing == GGUF_TQ2_0 ? 64
                                                      : 0;
    memcpy(other + (size_t)(x->n - 1) * i->bytes + scale, &huge, sizeof(huge));
    if (x->packing == GGUF_MXFP4) /* 2^9 of doubled numbers */
        other[(size_t)(x->n - 1) * i->bytes] = 128 + 9;
    t.data = other;
    assert_false(codes_of(&m, (struct stored_slice){0, rows, 1, 0, cols}, &c));
    free(other);
}

TEST(slices)
{
    size_t n;
    char *file = load(&n);
    const uint8_t *p = (const uint8_t *)file, *end = p + n;
    for (struct part x; p < end;) {
        p = next_part(p, &x);
        if (x.n == 16) {
            check_slices(&x, 4, false, false);
            check_slices(&x, 8, true, false);
            check_slices(&x, 4, false, true);
            check_slices(&x, 8, true, true);
            check_codes(&x, 4);
            check_scales(&x);
        } else {
            check_slices(&x, 3, false, true);
            check_codes(&x, 3);
        }
    }
    free(file);
}

/* Columns [col, col + cols) of eight heads of `width` columns, which are in another order in the
 * file: are there codes, and are they the numbers? */
static bool ordered_codes(uint32_t width, const uint32_t place[8], int64_t col, int64_t cols)
{
    enum { ROWS = 2, MOST_COLS = 8 * 64, BYTES = 34 }; /* Q8_0: a scale, 32 numbers */
    static uint8_t blocks[ROWS * MOST_COLS / 32 * BYTES];
    static uint32_t col_at[MOST_COLS];
    static const struct stored how = {
        .format = &stored_blocks, .method = "gguf", .row_block = 1, .keep = true};
    const int64_t all = 8 * (int64_t)width;
    struct rng rng = rng_new();
    for (size_t i = 0; i < sizeof(blocks); i++)
        blocks[i] = i % BYTES == 1 ? 0x24 : (uint8_t)rng_below(&rng, 256);
    for (uint32_t i = 0; i < 8 * width; i++)
        col_at[i] = place[i / width] * width + i % width;
    struct tensor t = {.name = "w.weight",
                       .file = "f",
                       .type = T_BLOCKS,
                       .n_dims = 2,
                       .dims = {ROWS, (uint64_t)all},
                       .data = blocks,
                       .col_at = col_at,
                       .packing = GGUF_Q8_0};
    struct stored_matrix m;
    struct mat_codes c;
    struct err e = ERR_INIT;
    float want[MOST_COLS];
    assert_int_equal(stored_open(&m, &how, "w", ROWS, all, the_one, &t, &e), 0);
    if (!codes_of(&m, (struct stored_slice){0, ROWS, 1, col, cols}, &c))
        return false;
    for (int64_t r = 0; r < ROWS; r++) {
        stored_blocks.numbers(&m, r, col, cols, want);
        for (int64_t k = 0; k < cols; k++)
            assert_true(number_of(&c, r * cols + k, cols) == want[c.order[k]]);
    }
    free(c.codes);
    return true;
}

/* A rank's columns stay codes where they are whole blocks of the file. */
TEST(columns_in_another_order)
{
    static const uint32_t tiled[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    for (int64_t rank = 0; rank < 2; rank++) {
        assert_true(ordered_codes(64, tiled, rank * 256, 256));
        assert_true(
            ordered_codes(16, tiled, rank * 64, 64)); /* two heads of a block are of a rank */
    }
    assert_true(ordered_codes(64, tiled, 0, 512));
    assert_true(ordered_codes(8, tiled, 0, 64));
    assert_false(ordered_codes(8, tiled, 0, 32)); /* half of two blocks */
    assert_false(ordered_codes(16, tiled, 0, 32));
}

int main(void) { return tests_run(NULL, NULL); }
