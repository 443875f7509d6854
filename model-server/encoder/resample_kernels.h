/* resample_kernels.h - the inner loops of preprocessing: one slot per kernel, one row per variant.
 *
 * A sum is of integers modulo 2^32, so that every order and every variant gives the same bits.
 * kernels_ref (resample_kernels.c) is the specification; the files with an instruction set's suffix
 * are checked against it in tests/check/test_resample.c. */
#ifndef MODEL_SERVER_ENCODER_RESAMPLE_KERNELS_H
#define MODEL_SERVER_ENCODER_RESAMPLE_KERNELS_H
#include <stddef.h>
#include <stdint.h>

enum { TAP_BITS = 22, TAP_LOW_BITS = 15, TAP_GROUP = 4 };

/* Which inputs make each of n outputs, and with which weights: output i is the sum over j <
 * count[i] of k[i * stride + j] times input first[i] + j, where weights are integers of 22 bits
 * behind the point. `stride` is a multiple of TAP_GROUP; weights behind count[i] are 0. The same
 * weights in parts, which products of 16 bits can take: k = high * 2^15 + low, 0 <= low < 2^15. */
struct taps {
    uint32_t n, stride, most; /* most: the largest count */
    uint32_t *first, *count;
    int32_t *k;
    int16_t *low, *high;
};

/* What the bytes of each channel become: (float(byte * rescale) - mean) / std, where the first
 * product is of doubles. value[c][byte] is the same number. */
struct byte_numbers {
    double rescale;
    float mean[3], std[3];
    float value[3][256];
};

/*  kernel  result  arguments */
#define RESAMPLE_KERNELS(X)                                                                        \
    /* Rows of RGB pixels, `from_pixels` in each, to rows of t->n pixels. Nothing is read outside  \
     * a row. A byte behind each row of `to` is written; `to_bytes` > 3 t->n. */                   \
    X(across, void,                                                                                \
      (uint8_t * to, size_t to_bytes, const uint8_t *from, size_t from_bytes,                      \
       uint32_t from_pixels, uint32_t rows, const struct taps *t))                                 \
    /* n bytes of output row i from as many of t->count[i] rows; from[j] is input first[i] + j. */ \
    X(down, void,                                                                                  \
      (uint8_t * to, const uint8_t *const *from, size_t n, const struct taps *t, uint32_t i))      \
    /* n RGB pixels to numbers: pixel i's channel c to to[c * plane + i] and `frames` - 1 times    \
     * more, `frame` apart. */                                                                     \
    X(spread, void,                                                                                \
      (float *to, size_t plane, uint32_t frames, size_t frame, const uint8_t *rgb, uint32_t n,     \
       const struct byte_numbers *b))

enum resample_feature { RESAMPLE_AVX2 = 1 << 0, RESAMPLE_AVX512 = 1 << 1 };
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

unsigned resample_features(void); /* of this CPU */
/* The fastest that `features` allows: bits of resample_features(). */
void resample_kernels_init(struct resample_kernels *k, unsigned features);

static inline uint8_t tap_byte(int32_t sum)
{
    const int32_t v = sum >> TAP_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}
#endif
