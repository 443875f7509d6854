/* kv_quads_neon.inc.h - the operations that kv_quads.inc.h needs, with signed products of quads. */
#include "model-server/backend/cpu/kernels/dot_neon.inc.h"

/* 32 registers: up to 24 for the sums, quads, a word of q or of the weights. */
enum { ROWS_MAX = 6 };
#define KEY_PAGES(rows)    ((rows) == 1 ? 3 : (rows) == 2 ? 2 : 1)
#define VALUE_PANELS(rows) ((rows) <= 2 ? 2 : 1)

/* Four rows of 16 bytes, `stride` apart, as 16 quads. */
INLINE i16 i_quads(const char *p, size_t stride)
{
    const uint8_t *at = (const uint8_t *)p;
    const uint8x16_t a = vld1q_u8(at), b = vld1q_u8(at + stride);
    const uint8x16_t c = vld1q_u8(at + 2 * stride), d = vld1q_u8(at + 3 * stride);
    const uint16x8_t ab = vreinterpretq_u16_u8(vzip1q_u8(a, b));
    const uint16x8_t cd = vreinterpretq_u16_u8(vzip1q_u8(c, d));
    const uint16x8_t ab8 = vreinterpretq_u16_u8(vzip2q_u8(a, b));
    const uint16x8_t cd8 = vreinterpretq_u16_u8(vzip2q_u8(c, d));
    return (i16){
        vreinterpretq_u32_u16(vzip1q_u16(ab, cd)), vreinterpretq_u32_u16(vzip2q_u16(ab, cd)),
        vreinterpretq_u32_u16(vzip1q_u16(ab8, cd8)), vreinterpretq_u32_u16(vzip2q_u16(ab8, cd8))};
}

INLINE i16 dot_quads(i16 sum, i16 n, i16 x) { return i_dot(sum, n, x); }

#include "model-server/backend/cpu/kernels/kv_quads.inc.h"
