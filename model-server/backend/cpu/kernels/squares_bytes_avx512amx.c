/* squares_bytes_avx512amx.c - few rows with panels of 8-bit weights, in the tile registers of AMX:
 * struct byte_squares. Compiled alone; AMX is inline assembly, as in squares_amx.c.
 *
 * Vectors widen step n + 1 of a panel into a ring that stays in the L1 cache, while the unit
 * multiplies step n. */
#include "model-server/backend/cpu/kernels/square_bytes.inc.h"
// vectors first
#include "model-server/backend/cpu/kernels/tiles.inc.h"
#include <string.h>

enum { MOST = 4, STEP_QUADS = 8, QUAD_STEP = STEP_QUADS * STEP_BYTES };
enum { W_TILE = 7 }; /* registers of sums and of x come first */

/* Some panels, and a place in the ring for two steps of each. */
struct stream {
    const char *w[MOST], *next[MOST], *scales[MOST];
    char (*ring)[MOST][SQUARE_BYTES];
    char (*part)[SQUARE_BYTES]; /* sums that share a scale */
    float *sums;
};

/* Step `step` of a panel, of which zeros follow the last quad. */
INLINE void widen_step(const struct byte_squares *t, const struct stream *s, const int p,
                       uint32_t step, const bool fp8)
{
    char *to = s->ring[step % 2][p];
    const char *from = s->w[p] + (size_t)step * QUAD_STEP;
    const uint32_t left = t->quads - step * STEP_QUADS;
    uint32_t n = STEP_QUADS;
    if (left < STEP_QUADS) {
        n = left;
        memset(to, 0, SQUARE_BYTES);
    }
    if (fp8)
        widen_fp8(to, from, n);
    else
        widen_int8(to, from, n);
}

#define MULTIPLY(sum, x) __asm__ volatile("tdpbf16ps %%tmm7, %%tmm" #x ", %%tmm" #sum ::)
/* Panel `p`, whose sums are in the register of its number. */
#define PANEL(p)                                                                                   \
    do {                                                                                           \
        if (step + 1 < t->of.steps)                                                                \
            widen_step(t, s, p, step + 1, fp8);                                                    \
        for (size_t i = 0; i < t->of.fetch; i += 64)                                               \
            __builtin_prefetch(from[p] + far + i, 0, 2);                                           \
        LOAD(7, s->ring[step % 2][p], 64);                                                         \
        MULTIPLY(p, 4);                                                                            \
        if (parts > 1) {                                                                           \
            MULTIPLY(p, 5);                                                                        \
            MULTIPLY(p, 6);                                                                        \
        }                                                                                          \
    } while (0)

INLINE void multiply_step(const struct byte_squares *t, const struct stream *s, uint32_t step,
                          const int wide, const int parts, const bool fp8)
{
    const size_t part = (size_t)t->of.rows * SQUARE_STEP_BYTES;
    const char *x = t->of.x + step * (size_t)parts * part;
    const size_t end = (size_t)t->of.steps * QUAD_STEP, at = (size_t)step * QUAD_STEP + t->of.ahead;
    const char *const *from = at < end ? s->w : s->next;
    const size_t far = at < end ? at : at - end;
    LOAD(4, x, 64);
    if (parts > 1) {
        LOAD(5, x + part, 64);
        LOAD(6, x + 2 * part, 64);
    }
    PANEL(0);
    if (wide > 1)
        PANEL(1);
    if (wide > 2)
        PANEL(2);
    if (wide > 3)
        PANEL(3);
}

INLINE void zero_sums(void)
{
    ZERO(0);
    ZERO(1);
    ZERO(2);
    ZERO(3);
}

/* The registers to memory, `stride` bytes from a row to the next; panels `apart`. */
INLINE void store_sums(char *to, size_t stride, size_t apart, const int wide)
{
    STORE(0, to, stride);
    if (wide > 1)
        STORE(1, to + apart, stride);
    if (wide > 2)
        STORE(2, to + 2 * apart, stride);
    if (wide > 3)
        STORE(3, to + 3 * apart, stride);
}

/* Adds the sums of the columns that share the scales number `block` to the outputs. */
INLINE void scale_sums(const struct byte_squares *t, const struct stream *s, uint32_t block,
                       const int wide)
{
    for (int p = 0; p < wide; p++)
        scale_panel(
            s->sums + (size_t)p * LANES, (const float *)(const void *)s->part[p],
            t->of.sums_bytes / sizeof(float), LANES,
            v_load((const float *)(const void *)(s->scales[p] + block * (size_t)STEP_BYTES)),
            t->of.rows, block > 0);
}

/* All steps. Sums that leave the registers are scaled a step later: by then they are in the L1
 * cache. */
INLINE void run_steps(const struct byte_squares *t, const struct stream *s, const int wide,
                      const int parts, const bool fp8)
{
    uint32_t block = 0, left = t->scaled;
    bool stored = false;
    zero_sums();
    for (uint32_t step = 0; step < t->of.steps; step++) {
        multiply_step(t, s, step, wide, parts, fp8);
        if (!t->scaled)
            continue;
        if (stored)
            scale_sums(t, s, block++, wide);
        if ((stored = --left == 0 || step + 1 == t->of.steps)) {
            store_sums(s->part[0], SQUARE_STEP_BYTES, SQUARE_BYTES, wide);
            zero_sums();
            left = t->scaled;
        }
    }
    if (t->scaled)
        scale_sums(t, s, block, wide);
    else
        store_sums((char *)s->sums, t->of.sums_bytes, SQUARE_STEP_BYTES, wide);
}

INLINE void stream(const struct byte_squares *t, uint32_t panel, const int wide, const int parts,
                   const bool fp8)
{
    _Alignas(64) char ring[2][MOST][SQUARE_BYTES], part[MOST][SQUARE_BYTES];
    struct stream s = {.ring = ring, .part = part};
    s.sums = (float *)t->of.sums + (size_t)panel * LANES;
    for (int p = 0; p < MOST; p++) {
        const size_t i = panel + (size_t)(p < wide ? p : 0);
        s.w[p] = t->of.w + i * t->of.w_bytes;
        s.next[p] = t->of.next + i * t->of.next_bytes;
        s.scales[p] = t->scales + i * t->of.w_bytes;
    }
    for (int p = 0; p < wide; p++)
        widen_step(t, &s, p, 0, fp8);
    run_steps(t, &s, wide, parts, fp8);
}

INLINE void all_panels(const struct byte_squares *t, const int parts, const bool fp8)
{
    struct tile_config shapes = all_square;
    for (int i = 0; i < W_TILE; i++)
        shapes.rows[i] = (uint8_t)t->of.rows;
    TILES_BEGIN(shapes);
    uint32_t panel = 0;
    for (; t->of.wide - panel >= MOST; panel += MOST)
        stream(t, panel, MOST, parts, fp8);
    for (; panel < t->of.wide; panel++)
        stream(t, panel, 1, parts, fp8);
    TILES_END();
}

void k_squares_int8_avx512amx(const struct byte_squares *t)
{
    if (t->of.parts == 1)
        all_panels(t, 1, false);
    else
        all_panels(t, SQUARE_PARTS, false);
}

void k_squares_fp8_avx512amx(const struct byte_squares *t)
{
    if (t->of.parts == 1)
        all_panels(t, 1, true);
    else
        all_panels(t, SQUARE_PARTS, true);
}
