/* Layers that see a window, in a cache of their own whose blocks are used again behind it, have the
 * bits of one cache for all layers: all logits of a long prompt in chunks, over random weights. */
#include "tests/golden/windows.h"

static void windows_apart_have_the_bits_of_one_cache(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++)
        for (enum kv_dtype t = KV_F32; t < KV_N; t++)
            same_bits(configs[i], t);
}

static void copies_go_to_the_cache_that_is_meant(void **state)
{
    struct rig r = {0};
    struct err e = ERR_INIT;
    (void)state;
    open_rig(&r, configs[0], true, KV_BF16);
    const struct kv_apart each = model_kv_apart(r.m, BLOCK, KV_BF16);
    assert_int_equal(each.windows, 2 * each.blocks); /* two of three layers */
    assert_int_equal(each.windows + each.blocks, model_kv_block_bytes(r.m, BLOCK, KV_BF16));
    assert_int_equal(model_window_copy(r.m, &(uint32_t){1}, &(uint32_t){2}, 1, &e), 0);
    assert_int_equal(
        model_window_copy(r.m, &(uint32_t){1}, &(uint32_t){1 + SEQS * WINDOW_BLOCKS}, 1, &e), -1);
    close_rig(&r);
}

int main(void)
{
    struct err e = ERR_INIT;
    ops = backend_find("cpu", &e);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_apart_have_the_bits_of_one_cache),
        cmocka_unit_test(copies_go_to_the_cache_that_is_meant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
