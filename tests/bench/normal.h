/* normal.h - numbers that are distributed like logits and like a matrix's weights. */
#ifndef TESTS_BENCH_NORMAL_H
#define TESTS_BENCH_NORMAL_H
#include <stdint.h>

/* Nearly normal, deviation 1: twelve uniform numbers. *s is the state of the generator. */
static inline float normal(uint64_t *s)
{
    float x = 0;
    for (int i = 0; i < 12; i++) {
        *s = *s * 6364136223846793005u + 1442695040888963407u;
        x += (float)(*s >> 40) / 16777216.0f;
    }
    return x - 6;
}
#endif
