/* What a shard says about its options and products. */
#include "model-server/backend/format.h"
#include "model-server/options_words.h"
#include "tests/unit/test.h"
#include <string.h>

static struct options_words words_of(const struct serve_config *c, enum kv_dtype kv,
                                     const char *backend, const char *device)
{
    struct options_words w;
    memset(&w, 'x', sizeof(w));
    options_words(c, kv, backend, device, &w);
    return w;
}

static void options_are_flags(void **state)
{
    struct serve_config c = {.watermark_gamma = 0.5, .watermark_delta = 2, .rope_factor = 1};
    (void)state;
    assert_string_equal(words_of(&c, KV_BF16, "cpu", "CPU, 1 thread, AVX2").options,
                        "--kv-cache-dtype bfloat16 --activations exact --watermark-gamma 0.5 "
                        "--watermark-delta 2");
    c.rope_scaling = "linear";
    c.rope_factor = 2.5;
    c.expert_parallel = true;
    c.activations = ACTIVATIONS_16;
    assert_string_equal(words_of(&c, KV_I8, "cpu", "CPU, 1 thread, AVX2").options,
                        "--kv-cache-dtype int8 --activations 16 --watermark-gamma 0.5 "
                        "--watermark-delta 2 --enable-expert-parallel --rope-scaling linear "
                        "--rope-factor 2.5");
}

static void products_are_named_where_their_order_is_their_own(void **state)
{
    static const struct {
        const char *backend, *device, *products;
    } cases[] = {
        {"cpu", "CPU, 3 threads, plain C", ""},
        {"cpu", "CPU, 1 thread, AVX-512 VNNI BF16", ""},
        {"cpu", "CPU, 64 threads, AVX-512 VNNI BF16, bfloat16 products",
         "AVX-512 VNNI BF16, bfloat16 products"},
        {"cpu", "CPU, 64 threads, AMX, exact products on AMX", "AMX, exact products on AMX"},
        {"cuda", "GPU 3, NVIDIA H200, compute capability 9.0, 132 multiprocessors, CUDA 12.8",
         "NVIDIA H200, compute capability 9.0"},
        {"cuda", "GPU", ""},
    };
    const struct serve_config c = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(words_of(&c, KV_F32, cases[i].backend, cases[i].device).products,
                            cases[i].products);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_flags),
        cmocka_unit_test(products_are_named_where_their_order_is_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
