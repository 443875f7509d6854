/* kernels_int.inc.h - products of quantised weights and activations, once for all instruction sets
 * (see kernels_simd.inc.h). The including file defines
 *   dot8_weights, dot8_start, dot8    sums of w x for quads of 8-bit weights, with any numbers
 *   dot4_start, dot4, dot4_end        the same for numbers up to 15, over one group
 * where start and end see to the correction for the zero point; HAS_DOT4_ONE and dot4_one, a whole
 * group of one row of x, where that row fits the registers; HAS_COLUMNS4_SUMS and columns4_sums, a
 * group of more than ROWS4_FEW rows, where there is no instruction for quads; and how many sums do:
 * ROWS8_MAX rows of x by PANELS8(rows) panels, ROWS4_MAX by PANELS4(rows). */
#include "model-server/backend/cpu/kernels.h"

/* Prefetch distance in each panel, into the L2 cache: the L1 cache supports too few outstanding
 * misses to stream memory. */
enum { FETCH_AHEAD8 = 1024, FETCH_AHEAD4 = 4 * INT4_BLOCK_BYTES };
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

/* ---------------------------------------------------------------- 8 bits */

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
    for (int i = 0; i < parts(); i++)
        quads8(acc, w, plan.cut[i], plan.cut[i + 1], t->w_bytes, x, t->rows, plan.fetch[i], rows,
               panels);
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

/* ---------------------------------------------------------------- 4 bits */

/* One group of 32 columns: sums in integers, then adds to the fp32 sums. */
INLINE void columns4(v16 *acc, const char *quads, v16 sw, const int32_t *x, const uint32_t rows)
{
#ifdef HAS_COLUMNS4_SUMS
    if (rows > ROWS4_FEW) {
        i16 sums[ROWS4_MAX];
        columns4_sums(sums, quads, x, rows);
        UNROLL for (uint32_t r = 0; r < rows; r++, x += INT4_X_WORDS)
        {
            v16 s = v_mul(sw, i_float(i_set((uint32_t)x[8])));
            acc[4 * r] = v_fma(v_from_int(dot4_end(sums[r], x[9])), s, acc[4 * r]);
        }
        return;
    }
#endif
    i16 w[8], low = i_set(0x0f0f0f0f);
    UNROLL for (uint32_t i = 0; i < 4; i++)
    {
        i16 both = i_load(quads + i * STEP_BYTES);
        w[2 * i] = i_and(both, low);
        w[2 * i + 1] = i_and(i_shr(both, 4), low);
    }
    UNROLL for (uint32_t r = 0; r < rows; r++, x += INT4_X_WORDS)
    {
        i16 sum = dot4_start(x[9]);
        UNROLL for (uint32_t i = 0; i < 8; i++) sum = dot4(sum, w[i], x + i);
        v16 s = v_mul(sw, i_float(i_set((uint32_t)x[8])));
        acc[4 * r] = v_fma(v_from_int(dot4_end(sum, x[9])), s, acc[4 * r]);
    }
}

#ifdef HAS_DOT4_ONE
/* One group of a block, first or second, for one row of x, whose quads stay in registers for all
 * panels. The prefetches are spread between the panels, because all at once would stall. */
INLINE void columns4_one(v16 (*acc)[4], const char *block, size_t w_bytes, const int32_t *x,
                         const struct fetch *f, const size_t half, const uint32_t panels)
{
    i16 quad[8], correction = i_set((uint32_t)x[9]);
    v16 sx = i_float(i_set((uint32_t)x[8]));
    UNROLL for (uint32_t i = 0; i < 8; i++) quad[i] = i_set((uint32_t)x[i]);
    UNROLL for (uint32_t p = 0; p < panels; p++)
    {
        const char *at = block + p * w_bytes, *ahead = f->at + p * f->panel;
        UNROLL for (size_t i = 0; i < 5 - half; i++) FETCH(ahead + (5 * half + i) * f->step);
        i16 scale = i_load(at);
        scale = half ? i_and(scale, i_set(0xffff0000)) : i_shl(scale, 16);
        i16 sum = dot4_one(correction, at + STEP_BYTES + half * 4 * STEP_BYTES, quad);
        acc[0][p] = v_fma(v_from_int(sum), v_mul(i_float(scale), sx), acc[0][p]);
    }
}

INLINE void blocks4_one(v16 (*acc)[4], const char *w, size_t from, size_t to, size_t w_bytes,
                        const int32_t *x, size_t xs, struct fetch f, const uint32_t panels)
{
    x += from / INT4_BLOCK_BYTES * 2 * xs;
    for (size_t at = from; at < to; at += INT4_BLOCK_BYTES, x += 2 * xs) {
        columns4_one(acc, w + at, w_bytes, x, &f, 0, panels);
        columns4_one(acc, w + at, w_bytes, x + xs, &f, 1, panels);
        f.at += INT4_BLOCK_BYTES / STEP_BYTES * f.step;
    }
}
#endif

INLINE void blocks4(v16 (*acc)[4], const char *w, size_t from, size_t to, size_t w_bytes,
                    const int32_t *x, size_t xs, struct fetch f, const uint32_t rows,
                    const uint32_t panels)
{
#ifdef HAS_DOT4_ONE
    if (rows == 1) {
        blocks4_one(acc, w, from, to, w_bytes, x, xs, f, panels);
        return;
    }
#endif
    x += from / INT4_BLOCK_BYTES * 2 * xs;
    for (size_t at = from; at < to; at += INT4_BLOCK_BYTES, x += 2 * xs) {
        fetch_lines(&f, panels, INT4_BLOCK_BYTES / STEP_BYTES);
        UNROLL for (uint32_t p = 0; p < panels; p++)
        {
            const char *block = w + p * w_bytes + at;
            i16 scales = i_load(block);
            columns4(&acc[0][p], block + STEP_BYTES, i_float(i_shl(scales, 16)), x, rows);
            columns4(&acc[0][p], block + 5 * STEP_BYTES, i_float(i_and(scales, i_set(0xffff0000))),
                     x + xs, rows);
        }
    }
}

INLINE void group4(const struct int_tile *t, const char *w, float *y, const int32_t *x,
                   uint32_t last, const uint32_t rows, const uint32_t panels)
{
    size_t end = ((size_t)t->k + INT4_BLOCK_COLS - 1) / INT4_BLOCK_COLS * INT4_BLOCK_BYTES;
    struct plan plan = plan_of(t, w, end, FETCH_AHEAD4, panels);
    v16 acc[ROWS4_MAX][4];
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t p = 0; p < panels; p++) acc[r][p] = v_set(0.0f);
    }
    for (int i = 0; i < parts(); i++)
        blocks4(acc, w, plan.cut[i], plan.cut[i + 1], t->w_bytes, x, (size_t)t->rows * INT4_X_WORDS,
                plan.fetch[i], rows, panels);
    store_panels(t, y, last, acc, rows, panels);
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

INLINE void all_panels4(const struct int_tile *t, uint32_t first, const uint32_t rows)
{
    const char *w = t->w;
    const int32_t *x = t->x + (size_t)first * INT4_X_WORDS;
    float *y = t->y + first * t->ldy;
    uint32_t left = t->n;
    TAKE(group4, PANELS4(rows));
    if (PANELS4(rows) > 2)
        TAKE(group4, 2);
    if (PANELS4(rows) > 1)
        TAKE(group4, 1);
}

#define CASE(n, ALL, MOST)                                                                         \
    case n:                                                                                        \
        if (n <= (MOST))                                                                           \
            ALL(t, r, n);                                                                          \
        break
#define CASES(ALL, MOST)                                                                           \
    CASE(1, ALL, MOST);                                                                            \
    CASE(2, ALL, MOST);                                                                            \
    CASE(3, ALL, MOST);                                                                            \
    CASE(4, ALL, MOST);                                                                            \
    CASE(5, ALL, MOST);                                                                            \
    CASE(6, ALL, MOST);                                                                            \
    CASE(7, ALL, MOST);                                                                            \
    CASE(8, ALL, MOST);                                                                            \
    CASE(9, ALL, MOST);                                                                            \
    CASE(10, ALL, MOST);                                                                           \
    CASE(11, ALL, MOST);                                                                           \
    CASE(12, ALL, MOST);                                                                           \
    CASE(13, ALL, MOST);                                                                           \
    CASE(14, ALL, MOST);                                                                           \
    CASE(15, ALL, MOST);                                                                           \
    CASE(16, ALL, MOST)

void ISA(tile_w8a8)(const struct int_tile *t)
{
    for (uint32_t r = 0; r < t->rows; r += ROWS8_MAX)
        switch (t->rows - r < ROWS8_MAX ? t->rows - r : ROWS8_MAX) {
            CASES(all_panels8, ROWS8_MAX);
        }
}

void ISA(tile_int4)(const struct int_tile *t)
{
    for (uint32_t r = 0; r < t->rows; r += ROWS4_MAX)
        switch (t->rows - r < ROWS4_MAX ? t->rows - r : ROWS4_MAX) {
            CASES(all_panels4, ROWS4_MAX);
        }
}
