/* widen.inc.h - widens columns of panels of codes to fp32, 16 lanes per column. Codes are
 * widened piece by piece, into the L1 or L2 cache, and multiplied from there by tile_f32. For a
 * single row of x that would cost a third of the work: its products are computed directly from
 * the registers. */

enum { WIDEN_AHEAD = 1024 }; /* bytes fetched ahead */

/* Scales of the codes of a group, and what is subtracted: see code_panel.h. */
INLINE void code_scales(const struct code_layout *l, const char *block, uint32_t in, v16 *scale,
                        v16 *less)
{
    const size_t i = (size_t)code_group(in, l->scales) * LANES * 2,
                 j = (size_t)code_group(in, l->groups) * LANES;
    v16 offset;
    *scale = v_from_f16((const uint16_t *)(block + i));
    if (l->by)
        *scale = v_mul(*scale, v_from_i8((const int8_t *)block + l->by + j));
    if (l->offset)
        offset = v_from_f16((const uint16_t *)(block + l->offset + i));
    else
        offset = v_mul(*scale, v_set(l->zero));
    if (l->less)
        offset = v_mul(offset, v_from_i8((const int8_t *)block + l->less + j));
    *less = v_sub(v_set(0.0f), offset);
}

/* 4-bit codes, wider codes, and 4-bit codes with a table. */
enum { CODE_LOW, CODE_BOTH, CODE_TABLE };

/* Constant for all columns: the position of the upper bits in a code, and the table. */
struct code_reader {
    i16 mask;
    struct v_table table;
};

INLINE struct code_reader code_reader(const struct code_layout *l, const int how)
{
    float t[LANES];
    struct code_reader r = {.mask = i_set(((1u << l->upper) - 1) << 4)};
    for (uint32_t i = 0; how == CODE_TABLE && i < LANES; i++)
        t[i] = (float)l->table[i];
    if (how == CODE_TABLE)
        r.table = v_table(t);
    return r;
}

/* Column c of eight. */
INLINE v16 code_number(i16 low, i16 up, const int c, const struct code_reader *r, v16 scale,
                       v16 less, const int how)
{
    v16 code;
    if (how == CODE_BOTH) {
        const i16 lower = i_and(i_shr(low, 4 * c), i_set(15));
        code = v_from_int(i_and_or(c ? i_shr(up, 4 * c - 4) : i_shl(up, 4), r->mask, lower));
    } else if (how == CODE_TABLE) {
        code = v_look_up(&r->table, i_shr(low, 4 * c));
    } else {
        code = v_from_u4(i_shr(low, 4 * c));
    }
    return v_fma(code, scale, less);
}

INLINE void code_columns(float *dst, const char *lower, i16 up, const struct code_reader *r,
                         v16 scale, v16 less, const int how)
{
    const i16 low = i_load(lower);
    __builtin_prefetch(lower + WIDEN_AHEAD);
    UNROLL for (int c = 0; c < 8; c++)
        v_store(dst + c * LANES, code_number(low, up, c, r, scale, less, how));
}

INLINE void widen_codes(float *dst, const char *panel, const struct code_layout *l, uint32_t k,
                        uint32_t n, const int how)
{
    const uint32_t group = l->groups ? CODE_BLOCK / l->groups : CODE_COLS;
    const struct code_reader r = code_reader(l, how);
    for (const uint32_t end = k + n; k < end; k += group) {
        const char *block = panel + (size_t)(k / CODE_BLOCK) * l->bytes;
        const uint32_t in = k % CODE_BLOCK;
        v16 scale, less;
        code_scales(l, block, in, &scale, &less);
        for (uint32_t c = in; c < in + group; c += 8, dst += 8 * LANES) {
            const struct code_place at = code_place(l, c);
            const i16 up = how == CODE_BOTH ? i_shr_by(i_load(block + at.upper), at.shift) : r.mask;
            code_columns(dst, block + at.lower, up, &r, scale, less, how);
        }
    }
}

void ISA(widen_codes)(float *dst, const char *panel, const struct code_layout *l, uint32_t k,
                      uint32_t n)
{
    if (l->upper)
        widen_codes(dst, panel, l, k, n, CODE_BOTH);
    else if (l->table)
        widen_codes(dst, panel, l, k, n, CODE_TABLE);
    else
        widen_codes(dst, panel, l, k, n, CODE_LOW);
}

/* Sums over all columns for one row of x, of two panels: enough to hide the latency of an
 * addition. */
INLINE void dot_panels(float *y, const float *x, const char *w, size_t w_bytes,
                       const struct code_layout *l, uint32_t k, const uint32_t panels,
                       const uint32_t last, const int how)
{
    const uint32_t group = l->groups ? CODE_BLOCK / l->groups : CODE_COLS;
    const struct code_reader r = code_reader(l, how);
    v16 acc[2];
    UNROLL for (uint32_t p = 0; p < panels; p++) acc[p] = v_set(0.0f);
    for (uint32_t i = 0; i < k; i += group) {
        const char *block = w + (size_t)(i / CODE_BLOCK) * l->bytes;
        const uint32_t in = i % CODE_BLOCK;
        v16 scale[2], less[2];
        UNROLL for (uint32_t p = 0; p < panels; p++)
            code_scales(l, block + p * w_bytes, in, &scale[p], &less[p]);
        for (uint32_t c = in; c < in + group; c += 8, x += 8) {
            const struct code_place at = code_place(l, c);
            i16 low[2], up[2];
            UNROLL for (uint32_t p = 0; p < panels; p++)
            {
                const char *b = block + p * w_bytes;
                low[p] = i_load(b + at.lower);
                up[p] = how == CODE_BOTH ? i_shr_by(i_load(b + at.upper), at.shift) : r.mask;
                __builtin_prefetch(b + at.lower + WIDEN_AHEAD);
            }
            UNROLL for (int e = 0; e < 8; e++)
            {
                UNROLL for (uint32_t p = 0; p < panels; p++) acc[p] = v_fma(
                    code_number(low[p], up[p], e, &r, scale[p], less[p], how), v_set(x[e]), acc[p]);
            }
        }
    }
    UNROLL for (uint32_t p = 0; p < panels; p++)
        v_store_n(y + (size_t)p * LANES, acc[p], p < panels - 1 ? LANES : last);
}

INLINE void dot_codes(float *y, const float *x, const char *w, size_t w_bytes,
                      const struct code_layout *l, uint32_t n, uint32_t k, const int how)
{
    for (; n > LANES; y += 2 * LANES, w += 2 * w_bytes) {
        const uint32_t last = n < 2 * LANES ? n - LANES : LANES;
        dot_panels(y, x, w, w_bytes, l, k, 2, last, how);
        n -= LANES + last;
    }
    if (n)
        dot_panels(y, x, w, w_bytes, l, k, 1, n, how);
}

void ISA(dot_codes)(float *y, const float *x, const char *w, size_t w_bytes,
                    const struct code_layout *l, uint32_t n, uint32_t k)
{
    if (l->upper)
        dot_codes(y, x, w, w_bytes, l, n, k, CODE_BOTH);
    else if (l->table)
        dot_codes(y, x, w, w_bytes, l, n, k, CODE_TABLE);
    else
        dot_codes(y, x, w, w_bytes, l, n, k, CODE_LOW);
}
