/* The CUDA backend over a cache of windows: bits of one cache for all layers. Which device: see
 * tests/check/cuda/cuda_sides.h. */
#include "tests/check/cuda/cuda_sides.h"
#include "tests/golden/windows.h"

TEST(windows_apart_have_the_bits_of_one_cache)
{
    ops = gpu;
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        same_bits(configs[i], KV_BF16);
        same_bits(configs[i], KV_I8);
    }
}

int main(void) { return cuda_tests_run(); }
