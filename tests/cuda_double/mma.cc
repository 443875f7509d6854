/* mma.cc - the double's matrix instructions of a warp: from the fragments of its 32 lanes, whose
 * layouts are those of the PTX manual. An element is a chain in double over k, ascending, rounded
 * once. The loops are compiled for AVX2, too: products of two floats are exact in double, so the
 * bits are the same. */
#include "model-server/backend/cuda/kernels/device.cuh"

#define VECTORS __attribute__((optimize("O3"), target_clones("arch=haswell", "default")))
#define INSIDE static inline __attribute__((always_inline))

template <float (*WIDE)(uint16_t)> INSIDE void multiply(void *const *lanes)
{
    double_mma<float> *const *l = (double_mma<float> *const *)lanes;
    uint16_t a16[16][16], b16[16][8];
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const double_mma<float> *own = l[lane];
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++)
            memcpy(&a16[g + i % 2 * 8][2 * t + i / 2 * 8], &own->a[i], 4);
        for (int i = 0; i < 2; i++)
            for (int h = 0; h < 2; h++)
                b16[2 * t + h + 8 * i][g] = (uint16_t)(own->b[i] >> 16 * h);
    }
    for (int i = 0; i < 256; i++)
        (&a[0][0])[i] = WIDE((&a16[0][0])[i]);
    for (int i = 0; i < 128; i++)
        (&b[0][0])[i] = WIDE((&b16[0][0])[i]);
    for (int row = 0; row < 16; row++) {
        double sum[8];
        for (int t = 0; t < 4; t++)
            for (int h = 0; h < 2; h++)
                sum[2 * t + h] = l[row % 8 * 4 + t]->c[row / 8 * 2 + h];
        for (int k = 0; k < 16; k++)
            for (int col = 0; col < 8; col++)
                sum[col] += (double)a[row][k] * b[k][col];
        for (int t = 0; t < 4; t++)
            for (int h = 0; h < 2; h++)
                l[row % 8 * 4 + t]->c[row / 8 * 2 + h] = (float)sum[2 * t + h];
    }
}

VECTORS void double_mma_bf16(void *const *lanes) { multiply<f32_of_bf16>(lanes); }
VECTORS void double_mma_f16(void *const *lanes) { multiply<f32_of_f16>(lanes); }

VECTORS void double_mma_s8(void *const *lanes)
{
    double_mma<int32_t> *const *l = (double_mma<int32_t> *const *)lanes;
    int8_t a[16][32];
    int b[32][8];
    for (int lane = 0; lane < 32; lane++) {
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++)
            memcpy(&a[g + i % 2 * 8][4 * t + i / 2 * 16], &l[lane]->a[i], 4);
        for (int i = 0; i < 2; i++)
            for (int h = 0; h < 4; h++)
                b[4 * t + h + 16 * i][g] = (int8_t)(l[lane]->b[i] >> 8 * h);
    }
    for (int row = 0; row < 16; row++) {
        int sum[8] = {};
        for (int k = 0; k < 32; k++)
            for (int col = 0; col < 8; col++)
                sum[col] += a[row][k] * b[k][col];
        for (int col = 0; col < 8; col++)
            l[row % 8 * 4 + col / 2]->c[row / 8 * 2 + col % 2] += sum[col];
    }
}
