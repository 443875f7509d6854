/* What a config.json is told, and that old and new keys mean the same. */
#include "model-server/model/arch.h"
#include "tests/unit/test.h"
#include <string.h>
#include <unistd.h>

static char path[64];

static int make_file(void **state)
{
    (void)state;
    snprintf(path, sizeof(path), "/tmp/test-config-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int drop_file(void **state) { return (void)state, unlink(path); }

/* `keys` go after `base`: cJSON finds the first of equal keys, so what a case changes comes first.
 */
static int configure(const char *keys, const char *base, struct decoder_spec *s, struct err *e)
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
#define LLAMA "\"model_type\":\"llama\"," SIZES

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

#define LONGCAT "\"model_type\":\"longcat_flash\"," SIZES

#define OVIS2                                                                                      \
    "\"model_type\":\"ovis2\",\"text_config\":{\"model_type\":\"qwen2\"," SIZES                    \
    "},\"vision_config\":{\"vocab_size\":45}"

/* Ids around pictures have the last rows of the tower's table, or are refused. */
static void visual_indicators_are_consecutive_ids(void **state)
{
    static const char *const bad[] = {"[315,316,317,318]",
                                      "[1,2,3,4,6]",
                                      "[5,4,3,2,1]",
                                      "[316,317,318,319,320]",
                                      "[-1,0,1,2,3]",
                                      "[]",
                                      "7"};
    struct decoder_spec s;
    struct err e = ERR_INIT;
    (void)state;
    assert_int_equal(
        configure("\"visual_indicator_token_ids\":[315,316,317,318,319]", OVIS2, &s, &e), 0);
    assert_int_equal(s.n_other, 1);
    assert_int_equal(s.other[0].first, 315);
    assert_int_equal(s.other[0].n, 5);
    assert_int_equal(s.other[0].skip, 40);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char keys[128];
        snprintf(keys, sizeof(keys), "\"visual_indicator_token_ids\":%s", bad[i]);
        assert_int_equal(configure(keys, OVIS2, &s, &e), -1);
        assert_non_null(strstr(e.msg, "visual_indicator_token_ids"));
    }
}

static void test_refuses(void **state)
{
    static const struct {
        const char *keys, *base, *says;
    } cases[] = {
        {"\"group_norm_size\":4", LING, "lightning attention (Ling 2.5) are not supported"},
        {"\"kda_lower_bound\":0", LING, "`kda_lower_bound` must be below 0"},
        {"\"output_vocab_size\":321", APERTUS, "`output_vocab_size` must be an integer from 1"},
        {"\"output_vocab_size\":300,\"tie_word_embeddings\":true", APERTUS,
         "`output_vocab_size` contradicts `tie_word_embeddings`"},
        {"\"index_n_heads\":2", M3, "`index_n_heads` must be `num_key_value_heads`"},
        {"\"index_head_dim\":4", M3, "`index_head_dim` must be at least the rotated part"},
        {"\"index_local_blocks\":17", M3, "`index_local_blocks` must be at most"},
        {"\"index_topk_blocks\":16384", M3, "times `index_block_size` must be at most"},
        {"\"swiglu_limit\":10", M3, "`swiglu_limit`: only 7 is supported"},
        {"\"swiglu_alpha\":1", M3, "`swiglu_alpha`: only 1.702 is supported"},
        {"\"linear_num_key_heads\":3", DELTA, "3 key heads or groups do not divide 4 heads"},
        {"\"linear_key_head_dim\":0", DELTA, "`linear_key_head_dim` must be an integer from 1"},
        {"\"linear_conv_kernel_dim\":9", DELTA, "`linear_conv_kernel_dim` must be an integer"},
        {"\"layer_types\":[\"full_attention\"]", DELTA, "`layer_types` does not name 2 layers"},
        {"\"layer_types\":[\"full_attention\",\"xlstm\"]", DELTA,
         "layers of type `xlstm` are not supported"},
        {"\"hybrid_override_pattern\":\"MX\"", NEMOTRON, "`X` is no kind of layer"},
        {"\"hybrid_override_pattern\":\"M\"", NEMOTRON, "does not name 2 layers"},
        {"\"layers_block_type\":[\"mamba\",7]", NEMOTRON, "layers of type `` are not supported"},
        {"\"n_groups\":3", NEMOTRON, "3 key heads or groups do not divide 8 heads"},
        {"\"time_step_limit\":[0]", NEMOTRON, "`time_step_limit` must be two numbers"},
        {"\"time_step_limit\":[0,\"Infinity\"]", NEMOTRON, "`time_step_limit` must be two numbers"},
        {"\"hybrid_override_pattern\":\"ME\",\"moe_intermediate_size\":32,\"moe_latent_size\":8",
         NEMOTRON, "`moe_latent_size` is not supported"},
        {"\"indexer_types\":[\"full\"]", GLM_5, "`indexer_types` does not name 2 layers"},
        {"\"indexer_types\":[\"full\",\"half\"]", GLM_5, "`indexer_types`: half is not supported"},
        {"\"indexer_types\":[\"shared\",\"full\"]", GLM_5, "the first layer must have an indexer"},
        {"\"index_topk_pattern\":\"F\"", GLM_5, "must have F or S for each layer"},
        {"\"index_topk_pattern\":[1]", GLM_5, "`index_topk_pattern` must be a word of F and S"},
        {"\"index_head_dim\":32", GLM_5, "`index_head_dim` must be at least `qk_rope_head_dim`"},
        {"\"q_lora_rank\":null", GLM_5, "`q_lora_rank` is required"},
        {"\"zero_expert_type\":\"copy\"", LONGCAT, "`zero_expert_type`"},
        {"\"mla_scale_kv_lora\":false", LONGCAT, "`mla_scale_kv_lora`: false is not supported"},
        {"\"num_layers\":257", LONGCAT, "`num_layers` must be at most 256"},
        {"\"index_topk\":0", GLM_5, "`index_topk` must be an integer from 1"},
        {"", "", "`model_type` is missing"},
        {"\"model_type\":\"llava\"", SIZES, "model_type `llava` is not supported (known: "},
        {"\"model_type\":\"a\\nb\"", SIZES, "model_type `a?b` is not supported"},
        {"", "\"model_type\":\"llama\"", "`hidden_size` is missing"},
        {"\"hidden_size\":0", LLAMA, "`hidden_size` must be an integer from 1 to"},
        {"\"hidden_size\":1e18", LLAMA, "`hidden_size` must be an integer from 1 to"},
        {"\"hidden_size\":-64", LLAMA, "`hidden_size` must be an integer from 1 to"},
        {"\"hidden_size\":64.5", LLAMA, "`hidden_size` must be an integer from 1 to"},
        {"\"hidden_size\":\"64\"", LLAMA, "`hidden_size` must be an integer from 1 to"},
        {"\"hidden_size\":65", LLAMA, "8 heads do not divide a hidden size of 65"},
        {"\"num_hidden_layers\":4294967297", LLAMA,
         "`num_hidden_layers` must be an integer from 1 to 512"},
        {"\"num_attention_heads\":0", LLAMA, "`num_attention_heads` must be"},
        {"\"num_key_value_heads\":3", LLAMA, "3 key-value heads do not divide 8 heads"},
        {"\"head_dim\":1073741824", LLAMA, "`head_dim` must be an integer from 1 to 1024"},
        {"\"head_dim\":7", LLAMA, "is no even number of rotated elements"},
        {"\"vocab_size\":99999999999", LLAMA, "`vocab_size` must be"},
        {"\"layer_types\":[\"full_attention\",\"chunked_attention\"]", LLAMA,
         "`layer_types`: `chunked_attention` of layer 1 is not supported"},
        {"\"use_parallel_block\":false", "\"model_type\":\"cohere2\"," SIZES,
         "`use_parallel_block`: false is not supported"},
        {"\"use_qk_norm\":true", "\"model_type\":\"cohere2\"," SIZES,
         "`use_qk_norm`: true is not supported"},
        {"\"block_use_swiglu\":false", "\"model_type\":\"lfm2\"," SIZES,
         "`block_use_swiglu`: false is not supported"},
        {"\"add_cross_attention\":true", GPT2, "`add_cross_attention`: true is not supported"},
        {"\"hidden_act\":\"mish\"", LLAMA, "activation `mish` is not supported"},
        {"\"hidden_act\":5", LLAMA, "`hidden_act` must be a string"},
        {"\"rope_scaling\":\"yarn\"", LLAMA, "`rope_scaling` must be an object"},
        {"\"rope_parameters\":[1]", LLAMA, "`rope_parameters` must be an object"},
        {"\"rope_scaling\":{\"rope_type\":3}", LLAMA, "rope `rope_type` must be a string"},
        {"\"attention_bias\":1", LLAMA, "`attention_bias` must be true or false"},
        {"\"rms_norm_eps\":\"x\"", LLAMA, "`rms_norm_eps` must be a number"},
        {"\"rope_theta\":0", LLAMA, "`rope_theta` must be above 1"},
        {"\"rope_scaling\":{\"type\":\"spiral\"}", LLAMA, "rope type `spiral` is not supported"},
        {"\"rope_scaling\":{\"type\":\"linear\"}", LLAMA,
         "rope `factor` must be a number of at least 1"},
        {"\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":-"
         "1}",
         LLAMA, "`original_max_position_embeddings` must be from 2 to 2^30"},
        {"\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1]}", LLAMA,
         "rope `short_factor` must be a list of 4 numbers"},
        {"\"layer_types\":[\"full_attention\"]", "\"model_type\":\"qwen2\"," SIZES,
         "`layer_types` does not name 2 layers"},
        {"\"num_experts_per_tok\":9", "\"model_type\":\"mixtral\"," SIZES,
         "9 experts per token cannot be chosen from 8"},
        {"\"query_pre_attn_scalar\":0", "\"model_type\":\"gemma2\"," SIZES,
         "`query_pre_attn_scalar` must be positive"},
        {"\"swiglu_limit\":8", "\"model_type\":\"gpt_oss\"," SIZES,
         "`swiglu_limit`: only 7 is supported"},
        {"\"swiglu_alpha\":1", "\"model_type\":\"gpt_oss\"," SIZES,
         "`swiglu_alpha`: only 1.702 is supported"},
        {"\"scoring_func\":\"softmax\"", "\"model_type\":\"minimax_m2\"," SIZES,
         "`scoring_func`: softmax is not supported, only sigmoid"},
        {"\"topk_method\":7", "\"model_type\":\"deepseek_v3\",\"moe_intermediate_size\":32," SIZES,
         "`topk_method`: what the file has is not supported, only noaux_tc"},
        {"\"ssm_multipliers\":[1,2]", FALCON, "`ssm_multipliers` must be 5 numbers"},
        {"\"mlp_multipliers\":[1,0]", FALCON, "`mlp_multipliers` must not be 0"},
        {"\"mla_use_nope\":false", KIMI, "`mla_use_nope`: false is not supported"},
        {"\"moe_router_activation_func\":\"softmax\"", KIMI,
         "`moe_router_activation_func`: softmax is not supported, only sigmoid"},
        {"\"linear_attn_config\":{\"kda_layers\":[1],\"full_attn_layers\":[]}", KIMI,
         "layer 2 is in neither list of `linear_attn_config`"},
        {"\"linear_attn_config\":{\"kda_layers\":[0],\"full_attn_layers\":[2]}", KIMI,
         "`kda_layers` must be numbers of layers from 1 on"},
        {"\"linear_attn_config\":{\"head_dim\":0}", KIMI, "`head_dim` must be an integer from 1"},
        {"\"hidden_act\":\"gelu\"", "\"model_type\":\"minimax\"," SIZES,
         "are served with silu only"},
        {"\"mamba_d_ssm\":100", FALCON, "`mamba_d_ssm`: 8 heads of 16 are not 100"},
        {"\"projectors_bias\":true", FALCON, "`projectors_bias`: true is not supported"},
        {"\"attention_types\":[[[\"global\",\"far\"],1]]",
         "\"model_type\":\"gpt_neo\",\"num_layers\":2,\"num_heads\":8," SIZES,
         "`attention_types`: `far` of layer 1 is not supported"},
        {"\"attention_types\":[[[\"global\"],1]]",
         "\"model_type\":\"gpt_neo\",\"num_layers\":2,\"num_heads\":8," SIZES,
         "`attention_types`: `` of layer 1 is not supported"},
        {"\"n_embd\":64", "\"model_type\":\"gpt2\"", "`n_layer` is missing"},
        {"\"n_head\":0", GPT2, "`n_head` must be an integer from 1"},
        {"\"altup_num_inputs\":1", GEMMA3N, "`altup_num_inputs` must be an integer from 2 to 8"},
        {"\"altup_active_idx\":4", GEMMA3N, "`altup_active_idx` must be an integer from 0 to 3"},
        {"\"activation_sparsity_pattern\":[0.5]", GEMMA3N, "does not name 2 layers"},
        {"\"activation_sparsity_pattern\":[0.5,1]", GEMMA3N,
         "`activation_sparsity_pattern` of layer 1 must be below 1"},
        {"\"intermediate_size\":[64,0]", GEMMA3N, "`intermediate_size` of layer 1 must be"},
        {"\"num_kv_shared_layers\":1,\"layer_types\":[\"full_attention\",\"sliding_attention\"]",
         GEMMA3N, "layer 1 shares keys and values with none before it"},
        {"\"scale_attn_weights\":false", "\"model_type\":\"qwen\"," SIZES,
         "`scale_attn_weights`: false is not supported"},
        {"\"shared_expert_combination_strategy\":\"max\"", "\"model_type\":\"cohere2_moe\"," SIZES,
         "`shared_expert_combination_strategy`: max is not supported"},
        {"\"num_hidden_groups\":2", "\"model_type\":\"albert\"," SIZES,
         "`num_hidden_groups`: only 1 is supported"},
        {"\"embedding_size\":128", "\"model_type\":\"electra\"," SIZES,
         "`embedding_size` must be a multiple of 4 up to `hidden_size`"},
        {"\"relative_attention_num_buckets\":30", "\"model_type\":\"mpnet\"," SIZES,
         "`relative_attention_num_buckets` must be a multiple of 4"},
        {"\"input_embedding_size\":128", "\"model_type\":\"rembert\"," SIZES,
         "`input_embedding_size` must be a multiple of 4 up to `hidden_size`"},
        {"\"rotary_value\":true", "\"model_type\":\"roformer\"," SIZES,
         "`rotary_value`: true is not supported"},
        {"\"use_task_id\":true,\"task_type_vocab_size\":0", "\"model_type\":\"ernie\"," SIZES,
         "`task_type_vocab_size` must be"},
        {"\"talking_head\":true", DEBERTA_1, "`talking_head`: true is not supported"},
        {"\"position_biased_input\":true", DEBERTA_1,
         "`position_biased_input`: only false is supported"},
        {"\"pos_att_type\":[\"c2p\"]", DEBERTA_1, "only c2p and p2c together"},
        {"\"max_relative_positions\":5", DEBERTA_1, "must be even and at least 4"},
        {"\"feed_forward_type\":\"original\"", JINA, "`feed_forward_type`: `original` is not"},
        {"\"architectures\":[\"BartForCausalLM\"]", BART, "only BartForConditionalGeneration is"},
        {"\"normalize_before\":true", BART, "`normalize_before`: true is not supported"},
        {"\"static_position_embeddings\":true", BART, "`static_position_embeddings`: true"},
        {"\"decoder_vocab_size\":300", BART, "`decoder_vocab_size` must be `vocab_size`"},
        {"\"decoder_start_token_id\":320", BART, "`decoder_start_token_id` must be"},
        {"\"use_prompt\":true", BART, "`use_prompt`: true is not supported"},
        {"\"token_dropout\":true", ESM, "`mask_token_id` is missing"},
        {"\"position_embedding_type\":\"relative_key\"", ESM, "`relative_key` is not supported"},
        {"\"is_folding_model\":true", ESM, "`is_folding_model`: true is not supported"},
        {"\"causal\":true", XLM, "`causal`: true is not supported"},
        {"\"summary_type\":\"mean\"", XLM, "`summary_type`: mean is not supported, only first"},
        {"\"summary_activation\":\"tanh\"", XLM, "`summary_activation` is not supported"},
        {"\"attention_type\":\"linear\",\"block_size\":16", BIG_BIRD, "`linear` is not"},
        {"\"hidden_act\":\"gelu\"", "\"model_type\":\"aria_text\"," SIZES,
         "`hidden_act`: gelu is not supported, only silu"},
        {"\"moe_topk\":9", "\"model_type\":\"aria_text\"," SIZES,
         "9 experts per token cannot be chosen from 8"},
        {"\"architectures\":[\"T5ForTokenClassification\"]", "\"model_type\":\"t5\",\"d_model\":64",
         "`T5ForTokenClassification`: only T5EncoderModel and T5ForConditionalGeneration"},
        {"\"d_model\":64", "\"model_type\":\"umt5\"", "only T5EncoderModel and"},
        {"\"num_decoder_layers\":257", T5_WHOLE, "`num_decoder_layers` must be"},
        {"\"decoder_start_token_id\":320", T5_WHOLE, "`decoder_start_token_id` must be"},
        {"\"relative_attention_max_distance\":16", T5_WHOLE, "a multiple of 4 and less than 2"},
        {"\"architectures\":[1]", "\"model_type\":\"mt5\"", "only T5EncoderModel and"},
        {"\"feed_forward_proj\":\"gated-tanh\"", T5, "`feed_forward_proj`: `gated-tanh` is not"},
        {"\"relative_attention_num_buckets\":30", T5, "must be a multiple of 4 and less than"},
        {"\"relative_attention_max_distance\":8", T5, "must be a multiple of 4 and less than"},
        {"\"d_kv\":0", T5, "`d_kv` must be an integer from 1"},
        {"\"conv_kernel_size\":3", DEBERTA, "`conv_kernel_size`: convolutions are not supported"},
        {"\"share_att_key\":false", DEBERTA, "`share_att_key`: only true is supported"},
        {"\"pos_att_type\":\"c2p\"", DEBERTA, "`pos_att_type`: only c2p and p2c together"},
        {"\"norm_rel_ebd\":\"none\"", DEBERTA, "`norm_rel_ebd`: only layer_norm"},
        {"\"prenorm\":true", NOMIC, "`prenorm`: true is not supported"},
        {"\"num_experts\":8", NOMIC, "`moe_every_n_layers` is missing"},
        {"\"moe_every_n_layers\":2", NOMIC, "experts with gates are not supported"},
        {"\"mlp_fc1_bias\":true,\"mlp_fc2_bias\":true", NOMIC, "none with gates"},
        {"\"activation_function\":\"gelu\",\"mlp_fc1_bias\":true", NOMIC, "both or none"},
        {"\"moe_normalize_expert_weights\":true", NOMIC,
         "`moe_normalize_expert_weights`: true is not supported"},
        {"\"activation_function\":\"gelu\",\"mlp_fc2_bias\":true", NOMIC, "both or none"},
        {"\"rope_scaling\":{\"type\":\"ntk\",\"factor\":2,\"mixed_b\":1}",
         "\"model_type\":\"new\"," SIZES, "has no `mixed_b`"},
        {"\"logn_attention_scale\":true", "\"model_type\":\"new\"," SIZES,
         "`logn_attention_scale`: true is not supported"},
        {"\"num_experts\":[4,8]", "\"model_type\":\"hunyuan_v1_moe\"," SIZES,
         "`num_experts`: only one number for all layers"},
        {"\"use_cla\":true", "\"model_type\":\"hunyuan_v1_dense\"," SIZES,
         "`use_cla`: true is not supported"},
        {"\"n_head\":6",
         "\"model_type\":\"codegen\",\"n_embd\":48,\"n_layer\":2,\"vocab_size\":320",
         "`n_head` must be a multiple of 4"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        static struct decoder_spec s;
        struct err e = ERR_INIT;
        if (!configure(cases[i].keys, cases[i].base, &s, &e))
            fail_msg("accepted: %s", cases[i].keys);
        assert_int_equal(e.kind, ERR_VALIDATION);
        if (!strstr(e.msg, cases[i].says) || strncmp(e.msg, path, strlen(path)) != 0)
            fail_msg("`%s` does not say `%s`", e.msg, cases[i].says);
        assert_null(strchr(e.msg, '\n'));
    }
}

static void accepted(const char *keys, const char *base, struct decoder_spec *s)
{
    struct err e = ERR_INIT;
    if (configure(keys, base, s, &e))
        fail_msg("%s", e.msg);
}

/* Keys of the hub, keys of transformers 5: one spec. */
static void test_same_meaning(void **state)
{
    static const char *const pairs[][2] = {
        {"\"rope_theta\":5000",
         "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5000}"},
        {"\"rope_theta\":5000,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}",
         "\"rope_parameters\":{\"rope_type\":\"linear\",\"rope_theta\":5000,\"factor\":2}"},
        {"\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
         "\"high_freq_factor\":4,\"original_max_position_embeddings\":64}",
         "\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":10000,\"factor\":8,"
         "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":64}"},
        {"\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,2,3,4],\"long_factor\":[5,6,7,8]},"
         "\"original_max_position_embeddings\":128",
         "\"original_max_position_embeddings\":128,\"rope_parameters\":{\"rope_type\":\"longrope\","
         "\"short_factor\":[1,2,3,4],\"long_factor\":[5,6,7,8],"
         "\"original_max_position_embeddings\":128}"},
        {"\"partial_rotary_factor\":0.5",
         "\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":0.5}"},
        {"\"rope_scaling\":null,\"head_dim\":null,\"num_key_value_heads\":null", ""},
    };
    static struct decoder_spec a, b;
    (void)state;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        accepted(pairs[i][0], LLAMA, &a);
        accepted(pairs[i][1], LLAMA, &b);
        assert_memory_equal(&a, &b, sizeof(a));
    }
}

static void test_windows(void **state)
{
    static struct decoder_spec s;
    (void)state;
    accepted("\"sliding_window\":9", "\"model_type\":\"mistral\"," SIZES, &s);
    assert_int_equal(s.layers[0].window, 9);
    assert_int_equal(s.layers[1].window, 9);
    accepted("\"sliding_window\":null", "\"model_type\":\"mistral\"," SIZES, &s);
    assert_int_equal(s.layers[0].window, 0);
    accepted("", "\"model_type\":\"mistral\"," SIZES, &s);
    assert_int_equal(s.layers[0].window, 4096); /* MistralConfig's own default */
    accepted("\"sliding_window\":9", "\"model_type\":\"gemma2\"," SIZES, &s);
    assert_int_equal(s.layers[0].window, 9);
    assert_int_equal(s.layers[1].window, 0);
    const char *upper = "\"sliding_window\":9,\"use_sliding_window\":true,\"max_window_layers\":1";
    accepted(upper, "\"model_type\":\"qwen2\"," SIZES, &s);
    assert_int_equal(s.layers[0].window, 0);
    assert_int_equal(s.layers[1].window, 9);
    accepted("\"sliding_window\":9,\"use_sliding_window\":false", "\"model_type\":\"qwen2\"," SIZES,
             &s);
    assert_int_equal(s.layers[1].window, 0);
    accepted("\"sliding_window\":9,\"layer_types\":[\"sliding_attention\",\"full_attention\"]",
             "\"model_type\":\"qwen3\"," SIZES, &s);
    assert_int_equal(s.layers[0].window, 9);
    assert_int_equal(s.layers[1].window, 0);
}

/* The bases of the cases that are refused are themselves accepted. */
static void test_encoders(void **state)
{
    static struct decoder_spec s;
    (void)state;
    accepted("", DEBERTA, &s);
    assert_int_equal(s.apart.buckets, 64);
    assert_int_equal(s.apart.most, 512);
    accepted("\"pos_att_type\":\"p2c|c2p\"", DEBERTA, &s);
    accepted("\"rotary_scaling_factor\":2", NOMIC, &s);
    assert_int_equal(s.rope[0].kind, ROPE_DYNAMIC);
    assert_int_equal(s.rope[0].original, 2048);
    accepted("\"activation_function\":\"gelu\",\"moe_every_n_layers\":2,\"moe_top_k\":2", NOMIC,
             &s);
    assert_true(s.mlp == MLP_PLAIN && !s.layers[0].moe && s.layers[1].moe && s.moe.sum_bias);
    assert_true(s.moe.n_experts == 8 && s.moe.top_k == 2 && s.moe.plain && !s.moe.renormalise);
    accepted("\"embedding_size\":32", "\"model_type\":\"albert\"," SIZES, &s);
    assert_int_equal(s.embed_dim, 32);
    assert_int_equal(s.layers[1].same_as, 1);
    accepted("\"embedding_size\":64", "\"model_type\":\"electra\"," SIZES, &s);
    assert_int_equal(s.embed_dim, 0);
    accepted("\"input_embedding_size\":64", "\"model_type\":\"rembert\"," SIZES, &s);
    assert_int_equal(s.embed_dim, 64);
    accepted("\"use_task_id\":true", "\"model_type\":\"ernie\"," SIZES, &s);
    assert_int_equal(s.token_tasks, 3);
    accepted("", DEBERTA_1, &s);
    assert_true(s.apart.own && s.apart.each);
    assert_int_equal(s.apart.buckets, 2 * 512);
    accepted("", JINA, &s);
    assert_true(s.near.of == NEAR_OF_SLOPES && s.near.most == 512 && !s.first_type_only);
    accepted("", "\"model_type\":\"xlm-roberta-xl\"," SIZES, &s);
    assert_true(s.norms == NORM_BEFORE && !s.embed_norm && !s.no_final_norm);
    assert_int_equal(s.position_offset, 2);
    accepted("\"position_embedding_type\":\"rotary\",\"token_dropout\":true,\"mask_token_id\":32",
             ESM, &s);
    assert_true(s.embed_scale == 0.88F && s.refuses_id && s.refused_id == 32);
    assert_true(s.rope[0].kind == ROPE_DEFAULT && !s.learned_positions && s.max_positions == 512);
    accepted("", ESM, &s);
    assert_true(s.learned_positions && s.position_offset == 2 && s.embed_scale == 1);
    accepted("\"pre_norm\":true", XLM, &s);
    assert_true(s.norms == NORM_BEFORE && s.no_final_norm && s.ffn == 256 && s.vocab == 320);
    accepted("\"block_size\":16", BIG_BIRD, &s);
    assert_int_equal(s.max_positions, 11 * 16);
    assert_int_equal(s.more_positions, 512 - 11 * 16);
    accepted("\"block_size\":16,\"attention_type\":\"original_full\"", BIG_BIRD, &s);
    assert_true(s.max_positions == 512 && !s.more_positions);
    accepted("", "\"model_type\":\"bert-generation\"," SIZES, &s);
    assert_int_equal(s.token_types, 0);
}

/* Families that are others under another name. */
static void test_kin(void **state)
{
    static struct decoder_spec s;
    (void)state;
    accepted("\"model_type\":\"gpt-sw3\"", GPT2, &s);
    assert_true(s.qkv == QKV_STACKED && s.learned_positions && s.transposed);
    accepted("", "\"model_type\":\"gemma4_unified_text\"," SIZES, &s);
    assert_int_equal(s.layers[0].window, 1024);
    assert_int_equal(s.layers[0].mutual, MUTUAL_AHEAD);
    assert_true(!s.layers[1].moe && !s.per_layer && s.layer_scale);
    accepted("\"model_type\":\"blenderbot-small\","
             "\"architectures\":[\"BlenderbotSmallForConditionalGeneration\"],"
             "\"scale_embedding\":true",
             BART, &s);
    assert_true(s.embed_norm_first && s.embed_scale == 1 && s.position_offset == 0);
    assert_int_equal(s.start, 1);
}

/* Kin have equal names behind other prefixes; files may have any of these, or none. */
static void test_prefixes(void **state)
{
    static const char *const want[] = {"bert.a.weight", "a.weight", "ernie.a.weight"};
    static struct decoder_spec s;
    const struct arch *a;
    const char *type, *got;
    struct arch_use u;
    struct err e = ERR_INIT;
    char out[64];
    (void)state;
    accepted("", "\"model_type\":\"ernie\"," SIZES, &s);
    assert_int_equal(arch_configure(path, NULL, NULL, 0, &a, &type, &s, &e), 0);
    assert_string_equal(type, "ernie");
    for (int i = 0; i < 3; i++) {
        got = arch_name_in_file(a, "bert.a.weight", i, out, sizeof(out));
        assert_string_equal(got, want[i]);
    }
    got = arch_name_in_file(a, "bert.LayerNorm.weight", 5, out, sizeof(out));
    assert_string_equal(got, "ernie.LayerNorm.gamma");
    assert_true(arch_use_of(a, "ernie.encoder.layer.7.output.dense.bias", &u));
    assert_true(u.role == W_DOWN && u.layer == 7 && strcmp(u.suffix, ".bias") == 0);
    assert_true(arch_use_of(a, "encoder.layer.7.output.dense.bias", &u));
    assert_true(!arch_use_of(a, "roberta.encoder.layer.7.output.dense.bias", &u));
    assert_non_null(arch_prefix(a, 1, &(size_t){0}));
    assert_null(arch_prefix(a, 2, &(size_t){0}));
}

/* A layer of T5's decoder is two: the second attends to the encoder. */
static void test_decoder_of_an_encoder(void **state)
{
    static struct decoder_spec s;
    (void)state;
    accepted("\"num_decoder_layers\":3", T5_WHOLE, &s);
    assert_int_equal(s.n_layers, 6);
    assert_int_equal(s.max_positions, 1024);
    assert_true(s.paired && s.attends_text && s.tied && !s.both_ways && !s.no_head);
    assert_true(s.layers[4].no_ffn && s.layers[4].mixer == MIXER_ATTENTION);
    assert_true(!s.layers[5].no_ffn && s.layers[5].mixer == MIXER_CROSS);
    assert_int_equal(s.start, 0);
    assert_true(s.logit_scale == 0.125F);
    accepted("\"num_decoder_layers\":null,\"tie_word_embeddings\":false,"
             "\"decoder_start_token_id\":7",
             T5_WHOLE, &s);
    assert_int_equal(s.n_layers, 4);
    assert_int_equal(s.start, 7);
    assert_true(!s.tied && s.logit_scale == 1);
    /* as transformers 5 writes Flan-T5's: a head of its own is found in the checkpoint */
    accepted("\"tie_word_embeddings\":true,\"scale_decoder_outputs\":false", T5_WHOLE, &s);
    assert_true(s.tied && s.logit_scale == 1);
    accepted("\"decoder_layers\":3", BART, &s);
    assert_int_equal(s.n_layers, 6);
    assert_true(s.norms == NORM_SUM && s.layers[5].mixer == MIXER_CROSS && s.start == 2);
}

/* What the engine is told about lengths: scalings that stretch the positions do so. */
static void test_max_positions(void **state)
{
    static struct decoder_spec s;
    (void)state;
    accepted("", LLAMA, &s);
    assert_int_equal(s.max_positions, 512);
    accepted("\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4}", LLAMA, &s);
    assert_int_equal(s.max_positions, 2048);
    accepted("\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"original_max_position_"
             "embeddings\":256}",
             LLAMA, &s);
    assert_int_equal(s.max_positions, 1024);
}

static void test_rope_option(void **state)
{
    static struct decoder_spec s;
    const struct arch *a;
    const char *type;
    struct err e = ERR_INIT;
    (void)state;
    accepted("\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4}", LLAMA, &s);
    assert_int_equal(arch_configure(path, NULL, "linear", 3, &a, &type, &s, &e), 0);
    assert_int_equal(s.rope[0].kind, ROPE_LINEAR);
    assert_true(s.rope[0].factor == 3);
    assert_int_equal(s.max_positions, 1536);
    assert_int_equal(arch_configure(path, NULL, "yarn", 3, &a, &type, &s, &e), -1);
    assert_non_null(strstr(e.msg, "must be linear or dynamic"));
    assert_int_equal(arch_configure(path, NULL, "linear", 0.5, &a, &type, &s, &e), -1);
    assert_non_null(strstr(e.msg, "the rope factor must be"));
}

/* What Python writes for a number that JSON has no word for, and what transformers 5 writes. */
static void test_infinity(void **state)
{
    static const char *const limits[] = {"[0.5, Infinity]", "[0.5, {\"__float__\": \"Infinity\"}]"};
    static struct decoder_spec s;
    char keys[120];
    struct err e = ERR_INIT;
    (void)state;
    for (int i = 0; i < 2; i++) {
        snprintf(keys, sizeof(keys), "\"time_step_limit\":%s,\"x\":\"\\\"Infinity\"", limits[i]);
        assert_int_equal(configure(keys, FALCON, &s, &e), 0);
        assert_true(s.recur.dt_min == 0.5f && isinf(s.recur.dt_max));
        assert_int_equal(configure(keys, NEMOTRON, &s, &e), 0); /* not its limit */
        assert_true(s.recur.dt_min == 0.001f && isinf(s.recur.dt_max));
    }
    assert_int_equal(configure("\"model_type\":\"Infinity\"", SIZES, &s, &e), -1);
    assert_non_null(strstr(e.msg, "`Infinity`"));
    assert_int_equal(configure("\"time_step_limit\":[0, Infinitely]", NEMOTRON, &s, &e), -1);
}

/* Which layers are of what kind. */
static void test_mixers(void **state)
{
    static struct decoder_spec s;
    struct err e = ERR_INIT;
    (void)state;
    assert_int_equal(configure("\"num_hidden_layers\":5", DELTA, &s, &e), 0);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(s.layers[i].mixer, i == 3 ? MIXER_ATTENTION : MIXER_DELTA);
    assert_int_equal(configure("\"num_hidden_layers\":4,\"hybrid_override_pattern\":\"M-*E\","
                               "\"moe_intermediate_size\":32",
                               NEMOTRON, &s, &e),
                     0);
    const enum mixer_kind want[] = {MIXER_MAMBA2, MIXER_NONE, MIXER_ATTENTION, MIXER_NONE};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(s.layers[i].mixer, want[i]);
        assert_int_equal(s.layers[i].no_ffn, want[i] != MIXER_NONE);
        assert_int_equal(s.layers[i].moe, i == 3);
    }
}

/* A family's own words, the usual ones that it also knows, those that it does not know. */
static void test_own_words(void **state)
{
    struct decoder_spec s;
    struct err e = ERR_INIT;
    (void)state;
    assert_int_equal(configure("\"n_inner\":null,\"intermediate_size\":96,\"n_positions\":77,"
                               "\"num_key_value_heads\":2",
                               GPT2, &s, &e),
                     0);
    assert_int_equal(s.ffn, 256); /* transformers reads n_inner alone */
    assert_int_equal(s.n_kv_heads, 8);
    assert_int_equal(s.max_positions, 77);
    assert_int_equal(configure("\"n_layer\":null,\"num_hidden_layers\":3", GPT2, &s, &e), 0);
    assert_int_equal(s.n_layers, 3);
    assert_int_equal(configure("\"num_hidden_layers\":3", GPT2, &s, &e), 0);
    assert_int_equal(s.n_layers, 2); /* its own word goes first */
}

/* Baichuan 13B has no rotation, Baichuan 2 another head; Qwen is served up to its training. */
static void test_first_chinese_models(void **state)
{
    struct decoder_spec s;
    struct err e = ERR_INIT;
    static const char baichuan[] = "\"model_type\":\"baichuan\"," SIZES;
    static const char qwen[] = "\"model_type\":\"qwen\",\"seq_length\":8192," SIZES;
    (void)state;
    assert_int_equal(configure("\"max_position_embeddings\":4096", baichuan, &s, &e), 0);
    assert_int_equal(s.rope[0].kind, ROPE_DEFAULT);
    assert_false(s.unit_head);
    assert_int_equal(s.alibi.order, ALIBI_NONE);
    assert_int_equal(configure("\"max_position_embeddings\":null,\"model_max_length\":4096,"
                               "\"vocab_size\":125696",
                               baichuan, &s, &e),
                     0);
    assert_int_equal(s.rope[0].kind, ROPE_NONE);
    assert_true(s.unit_head);
    assert_int_equal(s.alibi.order, ALIBI_PAPER);
    assert_int_equal(s.max_positions, 4096);
    assert_int_equal(
        configure("\"max_position_embeddings\":32768,\"use_dynamic_ntk\":true", qwen, &s, &e), 0);
    assert_int_equal(s.max_positions, 8192);
    assert_int_equal(configure("\"max_position_embeddings\":32768", qwen, &s, &e), 0);
    assert_int_equal(s.max_positions, 32768);
}

/* Which layer's selection each layer uses: by a list, a word, or a period from a layer on. */
static void test_selections(void **state)
{
    static const struct {
        const char *keys;
        uint32_t of[6];
    } cases[] = {
        {"\"num_hidden_layers\":6", {0}},
        {"\"num_hidden_layers\":6,\"index_topk_pattern\":\"FSSFFS\"", {0, 1, 1, 0, 0, 5}},
        {"\"num_hidden_layers\":6,\"index_topk_freq\":3", {0, 0, 2, 2, 0, 5}},
        {"\"num_hidden_layers\":6,\"index_topk_freq\":2,\"index_skip_topk_offset\":1",
         {0, 1, 0, 3, 0, 5}},
        {"\"num_hidden_layers\":2,\"indexer_types\":[\"full\",\"shared\"]", {0, 1}},
    };
    static struct decoder_spec s;
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        accepted(cases[i].keys, GLM_5, &s);
        assert_true(s.mla.index.interleaved && s.mla.index.heads == 32 && s.mla.index.top == 2048);
        for (uint32_t k = 0; k < s.n_layers; k++)
            assert_int_equal(s.layers[k].top_of, cases[i].of[k]);
    }
    accepted("\"model_type\":\"deepseek_v32\",\"indexer_types\":null", GLM_5, &s);
    assert_true(!s.mla.index.interleaved && s.mla.index.heads == 64 && s.layers[1].top_of == 0);
    accepted("\"model_type\":\"deepseek_v3\"", GLM_5, &s);
    assert_int_equal(s.mla.index.top, 0);
}

/* Which layers of MiniMax M3 have an indexer, and its sizes, in either spelling. */
static void test_blocks(void **state)
{
    static struct decoder_spec s;
    (void)state;
    accepted("\"index_topk_blocks\":5,\"index_local_blocks\":2", M3, &s);
    assert_true(!s.layers[0].by_blocks && s.layers[1].by_blocks);
    assert_true(s.blocks.top == 5 && s.blocks.local == 2 && s.blocks.block == 128);
    assert_true(s.blocks.dim == 128 && s.rope[0].dim == 8);
    accepted("\"layer_types\":null,\"sparse_attention_config\":{\"sparse_attention_freq\":[1,0],"
             "\"sparse_topk_blocks\":3,\"sparse_block_size\":64,\"sparse_index_dim\":32},"
             "\"moe_layer_freq\":[0,1]",
             M3, &s);
    assert_true(s.layers[0].by_blocks && !s.layers[1].by_blocks);
    assert_true(s.blocks.top == 3 && s.blocks.local == 1 && s.blocks.block == 64);
    assert_true(s.blocks.dim == 32 && !s.layers[0].moe && s.layers[1].moe);
    accepted("\"layer_types\":null", M3, &s);
    assert_int_equal(s.blocks.top, 0);
}

static void test_windows_of_llama(void **state)
{
    struct decoder_spec s;
    struct err e = ERR_INIT;
    (void)state;
    assert_int_equal(configure("\"sliding_window\":32", LLAMA, &s, &e), 0);
    assert_int_equal(s.layers[0].window, 0); /* as transformers: no layer has one */
    assert_int_equal(configure("\"sliding_window\":32,\"layer_types\":[\"full_attention\","
                               "\"sliding_attention\"]",
                               LLAMA, &s, &e),
                     0);
    assert_int_equal(s.layers[0].window, 0);
    assert_int_equal(s.layers[1].window, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_selections),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_windows_of_llama),
        cmocka_unit_test(visual_indicators_are_consecutive_ids),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_same_meaning),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_max_positions),
        cmocka_unit_test(test_rope_option),
        cmocka_unit_test(test_encoders),
        cmocka_unit_test(test_kin),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_decoder_of_an_encoder),
        cmocka_unit_test(test_infinity),
        cmocka_unit_test(test_mixers),
        cmocka_unit_test(test_own_words),
        cmocka_unit_test(test_first_chinese_models),
    };
    return cmocka_run_group_tests(tests, make_file, drop_file);
}
