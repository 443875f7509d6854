#include "model-server/backend/cpu/kernels.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

const struct kernel_row kernel_rows[] = {
#define X(op, variant, needs) {#op, #variant, needs, (void (*)(void))k_##op##_##variant},
    VARIANTS(X)
#undef X
        {NULL},
};

#if defined(__x86_64__)
/* Not every compiler's __builtin_cpu_supports() knows the word; AVX2 being usable implies the rest.
 */
static int has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

unsigned cpu_detect(void)
{
    unsigned f = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        f |= CPU_AVX2;
    if (f && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        f |= CPU_AVX512;
#endif
    return f;
}

void kernels_init(struct kernels *k, unsigned features)
{
    k->mr = features & CPU_AVX512 ? 12 : 6;
#define X(OP, variant, needs)                                                                      \
    if ((features & (needs)) == (needs))                                                           \
        k->OP = k_##OP##_##variant;
    VARIANTS(X)
#undef X
}

const char *cpu_feature_names(unsigned features)
{
    if (features & CPU_AVX512)
        return "AVX-512";
    return features & CPU_AVX2 ? "AVX2" : "plain C";
}
