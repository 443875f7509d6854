/* round.inc.h - rounding to 8 and 4 bits in vectors of 16 lanes, once for all instruction sets. The
 * including file includes a vector_*.inc.h and defines ISA(op) for the names. Each function gives
 * the bits of round_ref.c. */
#include "model-server/backend/host/round.h"
#include "model-server/backend/numbers.h"
#include <math.h>
#include <string.h>

INLINE i16 magnitude_bits(const float *src, uint32_t n)
{
    return i_and(v_bits(v_load_n(src, n)), i_set(0x7fffffff));
}

float ISA(quantise)(uint8_t *dst, size_t stride, const float *src, uint32_t n, uint32_t flip,
                    int32_t *sum)
{
    i16 most = i_set(0), total = i_set(0);
    for (uint32_t i = 0; i < n; i += LANES) /* as integers: NaN is the greatest */
        most = i_max(most, magnitude_bits(src + i, n - i));
    float top = float_of((uint32_t)i_top(most)), scale = 0, to_int = 0;
    if (!isfinite(top))
        return k_quantise_ref(dst, stride, src, n, flip, sum);
    if (top >= 0x1p-120f)
        scale = top / 127.0f, to_int = 127.0f / top;
    for (uint32_t i = 0; i < n; i += LANES) {
        i16 q = v_to_int(v_mul(v_load_n(src + i, n - i), v_set(to_int)));
        uint32_t quads[LANES / 4];
        total = i_add(total, q);
        i_store_s8(quads, q);
        for (uint32_t j = 0; j < LANES && i + j < n; j += 4) {
            uint32_t quad = quads[j / 4] ^ flip;
            memcpy(dst + (i + j) / 4 * stride, &quad, sizeof(quad));
        }
    }
    *sum = i_sum(total);
    return scale;
}

/* Half a group: its rounded numbers, and their squared error. */
INLINE v16 round4(v16 *q, v16 f, v16 scale, v16 to_int, v16 err)
{
    *q = v_from_int(v_to_int(v_mul(f, to_int)));
    *q = v_max(v_set(-8.0f), v_min(v_set(7.0f), *q));
    v16 d = v_fma(v_sub(v_set(0.0f), *q), scale, f);
    return v_fma(d, d, err);
}

float ISA(quantise4)(int8_t *dst, const float *src)
{
    static const float tops[] = INT4_TOPS;
    v16 l = v_load(src), h = v_load(src + LANES), ql, qh, best_l = v_set(0.0f), best_h = best_l;
    i16 bits_l = magnitude_bits(src, LANES), bits_h = magnitude_bits(src + LANES, LANES);
    float top = float_of((uint32_t)i_top(i_max(bits_l, bits_h))), least = INFINITY, scale = 0;
    if (!(top >= 0x1p-60f && isfinite(top)))
        return k_quantise4_ref(dst, src);
    if (v_top(v_max(l, h)) != top)
        top = -top;
    for (size_t i = 0; i < sizeof(tops) / sizeof(*tops); i++) {
        float s = f32_of_bf16(bf16_of_f32(top / tops[i]));
        v16 vs = v_set(s), to_int = v_set(1.0f / s);
        float err = v_sum(round4(&qh, h, vs, to_int, round4(&ql, l, vs, to_int, v_set(0.0f))));
        if (i == 0 || err < least)
            least = err, scale = s, best_l = ql, best_h = qh;
    }
    i_store_s8(dst, v_to_int(best_l));
    i_store_s8(dst + LANES, v_to_int(best_h));
    return scale;
}
