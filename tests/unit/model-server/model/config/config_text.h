/* config_text.h - a config.json of a few keys, for tests of what the registry makes of it: a file
 * for the tests of a group (make_file, drop_file), and small models that a case changes. */
#ifndef TESTS_UNIT_MODEL_SERVER_MODEL_CONFIG_CONFIG_TEXT_H
#define TESTS_UNIT_MODEL_SERVER_MODEL_CONFIG_CONFIG_TEXT_H
#include "model-server/model/arch.h"
#include "tests/unit/test.h"
#include <string.h>
#include <unistd.h>

static char path[64];

static inline int make_file(void **state)
{
    (void)state;
    snprintf(path, sizeof(path), "/tmp/test-config-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static inline int drop_file(void **state) { return (void)state, unlink(path); }

/* `keys` go after `base`: cJSON finds the first of equal keys, so what a case changes comes first.
 */
static inline int configure(const char *keys, const char *base, struct decoder_spec *s,
                            struct err *e)
{
    const struct arch *a;
    const char *type;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{%s%s%s}", keys, *keys && *base ? "," : "", base);
    fclose(f);
    return arch_configure(path, NULL, NULL, 0, &a, &type, s, e);
}

#define SIZES                                                                                      \
    "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":8,\"intermediate_size\":"  \
    "128,\"vocab_size\":320,\"max_position_embeddings\":512"
#define NARROW                                                                                     \
    "\"model_type\":\"mobilebert\",\"embedding_size\":16,\"intra_bottleneck_size\":32," SIZES
#define XLNET                                                                                      \
    "\"model_type\":\"xlnet\",\"d_model\":64,\"n_layer\":2,\"n_head\":8,\"d_inner\":128,"          \
    "\"vocab_size\":320"
#define CONVBERT "\"model_type\":\"convbert\",\"embedding_size\":64," SIZES
#define NYSTROM  "\"model_type\":\"nystromformer\"," SIZES
#define XMOD     "\"model_type\":\"xmod\",\"default_language\":\"en_XX\"," SIZES
#define LLAMA    "\"model_type\":\"llama\"," SIZES

#define GPT2 "\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":2,\"n_head\":8,\"vocab_size\":320"
#define GEMMA3N                                                                                    \
    "\"model_type\":\"gemma3n_text\",\"num_kv_shared_layers\":0,"                                  \
    "\"vocab_size_per_layer_input\":300," SIZES

#define DELTA                                                                                      \
    "\"model_type\":\"qwen3_5_text\",\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,"     \
    "\"linear_key_head_dim\":16,\"linear_value_head_dim\":16," SIZES
#define NEMOTRON                                                                                   \
    "\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"M*\",\"mamba_num_heads\":8,"      \
    "\"mamba_head_dim\":16,\"ssm_state_size\":16," SIZES

#define KIMI "\"model_type\":\"kimi_linear\",\"moe_intermediate_size\":32," SIZES
#define FALCON                                                                                     \
    "\"model_type\":\"falcon_h1\",\"mamba_n_heads\":8,\"mamba_d_head\":16,\"mamba_d_ssm\":"        \
    "128," SIZES

#define SOLAR     "\"model_type\":\"solar\",\"bskcn_1\":[1],\"bskcn_tv\":[0.9,0.8]," SIZES
#define INKLING_K "\"swa_num_attention_heads\":4,\"swa_num_key_value_heads\":2,"
#define INKLING   "\"model_type\":\"inkling_text\"," INKLING_K SIZES
#define INKLING2  "\"model_type\":\"inkling2_text\"," INKLING_K SIZES
#define SPARK     "\"model_type\":\"muse_spark_text\"," SIZES
#define ZAMBA     "\"model_type\":\"zamba\",\"num_key_value_heads\":8," SIZES
#define DEBERTA                                                                                    \
    "\"model_type\":\"deberta-v2\",\"relative_attention\":true,\"share_att_key\":true,"            \
    "\"position_biased_input\":false,\"norm_rel_ebd\":\"layer_norm\",\"position_buckets\":32,"     \
    "\"pos_att_type\":[\"c2p\",\"p2c\"]," SIZES
#define DEBERTA_1                                                                                  \
    "\"model_type\":\"deberta\",\"relative_attention\":true,\"position_biased_input\":false,"      \
    "\"pos_att_type\":[\"c2p\",\"p2c\"]," SIZES
#define JINA                                                                                       \
    "\"model_type\":\"bert\",\"position_embedding_type\":\"alibi\",\"feed_forward_type\":"         \
    "\"geglu\"," SIZES
#define T5                                                                                         \
    "\"model_type\":\"t5\",\"architectures\":[\"T5EncoderModel\"],\"d_model\":64,\"d_kv\":8,"      \
    "\"d_ff\":96,\"num_layers\":2,\"num_heads\":8,\"vocab_size\":320"
#define T5_WHOLE                                                                                   \
    "\"model_type\":\"t5\",\"architectures\":[\"T5ForConditionalGeneration\"],\"d_model\":64,"     \
    "\"d_kv\":8,\"d_ff\":96,\"num_layers\":2,\"num_heads\":8,\"vocab_size\":320"
#define NOMIC                                                                                      \
    "\"model_type\":\"nomic_bert\",\"n_embd\":64,\"n_layer\":2,\"n_head\":8,\"vocab_size\":320"

#define BART                                                                                       \
    "\"model_type\":\"bart\",\"architectures\":[\"BartForConditionalGeneration\"],\"d_model\":64," \
    "\"encoder_layers\":2,\"decoder_layers\":2,\"encoder_attention_heads\":8,"                     \
    "\"decoder_attention_heads\":8,\"encoder_ffn_dim\":96,\"decoder_ffn_dim\":96,"                 \
    "\"vocab_size\":320,\"bos_token_id\":0,\"forced_bos_token_id\":0"

#define NLLB_K                                                                                     \
    "\"model_type\":\"nllb-moe\",\"architectures\":[\"NllbMoeForConditionalGeneration\"],"
#define BERT_PAIR                                                                                  \
    "\"model_type\":\"encoder-decoder\",\"encoder\":{\"model_type\":\"bert\"," SIZES "}"

#define ESM      "\"model_type\":\"esm\",\"pad_token_id\":1," SIZES
#define BIG_BIRD "\"model_type\":\"big_bird\"," SIZES
#define XLM                                                                                        \
    "\"model_type\":\"xlm\",\"emb_dim\":64,\"n_layers\":2,\"n_heads\":8,\"n_words\":320,"          \
    "\"max_position_embeddings\":512"

#define GLM_5                                                                                      \
    "\"model_type\":\"glm_moe_dsa\",\"q_lora_rank\":24,\"moe_intermediate_size\":32," SIZES

#define LING                                                                                       \
    "\"model_type\":\"bailing_hybrid\",\"moe_intermediate_size\":32,\"num_experts\":16,"           \
    "\"head_dim\":16," SIZES
#define APERTUS "\"model_type\":\"apertus1p5_text\"," SIZES
#define M3                                                                                         \
    "\"model_type\":\"minimax_m3_vl_text\",\"num_key_value_heads\":4,\"head_dim\":16,"             \
    "\"rotary_dim\":8,\"layer_types\":[\"full_attention\",\"minimax_m3_sparse\"]," SIZES

#define HY_V4 "\"model_type\":\"hy_v4\",\"q_lora_rank\":24,\"moe_intermediate_size\":32," SIZES
#define GLM_5_3                                                                                    \
    "\"model_type\":\"glm5_next_text\",\"q_lora_rank\":24,\"moe_intermediate_size\":32,"           \
    "\"layer_types\":[\"linear_attention\",\"indexed_attention\"]," SIZES

#define QWEN4                                                                                      \
    "\"model_type\":\"qwen4_exp_text\",\"head_dim\":16,\"moe_intermediate_size\":32,"              \
    "\"shared_expert_intermediate_size\":32,\"linear_num_key_heads\":2,"                           \
    "\"linear_num_value_heads\":4,\"linear_key_head_dim\":16,\"linear_value_head_dim\":16,"        \
    "\"layer_types\":[\"linear_attention\",\"full_attention\"],\"indexer_n_heads\":4,"             \
    "\"indexer_kv_heads\":1,\"indexer_head_dim\":16,\"indexer_budget\":32,"                        \
    "\"indexer_compress_ratio\":8,\"eos_token_id\":2,\"ple_layer_ids\":[1]," SIZES

#define DEEPSEEK_V4                                                                                \
    "\"model_type\":\"deepseek_v4\",\"num_key_value_heads\":1,\"head_dim\":64,"                    \
    "\"qk_rope_head_dim\":16,\"o_groups\":2," SIZES

#define AXK2 "\"model_type\":\"axk2\",\"q_lora_rank\":24,\"moe_intermediate_size\":32," SIZES

#define LARGE_4                                                                                    \
    "\"model_type\":\"mistral_large4_text\",\"moe_intermediate_size\":32,\"num_experts_per_tok\":" \
    "2," SIZES

#define MIMO                                                                                       \
    "\"model_type\":\"mimo_v2\",\"num_key_value_heads\":2,\"moe_intermediate_size\":32," SIZES

#define LONGCAT "\"model_type\":\"longcat_flash\"," SIZES

#define OVIS2                                                                                      \
    "\"model_type\":\"ovis2\",\"text_config\":{\"model_type\":\"qwen2\"," SIZES                    \
    "},\"vision_config\":{\"vocab_size\":45}"

static inline void accepted(const char *keys, const char *base, struct decoder_spec *s)
{
    struct err e = ERR_INIT;
    if (configure(keys, base, s, &e))
        fail_msg("%s", e.msg);
}
#endif
