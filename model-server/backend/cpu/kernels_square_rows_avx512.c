/* kernels_square_rows_avx512.c - few rows of x with panels of bfloat16, in the order of sums of the
 * matrix units. A decode step is limited by memory, which these loads stream faster than loads of
 * tiles do; the arithmetic is the same: denormals are zero while a product runs. Compiled alone
 * with -mavx512{f,bw,vl,dq}. */
#include "model-server/backend/cpu/kernels.h"
#include "model-server/backend/cpu/vector_avx512.inc.h"

enum { STEP_PAIRS = SQUARE_STEP_BYTES / 4 }; /* pairs of columns in a step */
enum { FLUSH = 0x8040 };                     /* of MXCSR: results and operands that are denormal */

/* The sums of `rows` rows with `panels` panels; of each step there are two chains a part. */
struct sums {
    v16 of[SQUARE_ROWS_FEW][4];
};

INLINE void pair(v16 (*chain)[4][3][2], const char *w, size_t w_bytes, const float *x,
                 const uint32_t rows, const uint32_t panels, const uint32_t parts)
{
    UNROLL for (uint32_t p = 0; p < panels; p++)
    {
        const i16 both = i_load(w + p * w_bytes);
        const v16 even = i_float(i_shl(both, 16)), odd = i_float(i_and(both, i_set(0xffff0000)));
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            UNROLL for (uint32_t q = 0; q < parts; q++)
            {
                v16 *c = chain[r][p][q];
                c[0] = v_fma(v_set(x[r * parts + q]), even, c[0]);
                c[1] = v_fma(v_set(x[(rows + r) * parts + q]), odd, c[1]);
            }
        }
    }
}

/* `n` pairs of columns of a step; the columns after them count as zero. */
INLINE void step(struct sums *s, const char *w, size_t w_bytes, const float *x, uint32_t n,
                 uint32_t ahead, const uint32_t rows, const uint32_t panels, const uint32_t parts)
{
    v16 chain[SQUARE_ROWS_FEW][4][3][2];
    const v16 zero = v_set(0.0f);
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t p = 0; p < panels; p++)
        {
            UNROLL for (uint32_t q = 0; q < parts; q++) chain[r][p][q][0] = chain[r][p][q][1] =
                zero;
        }
    }
    for (uint32_t i = 0; i < n; i++, w += STEP_BYTES, x += (size_t)2 * rows * parts) {
        UNROLL for (uint32_t p = 0; p < panels; p++)
            __builtin_prefetch(w + p * w_bytes + ahead, 0, 2);
        pair(chain, w, w_bytes, x, rows, panels, parts);
    }
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t p = 0; p < panels; p++)
        {
            UNROLL for (uint32_t q = 0; q < parts; q++)
            {
                v16 *c = chain[r][p][q];
                if (n < STEP_PAIRS) /* a product of zeros ends a chain that is -0 */
                    c[0] = v_add(c[0], zero), c[1] = v_add(c[1], zero);
                s->of[r][p] = v_add(s->of[r][p], v_add(c[0], c[1]));
            }
        }
    }
}

INLINE void group(const struct square_rows *t, float *y, const char *w, uint32_t last,
                  const uint32_t rows, const uint32_t panels, const uint32_t parts)
{
    const uint32_t pairs = (t->cols + 1) / 2;
    const float *x = t->x;
    struct sums s;
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t p = 0; p < panels; p++) s.of[r][p] = v_set(0.0f);
    }
    uint32_t i = 0;
    for (; i + STEP_PAIRS <= pairs; i += STEP_PAIRS, w += SQUARE_BYTES) {
        step(&s, w, t->w_bytes, x, STEP_PAIRS, t->ahead, rows, panels, parts);
        x += (size_t)2 * STEP_PAIRS * rows * parts;
    }
    if (i < pairs)
        step(&s, w, t->w_bytes, x, pairs - i, t->ahead, rows, panels, parts);
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t p = 0; p < panels; p++)
            v_store_n(y + r * t->ldy + p * LANES, s.of[r][p], p + 1 < panels ? LANES : last);
    }
}

/* All panels: as many at a time as the registers hold chains for. */
INLINE void all_panels(const struct square_rows *t, const uint32_t rows, const uint32_t most,
                       const uint32_t parts)
{
    float *y = t->y;
    const char *w = t->w;
    uint32_t left = t->n;
#define GROUPS(panels)                                                                             \
    for (; left > ((panels)-1) * LANES; y += (panels)*LANES, w += (panels)*t->w_bytes) {           \
        const uint32_t last = left < (panels)*LANES ? left - ((panels)-1) * LANES : LANES;         \
        group(t, y, w, last, rows, panels, parts);                                                 \
        left -= ((panels)-1) * LANES + last;                                                       \
    }
    if (most > 2) {
        GROUPS(4)
    }
    GROUPS(2)
    GROUPS(1)
#undef GROUPS
}

INLINE void all_rows(const struct square_rows *t, const uint32_t parts)
{
    if (t->rows == 1)
        all_panels(t, 1, 4, parts);
    else
        all_panels(t, SQUARE_ROWS_FEW, 2, parts);
}

void k_square_rows_avx512(const struct square_rows *t)
{
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | FLUSH);
    if (t->parts == 1)
        all_rows(t, 1);
    else
        all_rows(t, SQUARE_PARTS);
    _mm_setcsr(before);
}
