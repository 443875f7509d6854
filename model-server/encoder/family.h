/* family.h - what the files of family/ share: reading vision_config. */
#ifndef MODEL_SERVER_ENCODER_FAMILY_H
#define MODEL_SERVER_ENCODER_FAMILY_H
#include "common/json.h"
#include "model-server/encoder/encoder_spec.h"

extern const struct encoder_family family_qwen2_5_vl, family_qwen2_vl, family_qwen3_vl,
    family_gemma3, family_llava, family_idefics3, family_pixtral, family_mistral3, family_internvl,
    family_internvl_chat, family_paligemma, family_llama4, family_gemma4, family_llava_onevision,
    family_aya, family_cohere2, family_mllama, family_glm4v, family_kimi_vl, family_lfm2_vl,
    family_idefics2;

/* Keys of the blocks as most towers have them: hidden_size, num_hidden_layers, num_attention_heads,
 * intermediate_size, hidden_act, under the names that `k` says. Fills the rest with what most
 * towers are: pre-norm blocks of LayerNorm, separate q, k and v, biases everywhere, no rotation, an
 * MLP of two matrices, attention both ways. */
struct block_keys {
    const char *hidden, *layers, *heads, *ffn, *act_default;
    uint32_t hidden_or, layers_or, heads_or, ffn_or; /* where the file does not say; 0: it must */
    double eps;
};
void family_blocks(struct config *c, struct encoder_spec *s, const struct block_keys *k);
/* Turning halves of each head: rows and columns, in runs or in turns. */
void family_grid_rope(struct config *c, struct encoder_spec *s, enum rope_kind kind);
/* Layers of n up to the one that `key` of the whole model chooses, as Python counts hidden states;
 * 0 is the embedding. */
uint32_t family_layers_used(struct config *c, uint32_t n, const char *key, int def);
/* A side in vision_config, which is a number or a pair of equal ones; `def` where it is absent. */
uint32_t family_square(struct config *c, const char *key, uint32_t def);
/* The root of a number of places in vision_config, which must be a square. */
uint32_t family_root(struct config *c, const char *key, uint32_t def);
/* The text model's hidden size. */
uint32_t family_text_width(struct config *c);

#define EITHER(p, q, name) p name "|" q name
/* SigLIP and CLIP behind a prefix, of which files of transformers 5 have another. */
#define NAMES_SIGLIP(p, q)                                                                         \
    [W_PATCH] = EITHER(p, q, "embeddings.patch_embedding"),                                        \
    [W_PATCH_POSITIONS] = EITHER(p, q, "embeddings.position_embedding"),                           \
    [W_ATTN_NORM] = EITHER(p, q, "encoder.layers.*.layer_norm1"),                                  \
    [W_MLP_NORM] = EITHER(p, q, "encoder.layers.*.layer_norm2"),                                   \
    [W_FINAL_NORM] = EITHER(p, q, "post_layernorm"),                                               \
    [W_Q] = EITHER(p, q, "encoder.layers.*.self_attn.q_proj"),                                     \
    [W_K] = EITHER(p, q, "encoder.layers.*.self_attn.k_proj"),                                     \
    [W_V] = EITHER(p, q, "encoder.layers.*.self_attn.v_proj"),                                     \
    [W_O] = EITHER(p, q, "encoder.layers.*.self_attn.out_proj"),                                   \
    [W_UP] = EITHER(p, q, "encoder.layers.*.mlp.fc1"),                                             \
    [W_DOWN] = EITHER(p, q, "encoder.layers.*.mlp.fc2")
#endif
