/* hadamard.h - a rotation that spreads outliers over a head, for a 4-bit cache.
 *
 * Keys and values are rotated before they are quantised, queries before they are multiplied with
 * keys, and the sum of values is rotated back (QuaRot, arXiv 2404.00456; no calibration). The
 * matrix is orthogonal up to a factor, and its own inverse: H H = n, where n is hadamard_size().
 * There is no division by the root of n: the scales of keys and values contain 1 / n, a power of
 * two. */
#ifndef MODEL_SERVER_BACKEND_CPU_HADAMARD_H
#define MODEL_SERVER_BACKEND_CPU_HADAMARD_H
#include <stddef.h>
#include <stdint.h>

/* The greatest power of two that divides `dim` > 0: the number of adjacent elements that are
 * rotated together. */
static inline uint32_t hadamard_size(uint32_t dim) { return dim & -dim; }

/* x = H x for each of `width` columns of x [dim][width]. A column's bits depend only on that
 * column. */
static inline void hadamard(float *x, uint32_t dim, uint32_t width)
{
    const size_t n = (size_t)dim * width, whole = (size_t)hadamard_size(dim) * width;
    for (size_t half = width; half < whole; half *= 2)
        for (size_t at = 0; at < n; at += 2 * half)
            for (size_t i = at; i < at + half; i++) {
                const float a = x[i], b = x[i + half];
                x[i] = a + b;
                x[i + half] = a - b;
            }
}
#endif
