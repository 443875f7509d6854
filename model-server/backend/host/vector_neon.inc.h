/* vector_neon.inc.h - vectors of 16 lanes, fp32 (v16) and 32-bit integers (i16), for the kernels:
 * 16 lanes are four registers of AArch64's Advanced SIMD. */
#include "model-server/backend/host/lanes.h"
#include <arm_neon.h>
#include <string.h>

typedef struct {
    float32x4_t a, b, c, d;
} v16;
typedef struct {
    uint32x4_t a, b, c, d;
} i16;

#define V_BOTH(f, x, y) ((v16){f((x).a, (y).a), f((x).b, (y).b), f((x).c, (y).c), f((x).d, (y).d)})
#define I_BOTH(f, x, y) ((i16){f((x).a, (y).a), f((x).b, (y).b), f((x).c, (y).c), f((x).d, (y).d)})
#define I_WITH(f, x, n) ((i16){f((x).a, n), f((x).b, n), f((x).c, n), f((x).d, n)})
#define S(x)            vreinterpretq_s32_u32(x)
#define U(x)            vreinterpretq_u32_s32(x)
#define FLOATS(x)       vreinterpretq_f32_u32(x)
#define BITS(x)         vreinterpretq_u32_f32(x)

/* ---------------------------------------------------------------- memory */

INLINE v16 v_set(float f)
{
    const float32x4_t v = vdupq_n_f32(f);
    return (v16){v, v, v, v};
}
INLINE v16 v_load(const float *p)
{
    return (v16){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
INLINE void v_store(float *p, v16 v)
{
    vst1q_f32(p, v.a);
    vst1q_f32(p + 4, v.b);
    vst1q_f32(p + 8, v.c);
    vst1q_f32(p + 12, v.d);
}
/* The first n lanes; the others are zero. There are no masked loads: a short row is copied
 * through memory. */
INLINE v16 v_load_n(const float *p, uint32_t n)
{
    float all[LANES] = {0};
    if (n >= LANES)
        return v_load(p);
    memcpy(all, p, n * sizeof(*p));
    return v_load(all);
}
INLINE void v_store_n(float *p, v16 v, uint32_t n)
{
    float all[LANES];
    if (n >= LANES) {
        v_store(p, v);
        return;
    }
    v_store(all, v);
    memcpy(p, all, n * sizeof(*p));
}
INLINE v16 v_keep_n(v16 v, uint32_t n)
{
    float all[LANES];
    if (n >= LANES)
        return v;
    v_store(all, v);
    return v_load_n(all, n);
}

INLINE i16 i_set(uint32_t u)
{
    const uint32x4_t v = vdupq_n_u32(u);
    return (i16){v, v, v, v};
}
INLINE i16 i_load(const void *p)
{
    const uint32_t *q = p;
    return (i16){vld1q_u32(q), vld1q_u32(q + 4), vld1q_u32(q + 8), vld1q_u32(q + 12)};
}
INLINE void i_store(void *p, i16 i)
{
    uint32_t *q = p;
    vst1q_u32(q, i.a);
    vst1q_u32(q + 4, i.b);
    vst1q_u32(q + 8, i.c);
    vst1q_u32(q + 12, i.d);
}

/* ---------------------------------------------------------------- numbers */

INLINE float32x4_t q_min(float32x4_t x, float32x4_t y) { return vbslq_f32(vcltq_f32(x, y), x, y); }
INLINE float32x4_t q_max(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }

INLINE v16 v_add(v16 x, v16 y) { return V_BOTH(vaddq_f32, x, y); }
INLINE v16 v_sub(v16 x, v16 y) { return V_BOTH(vsubq_f32, x, y); }
INLINE v16 v_mul(v16 x, v16 y) { return V_BOTH(vmulq_f32, x, y); }
INLINE v16 v_div(v16 x, v16 y) { return V_BOTH(vdivq_f32, x, y); }
INLINE v16 v_fma(v16 x, v16 y, v16 z)
{
    return (v16){vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
                 vfmaq_f32(z.d, x.d, y.d)};
}
INLINE v16 v_fma_sum(v16 x, v16 y, v16 z) { return v_fma(x, y, z); }
INLINE v16 v_min(v16 x, v16 y) { return V_BOTH(q_min, x, y); } /* x < y ? x : y */
INLINE v16 v_max(v16 x, v16 y) { return V_BOTH(q_max, x, y); } /* x > y ? x : y */
INLINE v16 v_below(v16 x, v16 y, v16 yes, v16 no)              /* x < y ? yes : no */
{
    return (v16){
        vbslq_f32(vcltq_f32(x.a, y.a), yes.a, no.a), vbslq_f32(vcltq_f32(x.b, y.b), yes.b, no.b),
        vbslq_f32(vcltq_f32(x.c, y.c), yes.c, no.c), vbslq_f32(vcltq_f32(x.d, y.d), yes.d, no.d)};
}

INLINE i16 v_bits(v16 v) { return (i16){BITS(v.a), BITS(v.b), BITS(v.c), BITS(v.d)}; }
INLINE v16 i_float(i16 i) { return (v16){FLOATS(i.a), FLOATS(i.b), FLOATS(i.c), FLOATS(i.d)}; }
INLINE i16 i_add(i16 x, i16 y) { return I_BOTH(vaddq_u32, x, y); }
INLINE i16 i_sub(i16 x, i16 y) { return I_BOTH(vsubq_u32, x, y); }
INLINE i16 i_and(i16 x, i16 y) { return I_BOTH(vandq_u32, x, y); }
INLINE i16 i_or(i16 x, i16 y) { return I_BOTH(vorrq_u32, x, y); }
INLINE i16 i_xor(i16 x, i16 y) { return I_BOTH(veorq_u32, x, y); }
/* (x & mask) | y */
INLINE i16 i_and_or(i16 x, i16 mask, i16 y) { return i_or(i_and(x, mask), y); }
/* The compiler's vector operators, so that a constant n becomes part of the instruction. */
INLINE uint32x4_t q_shl(uint32x4_t x, const int n) { return x << n; }
INLINE uint32x4_t q_shr(uint32x4_t x, const int n) { return x >> n; }
INLINE uint32x4_t q_sar(uint32x4_t x, const int n) { return U(S(x) >> n); }
INLINE i16 i_shl(i16 x, const int n) { return I_WITH(q_shl, x, n); }
INLINE i16 i_shr(i16 x, const int n) { return I_WITH(q_shr, x, n); }
INLINE i16 i_sar(i16 x, const int n) { return I_WITH(q_sar, x, n); }
INLINE i16 i_shr_by(i16 x, uint32_t n)
{
    const int32x4_t by = vdupq_n_s32(-(int32_t)n);
    return I_WITH(vshlq_u32, x, by);
}
INLINE uint32x4_t q_above(uint32x4_t x, uint32x4_t y) { return vcgtq_s32(S(x), S(y)); }
INLINE i16 i_above(i16 x, i16 y, i16 yes, i16 no) /* signed x > y ? yes : no */
{
    const i16 m = I_BOTH(q_above, x, y);
    return (i16){vbslq_u32(m.a, yes.a, no.a), vbslq_u32(m.b, yes.b, no.b),
                 vbslq_u32(m.c, yes.c, no.c), vbslq_u32(m.d, yes.d, no.d)};
}
INLINE uint32x4_t q_greater(uint32x4_t x, uint32x4_t y) { return U(vmaxq_s32(S(x), S(y))); }
INLINE i16 i_max(i16 x, i16 y) { return I_BOTH(q_greater, x, y); } /* signed */
INLINE int32_t i_top(i16 x)
{
    return vmaxvq_s32(S(q_greater(q_greater(x.a, x.b), q_greater(x.c, x.d))));
}
INLINE int32_t i_sum(i16 x)
{
    return vaddvq_s32(S(vaddq_u32(vaddq_u32(x.a, x.b), vaddq_u32(x.c, x.d))));
}

/* The sum of 16 lanes, folded in halves: i + 8, i + 4, i + 2, i + 1. */
INLINE float v_sum(v16 v)
{
    const float32x4_t q = vaddq_f32(vaddq_f32(v.a, v.c), vaddq_f32(v.b, v.d));
    const float32x2_t h = vadd_f32(vget_low_f32(q), vget_high_f32(q));
    return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}
/* The maximum of 16 lanes, folded likewise. */
INLINE float v_top(v16 v)
{
    const float32x4_t q = q_max(q_max(v.a, v.c), q_max(v.b, v.d));
    const float32x2_t l = vget_low_f32(q), h = vget_high_f32(q);
    const float32x2_t m = vbsl_f32(vcgt_f32(l, h), l, h);
    const float x = vget_lane_f32(m, 0), y = vget_lane_f32(m, 1);
    return x > y ? x : y;
}

/* ---------------------------------------------------------------- conversions */

INLINE uint32x4_t q_to_int(float32x4_t x) { return U(vcvtnq_s32_f32(x)); }
INLINE float32x4_t q_from_int(uint32x4_t x) { return vcvtq_f32_s32(S(x)); }
/* To nearest even. */
INLINE i16 v_to_int(v16 v)
{
    return (i16){q_to_int(v.a), q_to_int(v.b), q_to_int(v.c), q_to_int(v.d)};
}
INLINE v16 v_from_int(i16 i)
{
    return (v16){q_from_int(i.a), q_from_int(i.b), q_from_int(i.c), q_from_int(i.d)};
}
/* The low four bits of each lane as a number. */
INLINE v16 v_from_u4(i16 i) { return v_from_int(i_and(i, i_set(15))); }

INLINE v16 v_from_halves(uint16x8_t low, uint16x8_t high)
{
    const float16x8_t l = vreinterpretq_f16_u16(low), h = vreinterpretq_f16_u16(high);
    return (v16){vcvt_f32_f16(vget_low_f16(l)), vcvt_high_f32_f16(l), vcvt_f32_f16(vget_low_f16(h)),
                 vcvt_high_f32_f16(h)};
}
INLINE v16 v_from_f16(const uint16_t *p) { return v_from_halves(vld1q_u16(p), vld1q_u16(p + 8)); }
INLINE void v_to_f16(uint16_t *p, v16 v)
{
    const float16x8_t l = vcvt_high_f16_f32(vcvt_f16_f32(v.a), v.b);
    const float16x8_t h = vcvt_high_f16_f32(vcvt_f16_f32(v.c), v.d);
    vst1q_u16(p, vreinterpretq_u16_f16(l));
    vst1q_u16(p + 8, vreinterpretq_u16_f16(h));
}

INLINE i16 i_widen(uint16x8_t l, uint16x8_t h)
{
    return (i16){vmovl_u16(vget_low_u16(l)), vmovl_high_u16(l), vmovl_u16(vget_low_u16(h)),
                 vmovl_high_u16(h)};
}
/* 16 numbers of 16 or 8 bits, each in the low bits of a lane; signed ones of 8 bits as numbers. */
INLINE i16 i_from_u16(const uint16_t *p) { return i_widen(vld1q_u16(p), vld1q_u16(p + 8)); }
INLINE i16 i_from_u8(const uint8_t *p)
{
    const uint8x16_t b = vld1q_u8(p);
    return i_widen(vmovl_u8(vget_low_u8(b)), vmovl_high_u8(b));
}
INLINE v16 v_from_bytes(int8x16_t b)
{
    const int16x8_t l = vmovl_s8(vget_low_s8(b)), h = vmovl_high_s8(b);
    return (v16){vcvtq_f32_s32(vmovl_s16(vget_low_s16(l))), vcvtq_f32_s32(vmovl_high_s16(l)),
                 vcvtq_f32_s32(vmovl_s16(vget_low_s16(h))), vcvtq_f32_s32(vmovl_high_s16(h))};
}
INLINE v16 v_from_i8(const int8_t *p) { return v_from_bytes(vld1q_s8(p)); }

/* 16 numbers of 4 bits, each the nibble - 8: the low or the high ones of 16 bytes; of 8 bytes the
 * low ones, then the high ones. */
INLINE v16 v_from_nibbles(uint8x16_t n)
{
    return v_from_bytes(vsubq_s8(vreinterpretq_s8_u8(n), vdupq_n_s8(8)));
}
INLINE v16 v_from_i4(const uint8_t *p, const int high)
{
    const uint8x16_t b = vld1q_u8(p);
    return v_from_nibbles(high ? vshrq_n_u8(b, 4) : vandq_u8(b, vdupq_n_u8(15)));
}
INLINE v16 v_from_i4_alone(const uint8_t *p)
{
    const uint8x8_t b = vld1_u8(p);
    return v_from_nibbles(vcombine_u8(vand_u8(b, vdup_n_u8(15)), vshr_n_u8(b, 4)));
}

/* 16 fp8 numbers: see f32_of_fp8(). The sign's copies fill the bits above it; one of them is
 * cleared. */
INLINE uint16x8_t half_of_fp8(int16x8_t wide)
{
    return vandq_u16(vreinterpretq_u16_s16(vshlq_n_s16(wide, 7)), vdupq_n_u16(0xbfff));
}
INLINE v16 v_from_fp8(const uint8_t *p)
{
    const int8x16_t b = vreinterpretq_s8_u8(vld1q_u8(p));
    return v_from_halves(half_of_fp8(vmovl_s8(vget_low_s8(b))), half_of_fp8(vmovl_high_s8(b)));
}

/* The low 16 bits of each lane. */
INLINE void i_store_u16(uint16_t *p, i16 i)
{
    vst1q_u16(p, vmovn_high_u32(vmovn_u32(i.a), i.b));
    vst1q_u16(p + 8, vmovn_high_u32(vmovn_u32(i.c), i.d));
}
/* Each lane's number, -128 .. 127, in 8 bits. */
INLINE void i_store_s8(void *p, i16 i)
{
    const int16x8_t l = vmovn_high_s32(vmovn_s32(S(i.a)), S(i.b));
    const int16x8_t h = vmovn_high_s32(vmovn_s32(S(i.c)), S(i.d));
    vst1q_s8(p, vmovn_high_s16(vmovn_s16(l), h));
}

/* ---------------------------------------------------------------- tables and order */

/* Sixteen bytes, looked up by each byte of 0 to 15. */
struct v_bytes {
    uint8x16_t of;
};
INLINE struct v_bytes v_bytes(const uint8_t t[LANES]) { return (struct v_bytes){vld1q_u8(t)}; }
INLINE uint32x4_t q_look_up(uint8x16_t t, uint32x4_t i)
{
    return vreinterpretq_u32_u8(vqtbl1q_u8(t, vreinterpretq_u8_u32(i)));
}
INLINE i16 i_look_up(const struct v_bytes *t, i16 i)
{
    return (i16){q_look_up(t->of, i.a), q_look_up(t->of, i.b), q_look_up(t->of, i.c),
                 q_look_up(t->of, i.d)};
}
/* Sixteen numbers, looked up by the low four bits of each lane: as the four bytes of each. */
struct v_table {
    uint8x16x4_t of;
};
INLINE struct v_table v_table(const float t[LANES])
{
    const uint8_t *b = (const uint8_t *)t;
    return (struct v_table){{{vld1q_u8(b), vld1q_u8(b + 16), vld1q_u8(b + 32), vld1q_u8(b + 48)}}};
}
INLINE float32x4_t q_number(const struct v_table *t, uint32x4_t i)
{
    const uint32x4_t first = vmulq_n_u32(vandq_u32(i, vdupq_n_u32(15)), 0x04040404);
    const uint8x16_t at = vreinterpretq_u8_u32(vaddq_u32(first, vdupq_n_u32(0x03020100)));
    return vreinterpretq_f32_u8(vqtbl4q_u8(t->of, at));
}
INLINE v16 v_look_up(const struct v_table *t, i16 i)
{
    return (v16){q_number(t, i.a), q_number(t, i.b), q_number(t, i.c), q_number(t, i.d)};
}

/* Transposes 4 x 4 numbers at src[0..3], times `scale`, into four rows of dst that are `xs` apart.
 */
INLINE void v_transpose4(float *dst, size_t xs, const float *const src[4], float scale)
{
    const float32x4x2_t ab = vtrnq_f32(vld1q_f32(src[0]), vld1q_f32(src[1]));
    const float32x4x2_t cd = vtrnq_f32(vld1q_f32(src[2]), vld1q_f32(src[3]));
    for (int i = 0; i < 2; i++) {
        const float32x4_t low = vcombine_f32(vget_low_f32(ab.val[i]), vget_low_f32(cd.val[i]));
        const float32x4_t high = vcombine_f32(vget_high_f32(ab.val[i]), vget_high_f32(cd.val[i]));
        vst1q_f32(dst + (size_t)i * xs, vmulq_n_f32(low, scale));
        vst1q_f32(dst + (size_t)(i + 2) * xs, vmulq_n_f32(high, scale));
    }
}

/* Reorders 16 bytes: in each eight, those of even index come first. */
INLINE void b_even_first(void *p)
{
    static const uint8_t order[16] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
    vst1q_u8(p, vqtbl1q_u8(vld1q_u8(p), vld1q_u8(order)));
}
