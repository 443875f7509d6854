/* mlp.c - a feed-forward without the rows between its two matrices: a thread takes a block of rows
 * and some columns of the intermediate size at a time. These stay in its L2 cache from the product
 * that computes them, through the activation, to the product that adds them up.
 *
 * Chains and their order are those of linear(), act() and linear() one after the other, so the
 * bits are the same. */
#include "model-server/backend/cpu/linear.h"
#include "model-server/backend/slice.h"

/* Rows of a block, in tiles; columns at a time, which scratch memory may halve. */
enum { MOST_TILES = 8, LEAST_TILES = 6, MOST_COLS = 768, LEAST_COLS = 256 };

struct mlp_job {
    struct device *d;
    float *y;
    const float *x;
    const struct mlp *p;
    uint32_t rows, n_blocks, tiles; /* tiles: of a block, at most */
    uint32_t ffn, cols;             /* cols: at a time */
};

/* Floats of the parts of a thread's memory. */
static size_t tiles_floats(const struct weight *w, uint32_t tiles, uint32_t cols)
{
    return (size_t)tiles * packed_cols(w, cols) * TILE_ROWS;
}

static size_t made_floats(const struct mlp_job *j)
{
    return (size_t)j->tiles * TILE_ROWS * j->cols * (j->p->gated ? 2 : 1);
}

static bool fits(const struct mlp_job *j)
{
    const size_t all = tiles_floats(j->p->up, j->tiles, j->p->up->cols) + made_floats(j) +
                       tiles_floats(j->p->down, j->tiles, j->cols);
    return all * sizeof(float) <= THREAD_SCRATCH;
}

/* Chooses the sizes; false: no block is large enough for the weights that it reads again, or these
 * leave the last cache. */
static bool choose_sizes(struct mlp_job *j)
{
    const uint32_t mr = j->d->kern.mr, threads = (uint32_t)pool_threads(j->d->pool);
    const uint32_t tiles = (j->rows + mr - 1) / mr;
    if (tiles < threads * LEAST_TILES || j->p->up->bytes + j->p->down->bytes > LINEAR_MOST_BYTES)
        return false;
    for (j->cols = MOST_COLS; j->cols >= LEAST_COLS; j->cols /= 2)
        for (j->tiles = MOST_TILES; j->tiles >= LEAST_TILES; j->tiles--)
            if (fits(j)) {
                j->n_blocks = linear_blocks(threads, tiles, j->tiles);
                return true;
            }
    return false;
}

/* True for numbers in fp32 or in pairs of bfloat16, whose panels have all columns. */
static bool in_tiles(const struct weight *w)
{
    return w->kind == &kind_plain && !w->squares && !w->from && !has_row_units(w);
}

static struct float_product product_of(const struct mlp_job *j, const struct weight *w,
                                       const float *bias, struct slice rows)
{
    const uint32_t mr = j->d->kern.mr;
    return (struct float_product){.kern = &j->d->kern,
                                  .d = j->d,
                                  .w = w,
                                  .bias = bias,
                                  .rows = rows.n,
                                  .n_tiles = (rows.n + mr - 1) / mr};
}

/* What the activation makes of n columns from c on, in the first ones of `up`. */
static void intermediate(const struct mlp_job *j, struct float_product up, int thread, uint32_t c,
                         uint32_t n)
{
    float *made = up.y;
    up.first_panel = c / LANES;
    linear_panels(&up, thread, c / LANES, (c + n + LANES - 1) / LANES);
    if (j->p->gated) {
        up.y = made + j->cols;
        up.first_panel = (j->ffn + c) / LANES;
        linear_panels(&up, thread, up.first_panel, up.first_panel + n / LANES);
    }
    for (uint32_t r = 0; r < up.rows; r++, made += up.ldy)
        up.kern->act(made, made, j->p->gated ? made + j->cols : NULL, n, j->p->act);
}

/* Items are blocks of rows. */
static void some_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct mlp_job *j = arg;
    const struct mlp *p = j->p;
    float *memory = (float *)(void *)cpu_thread_scratch(j->d, thread);
    for (size_t i = begin; i < end; i++) {
        const struct slice rows = slice_of(j->rows, (uint32_t)i, j->n_blocks);
        struct float_product up = product_of(j, p->up, p->up_bias, rows);
        struct float_product down = product_of(j, p->down, p->down_bias, rows);
        up.x = j->x + (size_t)rows.first * p->up->cols, up.ldx = up.x_cols = p->up->cols;
        up.packed = memory;
        up.y = memory + tiles_floats(p->up, j->tiles, p->up->cols);
        up.ldy = (size_t)j->cols * (p->gated ? 2 : 1);
        down.x = up.y, down.ldx = up.ldy, down.packed = up.y + made_floats(j);
        down.y = j->y + (size_t)rows.first * p->down->rows, down.ldy = p->down->rows;
        linear_pack(&up);
        for (uint32_t c = 0; c < j->ffn; c += j->cols) {
            struct row_block b = {.k = c, .cols = j->ffn - c < j->cols ? j->ffn - c : j->cols};
            intermediate(j, up, thread, c, b.cols);
            down.first_col = c, down.x_cols = b.cols;
            linear_pack(&down);
            linear_columns(&down, &b, 0, p->down->n_panels);
        }
    }
}

bool cpu_mlp(struct device *d, float *y, const float *x, uint32_t rows, const struct mlp *p)
{
    struct mlp_job j = {.d = d, .y = y, .x = x, .p = p, .rows = rows, .ffn = p->down->cols};
    if (d->observer || !in_tiles(p->up) || !in_tiles(p->down) || (p->gated && j.ffn % LANES) ||
        !choose_sizes(&j))
        return false;
    pool_run(d->pool, some_rows, &j, j.n_blocks, 1);
    return true;
}
