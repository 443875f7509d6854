// What decides the size of the KV pool.
#include "model-server/engine/kv_pool.h"
#include "tests/unit/test.h"

static struct kv_memory cpu(uint64_t free_bytes)
{
    return (struct kv_memory){.free = free_bytes,
                              .total = 1000000000,
                              .shared = true,
                              .world = 1,
                              .fraction = 1,
                              .block_bytes = 1000,
                              .block_size = 16};
}

TEST(cpu_ranks_share_what_is_free)
{
    struct kv_memory m = cpu(100000000);
    m.longest = 1 << 22;
    assert_int_equal(kv_plan(&m).n_blocks, 50000);
    m.world = 2;
    assert_int_equal(kv_plan(&m).n_blocks, 25000);
    m.fraction = 0.5;
    assert_int_equal(kv_plan(&m).n_blocks, 12500);
    m.free = 500;
    assert_int_equal(kv_plan(&m).n_blocks, 0);
}

TEST(limits)
{
    struct kv_memory m = cpu(100000000);
    m.limit = 5000000; /* bytes */
    assert_int_equal(kv_plan(&m).n_blocks, 5000);
    assert_string_equal(kv_plan(&m).why, "--kv-cache-memory");
    m.limit = 0.5; /* share */
    assert_int_equal(kv_plan(&m).n_blocks, 50000);
    m.limit = 1e15;
    assert_string_equal(kv_plan(&m).why, "free memory");
    m = cpu(UINT64_MAX / 4);
    m.limit = 0.9;
    assert_int_equal(kv_plan(&m).n_blocks, (4 << 20) / 16 + 1);
}

TEST(without_a_wish_the_pool_is_no_larger_than_of_use)
{
    struct kv_memory m = cpu(UINT64_MAX / 4);
    m.longest = 2048;
    assert_int_equal(kv_plan(&m).n_blocks, 64 * 2048 / 16 + 1);
    assert_string_equal(kv_plan(&m).why, "as many as can be used");
    m.longest = 131072; /* 64 requests are rarely all that long */
    assert_int_equal(kv_plan(&m).n_blocks, 64 * 8192 / 16 + 1);
    m.longest = 0;
    assert_int_equal(kv_plan(&m).n_blocks, 64 * 8192 / 16 + 1);
    m.longest = 1 << 20; /* but one of them must fit */
    assert_int_equal(kv_plan(&m).n_blocks, (1 << 20) / 16 + 1);
}

TEST(gpus_keep_a_margin_of_the_whole)
{
    struct kv_memory m = cpu(800000000);
    m.shared = false;
    m.world = 8;
    m.block_bytes = 100000;
    assert_in_range(kv_plan(&m).n_blocks, 6999, 7000); /* free - 10% of total */
    m.fraction = 0.1;
    assert_int_equal(kv_plan(&m).n_blocks, 0);
}

int main(void) { return tests_run(NULL, NULL); }
