/* The tower of Gemma 4: blocks with four norms, rotations of half a head by column and half by row,
 * and averages of square cells of patches; and what the unified model has in its place. */
#include "model-server/encoder/family.h"
#include <string.h>

/* The first half of a head rotates by column, the second by row. */
static void turn(struct config *c, struct encoder_spec *s)
{
    const cJSON *parameters = json_get(c->root, "rope_parameters");
    struct rope_spec *r = &s->blocks.rope[0];
    family_grid_rope(c, s, ROPE_GRID);
    r->theta = json_num(parameters, "rope_theta", 100);
    r->halves = true;
    if (!(r->theta > 1) || strcmp(json_str(parameters, "rope_type", "axial"), "axial") != 0)
        config_fail(c, "`rope_parameters` must be axial, with a base above 1");
    family_columns_first(s);
}

static void pool(struct config *c, struct encoder_spec *s)
{
    const uint32_t text = s->width;
    s->cell = config_u32_or(c, "pooling_kernel_size", 3, 1, 16);
    s->pool = true;
    s->pool_scale = sqrtf((float)s->blocks.hidden);
    s->pool_standard = config_bool_or(c, "standardize", false);
    s->project =
        (struct encoder_projection){.norm = true,
                                    .norm_spec = {NORM_RMS, s->blocks.norm.eps, 0, .bare = true},
                                    .join = 1,
                                    .linear = {{W_PROJECT_OUT, text}},
                                    .n_linears = 1};
}

static void configure(struct config *c, struct encoder_spec *s)
{
    const struct block_keys keys = {"hidden_size",
                                    "num_hidden_layers",
                                    "num_attention_heads",
                                    "intermediate_size",
                                    "gelu_pytorch_tanh",
                                    768,
                                    16,
                                    12,
                                    3072,
                                    1e-6};
    struct decoder_spec *b = &s->blocks;
    family_blocks(c, s, &keys);
    b->head_dim = config_u32_or(c, "head_dim", 64, 4, ROPE_MAX_DIM);
    b->n_kv_heads = config_u32_or(c, "num_key_value_heads", b->n_heads, 1, b->n_heads);
    if (b->n_heads % b->n_kv_heads)
        config_fail(c, "`num_key_value_heads` does not divide %u heads", b->n_heads);
    b->norm =
        (struct norm_spec){.kind = NORM_RMS, .eps = (float)config_num_or(c, "rms_norm_eps", 1e-6)};
    b->norms = NORM_AROUND;
    b->qk_norm = QK_NORM_HEAD;
    b->v_norm = b->no_final_norm = true;
    b->mlp = MLP_GATED;
    b->act = config_act(c, "hidden_activation", "gelu_pytorch_tanh");
    b->bias.norm = b->bias.mlp = b->bias.qkv = b->bias.o = false;
    b->clips = config_bool_or(c, "use_clipped_linears", false);
    config_only(c, "attention_bias", false);
    for (uint32_t i = 0; i < b->n_layers; i++)
        b->layers[i].attn_scale = 1;
    s->patch_bias = false;
    s->patch_channels_last = true;
    s->positions = POSITIONS_AXES;
    s->plain_positions = true;
    s->side = config_u32_or(c, "position_embedding_size", 10240, 1, 1u << 20);
    turn(c, s);
    pool(c, s);
}

/* The unified model has no transformer: norms around one matrix on patches as large as a feature,
 * positions, and the projection. */
static void configure_unified(struct config *c, struct encoder_spec *s)
{
    struct decoder_spec *b = &s->blocks;
    const uint32_t cell = config_u32_or(c, "pooling_kernel_size", 3, 1, 16);
    const float eps = (float)config_num_or(c, "rms_norm_eps", 1e-6);
    family_blocks(c, s, /* only the first of these keys is in files */
                  &(struct block_keys){"mm_embed_dim", "layers", "heads", "ffn", "gelu", 3840, 1, 1,
                                       1, 1e-5, 16});
    if (s->patch * cell > 256)
        config_fail(c, "`patch_size` times `pooling_kernel_size` must be at most 256");
    else
        s->patch *= cell;
    if (config_u32_or(c, "output_proj_dims", b->hidden, 1, 1u << 20) != b->hidden)
        config_fail(c, "`output_proj_dims` must be `mm_embed_dim`");
    b->n_layers = 1;
    b->n_heads = b->n_kv_heads = 1;
    b->layers[0] = (struct layer_spec){.mixer = MIXER_NONE, .no_ffn = true};
    b->embed_norm = b->no_first_norm = b->no_final_norm = true;
    s->pixel_norm = s->patch_norm = s->patch_channels_last = s->plain_positions = true;
    s->positions = POSITIONS_WOVEN;
    s->side = config_u32_or(c, "mm_posemb_size", 1120, 1, 1u << 20);
    s->project = (struct encoder_projection){.norm = true,
                                             .norm_spec = {NORM_RMS, eps, 0, .bare = true},
                                             .join = 1,
                                             .linear = {{W_PROJECT_OUT, s->width}},
                                             .n_linears = 1};
}

#define TOWER "model.vision_tower."
#define LAYER TOWER "encoder.layers.*."
const struct encoder_family family_gemma4 = {
    .types = (const char *const[]){"gemma4", NULL},
    .names = {.names = {[W_PATCH] = TOWER "patch_embedder.input_proj",
                        [W_PATCH_POSITIONS] = TOWER "patch_embedder.position_embedding_table",
                        [W_ATTN_NORM] = LAYER "input_layernorm",
                        [W_POST_ATTN_NORM] = LAYER "post_attention_layernorm",
                        [W_MLP_NORM] = LAYER "pre_feedforward_layernorm",
                        [W_POST_MLP_NORM] = LAYER "post_feedforward_layernorm",
                        [W_Q] = LAYER "self_attn.q_proj.linear",
                        [W_K] = LAYER "self_attn.k_proj.linear",
                        [W_V] = LAYER "self_attn.v_proj.linear",
                        [W_O] = LAYER "self_attn.o_proj.linear",
                        [W_Q_NORM] = LAYER "self_attn.q_norm",
                        [W_K_NORM] = LAYER "self_attn.k_norm",
                        [W_GATE] = LAYER "mlp.gate_proj.linear",
                        [W_UP] = LAYER "mlp.up_proj.linear",
                        [W_DOWN] = LAYER "mlp.down_proj.linear",
                        [W_CLIP_Q] = LAYER "self_attn.q_proj",
                        [W_CLIP_K] = LAYER "self_attn.k_proj",
                        [W_CLIP_V] = LAYER "self_attn.v_proj",
                        [W_CLIP_O] = LAYER "self_attn.o_proj",
                        [W_CLIP_GATE] = LAYER "mlp.gate_proj",
                        [W_CLIP_UP] = LAYER "mlp.up_proj",
                        [W_CLIP_DOWN] = LAYER "mlp.down_proj",
                        [W_POOL_BIAS] = TOWER "std_bias",
                        [W_POOL_SCALE] = TOWER "std_scale",
                        [W_PROJECT_OUT] = "model.embed_vision.embedding_projection"},
              .prefix = "model."},
    .configure = configure,
};
#define EMBED "model.embed_vision."
const struct encoder_family family_gemma4_unified = {
    .types = (const char *const[]){"gemma4_unified", NULL},
    .names = {.names = {[W_PIXEL_NORM] = EMBED "patch_ln1",
                        [W_PATCH] = EMBED "patch_dense",
                        [W_PATCH_NORM] = EMBED "patch_ln2",
                        [W_PATCH_POSITIONS] = EMBED "pos_embedding",
                        [W_EMBED_NORM] = EMBED "pos_norm",
                        [W_PROJECT_OUT] = EMBED "multimodal_embedder.embedding_projection"},
              .prefix = "model."},
    .configure = configure_unified,
};
