/* family.h - reading vision_config: what the files of family/ share. An unsupported value fails the
 * config (config_fail()); functions that return a number then return one that is safe to use. */
#ifndef MODEL_SERVER_ENCODER_FAMILY_H
#define MODEL_SERVER_ENCODER_FAMILY_H
#include "common/json/json.h"
#include "model-server/encoder/encoder_spec.h"

/* Keys of the blocks' sizes, and their defaults (0: the key is required). */
struct block_keys {
    const char *hidden, *layers, *heads, *ffn, *act_default;
    uint32_t hidden_or, layers_or, heads_or, ffn_or;
    double eps;        /* default of layer_norm_eps */
    uint32_t patch_or; /* of patch_size */
};
/* Fills the blocks, patch, width and the rest as in most towers: pre-norm blocks of LayerNorm,
 * separate q, k and v, biases everywhere, no rotation, an MLP of two matrices, bidirectional
 * attention. */
void family_blocks(struct config *c, struct encoder_spec *s, const struct block_keys *k);
/* The first keys of struct block_keys as most files have them. */
#define BLOCK_KEYS "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"
/* family_blocks() with these keys, and SigLIP's activation and eps. */
void family_siglip_blocks(struct config *c, struct encoder_spec *s, uint32_t hidden_or,
                          uint32_t layers_or, uint32_t heads_or, uint32_t ffn_or);
/* Learned positions of `kind`, as many a side as patches in `image_size` pixels; at least one. */
void family_positions(struct config *c, struct encoder_spec *s, enum encoder_positions kind,
                      uint32_t image_size);
/* The projection of most towers: two matrices with an activation between them, for each patch. */
void family_two_matrices(struct encoder_spec *s, bool bias, enum act act);
/* The merger of Qwen2-VL, with outputs of `rows`: a norm of each patch, then two matrices on the
 * patches of a cell side by side. */
void family_merger(const struct encoder_spec *s, struct encoder_projection *p, uint32_t rows);
/* A tower of steps (conv_spec.h) with learned rows (CONV_ROWS), which reads `n` rows of `width`
 * numbers of the tower before. Its features have `out` numbers; eps: of layer norms. */
void family_reads_rows(struct encoder_spec *s, uint32_t n, uint32_t width, uint32_t out, float eps);
/* Sets a rotation of each head by row and column of the patch, with base rope_theta. `kind`
 * ROPE_GRID_WOVEN: pairs of elements alternate between the two; otherwise the first half of the
 * pairs has one and the second half the other. */
void family_grid_rope(struct config *c, struct encoder_spec *s, enum rope_kind kind);
/* The same by frame, row and column: a third of the pairs each, and the rest of a head of an odd
 * size does not rotate. */
void family_video_rope(struct config *c, struct encoder_spec *s);
/* After family_grid_rope(): the first half of the pairs rotates by column, the second by row. */
void family_columns_first(struct encoder_spec *s);
/* How many of n layers are used: up to the hidden state whose index is `key` of the whole model, or
 * `def`. As in Python, 0 is the embedding and -1 the last layer. */
uint32_t family_layers_used(struct config *c, uint32_t n, const char *key, int def);
/* The same for hidden state `at`, a number of `key`. */
uint32_t family_layer_at(struct config *c, uint32_t n, const char *key, double at);
/* Sets the layers of deepstack_visual_indexes in vision_config, which ascend; none if it is absent.
 */
void family_levels(struct config *c, struct encoder_spec *s);
/* The factor of features if the text model has an `embedding_multiplier`, which multiplies all rows
 * that it is given; 0: none. */
float family_feature_scale(struct config *c);
/* The side of a square in vision_config: a number, or a pair of equal numbers. Absent: `def`. */
uint32_t family_square(struct config *c, const char *key, uint32_t def);
/* The square root of `key` in vision_config, which must be a square number. Absent: of `def`. */
uint32_t family_root(struct config *c, const char *key, uint32_t def);
/* Fails the config if `key` of the whole model is another word; absent: it is this one. */
void family_only_word(struct config *c, const char *key, const char *word);
/* The activation that `key` of the whole model names. Absent: `def`. */
enum act family_word_act(struct config *c, const char *key, const char *def);
/* The text model's hidden size. */
uint32_t family_text_width(struct config *c);

#define EITHER(p, q, name) p name "|" q name
/* Tensor names of SigLIP and CLIP: after the prefix p, or q in files of transformers 5. */
#define NAMES_SIGLIP(p, q)                                                                         \
    NAMES_SIGLIP_BUT_O(p, q), [W_O] = EITHER(p, q, "encoder.layers.*.self_attn.out_proj")
#define NAMES_SIGLIP_BUT_O(p, q)                                                                   \
    [W_PATCH] = EITHER(p, q, "embeddings.patch_embedding"),                                        \
    [W_PATCH_POSITIONS] = EITHER(p, q, "embeddings.position_embedding"),                           \
    [W_ATTN_NORM] = EITHER(p, q, "encoder.layers.*.layer_norm1"),                                  \
    [W_MLP_NORM] = EITHER(p, q, "encoder.layers.*.layer_norm2"),                                   \
    [W_FINAL_NORM] = EITHER(p, q, "post_layernorm"),                                               \
    [W_Q] = EITHER(p, q, "encoder.layers.*.self_attn.q_proj"),                                     \
    [W_K] = EITHER(p, q, "encoder.layers.*.self_attn.k_proj"),                                     \
    [W_V] = EITHER(p, q, "encoder.layers.*.self_attn.v_proj"),                                     \
    [W_UP] = EITHER(p, q, "encoder.layers.*.mlp.fc1"),                                             \
    [W_DOWN] = EITHER(p, q, "encoder.layers.*.mlp.fc2")
#endif
