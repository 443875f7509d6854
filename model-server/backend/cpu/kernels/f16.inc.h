/* f16.inc.h - products of float16 pairs with partial sums in float16: twice the rate of fp32, and
 * weights need no widening. kernels.h defines the order of the sums.
 *
 * Included once for each instruction set with float16 arithmetic, which defines ISA(op) and, of
 * h32, the 32 numbers of float16 of a step of a panel (the pairs of 16 outputs):
 *   h_zero(), h_load(p), h_pair(f)   zeros; 64 bytes; both halves of f's bits in all pairs
 *   h_fma(x, y, z)                   x y + z, rounded once
 *   h_join(x)                        the two numbers of each pair, added in float16, as fp32
 *   PANELS(rows)                     panels whose sums fill the registers, 2 to 4 or 1 */
#include "model-server/backend/cpu/kernels/rows.inc.h"

enum { X_AHEAD = 128 };

/* Some panels with some rows of x. `last` lanes of the last panel are valid. */
struct f16_part {
    const char *w;
    const float *x;
    float *y;
    uint32_t last;
};

/* Prefetch state of the panels: see struct tile. */
struct ahead {
    size_t at, pace, next, end;
};

INLINE void one_step(h32 (*acc)[4], const char *w, size_t w_bytes, const float *x,
                     const uint32_t rows, const uint32_t panels)
{
    h32 wk[4];
    UNROLL for (uint32_t p = 0; p < panels; p++) wk[p] = h_load(w + p * w_bytes);
    if (rows > 6) /* x of a wide tile does not fit the L1 cache */
        __builtin_prefetch(x + X_AHEAD);
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        const h32 pair = h_pair(x[r]);
        UNROLL for (uint32_t p = 0; p < panels; p++) acc[r][p] = h_fma(wk[p], pair, acc[r][p]);
    }
}

/* Steps [from, to) in float16, then added to the sums, which are in memory meanwhile. */
INLINE void some_steps(float (*sum)[4][LANES], const struct tile *t, const struct f16_part *part,
                       size_t from, size_t to, struct ahead *ahead, const uint32_t rows,
                       const uint32_t panels)
{
    const size_t w_bytes = t->w_bytes, stride = tile_stride(t->rows);
    const float *x = part->x + from / STEP_BYTES * stride;
    h32 acc[TILE_ROWS][4];
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t p = 0; p < panels; p++) acc[r][p] = h_zero();
    }
    for (size_t at = from; at < to; at += STEP_BYTES, x += stride) {
        UNROLL for (uint32_t p = 0; p < panels; p++)
            __builtin_prefetch(part->w + p * w_bytes + ahead->at, 0, 2);
        ahead->at += ahead->pace;
        ahead->at = ahead->at == ahead->end ? ahead->next : ahead->at;
        one_step(acc, part->w + at, w_bytes, x, rows, panels);
    }
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t p = 0; p < panels; p++)
            v_store(sum[r][p], v_add(v_load(sum[r][p]), h_join(acc[r][p])));
    }
}

INLINE void run_part(const struct tile *t, const struct f16_part *part, const uint32_t rows,
                     const uint32_t panels)
{
    const size_t end = ((size_t)t->k + 1) / 2 * STEP_BYTES, flush = (size_t)F16_FLUSH * STEP_BYTES;
    struct ahead ahead = {.pace = t->pace ? t->pace : STEP_BYTES, .end = end};
    _Alignas(64) float sum[TILE_ROWS][4][LANES];
    ahead.next = t->next ? (size_t)t->next : panels * t->w_bytes;
    ahead.at = t->ahead < end ? t->ahead : ahead.next;
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t p = 0; p < panels; p++)
            v_store(sum[r][p], !t->add ? v_set(0.0f)
                                       : v_load_n(part->y + r * t->ldy + (size_t)p * LANES,
                                                  p < panels - 1 ? LANES : part->last));
    }
    for (size_t from = 0; from < end; from += flush)
        some_steps(sum, t, part, from, from + flush < end ? from + flush : end, &ahead, rows,
                   panels);
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t p = 0; p < panels; p++)
            v_store_n(part->y + r * t->ldy + (size_t)p * LANES, v_load(sum[r][p]),
                      p < panels - 1 ? LANES : part->last);
    }
}

/* All panels: as many at a time as fit, then two, then one. */
INLINE void all_parts(const struct tile *t, const uint32_t first, const uint32_t rows)
{
    struct f16_part part = {.w = t->w, .x = t->x + first, .y = t->y + first * t->ldy};
    const uint32_t sizes[] = {PANELS(rows), 2, 1};
    uint32_t left = t->n;
    UNROLL for (int i = 0; i < 3; i++)
    {
        const uint32_t panels = sizes[i], wide = panels * LANES;
        while (panels <= PANELS(rows) && left > wide - LANES) {
            const uint32_t taken = left < wide ? left : wide;
            part.last = taken - (wide - LANES);
            run_part(t, &part, rows, panels);
            part.w += panels * t->w_bytes, part.y += wide, left -= taken;
        }
    }
}

ROWS_KERNEL(tile_f16x2, tile, TILE_ROWS, all_parts)
