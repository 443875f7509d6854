/* What a shard says about its options. */
#include "common/model/sentence.h"
#include "model-server/backend/format.h"
#include "model-server/options_words.h"
#include "tests/unit/test.h"
#include <string.h>

static struct options_words words_of(const struct serve_config *c, enum kv_dtype kv)
{
    struct options_words w;
    memset(&w, 'x', sizeof(w));
    options_words(c, kv, &w);
    return w;
}

TEST(options_are_flags)
{
    struct serve_config c = {.watermark_gamma = 0.5, .watermark_delta = 2, .rope_factor = 1};
    assert_string_equal(words_of(&c, KV_BF16).options,
                        "--kv-cache-dtype bfloat16 --activations exact --watermark-gamma 0.5 "
                        "--watermark-delta 2");
    c.rope_scaling = "linear";
    c.rope_factor = 2.5;
    c.expert_parallel = true;
    c.activations = ACTIVATIONS_16;
    assert_string_equal(words_of(&c, KV_I8).options,
                        "--kv-cache-dtype int8 --activations 16 --watermark-gamma 0.5 "
                        "--watermark-delta 2 --enable-expert-parallel --rope-scaling linear "
                        "--rope-factor 2.5");
    c = (struct serve_config){.pooling = 2};
    assert_string_equal(sentence_pooling_choices[2], "mean");
    assert_non_null(strstr(words_of(&c, KV_F32).options, " --pooling mean"));
}

int main(void) { return tests_run(NULL, NULL); }
