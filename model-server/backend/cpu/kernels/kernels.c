#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/cpu/kernels/amx.h"
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

const struct kernel_row kernel_rows[] = {
#define X(op, variant, needs) {#op, #variant, needs, (void (*)(void))k_##op##_##variant},
    VARIANTS(X)
#undef X
        {NULL},
};

#if defined(__x86_64__)
/* Not every compiler's __builtin_cpu_supports() has the name; usable AVX2 implies the rest. */
static int has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int has_avx512_bf16(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1 << 5);
}

/* gcc 12's __builtin_cpu_supports() does not know its name. */
static int has_avx512_fp16(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1 << 23);
}

static int has_avx_vnni(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1 << 4);
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
    if (f & CPU_AVX512 && __builtin_cpu_supports("avx512vnni"))
        f |= CPU_AVX512_VNNI;
    if (f & CPU_AVX512 && has_avx512_bf16())
        f |= CPU_AVX512_BF16;
    if (f & CPU_AVX512 && has_avx512_fp16())
        f |= CPU_AVX512_FP16;
    if (f && has_avx_vnni())
        f |= CPU_AVX_VNNI;
    if (f & CPU_AVX512)
        f |= amx_detect();
#elif defined(__aarch64__)
    f = CPU_NEON;
#if defined(__linux__)
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP)
        f |= CPU_NEON_DOT;
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDHP)
        f |= CPU_NEON_FP16;
    if (getauxval(AT_HWCAP2) & HWCAP2_I8MM)
        f |= CPU_NEON_I8MM;
#endif
#endif
    return f;
}

void kernels_init(struct kernels *k, unsigned features)
{
    k->mr = features & CPU_AVX512 ? 12 : 6;
    bool vnni512 = features & CPU_AVX512 && features & CPU_AVX512_VNNI;
    k->mr_w8a8 = vnni512 ? 12 : features & (CPU_AVX_VNNI | CPU_NEON) ? 6 : 4;
    k->fit_w8a8 = features & CPU_AVX2 && !vnni512 && !(features & CPU_AVX_VNNI) ? 8 : 0;
    k->mr_codes = vnni512 ? 16 : 4;
    k->few_codes = vnni512 ? 16 : features & CPU_AVX2 ? 8 : 4;
    k->mr_wide = vnni512 ? 16 : 4;
#define X(OP, variant, needs)                                                                      \
    if ((features & (needs)) == (needs))                                                           \
        k->OP = k_##OP##_##variant;
    VARIANTS(X)
#undef X
}

const char *cpu_feature_names(unsigned features)
{
    if (features & (CPU_AMX_INT8 | CPU_AMX_BF16))
        return features & CPU_AMX_INT8 ? "AMX, AVX-512 VNNI" : "AMX, AVX-512";
    if (features & CPU_AVX512_VNNI)
        return features & CPU_AVX512_BF16 ? "AVX-512 VNNI BF16" : "AVX-512 VNNI";
    if (features & CPU_AVX512)
        return "AVX-512";
    if (features & CPU_AVX2)
        return features & CPU_AVX_VNNI ? "AVX2 VNNI" : "AVX2";
    if (features & CPU_NEON)
        return features & CPU_NEON_I8MM  ? "NEON, dot products, i8mm"
               : features & CPU_NEON_DOT ? "NEON, dot products"
                                         : "NEON";
    return "plain C";
}
