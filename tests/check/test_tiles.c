/* test_tiles.c - the squares of AMX (squares_amx.c) with tile registers in C, so that CPUs without
 * the unit check which operands are loaded, multiplied and stored: bit for bit against the plain
 * reference. What an instruction computes is taken from that reference. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/numbers.h"
#include "tests/check/random.h"
#include "tests/unit/test.h"
#include <string.h>

enum { REGISTERS = 8 };
static _Alignas(64) char tiles[REGISTERS][SQUARE_BYTES];
static uint8_t tile_rows[REGISTERS];
static int begun; /* shapes are set and released in turns */

static void begin(const uint8_t *rows)
{
    begun++;
    memcpy(tile_rows, rows, sizeof(tile_rows));
    memset(tiles, 0, sizeof(tiles));
}

static char *tile_row(int tile, size_t row) { return tiles[tile] + row * SQUARE_STEP_BYTES; }

static void load(int tile, const char *at, size_t stride)
{
    for (size_t r = 0; r < SQUARE; r++)
        if (r < tile_rows[tile])
            memcpy(tile_row(tile, r), at + r * stride, SQUARE_STEP_BYTES);
        else
            memset(tile_row(tile, r), 0, SQUARE_STEP_BYTES);
}

static void store(int tile, char *at, size_t stride)
{
    for (size_t r = 0; r < tile_rows[tile]; r++)
        memcpy(at + r * stride, tile_row(tile, r), SQUARE_STEP_BYTES);
}

static void dot(squares_bf16_fn *fn, int sum, int x, int w)
{
    fn(&(struct squares){.sums = tiles[sum],
                         .sums_bytes = SQUARE_STEP_BYTES,
                         .x = tiles[x],
                         .w = tiles[w],
                         .tall = 1,
                         .wide = 1,
                         .steps = 1,
                         .rows = tile_rows[x],
                         .parts = 1,
                         .add = true});
}

#define TILES_BEGIN(shapes)     begin((shapes).rows)
#define TILES_END()             (begun--)
#define ZERO(tile)              memset(tiles[tile], 0, SQUARE_BYTES)
#define LOAD(tile, at, stride)  load(tile, at, stride)
#define STORE(tile, at, stride) store(tile, at, stride)
#define DOT_BF16(sum, x, w)     dot(k_squares_bf16_ref, sum, x, w)
#define DOT_I8(sum, x, w)       dot(k_squares_i8_ref, sum, x, w)
#define k_squares_bf16_amx      squares_bf16_in_c
#define k_squares_i8_amx        squares_i8_in_c
void squares_bf16_in_c(const struct squares *t);
void squares_i8_in_c(const struct squares *t);
#include "model-server/backend/cpu/kernels/squares_amx.c" // NOLINT(bugprone-suspicious-include)

enum { TALL = 5, WIDE = 7, STEPS = 3, LD = (WIDE + 1) * SQUARE };
enum { X_BYTES = TALL * STEPS * SQUARE_PARTS * SQUARE_BYTES };
enum { W_BYTES = WIDE * STEPS * SQUARE_PARTS * SQUARE_BYTES };
enum { N_SUMS = TALL * SQUARE * LD };
static struct rng rng;
static _Alignas(64) char xs[X_BYTES], ws[W_BYTES];
static _Alignas(64) float want[N_SUMS], got[N_SUMS];

static void draw(bool bf16)
{
    for (size_t i = 0; i < X_BYTES / 2; i++)
        ((uint16_t *)(void *)xs)[i] = bf16 ? bf16_of_f32(rng_wide(&rng)) : (uint16_t)rng_u32(&rng);
    for (size_t i = 0; i < W_BYTES / 2; i++)
        ((uint16_t *)(void *)ws)[i] = bf16 ? bf16_of_f32(rng_wide(&rng)) : (uint16_t)rng_u32(&rng);
    for (size_t i = 0; i < N_SUMS; i++)
        want[i] = got[i] = rng_wide(&rng);
}

/* All numbers of squares, of 32 rows and of fewer, with sums that continue and that begin. */
static void same_squares(squares_bf16_fn *ref, squares_bf16_fn *fn, uint32_t parts, bool split)
{
    for (uint32_t i = 0; i < TALL * WIDE * 2; i++) {
        struct squares t = {.sums = want, .sums_bytes = LD * sizeof(float), .x = xs, .w = ws};
        const size_t w_step = (split ? SQUARE_PARTS : 1) * (size_t)SQUARE_BYTES;
        draw(ref == k_squares_bf16_ref);
        t.tall = 1 + i % TALL, t.wide = 1 + i / TALL % WIDE, t.add = i % 2;
        t.steps = 1 + rng_below(&rng, STEPS);
        t.rows = t.tall == 1 ? 1 + rng_below(&rng, SQUARE) : SQUARE;
        t.parts = parts, t.split = split;
        t.x_bytes = (size_t)t.steps * parts * t.rows * SQUARE_STEP_BYTES;
        t.w_bytes = t.steps * w_step;
        t.next = ws, t.next_bytes = t.w_bytes, t.fetch = (size_t)64 * rng_below(&rng, 4);
        ref(&t);
        t.sums = got;
        fn(&t);
        assert_int_equal(begun, 0);
        assert_memory_equal(want, got, sizeof(want));
    }
}

TEST(bfloat16) { same_squares(k_squares_bf16_ref, squares_bf16_in_c, 1, false); }

TEST(x_in_parts) { same_squares(k_squares_bf16_ref, squares_bf16_in_c, SQUARE_PARTS, false); }

TEST(both_in_parts) { same_squares(k_squares_bf16_ref, squares_bf16_in_c, SQUARE_PARTS, true); }

TEST(eight_bits) { same_squares(k_squares_i8_ref, squares_i8_in_c, 1, false); }

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
