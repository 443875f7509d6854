/* mathf.h - exp, tanh and erf of one float, and the activations. They define the results; every
 * vector variant repeats them operation by operation. Only +, -, *, /, fma and bit operations,
 * all exactly rounded, so results do not depend on the machine. NaN in, NaN out.
 *
 * The polynomials are near-minimax fits (Lawson's iteration) of this project. Errors in units in
 * the last place over the whole range: exp 1.2, tanh 1.5, erf 1.5
 * (tests/check/test_kernels.c). */
#ifndef MODEL_SERVER_BACKEND_MATHF_H
#define MODEL_SERVER_BACKEND_MATHF_H
#include "model-server/backend/act.h"
#include "model-server/backend/numbers.h"
#include <math.h>

/* exp(x) = 2^n exp(r), |r| <= ln 2 / 2; exp(r) = 1 + r + r^2 P(r). */
#define EXP_HI     89.0f     /* above: infinity */
#define EXP_LO     -104.0f   /* below: 0 */
#define EXP_ROUND  0x1.8p23f /* adding it rounds to an integer, kept in the low bits */
#define EXP_LOG2E  0x1.715476p0f
#define EXP_LN2_HI 0x1.62e4p-1f
#define EXP_LN2_LO 0x1.7f7d1cp-20f
#define EXP_P0     0x1.fffffcp-2f
#define EXP_P1     0x1.55549p-3f
#define EXP_P2     0x1.5558f4p-5f
#define EXP_P3     0x1.123a6cp-7f
#define EXP_P4     0x1.6a234ep-10f

/* The same for x <= 0 and results above 2^-126. */
#define EXP_NEG_LO    -87.0f
#define EXP_NEG_ROUND 0x1.8000fep23f /* EXP_ROUND + 127 */

/* tanh(x) = x + x s P(s), s = x^2, below 0.625; else 1 - 2 / (exp(2x) + 1). */
#define TANH_SPLIT 0.625f
#define TANH_P0    -0x1.555554p-2f
#define TANH_P1    0x1.111066p-3f
#define TANH_P2    -0x1.b9ee9p-5f
#define TANH_P3    0x1.638b56p-6f
#define TANH_P4    -0x1.0bf4ecp-7f
#define TANH_P5    0x1.18e1a2p-9f

/* erf(x) = x + x P(s), s = x^2, below 0.92; else 1 - exp(-t + t Q(t)), t = |x|, 1 from 3.95 on. */
#define ERF_SPLIT 0.92f
#define ERF_ONE   3.95f
#define ERF_P0    0x1.06eba6p-3f
#define ERF_P1    -0x1.8126e8p-2f
#define ERF_P2    0x1.ce1abap-4f
#define ERF_P3    -0x1.b68ff4p-6f
#define ERF_P4    0x1.47575ap-8f
#define ERF_P5    -0x1.3a8aa4p-11f
#define ERF_Q0    -0x1.0778dcp-3f
#define ERF_Q1    -0x1.45328ep-1f
#define ERF_Q2    -0x1.b3256ep-4f
#define ERF_Q3    0x1.855148p-6f
#define ERF_Q4    -0x1.dd6c88p-9f
#define ERF_Q5    0x1.527bcep-12f
#define ERF_Q6    -0x1.78db9ap-17f

#define SQRT_HALF        0x1.6a09e6p-1f
#define GELU_TWO_C       0x1.988454p0f /* 2 sqrt(2 / pi) */
#define SWIGLU_ALPHA     1.702f
#define QUICK_GELU_ALPHA 1.702f
#define GELU_CUBIC       0x1.6e4e26p-5f /* 0.044715 */

static inline float math_exp(float x)
{
    x = EXP_HI < x ? EXP_HI : x;
    x = EXP_LO > x ? EXP_LO : x;
    float t = fmaf(x, EXP_LOG2E, EXP_ROUND), n = t - EXP_ROUND;
    float r = fmaf(n, -EXP_LN2_LO, fmaf(n, -EXP_LN2_HI, x));
    float p = fmaf(fmaf(fmaf(fmaf(EXP_P4, r, EXP_P3), r, EXP_P2), r, EXP_P1), r, EXP_P0);
    p = fmaf(r * r, p, r) + 1.0f;
    /* 2^n in two factors: n reaches from -150 to 128 */
    int32_t e = (int32_t)(bits_of(t) - bits_of(EXP_ROUND)), half = e >> 1;
    p *= float_of((uint32_t)(half + 127) << 23);
    return p * float_of((uint32_t)(e - half + 127) << 23);
}

/* exp(x) for x <= 0, for softmax: exactly 0 below EXP_NEG_LO, where results would be subnormal.
 * The sum already contains the integer in the position of an exponent. */
static inline float math_exp_neg(float x)
{
    float t = fmaf(x, EXP_LOG2E, EXP_NEG_ROUND), n = t - EXP_NEG_ROUND;
    float r = fmaf(n, -EXP_LN2_LO, fmaf(n, -EXP_LN2_HI, x));
    float p = fmaf(fmaf(fmaf(fmaf(EXP_P4, r, EXP_P3), r, EXP_P2), r, EXP_P1), r, EXP_P0);
    p = fmaf(fmaf(p, r, 1.0f), r, 1.0f) * float_of(bits_of(t) << 23);
    return x < EXP_NEG_LO ? 0.0f : p;
}

static inline float math_tanh(float x)
{
    float s = x * x, a = fabsf(x);
    float p = fmaf(fmaf(fmaf(TANH_P5, s, TANH_P4), s, TANH_P3), s, TANH_P2);
    p = fmaf(fmaf(p, s, TANH_P1), s, TANH_P0);
    float small = fmaf(x * s, p, x);
    float large = copysignf(1.0f - 2.0f / (math_exp(a + a) + 1.0f), x);
    return a < TANH_SPLIT ? small : large;
}

static inline float math_erf(float x)
{
    float s = x * x, t = fabsf(x);
    float p = fmaf(fmaf(fmaf(ERF_P5, s, ERF_P4), s, ERF_P3), s, ERF_P2);
    p = fmaf(fmaf(p, s, ERF_P1), s, ERF_P0);
    float small = fmaf(x, p, x);
    t = ERF_ONE < t ? ERF_ONE : t;
    float q = fmaf(fmaf(fmaf(ERF_Q6, t, ERF_Q5), t, ERF_Q4), t, ERF_Q3);
    q = fmaf(fmaf(fmaf(q, t, ERF_Q2), t, ERF_Q1), t, ERF_Q0);
    float large = copysignf(1.0f - math_exp(fmaf(t, q, -t)), x);
    return t < ERF_SPLIT ? small : large;
}

static inline float math_sigmoid(float x) { return 1.0f / (1.0f + math_exp(-x)); }

/* log(1 + exp(x)) = max(x, 0) + log(1 + y), y = exp(-|x|), by the series of atanh(y / (2 + y)),
 * whose argument is at most 1/3. */
static inline float math_softplus(float x)
{
    const float y = math_exp(-fabsf(x)), s = y / (2.0f + y), q = s * s;
    float p =
        fmaf(fmaf(fmaf(fmaf(q, 1 / 15.0f, 1 / 13.0f), q, 1 / 11.0f), q, 1 / 9.0f), q, 1 / 7.0f);
    p = fmaf(fmaf(p, q, 1 / 5.0f), q, 1 / 3.0f);
    const float log = fmaf(2.0f * s * q, p, 2.0f * s);
    return x > 0.0f ? x + log : x < 0.0f || x == 0.0f ? log : x;
}

static inline float math_act(float x, enum act kind)
{
    switch (kind) {
    case ACT_SILU:
        return x / (1.0f + math_exp(-x));
    case ACT_GELU:
        return 0.5f * x * (1.0f + math_erf(x * SQRT_HALF));
    case ACT_GELU_TANH: /* 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)) */
        return x / (1.0f + math_exp(-GELU_TWO_C * fmaf(GELU_CUBIC * x * x, x, x)));
    case ACT_RELU2:
        x = x < 0.0f ? 0.0f : x;
        return x * x;
    case ACT_QUICK_GELU:
        return x / (1.0f + math_exp(-QUICK_GELU_ALPHA * x));
    case ACT_SIGMOID:
        return math_sigmoid(x);
    case ACT_RELU:
    case ACT_SWIGLU_CLAMPED:
    case ACT_SILU_CLAMPED:
    case ACT_SILU_CAPPED:
    case ACT_SILU_SOFT:
    case ACT_N:
    case ACT_LIMIT:
        break;
    }
    return x < 0.0f ? 0.0f : x;
}

static inline float math_soft_cap(float x, float scale, float cap)
{
    return cap > 0.0f ? cap * math_tanh(x * scale / cap) : x * scale;
}

/* A gate with its up. */
static inline float math_gate(float x, float up, enum act kind)
{
    if (!act_gated_only(kind))
        return math_act(x, kind) * up;
    if (act_kind(kind) == ACT_SILU_SOFT)
        return math_sigmoid(x) * math_soft_cap(x, 1.0f, SOFT_GATE) *
               math_soft_cap(up, 1.0f, SOFT_UP);
    const float limit = act_limit(kind);
    up = limit < up ? limit : up;
    up = -limit > up ? -limit : up;
    if (act_kind(kind) == ACT_SILU_CAPPED) {
        x = math_act(x, ACT_SILU);
        return (limit < x ? limit : x) * up;
    }
    x = limit < x ? limit : x;
    if (act_kind(kind) == ACT_SILU_CLAMPED)
        return math_act(x, ACT_SILU) * up;
    return x / (1.0f + math_exp(-SWIGLU_ALPHA * x)) * (up + 1.0f);
}
#endif
