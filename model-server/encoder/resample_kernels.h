/* resample_kernels.h - the inner loops of preprocessing, with a variant per instruction set.
 *
 * Sums are of integers modulo 2^32, so that every order of additions and every variant gives the
 * same bits. The reference variant (resample_kernels.c) is the specification; tests/check/
 * test_resample.c compares the others with it. */
#ifndef MODEL_SERVER_ENCODER_RESAMPLE_KERNELS_H
#define MODEL_SERVER_ENCODER_RESAMPLE_KERNELS_H
#include <stddef.h>
#include <stdint.h>

enum { TAP_BITS = 22, TAP_LOW_BITS = 15, TAP_GROUP = 4 };

/* Inputs and weights of n outputs. Output i is the sum over j < count[i] of k[i * stride + j] times
 * input first[i] + j. Weights are fixed-point numbers with 22 fractional bits. `stride` is a
 * multiple of TAP_GROUP; weights from count[i] on are 0. `low` and `high` are parts of the same
 * weights for 16-bit products: k = high * 2^15 + low, 0 <= low < 2^15. */
struct taps {
    uint32_t n, stride, most; /* most: the largest count */
    uint32_t *first, *count;
    int32_t *k;
    int16_t *low, *high;
};

/* Normalisation of each channel's bytes: (float(byte * rescale) - mean) / std, where the first
 * product is in double precision. value[c][byte] is the result as a table. */
struct byte_numbers {
    double rescale;
    float mean[3], std[3];
    float value[3][256];
};

/*  kernel  result  arguments */
#define RESAMPLE_KERNELS(X)                                                                        \
    /* From rows of `from_pixels` RGB pixels to rows of t->n pixels. Nothing outside a row is      \
     * read. The byte after each row of `to` is overwritten; `to_bytes` > 3 t->n. */               \
    X(across, void,                                                                                \
      (uint8_t * to, size_t to_bytes, const uint8_t *from, size_t from_bytes,                      \
       uint32_t from_pixels, uint32_t rows, const struct taps *t))                                 \
    /* n bytes of output row i, from t->count[i] input rows; from[j] is row first[i] + j. */       \
    X(down, void,                                                                                  \
      (uint8_t * to, const uint8_t *const *from, size_t n, const struct taps *t, uint32_t i))      \
    /* Normalises n RGB pixels. Channel c of pixel i goes to to[c * plane + f * frame + i] for     \
     * every f < frames. */                                                                        \
    X(spread, void,                                                                                \
      (float *to, size_t plane, uint32_t frames, size_t frame, const uint8_t *rgb, uint32_t n,     \
       const struct byte_numbers *b))

struct resample_kernels {
#define X(op, result, args) result(*op) args;
    RESAMPLE_KERNELS(X)
#undef X
};
#define X(op, result, args)                                                                        \
    result resample_##op##_ref args;                                                               \
    result resample_##op##_avx2 args;                                                              \
    result resample_##op##_avx512 args;
RESAMPLE_KERNELS(X)
#undef X

/* What this CPU has: bits of enum cpu_feature (backend/host/cpu_features.h). */
unsigned resample_features(void);
/* Selects the fastest variants that need no other bits than `features`. */
void resample_kernels_init(struct resample_kernels *k, unsigned features);

/* A sum of products with weights as a byte: rounded down, limited to 0 .. 255. */
static inline uint8_t tap_byte(int32_t sum)
{
    const int32_t v = sum >> TAP_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}
#endif
