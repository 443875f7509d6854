/* hadamard.h - a rotation that spreads outliers over a head, for a 4-bit cache.
 *
 * Keys and values are rotated before they are quantised, queries before they are multiplied with
 * keys, and the sum of values is rotated back (QuaRot, arXiv 2404.00456; no calibration). The
 * matrix is orthogonal up to a factor, and its own inverse: H H = n, where n is hadamard_size().
 * There is no division by the root of n: the scales of keys and values contain 1 / n, a power of
 * two. */
#ifndef MODEL_SERVER_BACKEND_CPU_HADAMARD_H
#define MODEL_SERVER_BACKEND_CPU_HADAMARD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The greatest power of two that divides `dim` > 0: the number of adjacent elements that are
 * rotated together. */
static inline uint32_t hadamard_size(uint32_t dim) { return dim & -dim; }

/* Four numbers: what every processor here adds at once. */
typedef float hadamard_lanes __attribute__((vector_size(16)));
enum { HADAMARD_LANES = 4 };

/* (x, y) becomes (x + y, x - y). */
static inline void hadamard_step(float *x, float *y)
{
    hadamard_lanes a, b, sum, difference;
    memcpy(&a, x, sizeof(a)), memcpy(&b, y, sizeof(b));
    sum = a + b, difference = a - b;
    memcpy(x, &sum, sizeof(sum)), memcpy(y, &difference, sizeof(difference));
}

/* The same of neighbours, then of those two apart. */
static inline void hadamard_four(float *x)
{
    const float a = x[0] + x[1], b = x[0] - x[1], c = x[2] + x[3], d = x[2] - x[3];
    x[0] = a + c, x[1] = b + d, x[2] = a - c, x[3] = b - d;
}

/* x = H x for each of `width` columns of x [dim][width]. A column's bits depend only on that
 * column. */
static inline void hadamard(float *x, uint32_t dim, uint32_t width)
{
    const size_t n = (size_t)dim * width, whole = (size_t)hadamard_size(dim) * width;
    const bool fours = width == 1 && whole >= HADAMARD_LANES;
    for (size_t at = 0; fours && at < n; at += HADAMARD_LANES)
        hadamard_four(x + at);
    for (size_t half = fours ? HADAMARD_LANES : width; half < whole; half *= 2)
        for (size_t at = 0; at < n; at += 2 * half) {
            size_t i = at;
            for (; i + HADAMARD_LANES <= at + half; i += HADAMARD_LANES)
                hadamard_step(x + i, x + i + half);
            for (; i < at + half; i++) {
                const float a = x[i], b = x[i + half];
                x[i] = a + b;
                x[i + half] = a - b;
            }
        }
}
#endif
