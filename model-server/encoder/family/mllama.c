/* The tower of Llama 3.2 Vision: two stacks of ViT blocks over all tiles of a picture, the second
 * gated, and a projection of five layers of the first beside the last (arXiv 2407.21783). */
#include "common/model/model_file.h"
#include "model-server/encoder/family.h"
#include <string.h>

/* Layers of the first stack whose outputs are part of the features. */
static void taps(struct config *c, struct encoder_spec *s)
{
    static const uint32_t usual[] = {3, 7, 15, 23, 30};
    const cJSON *list = json_get(c->root, "intermediate_layers_indices"), *j;
    struct encoder_joint *o = &s->joint;
    for (size_t i = 0; !list && i < sizeof(usual) / sizeof(usual[0]); i++)
        o->tap_at[o->n_taps++] = usual[i];
    cJSON_ArrayForEach(j, list)
    {
        if (!cJSON_IsNumber(j) || j->valuedouble < 0 || j->valuedouble > SPEC_MAX_LAYERS ||
            o->n_taps == ENCODER_MAX_TAPS) {
            config_fail(c, "`intermediate_layers_indices` must be at most %u layers",
                        ENCODER_MAX_TAPS);
            return;
        }
        o->tap_at[o->n_taps++] = (uint32_t)j->valuedouble;
    }
    for (uint32_t i = 0; i < o->n_taps; i++)
        if (o->tap_at[i] >= s->blocks.second_stack || (i && o->tap_at[i] <= o->tap_at[i - 1]))
            config_fail(c, "`intermediate_layers_indices` must ascend, below %u",
                        s->blocks.second_stack);
}

static double item(const cJSON *list, int i)
{
    const cJSON *v = cJSON_GetArrayItem(list, i);
    return v && cJSON_IsNumber(v) ? v->valuedouble : 0;
}

/* Checks that the tables of tiles have a row for every grid of at most joint.tiles tiles, in the
 * order of shape_id(). */
static void shapes(struct config *c, const struct encoder_spec *s)
{
    const cJSON *list = json_get(c->root, "supported_aspect_ratios");
    const cJSON *j = list ? list->child : NULL;
    for (uint32_t r = 1; list && r <= s->joint.tiles; r++)
        for (uint32_t k = 1; k <= s->joint.tiles / r; k++, j = j ? j->next : NULL)
            if (!j || item(j, 0) != r || item(j, 1) != k) {
                config_fail(c, "`supported_aspect_ratios` must be all of at most %u tiles",
                            s->joint.tiles);
                return;
            }
    if (j || (!list && s->joint.tiles != 4))
        config_fail(c, "`supported_aspect_ratios` must be all of at most %u tiles", s->joint.tiles);
}

static void configure(struct config *c, struct encoder_spec *s)
{
    const struct block_keys keys = {"hidden_size",
                                    "num_hidden_layers",
                                    "attention_heads",
                                    "intermediate_size",
                                    "gelu",
                                    1280,
                                    32,
                                    16,
                                    5120,
                                    1e-5};
    const cJSON *text = model_file_text_config(c->file);
    struct decoder_spec *b = &s->blocks;
    family_blocks(c, s, &keys);
    b->norm.eps = (float)config_num_or(c, "norm_eps", 1e-5);
    b->bias.qkv = b->bias.o = false;
    b->no_final_norm = true;
    b->second_stack = b->n_layers;
    const uint32_t more = config_u32_or(c, "num_global_layers", 8, 0, 64);
    for (uint32_t i = 0; i < more && b->n_layers < SPEC_MAX_LAYERS; i++) {
        b->layers[b->n_layers] = b->layers[0];
        b->layers[b->n_layers++].gated = true;
    }
    s->patch_bias = false;
    s->class_token = s->plain_positions = true;
    s->positions = POSITIONS_TABLE;
    s->side = family_square(c, "image_size", 448) / s->patch;
    s->joint.tiles = config_u32_or(c, "max_num_tiles", 4, 1, 16);
    s->joint.unit = 8;
    s->joint.embeds = (uint32_t)json_num(text, "vocab_size", 128256) + 8;
    s->joint.token = (uint32_t)json_num(c->file, "image_token_index", 128256);
    if (!s->side || s->joint.token >= s->joint.embeds)
        config_fail(c, "`image_size` must hold a patch, `image_token_index` be an embedding");
    taps(c, s);
    shapes(c, s);
    if (config_u32_or(c, "vision_output_dim", 7680, 1, 1u << 20) !=
        b->hidden * (1 + s->joint.n_taps))
        config_fail(c, "`vision_output_dim` must be that of %u layers", 1 + s->joint.n_taps);
    s->project = (struct encoder_projection){
        .join = 1, .linear = {{W_PROJECT_OUT, s->width, .bias = true}}, .n_linears = 1};
}

#define TOWER(name) EITHER("vision_model.", "model.vision_model.", name)
#define LAYER(stack)                                                                               \
    [W_ATTN_NORM] = TOWER(stack "layers.*.input_layernorm"),                                       \
    [W_MLP_NORM] = TOWER(stack "layers.*.post_attention_layernorm"),                               \
    [W_Q] = TOWER(stack "layers.*.self_attn.q_proj"),                                              \
    [W_K] = TOWER(stack "layers.*.self_attn.k_proj"),                                              \
    [W_V] = TOWER(stack "layers.*.self_attn.v_proj"),                                              \
    [W_O] = TOWER(stack "layers.*.self_attn.o_proj"), [W_UP] = TOWER(stack "layers.*.mlp.fc1"),    \
    [W_DOWN] = TOWER(stack "layers.*.mlp.fc2")

static const struct arch second = {
    .names = {LAYER("global_transformer."),
              [W_ATTN_TANH] = TOWER("global_transformer.layers.*.gate_attn"),
              [W_MLP_TANH] = TOWER("global_transformer.layers.*.gate_ffn")}};

const struct encoder_family family_mllama = {
    .types = (const char *const[]){"mllama", NULL},
    .names =
        {.names =
             {LAYER("transformer."), [W_PATCH] = TOWER("patch_embedding"),
              [W_PATCH_POSITIONS] = TOWER("gated_positional_embedding.embedding"),
              [W_CLASS_TOKEN] = TOWER("class_embedding"), [W_EMBED_NORM] = TOWER("layernorm_pre"),
              [W_MIDDLE_NORM] = TOWER("layernorm_post"),
              [W_TILE_BEFORE] = TOWER("pre_tile_positional_embedding.embedding"),
              [W_TILE_BEFORE_GATE] = TOWER("pre_tile_positional_embedding.gate"),
              [W_TILE_PLACE] = TOWER("gated_positional_embedding.tile_embedding"),
              [W_TILE_PLACE_GATE] = TOWER("gated_positional_embedding.gate"),
              [W_TILE_AFTER] = TOWER("post_tile_positional_embedding.embedding"),
              [W_TILE_AFTER_GATE] = TOWER("post_tile_positional_embedding.gate"),
              [W_PROJECT_OUT] = EITHER("", "model.", "multi_modal_projector"),
              [W_EMBED] = EITHER("language_model.model.", "model.language_model.", "embed_tokens")},
         .second = &second},
    .configure = configure,
};
