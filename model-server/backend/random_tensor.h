/* random_tensor.h - generated numbers, for timing a shape without its checkpoint. They have the
 * same bits on every device: an element depends only on the tensor's seed and its index. */
#ifndef MODEL_SERVER_BACKEND_RANDOM_TENSOR_H
#define MODEL_SERVER_BACKEND_RANDOM_TENSOR_H
#include <stdint.h>
#include <string.h>

struct random_tensor {
    uint32_t seed;
    float mean, spread; /* uniform in mean +- spread */
};

/* Element i, in bfloat16: murmur3's finaliser of the counter. */
static inline uint16_t random_element(struct random_tensor t, uint64_t i)
{
    uint32_t h = ((uint32_t)i ^ t.seed) + (uint32_t)(i >> 32) * 0x9e3779b9u, bits;
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    h ^= h >> 16;
    float v = t.mean + t.spread * ((float)(int32_t)h * 0x1p-31f);
    memcpy(&bits, &v, sizeof(bits));
    return (uint16_t)(bits >> 16);
}
#endif
