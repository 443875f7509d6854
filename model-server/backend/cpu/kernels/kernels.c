#include "model-server/backend/cpu/kernels/kernels.h"

const struct kernel_row kernel_rows[] = {
#define X(op, variant, needs) {#op, #variant, needs, (void (*)(void))k_##op##_##variant},
    VARIANTS(X)
#undef X
        {NULL},
};

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
