/* tile.inc.h - products of panels with tiles of rows, once for all instruction sets. The
 * including file defines the vector v16, enum panel, step_weights() (the weights of one column),
 * TILE_FMA(w, x, sum, rows), ISA(op), and how many sums fit its registers: ROWS_MAX rows of x by
 * PANELS(rows) panels. */
#include "model-server/backend/cpu/kernels/rows.inc.h"

enum { X_AHEAD = 128 };

/* One column: `which` of the step at byte `at`. */
INLINE void column(v16 (*acc)[4], const char *w, size_t at, size_t w_bytes, const float *x,
                   const uint32_t rows, const uint32_t panels, const enum panel type,
                   const int which)
{
    v16 wk[4];
    UNROLL for (uint32_t p = 0; p < panels; p++) wk[p] =
        step_weights(w + p * w_bytes + at, type, which);
    if (rows > 6) /* x of a wide tile does not fit the L1 cache */
        __builtin_prefetch(x + X_AHEAD);
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        v16 xr = v_set(x[r]);
        UNROLL for (uint32_t p = 0; p < panels; p++) acc[r][p] =
            TILE_FMA(wk[p], xr, acc[r][p], rows);
    }
}

/* A sum times its factor, to be added to what is in `y`, or not. */
INLINE v16 add_times(const float *y, v16 sum, const char *factor, bool add, uint32_t n)
{
    const v16 by = v_load((const float *)(const void *)factor);
    return add ? v_fma(sum, by, v_load_n(y, n)) : v_mul(sum, by);
}

/* `rows` x `panels` sums in registers over all columns. `last` lanes of the last panel are
 * valid. */
INLINE void group(const struct tile *t, const char *w, float *y, const float *x, const float *bias,
                  uint32_t last, const uint32_t rows, const uint32_t panels, const enum panel type)
{
    const uint32_t xs = tile_stride(t->rows);
    const bool pairs = type == PANEL_BF16X2; /* both columns of a step at once */
    const int per_step = type == PANEL_F32 || pairs                ? 1
                         : type == PANEL_INT8 || type == PANEL_FP8 ? 4
                                                                   : 2;
    const uint32_t k = pairs ? (t->k + 1) / 2 : t->k;
    const size_t w_bytes = t->w_bytes, end = (size_t)k / per_step * STEP_BYTES;
    /* those of panel 0 of t lie as far from t->factors as w from t->w */
    const char *factors = type == PANEL_FP8 && t->factors
                              ? (const char *)t->factors + (w - (const char *)t->w)
                              : NULL;
    const size_t next = t->next ? (size_t)t->next : panels * w_bytes;
    const size_t pace = t->pace ? t->pace : STEP_BYTES;
    size_t ahead = t->ahead < end ? t->ahead : next;
    const bool add = t->add && !factors;
    v16 acc[12][4];
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t p = 0; p < panels; p++)
        {
            const float *from = y + r * t->ldy + p * LANES;
            acc[r][p] = !add ? v_set(0.0f) : p < panels - 1 ? v_load(from) : v_load_n(from, last);
        }
    }
    for (size_t at = 0; at < end; at += STEP_BYTES) {
        /* into the L2 cache: the L1 cache supports too few outstanding misses to stream memory */
        UNROLL for (uint32_t p = 0; p < panels; p++)
            __builtin_prefetch(w + p * w_bytes + ahead, 0, 2);
        ahead += pace;
        ahead = ahead == end ? next : ahead;
        UNROLL for (int which = 0; which < per_step; which++, x += xs)
            column(acc, w, at, w_bytes, x, rows, panels, type, which);
    }
    UNROLL for (int which = 0; which < per_step - 1; which++, x += xs)
    {
        if (which < (int)(k % per_step))
            column(acc, w, end, w_bytes, x, rows, panels, type, which);
    }
    UNROLL for (uint32_t p = 0; bias && p < panels; p++)
    {
        const v16 b = v_load_n(bias + p * LANES, p < panels - 1 ? LANES : last);
        UNROLL for (uint32_t r = 0; r < rows; r++) acc[r][p] = v_add(acc[r][p], b);
    }
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t p = 0; p < panels; p++)
        {
            float *to = y + r * t->ldy + p * LANES;
            if (factors)
                acc[r][p] = add_times(to, acc[r][p], factors + p * w_bytes, t->add,
                                      p < panels - 1 ? LANES : last);
            if (p < panels - 1)
                v_store(to, acc[r][p]);
            else
                v_store_n(to, acc[r][p], last);
        }
    }
}

/* All panels for `rows` rows from `first` on: as many at a time as fit, then two, then one. */
INLINE void all_panels(const struct tile *t, uint32_t first, const uint32_t rows,
                       const enum panel type)
{
    const char *w = t->w;
    const float *x = t->x + first;
    float *y = t->y + first * t->ldy;
    const float *bias = t->bias;
    uint32_t left = t->n;
    const uint32_t most = PANELS(rows);
#define GROUPS(panels)                                                                             \
    for (; left > ((panels)-1) * LANES; y += (panels)*LANES, w += (panels)*t->w_bytes) {           \
        uint32_t last = left < (panels)*LANES ? left - ((panels)-1) * LANES : LANES;               \
        group(t, w, y, x, bias, last, rows, panels, type);                                         \
        bias += bias ? (panels)*LANES : 0;                                                         \
        left -= ((panels)-1) * LANES + last;                                                       \
    }
    GROUPS(most)
    if (most > 2) {
        GROUPS(2)
    }
    if (most > 1) {
        GROUPS(1)
    }
#undef GROUPS
}

#define TILE_KERNEL(op, type) ROWS_KERNEL(op, tile, ROWS_MAX, all_panels, type)
