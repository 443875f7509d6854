#include "model-server/backend/host/cpu_features.h"
#include <stdbool.h>
#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

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

#if defined(__linux__)
/* Of leaf 7, EDX. */
enum { HAS_AMX_BF16 = 1 << 22, HAS_AMX_TILE = 1 << 24, HAS_AMX_INT8 = 1 << 25 };
/* Of leaf 1, ECX: xgetbv may be used. Components 17 and 18 are shapes and contents of tiles. */
enum { HAS_OSXSAVE = 1 << 27, TILE_STATE = 3 << 17, TILE_DATA = 18 };
enum { ASK_FOR_STATE = 0x1023 }; /* ARCH_REQ_XCOMP_PERM, not in every libc's headers */

/* True if the operating system saves tiles when it switches threads. */
static bool tiles_are_saved(void)
{
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & HAS_OSXSAVE))
        return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & TILE_STATE) == TILE_STATE;
}

/* The CPU_AMX_ bits that the CPU has and Linux allows. */
static unsigned amx_detect(void)
{
    unsigned a, b, c, d, found = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & HAS_AMX_TILE) || !tiles_are_saved())
        return 0;
    found |= d & HAS_AMX_BF16 ? CPU_AMX_BF16 : 0;
    found |= d & HAS_AMX_INT8 ? CPU_AMX_INT8 : 0;
    if (found && syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA))
        return 0;
    return found;
}
#else
static unsigned amx_detect(void) { return 0; }
#endif
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
