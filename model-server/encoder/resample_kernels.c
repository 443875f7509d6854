#include "model-server/encoder/resample_kernels.h"
#include "model-server/backend/host/cpu_features.h"

/* Unsigned arithmetic: an intermediate sum may overflow. */
static uint8_t one(const uint8_t *from, size_t step, const int32_t *k, uint32_t count)
{
    uint32_t sum = 1u << (TAP_BITS - 1);
    for (uint32_t j = 0; j < count; j++)
        sum += (uint32_t)k[j] * from[j * step];
    return tap_byte((int32_t)sum);
}

void resample_across_ref(uint8_t *to, size_t to_bytes, const uint8_t *from, size_t from_bytes,
                         uint32_t from_pixels, uint32_t rows, const struct taps *t)
{
    (void)from_pixels;
    for (uint32_t r = 0; r < rows; r++, to += to_bytes, from += from_bytes)
        for (uint32_t i = 0; i < t->n; i++)
            for (uint32_t c = 0; c < 3; c++)
                to[3 * (size_t)i + c] = one(from + 3 * (size_t)t->first[i] + c, 3,
                                            t->k + (size_t)i * t->stride, t->count[i]);
}

void resample_down_ref(uint8_t *to, const uint8_t *const *from, size_t n, const struct taps *t,
                       uint32_t i)
{
    const int32_t *k = t->k + (size_t)i * t->stride;
    for (size_t x = 0; x < n; x++) {
        uint32_t sum = 1u << (TAP_BITS - 1);
        for (uint32_t j = 0; j < t->count[i]; j++)
            sum += (uint32_t)k[j] * from[j][x];
        to[x] = tap_byte((int32_t)sum);
    }
}

void resample_spread_ref(float *to, size_t plane, uint32_t frames, size_t frame, const uint8_t *rgb,
                         uint32_t n, const struct byte_numbers *b)
{
    for (uint32_t c = 0; c < 3; c++, to += plane)
        for (uint32_t f = 0; f < frames; f++)
            for (uint32_t i = 0; i < n; i++)
                to[f * frame + i] = b->value[c][rgb[3 * (size_t)i + c]];
}

unsigned resample_features(void) { return cpu_detect(); }

void resample_kernels_init(struct resample_kernels *k, unsigned features)
{
    *k = (struct resample_kernels){resample_across_ref, resample_down_ref, resample_spread_ref};
#if defined(__x86_64__)
    if (features & CPU_AVX2)
        *k = (struct resample_kernels){resample_across_avx2, resample_down_avx2,
                                       resample_spread_avx2};
    if (features & CPU_AVX512)
        *k = (struct resample_kernels){resample_across_avx512, resample_down_avx512,
                                       resample_spread_avx512};
#else
    (void)features;
#endif
}
