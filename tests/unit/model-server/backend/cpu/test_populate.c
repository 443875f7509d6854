/* test_populate.c - the front of every stream of a KV cache is in memory when the cache is handed
 * out; how much that is has a bound. */
#include "common/clock.h"
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/threads.h"
#include "tests/check/cpu_device.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

static const struct kv_desc desc = {.n_layers = 4,
                                    .each = {.n_heads = 4, .k_dim = 64, .v_dim = 64},
                                    .block_size = 16,
                                    .n_blocks = 8192,
                                    .dtype = KV_F16};

/* Pages of [p, p + n) that are not in memory. */
static size_t absent(const char *p, size_t n)
{
    const size_t before = (uintptr_t)p & (PAGE - 1), pages = (n + before + PAGE - 1) / PAGE;
    size_t none = 0;
    unsigned char *there = malloc(pages);
    assert_non_null(there);
    assert_int_equal(mincore((void *)(uintptr_t)(p - before), pages * PAGE, there), 0);
    for (size_t i = 0; i < pages; i++)
        none += !(there[i] & 1);
    free(there);
    return none;
}

static void nothing(void *arg, int thread, size_t begin, size_t end)
{
    (void)arg, (void)thread, (void)begin, (void)end;
}

TEST(the_first_blocks_are_in_memory)
{
    struct err e = ERR_INIT;
    struct device *d = device(2, ~(uint64_t)0);
    struct kv_cache *kv = cpu_kv_new(d, &desc, &e);
    assert_non_null(kv);
    const size_t front = cpu_kv_front(kv);
    size_t none = 0;
    assert_true(front >= 2);
    for (uint32_t l = 0; l < desc.n_layers; l++)
        for (uint32_t h = 0; h < 2 * desc.each.n_heads; h++)
            none += absent(kv_stream(kv, l, h % 2, h / 2)->data,
                           front * kv_stream(kv, l, h % 2, h / 2)->block_bytes);
    assert_int_equal(none, 0);
    cpu_kv_free(d, kv);
    backend_cpu.close(d);
}

/* Two streams of a cache that no thread populates: huge pages would hold several times the front.
 */
TEST(nothing_else_is_taken_before)
{
    struct err e = ERR_INIT;
    struct device *d = device(2, ~(uint64_t)0);
    enum { BLOCK = 2048 };
    struct kv_stream streams[2];
    struct kv_cache kv = {.desc = desc, .block_bytes = 2 * BLOCK, .n_streams = 2};
    const size_t each = (size_t)desc.n_blocks * BLOCK;
    kv.streams = streams;
    kv.bytes = 2 * each;
    kv.data = cpu_map(kv.bytes);
    assert_non_null(kv.data);
    for (int i = 0; i < 2; i++)
        streams[i] = (struct kv_stream){.data = kv.data + i * each, .block_bytes = BLOCK};
    assert_int_equal(cpu_populate_front(d, &kv, &e), 0);
    const size_t front = (cpu_kv_front(&kv) * (size_t)BLOCK + PAGE - 1) / PAGE;
    assert_int_equal(absent(kv.data, kv.bytes), 2 * (each / PAGE - front));
    cpu_unmap(kv.data, kv.bytes);
    backend_cpu.close(d);
}

/* In the background, in several pieces of each stream; also beside steps, for the first 100 ms. */
TEST(the_rest_follows)
{
    struct err e = ERR_INIT;
    struct device *d = device(2, ~(uint64_t)0);
    struct kv_desc k = desc;
    k.n_layers = 1;
    k.n_blocks = 4096;
    struct kv_cache *kv = cpu_kv_new(d, &k, &e);
    assert_non_null(kv);
    const int64_t start = clock_ms();
    while (absent(kv->data, kv->bytes) && clock_ms() < start + 30000) {
        if (clock_ms() < start + 100)
            pool_run(d->pool, nothing, NULL, 2, 1);
        usleep(1000);
    }
    assert_int_equal(absent(kv->data, kv->bytes), 0);
    cpu_kv_free(d, kv);
    backend_cpu.close(d);
}

static uint32_t front_of(struct kv_desc k)
{
    struct kv_cache kv = {.desc = k, .block_bytes = cpu_kv_block_bytes(&k)};
    return cpu_kv_front(&kv);
}

TEST(the_front_is_bounded)
{
    struct kv_desc k = desc;
    assert_int_equal(front_of(k), 257); /* 4096 tokens, and block 0 */
    k.n_blocks = 3;                     /* a small cache: all of it */
    assert_int_equal(front_of(k), 3);
    k = desc; /* a large model: not more than 1 GiB of all streams */
    k.n_layers = 126;
    k.each = (struct kv_layer){.n_heads = 16, .k_dim = 256, .v_dim = 256};
    assert_true(front_of(k) * cpu_kv_block_bytes(&k) <= (size_t)1 << 30);
    assert_true(front_of(k) >= 2);
    k.n_layers = 512; /* never less than what any request touches */
    k.each.n_heads = 128;
    assert_int_equal(front_of(k), 2);
}

int main(void) { return tests_run(NULL, NULL); }
