/* slice.h - items in equal parts: of ranks, of tiles of a product, of passes over many rows. */
#ifndef MODEL_SERVER_BACKEND_SLICE_H
#define MODEL_SERVER_BACKEND_SLICE_H
#include <stdint.h>

struct slice {
    uint32_t first, n;
};

/* Part `i` of `parts` of n items. Sizes differ by at most one: 13 in two parts are 6 and 7. */
static inline struct slice slice_of(uint32_t n, uint32_t i, uint32_t parts)
{
    const uint32_t first = (uint32_t)((uint64_t)n * i / parts);
    return (struct slice){first, (uint32_t)((uint64_t)n * (i + 1) / parts) - first};
}

/* The part that has `item`. */
static inline struct slice slice_with(uint32_t n, uint32_t item, uint32_t parts)
{
    return slice_of(n, (uint32_t)((((uint64_t)item + 1) * parts - 1) / n), parts);
}
#endif
