/* pack_panel.c - packs sixteen rows at once into a panel, if no conversion is needed.
 *
 * A panel of fp32, or of pairs of bf16, is the transposed matrix of its rows' 32-bit words. Row
 * by row, every word would be a store to another cache line. Here 4 x 4 blocks are transposed in
 * registers, and lines are written whole, in order. */
#include "model-server/backend/cpu/cpu.h"
#include <string.h>

typedef uint32_t quad __attribute__((vector_size(16)));
enum { QUAD = 4 };

static inline quad load(const char *p)
{
    quad v;
    memcpy(&v, p, sizeof(v)); /* rows are only aligned to their elements */
    return v;
}

/* to[i][j] = from[j][i]; rows of `to` are LANES words apart. */
static inline void turn(uint32_t *to, const char *from, size_t stride)
{
    const quad a = load(from), b = load(from + stride), c = load(from + 2 * stride),
               d = load(from + 3 * stride);
    const quad ab = __builtin_shufflevector(a, b, 0, 4, 1, 5),
               AB = __builtin_shufflevector(a, b, 2, 6, 3, 7),
               cd = __builtin_shufflevector(c, d, 0, 4, 1, 5),
               CD = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const quad rows[QUAD] = {
        __builtin_shufflevector(ab, cd, 0, 1, 4, 5), __builtin_shufflevector(ab, cd, 2, 3, 6, 7),
        __builtin_shufflevector(AB, CD, 0, 1, 4, 5), __builtin_shufflevector(AB, CD, 2, 3, 6, 7)};
    for (int i = 0; i < QUAD; i++)
        memcpy(to + (size_t)i * LANES, &rows[i], sizeof(rows[i]));
}

bool cpu_pack_panel(const struct weight *w, char *panel, const struct mat_part *p, int64_t row)
{
    size_t size = dtype_size(w->dtype), words = (size_t)p->cols * size / sizeof(uint32_t);
    if (w->kind != &kind_plain || (w->dtype == DT_F16 && !w->half) || p->dtype != w->dtype ||
        p->col_stride != 1 || p->row_stride < 0 || row + LANES > p->rows ||
        (size_t)p->cols * size % sizeof(uint32_t))
        return false;
    const char *from = (const char *)p->data + (size_t)(row * p->row_stride) * size;
    size_t stride = (size_t)p->row_stride * size, k = 0;
    uint32_t *to = (uint32_t *)panel;
    for (; k + QUAD <= words; k += QUAD)
        for (size_t lane = 0; lane < LANES; lane += QUAD)
            turn(to + k * LANES + lane, from + lane * stride + k * sizeof(*to), stride);
    for (; k < words; k++)
        for (size_t lane = 0; lane < LANES; lane++)
            memcpy(&to[k * LANES + lane], from + lane * stride + k * sizeof(*to), sizeof(*to));
    return true;
}
