/* bf16_avx512bf16.c - bfloat16 products: one instruction for both columns of a pair, in
 * the order of base_ref.c. Compiled alone with -mavx512bf16. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_avx512.inc.h"

#define ISA(op) k_##op##_avx512bf16

enum { ROWS_MAX = 12 };
#define PANELS(rows) ((rows) <= 6 ? 4 : (rows) <= 8 ? 3 : 2)

enum panel { PANEL_F32, PANEL_INT8, PANEL_FP8, PANEL_BF16X2 };

INLINE v16 step_weights(const char *at, enum panel type, int which)
{
    (void)type, (void)which;
    return v_load((const float *)at);
}

INLINE v16 dot2(v16 w, v16 x, v16 sum) { return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x); }

#define TILE_FMA(w, x, sum, rows) dot2(w, x, sum)
#include "model-server/backend/cpu/kernels/tile.inc.h"

TILE_KERNEL(tile_bf16x2, PANEL_BF16X2)
