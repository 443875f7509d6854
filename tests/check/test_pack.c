/* Where every element of a float matrix lies after loading, by the words of kernels.h: whatever the
 * size, the stacking, the strides and the alignment, and whichever way it took. */
#include "model-server/backend/cpu/cpu.h"
#include "tests/unit/test.h"
#include <string.h>

static struct device *dev;

static int start(void **state)
{
    struct err e;
    (void)state;
    dev = backend_cpu.open(&(struct device_options){.threads = 2, .features = ~0ull}, &e);
    return dev ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    backend_cpu.close(dev);
    return 0;
}

static size_t place(enum dtype t, uint32_t row, uint32_t k)
{
    return t == DT_BF16 ? (size_t)(k & ~1u) * LANES + (size_t)2 * (row % LANES) + (k & 1)
                        : (size_t)k * LANES + row % LANES;
}

/* Element (row, k) of the source is a number of its own, so that one in a wrong place shows. */
static void check(enum dtype t, uint32_t rows, uint32_t cols, uint32_t second, uint32_t skip,
                  uint32_t gap)
{
    size_t size = dtype_size(t), stride = cols + gap, n = (size_t)(rows + 1) * stride + 8;
    char *memory = calloc(n + 1, size), *data = memory + skip * size;
    struct err e;
    assert_non_null(memory);
    for (size_t i = 0; i < n - skip; i++) {
        uint32_t v = t == DT_F32 ? (uint32_t)(i + 1) * 2654435761u >> 2 : (uint32_t)(i % 30000) + 1;
        memcpy(data + i * size, &v, size);
    }
    const struct mat_part parts[] = {
        {data, t, rows - second, cols, (int64_t)stride, 1},
        {data + (rows - second) * stride * size, t, second, cols, (int64_t)stride, 1}};
    const struct mat_desc m = {.parts = parts, .n_parts = second ? 2 : 1, .dtype = t};
    struct weight *w = backend_cpu.weight_load(dev, &m, &e);
    assert_non_null(w);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t k = 0; k < cols; k++)
            if (memcmp(weight_panel(w, r / LANES) + place(t, r, k) * size,
                       data + (r * stride + k) * size, size) != 0)
                fail_msg("type %d, %u x %u, second %u, skip %u, gap %u: row %u, column %u", t, rows,
                         cols, second, skip, gap, r, k);
    backend_cpu.weight_free(dev, w);
    free(memory);
}

TEST(test_sizes)
{
    for (enum dtype t = DT_F32; t < DT_N; t++)
        for (uint32_t rows = 1; rows < 70; rows += rows < 20 ? 1 : 7)
            for (uint32_t cols = 1; cols < 40; cols += cols < 12 ? 1 : 5)
                check(t, rows, cols, 0, 0, 0);
}

TEST(test_stacked_strided_unaligned)
{
    for (enum dtype t = DT_F32; t < DT_N; t++)
        for (uint32_t second = 0; second < 40; second += 5)
            for (uint32_t skip = 0; skip < 4; skip++)
                for (uint32_t gap = 0; gap < 4; gap++) {
                    check(t, 80, 24, second, skip, gap);
                    check(t, 80, 37, second, skip, gap);
                }
}

int main(void) { return tests_run(start, stop); }
