/* family.h - what the files of family/ share: reading vision_config. */
#ifndef MODEL_SERVER_ENCODER_FAMILY_H
#define MODEL_SERVER_ENCODER_FAMILY_H
#include "common/json.h"
#include "model-server/encoder/encoder_spec.h"

extern const struct encoder_family family_qwen2_5_vl, family_qwen2_vl, family_qwen3_vl,
    family_gemma3, family_llava, family_idefics3, family_pixtral, family_mistral3;

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
/* Two turning halves of each head: rows and columns. */
void family_grid_rope(struct config *c, struct encoder_spec *s, enum rope_kind kind);
/* The text model's hidden size. */
uint32_t family_text_width(struct config *c);

/* SigLIP and CLIP behind a prefix. */
#define NAMES_SIGLIP(p)                                                                            \
    [W_PATCH] = p "embeddings.patch_embedding",                                                    \
    [W_PATCH_POSITIONS] = p "embeddings.position_embedding",                                       \
    [W_ATTN_NORM] = p "encoder.layers.*.layer_norm1",                                              \
    [W_MLP_NORM] = p "encoder.layers.*.layer_norm2", [W_FINAL_NORM] = p "post_layernorm",          \
    [W_Q] = p "encoder.layers.*.self_attn.q_proj", [W_K] = p "encoder.layers.*.self_attn.k_proj",  \
    [W_V] = p "encoder.layers.*.self_attn.v_proj",                                                 \
    [W_O] = p "encoder.layers.*.self_attn.out_proj", [W_UP] = p "encoder.layers.*.mlp.fc1",        \
    [W_DOWN] = p "encoder.layers.*.mlp.fc2"
#endif
