/* The tower of MiniMax M3: CLIP's blocks with Qwen2-VL's patches, rotated by frame, row and column.
 * Each patch is projected to the text model's width before those of a cell are joined. */
#include "common/json/json.h"
#include "model-server/encoder/family.h"

/* A size of vision_config; the repository's files have an object for it. */
static uint32_t compressed(struct config *c, const char *key)
{
    cJSON *const tower = c->root;
    const cJSON *in = json_get(tower, "img_token_compression_config");
    if (!json_get(tower, key) && cJSON_IsObject(in))
        c->root = (cJSON *)(uintptr_t)in;
    const uint32_t n = config_u32_or(c, key, 2, 1, 8);
    c->root = tower;
    return n;
}

static void only_known(struct config *c)
{
    config_only_word(c, "position_embedding_type", "rope");
    config_only_word(c, "rope_mode", "3d");
    family_only_word(c, "projector_hidden_act", "gelu");
    family_only_word(c, "vision_feature_select_strategy", "full");
    if (!json_bool(c->file, "multimodal_projector_bias", true))
        config_fail(c, "`multimodal_projector_bias` must be true");
    if (json_num(c->file, "vision_feature_layer", -1) != -1)
        config_fail(c, "`vision_feature_layer` must be -1");
}

static void configure(struct config *c, struct encoder_spec *s)
{
    const double middle = json_num(c->file, "projector_hidden_size", 6144);
    family_blocks(c, s, &(struct block_keys){BLOCK_KEYS, "gelu", 1280, 32, 16, 5120, 1e-5, 14});
    s->blocks.embed_norm = s->blocks.no_final_norm = true;
    s->patch_bias = false;
    only_known(c);
    s->frames = compressed(c, "temporal_patch_size");
    s->cell = compressed(c, "spatial_merge_size");
    family_video_rope(c, s);
    if (!(middle >= 1 && middle <= 1 << 20)) {
        config_fail(c, "`projector_hidden_size` is out of bounds");
        return;
    }
    s->project = (struct encoder_projection){
        .join = 1,
        .linear = {{W_PROJECT_IN, (uint32_t)middle, true},
                   {W_PROJECT_MIDDLE, s->width, true, .act_before = true},
                   {W_PROJECT_JOINED, (uint32_t)middle, true, .join = s->cell * s->cell},
                   {W_PROJECT_OUT, s->width, true, .act_before = true}},
        .n_linears = 4,
        .act = ACT_GELU};
}

/* Names of transformers 5, or of the files of the authors. */
#define TOWER(x)  "model.vision_tower." x "|model.vision_tower.vision_model." x
#define BLOCKS(x) "model.vision_tower." x "|model.vision_tower.vision_model.encoder." x
#define MERGE(x)  "model.multi_modal_projector.merge_" x "|model.patch_merge_mlp." x
const struct encoder_family family_minimax_m3 = {
    .types = (const char *const[]){"minimax_m3_vl", NULL},
    .names = {.names = {[W_PATCH] = "model.vision_tower.embeddings.proj|"
                                    "model.vision_tower.vision_model.embeddings.patch_embedding",
                        [W_EMBED_NORM] = TOWER("pre_layrnorm"),
                        [W_ATTN_NORM] = BLOCKS("layers.*.layer_norm1"),
                        [W_MLP_NORM] = BLOCKS("layers.*.layer_norm2"),
                        [W_Q] = BLOCKS("layers.*.self_attn.q_proj"),
                        [W_K] = BLOCKS("layers.*.self_attn.k_proj"),
                        [W_V] = BLOCKS("layers.*.self_attn.v_proj"),
                        [W_O] = BLOCKS("layers.*.self_attn.out_proj"),
                        [W_UP] = BLOCKS("layers.*.mlp.fc1"),
                        [W_DOWN] = BLOCKS("layers.*.mlp.fc2"),
                        [W_PROJECT_IN] = "model.multi_modal_projector.linear_1",
                        [W_PROJECT_MIDDLE] = "model.multi_modal_projector.linear_2",
                        [W_PROJECT_JOINED] = MERGE("linear_1"),
                        [W_PROJECT_OUT] = MERGE("linear_2")},
              .prefix = "model."},
    .configure = configure,
};
