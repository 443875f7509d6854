/* cpu_features.h - the instruction sets of the CPU that this process runs on. Any thread. */
#ifndef MODEL_SERVER_BACKEND_HOST_CPU_FEATURES_H
#define MODEL_SERVER_BACKEND_HOST_CPU_FEATURES_H

/* Bits of device_options.features and of the environment variable CPU_FEATURES. */
enum cpu_feature {
    CPU_AVX2 = 1 << 0,        /* with FMA and F16C */
    CPU_AVX512 = 1 << 1,      /* F, BW, VL, DQ */
    CPU_AVX512_VNNI = 1 << 2, /* 8-bit products into 32-bit sums */
    CPU_AVX_VNNI = 1 << 3,    /* the same in vectors of 256 bits */
    CPU_AVX512_BF16 = 1 << 4, /* products of bfloat16 pairs into fp32 sums */
    CPU_AVX512_FP16 = 1 << 5, /* arithmetic of float16 */
    CPU_AMX_INT8 = 1 << 6,    /* 16 x 16 tiles of 8-bit products */
    CPU_AMX_BF16 = 1 << 7,    /* the same of bfloat16 */
    CPU_NEON = 1 << 8,        /* AArch64: Advanced SIMD */
    CPU_NEON_DOT = 1 << 9,    /* FEAT_DotProd: signed 8-bit products into 32-bit sums */
    CPU_NEON_I8MM = 1 << 10,  /* FEAT_I8MM: the same of unsigned and signed */
    CPU_NEON_FP16 = 1 << 11,  /* FEAT_FP16: arithmetic of float16 */
};

/* enum cpu_feature bits of what the CPU has and the operating system allows. Tile registers of AMX
 * enlarge a thread's state by 8 KiB, so Linux wants them requested once per process: this function
 * does. */
unsigned cpu_detect(void);

/* "AVX-512 VNNI" or "plain C": the widest of these instruction sets, for logs. Static. */
const char *cpu_feature_names(unsigned features);
#endif
