/* act.h - activations with a limit: a value of enum act has the bits of a limit above its kind.
 * Plain C that CUDA kernels include, too (numbers.cuh). */
#ifndef MODEL_SERVER_BACKEND_ACT_H
#define MODEL_SERVER_BACKEND_ACT_H
#include "model-server/backend/backend.h"

static inline enum act act_kind(enum act a) { return (enum act)(a & ~ACT_LIMIT); }
static inline bool act_gated_only(enum act a)
{
    const enum act k = act_kind(a);
    return k == ACT_SWIGLU_CLAMPED || k == ACT_SILU_CLAMPED || k == ACT_SILU_CAPPED ||
           k == ACT_SILU_SOFT;
}
union act_bits {
    float limit;
    uint32_t bits;
};
/* Caps of ACT_SILU_SOFT. */
#define SOFT_GATE 4.0f
#define SOFT_UP   25.0f
static inline float act_limit(enum act a)
{
    union act_bits u;
    u.bits = (uint32_t)a & ACT_LIMIT;
    if (u.bits)
        return u.limit;
    return act_kind(a) == ACT_SWIGLU_CLAMPED ? 7.0f : 10.0f;
}
/* Can a value hold the limit? It is positive, and the last eight bits of it are 0. */
static inline bool act_limit_fits(float limit)
{
    union act_bits u;
    u.limit = limit;
    return limit > 0 && !(u.bits & ~(uint32_t)ACT_LIMIT);
}
/* `kind` without a limit, with one that act_limit_fits(). */
static inline enum act act_limited(enum act kind, float limit)
{
    union act_bits u;
    u.limit = limit;
    return (enum act)((uint32_t)kind | u.bits);
}
#endif
