/* int.inc.h - products of 8-bit weights and activations, once for all instruction sets (see
 * simd.inc.h). The including file defines
 *   dot8_weights, dot8_start, dot8    sums of w x for quads of weights
 * where the start sees to the correction for the zero point; and how many sums do: ROWS8_MAX rows
 * of x by PANELS8(rows) panels. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/cpu/kernels/rows.inc.h"

/* Prefetch distance in each panel, into the L2 cache: the L1 cache supports too few outstanding
 * misses to stream memory. */
enum { FETCH_AHEAD8 = 1024 };
#define FETCH(at) __builtin_prefetch((at), 0, 2)

/* Prefetch state of a product of panels. */
struct fetch {
    const char *at;
    size_t panel, step;
};

INLINE void fetch_lines(struct fetch *f, const uint32_t panels, const uint32_t lines)
{
    UNROLL for (uint32_t i = 0; i < lines; i++, f->at += f->step)
    {
        UNROLL for (uint32_t p = 0; p < panels; p++) FETCH(f->at + p * f->panel);
    }
}

/* The columns of a group of panels, in bytes [0, cut) and [cut, end): in the second part the next
 * group is prefetched. */
struct plan {
    size_t cut[3];
    struct fetch fetch[2];
};

INLINE struct plan plan_of(const struct int_tile *t, const char *w, size_t end, size_t ahead,
                           const uint32_t panels)
{
    size_t cut = end > ahead ? end - ahead : 0;
    if (t->fetch) {
        struct fetch f = {t->fetch + (w - (const char *)t->w), t->w_bytes, t->fetch_step};
        return (struct plan){{0, end, end}, {f, f}};
    }
    return (struct plan){
        {0, cut, end},
        {{w + ahead, t->w_bytes, STEP_BYTES}, {w + panels * t->w_bytes, t->w_bytes, STEP_BYTES}}};
}

/* Two, unknown to the compiler, which would otherwise duplicate the loop. */
INLINE int parts(void)
{
    int n = 2;
    __asm__("" : "+r"(n));
    return n;
}

INLINE void store_panels(const struct int_tile *t, float *y, uint32_t last, v16 (*acc)[4],
                         const uint32_t rows, const uint32_t panels)
{
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t p = 0; p < panels; p++)
        {
            float *to = y + r * t->ldy + p * LANES;
            if (p < panels - 1)
                v_store(to, acc[r][p]);
            else
                v_store_n(to, acc[r][p], last);
        }
    }
}

INLINE void quads8(i16 (*acc)[4], const char *w, size_t from, size_t to, size_t w_bytes,
                   const int32_t *x, uint32_t xs, struct fetch f, const uint32_t rows,
                   const uint32_t panels)
{
    x += from / STEP_BYTES * xs;
    for (size_t at = from; at < to; at += STEP_BYTES, x += xs) {
        i16 wk[4];
        fetch_lines(&f, panels, 1);
        UNROLL for (uint32_t p = 0; p < panels; p++) wk[p] =
            dot8_weights(i_load(w + p * w_bytes + at));
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            i16 xr = i_set((uint32_t)x[r]);
            UNROLL for (uint32_t p = 0; p < panels; p++) acc[r][p] = dot8(acc[r][p], wk[p], xr);
        }
    }
}

#ifdef FITS8
/* quads8() of one panel, block by block. */
INLINE void fitting_quads8(i16 (*acc)[4], const char *w, size_t from, size_t to,
                           const uint8_t *fits, const int32_t *x, uint32_t xs, struct fetch f,
                           const uint32_t rows)
{
    enum { BLOCK = INT_FIT_STEPS * STEP_BYTES };
    for (size_t at = from, end; at < to; at = end) {
        const size_t b = at / BLOCK;
        end = (b + 1) * BLOCK < to ? (b + 1) * BLOCK : to;
        if (at % BLOCK || end % BLOCK || !(fits[b / 8] & 1u << b % 8)) {
            quads8(acc, w, at, end, 0, x, xs, f, rows, 1);
            f.at += (end - at) / STEP_BYTES * f.step;
            continue;
        }
        for (const int32_t *xk = x + at / STEP_BYTES * xs; at < end;
             at += 2 * STEP_BYTES, xk += (size_t)2 * xs) {
            fetch_lines(&f, 1, 2);
            two_steps8(acc, w + at, xk, xs, rows);
        }
    }
}
#endif

INLINE void group8(const struct int_tile *t, const char *w, float *y, const int32_t *x,
                   uint32_t last, const uint32_t rows, const uint32_t panels)
{
    size_t end = (size_t)quads_of(t->k) * STEP_BYTES;
    const int32_t *scale = x + (size_t)quads_of(t->k) * t->rows, *correction = scale + t->rows;
    struct plan plan = plan_of(t, w, end, FETCH_AHEAD8, panels);
    i16 acc[ROWS8_MAX][4];
    v16 out[ROWS8_MAX][4];
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t p = 0; p < panels; p++) acc[r][p] = dot8_start(correction[r]);
    }
    for (int i = 0; i < parts(); i++) {
#ifdef FITS8
        if (panels == 1 && t->fits) {
            const size_t panel = (size_t)(w - (const char *)t->w) / t->w_bytes;
            fitting_quads8(acc, w, plan.cut[i], plan.cut[i + 1], t->fits + panel * INT_FIT_BYTES, x,
                           t->rows, plan.fetch[i], rows);
            continue;
        }
#endif
        quads8(acc, w, plan.cut[i], plan.cut[i + 1], t->w_bytes, x, t->rows, plan.fetch[i], rows,
               panels);
    }
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        v16 sx = i_float(i_set((uint32_t)scale[r]));
        UNROLL for (uint32_t p = 0; p < panels; p++)
        {
            v16 sw = v_load((const float *)(w + p * t->w_bytes + end));
            out[r][p] = v_mul(v_from_int(acc[r][p]), v_mul(sw, sx));
        }
    }
    store_panels(t, y, last, out, rows, panels);
}

/* ---------------------------------------------------------------- tiles */

/* All panels for `rows` rows from `first` on: as many at a time as fit, then two, then one. */
#define TAKE(GROUP, panels)                                                                        \
    for (; left > ((panels)-1) * LANES; y += (panels)*LANES, w += (panels)*t->w_bytes) {           \
        uint32_t last = left < (panels)*LANES ? left - ((panels)-1) * LANES : LANES;               \
        GROUP(t, w, y, x, last, rows, panels);                                                     \
        left -= ((panels)-1) * LANES + last;                                                       \
    }

INLINE void all_panels8(const struct int_tile *t, uint32_t first, const uint32_t rows)
{
    const char *w = t->w;
    const int32_t *x = t->x + first;
    float *y = t->y + first * t->ldy;
    uint32_t left = t->n;
    TAKE(group8, PANELS8(rows));
    if (PANELS8(rows) > 2)
        TAKE(group8, 2);
    if (PANELS8(rows) > 1)
        TAKE(group8, 1);
}

ROWS_KERNEL(tile_w8a8, int_tile, ROWS8_MAX, all_panels8)
