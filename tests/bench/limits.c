/* limits.c - what this machine can do, as one JSON object: reading memory, and multiplying and
 * adding in fp32, fp16, bf16 and int8 (0: the CPU lacks the instruction). Best of several runs.
 *
 *   limits [threads]     default: all allowed cores */
#include "common/clock.h"
#include "model-server/backend/cpu/cpu.h"
#include "tests/bench/probes.h"
#include <stdio.h>

#if defined(__x86_64__)
#include <cpuid.h>

PROBE_RATE(half_512, "vfmadd231ph", 64, __attribute__((target("avx512f"))))
PROBE_RATE(bf16_512, "vdpbf16ps", 64, __attribute__((target("avx512f"))))
PROBE_RATE(int8_512, "vpdpbusd", 64, __attribute__((target("avx512f"))))

/* AVX512-FP16: leaf 7, EDX bit 23. gcc 12's __builtin_cpu_supports() does not know its name. */
static bool has_half(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 23 & 1) &&
           __builtin_cpu_supports("avx512f");
}
#endif

enum { ROUNDS = 5 };

static double read_rate(struct device *d)
{
    double best = 0;
    for (int i = 0; i <= ROUNDS; i++) { /* the first run maps the memory */
        int64_t start = clock_ns();
        probe_read(d->pool, d->features);
        double rate = probe_bytes(d->pool) / (double)(clock_ns() - start);
        best = i && rate > best ? rate : best;
    }
    return best;
}

/* Operations per ns; an instruction of 512 bits does `per_lane` times what an fp32 one does. */
static double op_rate(struct device *d, range_fn *fn, unsigned features, double per_lane)
{
    double best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t start = clock_ns();
        probe_rate(d->pool, fn);
        double rate = per_lane * probe_ops(d->pool, features) / (double)(clock_ns() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    struct device_options o = {.threads = argc > 1 ? atoi(argv[1]) : 0, .features = ~0ull};
    struct device *d = backend_cpu.open(&o, &e);
    if (!d) {
        fprintf(stderr, "limits: %s\n", e.msg);
        return 1;
    }
    double f32 = 0, f16 = 0, bf16 = 0, int8 = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        f32 = op_rate(d, probe_fma_512, CPU_AVX512, 1);
    else if (__builtin_cpu_supports("fma"))
        f32 = op_rate(d, probe_fma_256, 0, 1);
    if (has_half())
        f16 = op_rate(d, half_512, CPU_AVX512, 2);
    if (__builtin_cpu_supports("avx512bf16"))
        bf16 = op_rate(d, bf16_512, CPU_AVX512, 2);
    if (__builtin_cpu_supports("avx512vnni"))
        int8 = op_rate(d, int8_512, CPU_AVX512, 4);
#endif
    printf("{\"read_gb_per_s\":%.2f,\"f32_gflop_per_s\":%.1f,\"f16_gflop_per_s\":%.1f,"
           "\"bf16_gflop_per_s\":%.1f,\"int8_gop_per_s\":%.1f}\n",
           read_rate(d), f32, f16, bf16, int8);
    backend_cpu.close(d);
    return 0;
}
