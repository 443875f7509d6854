/* squares_ref.c - reference of the kernels of squares: plain C, see base_ref.c. The
 * behaviour of an x86 unit follows Intel's description of tdpbf16ps and tdpbsud, and was compared
 * with the instructions on CPUs that have them. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/cpu/kernels/ref.inc.h"
#include "model-server/backend/numbers.h"
#include <math.h>
#include <string.h>

/* One step of the sums of 16 outputs: x is 32 columns of a row, w a square, in which a word has two
 * columns of an output. Outputs are in the inner loop, which compilers make vectors of. */
INLINE void step_bf16(float sums[SQUARE], const char *x, const char *w)
{
    const uint16_t *xs = (const uint16_t *)(const void *)x;
    const uint32_t *pairs = (const uint32_t *)(const void *)w;
    float chain[2][SQUARE] = {0};
    for (uint32_t k = 0; k < SQUARE_STEP_BYTES / sizeof(*xs); k++, pairs += k % 2 ? 0 : SQUARE) {
        const float by = no_subnormal(f32_of_bf16(xs[k]));
        for (uint32_t i = 0; i < SQUARE; i++) {
            const float of = f32_of_bf16((uint16_t)(pairs[i] >> k % 2 * 16));
            chain[k % 2][i] = no_subnormal(fmaf(by, no_subnormal(of), chain[k % 2][i]));
        }
    }
    for (uint32_t i = 0; i < SQUARE; i++)
        sums[i] = no_subnormal(no_subnormal(sums[i]) + no_subnormal(chain[0][i] + chain[1][i]));
}

static uint32_t step_i8(uint32_t sum, const char *x, const char *w)
{
    for (uint32_t k = 0; k < SQUARE_STEP_BYTES; k++) {
        const uint8_t by = (uint8_t)w[k / 4 * 4 * SQUARE + k % 4];
        sum += (uint32_t)((int8_t)x[k] * by);
    }
    return sum;
}

/* Parts of x and of w: squares.h. */
static const uint8_t products[SQUARE_PRODUCTS][2] = {{2, 0}, {2, 1}, {1, 1},
                                                     {1, 2}, {0, 2}, {2, 2}};

INLINE void sums_bf16(float sums[SQUARE], const char *x, const char *w, const struct squares *t)
{
    float s[SQUARE] = {0};
    if (t->add)
        memcpy(s, sums, sizeof(s));
    const size_t x_part = (size_t)t->rows * SQUARE_STEP_BYTES;
    for (uint32_t i = 0; !t->split && i < t->steps * t->parts; i++)
        step_bf16(s, x + i * x_part, w + (size_t)(i / t->parts) * SQUARE_BYTES);
    for (uint32_t i = 0; t->split && i < t->steps * SQUARE_PRODUCTS; i++) {
        const uint8_t *of = products[i % SQUARE_PRODUCTS];
        const size_t first = (size_t)i / SQUARE_PRODUCTS * SQUARE_PARTS;
        step_bf16(s, x + (first + of[0]) * x_part, w + (first + of[1]) * SQUARE_BYTES);
    }
    memcpy(sums, s, sizeof(s));
}

static void sum_i8(uint32_t *sum, const char *x, const char *w, const struct squares *t)
{
    uint32_t s = t->add ? *sum : 0;
    for (uint32_t i = 0; i < t->steps; i++)
        s = step_i8(s, x + (size_t)i * t->rows * SQUARE_STEP_BYTES, w + (size_t)i * SQUARE_BYTES);
    *sum = s;
}

/* Row r of all and output i of all. */
static void *sum_at(const struct squares *t, uint32_t r, uint32_t i)
{
    return (char *)t->sums + r * t->sums_bytes + i * sizeof(float);
}
static const char *x_at(const struct squares *t, uint32_t r)
{
    return t->x + r / SQUARE * t->x_bytes + (size_t)(r % SQUARE) * SQUARE_STEP_BYTES;
}
static const char *w_at(const struct squares *t, uint32_t i)
{
    const char *panel = t->panels ? t->panels[i / SQUARE] : t->w + i / SQUARE * t->w_bytes;
    return panel + (size_t)(i % SQUARE) * sizeof(float);
}

BOTH_FORMS void k_squares_bf16_ref(const struct squares *t)
{
    for (uint32_t r = 0; r < t->tall * t->rows; r++)
        for (uint32_t i = 0; i < t->wide * SQUARE; i += SQUARE)
            sums_bf16(sum_at(t, r, i), x_at(t, r), w_at(t, i), t);
}

void k_squares_i8_ref(const struct squares *t)
{
    for (uint32_t r = 0; r < t->tall * t->rows; r++)
        for (uint32_t i = 0; i < t->wide * SQUARE; i++)
            sum_i8(sum_at(t, r, i), x_at(t, r), w_at(t, i), t);
}

void k_scale_sums_ref(float *y, const int32_t *sums, const float *sw, size_t sw_bytes, float sx,
                      int32_t plus, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const float *of = (const float *)(const void *)((const char *)sw + i / LANES * sw_bytes);
        y[i] = (float)(int32_t)((uint32_t)sums[i] + (uint32_t)plus) * (of[i % LANES] * sx);
    }
}

void k_square_f32_ref(char *dst, const float *panel, uint32_t n)
{
    enum { COLS = SQUARE_STEP_BYTES / 2 };
    memset(dst, 0, ((size_t)n + COLS - 1) / COLS * SQUARE_PARTS * SQUARE_BYTES);
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < LANES; i++) {
            uint16_t part[SQUARE_PARTS];
            k_split_bf16_ref((uint16_t *const[]){part, part + 1, part + 2}, panel + k * LANES + i,
                             1);
            const size_t step = k / COLS, word = k % COLS / 2 * LANES + i;
            for (size_t p = 0; p < SQUARE_PARTS; p++)
                ((uint16_t *)(void *)(dst + (step * SQUARE_PARTS + p) *
                                                SQUARE_BYTES))[2 * word + k % 2] = part[p];
        }
}

/* A number for each byte of quads, in pairs. */
INLINE void widen_quads(char *dst, const char *quads, uint32_t n, float (*number)(uint8_t))
{
    uint16_t *to = (uint16_t *)(void *)dst;
    for (size_t i = 0; i < (size_t)n * LANES; i++)
        for (size_t c = 0; c < 4; c++)
            to[((i / LANES * 2 + c / 2) * LANES + i % LANES) * 2 + c % 2] =
                bf16_of_f32(number((uint8_t)quads[i * 4 + c]));
}

static float number_of_int8(uint8_t byte) { return (float)(byte - 128); }

void k_square_int8_ref(char *dst, const char *quads, uint32_t n)
{
    widen_quads(dst, quads, n, number_of_int8);
}

void k_square_fp8_ref(char *dst, const char *quads, uint32_t n)
{
    widen_quads(dst, quads, n, f32_of_e4m3);
}

BOTH_FORMS void k_scale_squares_ref(const struct square_scales *t)
{
    for (uint32_t r = 0; r < t->rows; r++)
        for (uint32_t i = 0; i < t->wide * SQUARE; i++) {
            const size_t at = r * t->bytes / sizeof(float) + i;
            const float *of =
                (const float *)(const void *)(t->scales + i / SQUARE * t->scale_bytes);
            const float s = of[i % SQUARE];
            t->to[at] = t->add ? fmaf(t->sums[at], s, t->to[at]) : t->sums[at] * s;
        }
}

/* Step by step, each of which is widened on its own. */
static void sums_of_bytes(const struct byte_squares *t, square_fp8_fn *widen)
{
    enum { QUADS = SQUARE_STEP_BYTES / 2 / 4 };
    _Alignas(64) char square[SQUARE_BYTES];
    float part[SQUARE * SQUARE] = {0};
    for (uint32_t p = 0; p < t->of.wide; p++)
        for (uint32_t step = 0; step < t->of.steps; step++) {
            const uint32_t in = t->scaled ? step % t->scaled : step, first = step * QUADS;
            const uint32_t n = t->quads - first < QUADS ? t->quads - first : QUADS;
            const size_t x_step = (size_t)t->of.parts * t->of.rows * SQUARE_STEP_BYTES;
            memset(square, 0, sizeof(square));
            widen(square, t->of.w + p * t->of.w_bytes + (size_t)first * STEP_BYTES, n);
            struct squares s = t->of;
            s.x += step * x_step, s.w = square, s.wide = s.steps = 1, s.add = in > 0;
            s.sums = t->scaled ? (void *)part : sum_at(&t->of, 0, p * SQUARE);
            s.sums_bytes = t->scaled ? SQUARE * sizeof(float) : t->of.sums_bytes;
            k_squares_bf16_ref(&s);
            if (!t->scaled || (in + 1 < t->scaled && step + 1 < t->of.steps))
                continue;
            const float *scale = (const float *)(const void *)(t->scales + p * t->of.w_bytes) +
                                 (size_t)step / t->scaled * SQUARE;
            for (uint32_t r = 0; r < t->of.rows; r++)
                for (uint32_t i = 0; i < SQUARE; i++) {
                    float *to = sum_at(&t->of, r, p * SQUARE + i);
                    const float sum = part[r * SQUARE + i];
                    *to = step >= t->scaled ? fmaf(sum, scale[i], *to) : sum * scale[i];
                }
        }
}

void k_squares_int8_ref(const struct byte_squares *t) { sums_of_bytes(t, k_square_int8_ref); }

void k_squares_fp8_ref(const struct byte_squares *t) { sums_of_bytes(t, k_square_fp8_ref); }
