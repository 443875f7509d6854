/* kernels_mx.inc.h - products of MXFP4 panels with tiles of rows: group() of kernels_tile.inc.h for
 * panels that are no plain sequence of columns. A code is looked up in a register; its scale is
 * multiplied in before the product, which makes the bits those of the number itself. */

/* What is fetched ahead: one line of each panel for each line that is read. */
struct mx_fetch {
    size_t at, end, next, pace;
};

INLINE void mx_fetch_line(struct mx_fetch *f, const char *w, size_t w_bytes, const uint32_t panels)
{
    UNROLL for (uint32_t p = 0; p < panels; p++) __builtin_prefetch(w + p * w_bytes + f->at, 0, 2);
    f->at += f->pace;
    f->at = f->at == f->end ? f->next : f->at;
}

/* Columns [0, n) of eight. */
INLINE void mx_columns(v16 (*acc)[4], const char *at, size_t w_bytes, const v16 *scale,
                       const float *x, uint32_t xs, const uint32_t rows, const uint32_t panels,
                       const uint32_t n)
{
    i16 codes[4];
    UNROLL for (uint32_t p = 0; p < panels; p++) codes[p] = i_load(at + p * w_bytes);
    for (uint32_t c = 0; c < n; c++, x += xs) /* a loop: it is there for each number of rows */
    {
        v16 wk[4];
        UNROLL for (uint32_t p = 0; p < panels; p++)
        {
            wk[p] = v_mul(v_from_e2m1(codes[p]), scale[p]);
            codes[p] = i_shr(codes[p], 4);
        }
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            v16 xr = v_set(x[r]);
            UNROLL for (uint32_t p = 0; p < panels; p++) acc[r][p] = v_fma(wk[p], xr, acc[r][p]);
        }
    }
}

INLINE void mx_sums(const struct tile *t, const char *w, v16 (*acc)[4], const float *x,
                    const uint32_t rows, const uint32_t panels)
{
    const uint32_t xs = tile_stride(t->rows);
    const size_t w_bytes = t->w_bytes, blocks = (t->k + MX_BLOCK_COLS - 1) / MX_BLOCK_COLS;
    struct mx_fetch f = {.end = blocks * MX_BLOCK_BYTES,
                         .next = t->next ? (size_t)t->next : panels * w_bytes,
                         .pace = t->pace ? t->pace : STEP_BYTES};
    f.at = t->ahead < f.end ? t->ahead : f.next;
    for (uint32_t k = 0; k < t->k; k += MX_GROUP) {
        const uint32_t in = k % MX_BLOCK_COLS, n = t->k - k < MX_GROUP ? t->k - k : MX_GROUP;
        const char *block = w + (size_t)(k / MX_BLOCK_COLS) * MX_BLOCK_BYTES;
        v16 scale[4];
        UNROLL for (uint32_t p = 0; p < panels; p++) scale[p] = i_float(
            i_shl(i_from_u8((const uint8_t *)block + p * w_bytes + in / MX_GROUP * LANES), 23));
        if (in == 0)
            mx_fetch_line(&f, w, w_bytes, panels);
        const char *at = block + STEP_BYTES + (size_t)in / 8 * STEP_BYTES;
        for (uint32_t c = 0; c < n; c += 8, at += STEP_BYTES) {
            const uint32_t some = n - c < 8 ? n - c : 8;
            mx_fetch_line(&f, w, w_bytes, panels);
            mx_columns(acc, at, w_bytes, scale, x, xs, rows, panels, some);
            x += some * (size_t)xs;
        }
    }
}
