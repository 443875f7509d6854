/* families.h - what the metadata of an architecture say in the words of its config.json: a function
 * for each that has more to say than all have. families.c has the rows. */
#ifndef COMMON_GGUF_FAMILIES_H
#define COMMON_GGUF_FAMILIES_H
#include "common/gguf/meta.h"

typedef void gguf_more(const struct gguf_meta *m);

/* Parts that several share: families.c. */
gguf_more gguf_window, gguf_qkv_bias, gguf_experts, gguf_granite, gguf_caps, gguf_pattern,
    gguf_deepseek_experts;
/* Parts of other files: the latent vector and DeepSeek's experts (families_latent.c), the same with
 * layers of Kimi Delta Attention (families_mixed.c). */
gguf_more gguf_latent, gguf_kimi_delta;
/* Writes the list `key` of one of two words for each layer: `with` where it has the tensor. */
void gguf_kinds(const struct gguf_meta *m, const char *key, const char *part, const char *with,
                const char *without);
/* Rows of the first layer's tensor `part` that there is; 0: there is none. families_mixed.c */
double gguf_first_rows(const struct gguf_meta *m, const char *part);
/* Keys and values from a latent vector: families_latent.c. */
gguf_more gguf_minicpm3, gguf_plm, gguf_deepseek2, gguf_mistral4, gguf_deepseek32, gguf_glm_dsa;
/* Layers of several kinds: families_mixed.c. */
gguf_more gguf_qwen35, gguf_gemma3n, gguf_gemma4, gguf_llama4, gguf_granite_hybrid, gguf_nemotron_h,
    gguf_falcon_h1, gguf_mamba, gguf_mamba2, gguf_rwkv7, gguf_jamba, gguf_kimi_linear, gguf_kimi_k3,
    gguf_bailing3, gguf_deci, gguf_openelm, gguf_plamo2, gguf_plamo3;
/* Mixtures of experts, most with routers of DeepSeek's kind: families_moe.c. */
gguf_more gguf_hunyuan_moe, gguf_bailing2, gguf_exaone_moe, gguf_afmoe, gguf_hy_v3, gguf_mellum,
    gguf_laguna, gguf_mimo2, gguf_minimax_01, gguf_cohere2_moe, gguf_granite_swa, gguf_bailing,
    gguf_deepseek_moe, gguf_deepseek_ocr, gguf_smallthinker, gguf_step35, gguf_muse_glimmer,
    gguf_nanbeige, gguf_spark2_5, gguf_minimax_m3, gguf_maple;
/* Several residual streams, or stacks that run in turns: families_streams.c. */
gguf_more gguf_hy_v4, gguf_glm5_next, gguf_deepseek4, gguf_hrm_text;
/* GPT-2's generation, and others with config.json keys of their own: families_gpt.c. */
gguf_more gguf_gpt2, gguf_starcoder, gguf_gptneox, gguf_falcon, gguf_phi2, gguf_mpt, gguf_phimoe,
    gguf_chatglm, gguf_qwen, gguf_baichuan, gguf_dbrx, gguf_jais, gguf_codeshell, gguf_bitnet;
/* Encoders: families_encoder.c. */
gguf_more gguf_bert, gguf_jina_bert, gguf_jina_bert_v3, gguf_neo_bert, gguf_nomic_bert,
    gguf_nomic_bert_moe, gguf_modern_bert, gguf_gemma_embedding, gguf_t5;
#endif
