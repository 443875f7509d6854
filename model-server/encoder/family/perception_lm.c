/* PerceptionLM (arXiv 2504.13180): the Perception Encoder (2504.13181) as timm stores it, with
 * rotations by column and row; a feature is the mean of a cell's projected patches. */
#include "common/json/json.h"
#include "model-server/encoder/family.h"
#include <string.h>

/* What the name of an architecture of timm stands for; model_args replace single values. */
static const struct known {
    const char *prefix;
    double mlp_ratio;
    uint32_t patch, hidden, layers, heads, side; /* side: of the picture, in patches */
    bool class_token, lang; /* lang: layers are scaled, and no norm follows them */
} all_known[] = {
    {"vit_pe_core_base_patch16_224", 4, 16, 768, 12, 12, 14, true, false},
    {"vit_pe_core_large_patch14_336", 4, 14, 1024, 24, 16, 24, true, false},
    {"vit_pe_core_gigantic_patch14_448", 8960.0 / 1536, 14, 1536, 50, 16, 32, false, false},
    {"vit_pe_lang_large_patch14_448", 4, 14, 1024, 23, 16, 32, true, true},
    {"vit_pe_lang_gigantic_patch14_448", 8960.0 / 1536, 14, 1536, 47, 16, 32, false, true},
};

static const struct known *find(struct config *c)
{
    const char *name = config_str_or(c, "architecture", "");
    for (size_t i = 0; i < sizeof(all_known) / sizeof(all_known[0]); i++)
        if (strncmp(name, all_known[i].prefix, strlen(all_known[i].prefix)) == 0)
            return &all_known[i];
    config_fail(c, "`architecture`: `%.60s` is not supported", name);
    return &all_known[0];
}

/* Other arguments of timm would be another tower. */
static void only_known(struct config *c)
{
    static const char *const keys[] = {
        "embed_dim",   "depth",          "num_heads",   "mlp_ratio",
        "patch_size",  "img_size",       "init_values", "class_token",
        "global_pool", "ref_feat_shape", "num_classes", "use_post_transformer_norm"};
    const cJSON *at;
    cJSON_ArrayForEach(at, c->root)
    {
        bool known = false;
        for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
            known |= strcmp(at->string, keys[i]) == 0;
        if (!known)
            config_fail(c, "`%.60s` in model_args is not supported", at->string);
    }
}

/* The blocks; `c` is open at model_args. */
static void blocks(struct config *c, struct encoder_spec *s, const struct known *k)
{
    struct decoder_spec *b = &s->blocks;
    family_blocks(c, s,
                  &(struct block_keys){"embed_dim", "depth", "num_heads", "intermediate_size",
                                       "gelu", k->hidden, k->layers, k->heads, 1, 1e-5, k->patch});
    const double ffn = b->hidden * config_num_or(c, "mlp_ratio", k->mlp_ratio);
    if (ffn >= 1 && ffn <= 1 << 20)
        b->ffn = (uint32_t)ffn;
    else
        config_fail(c, "`mlp_ratio` is out of bounds");
    b->qkv = QKV_STACKED;
    b->embed_norm = true;
    b->sub_scale = cJSON_IsNumber(json_get(c->root, "init_values")) || k->lang;
    b->no_final_norm = !config_bool_or(c, "use_post_transformer_norm", !k->lang);
    s->patch_bias = false;
    s->class_token = config_bool_or(c, "class_token", k->class_token);
    s->plain_positions = true;
    family_positions(c, s, POSITIONS_TABLE, family_square(c, "img_size", k->side * k->patch));
    if (family_square(c, "ref_feat_shape", k->side) != s->side)
        config_fail(c, "`ref_feat_shape` must be %u x %u", s->side, s->side);
    family_grid_rope(c, s, ROPE_GRID);
    b->rope[0].interleaved = true;
    s->first_turn = k->class_token;
    family_columns_first(s);
}

static void configure(struct config *c, struct encoder_spec *s)
{
    static const cJSON none = {.type = cJSON_Object};
    const struct known *k = find(c);
    const cJSON *tower = c->root, *args = json_get(tower, "model_args");
    const double cell = json_num(c->file, "projector_pooling_ratio", 1);
    c->root = (cJSON *)(uintptr_t)(cJSON_IsObject(args) ? args : &none);
    only_known(c);
    blocks(c, s, k);
    c->root = (cJSON *)(uintptr_t)tower;
    if (json_bool(c->file, "vision_use_cls_token", true) != s->class_token)
        config_fail(c, "`vision_use_cls_token` must be that of the tower");
    s->cell = cell >= 1 && cell <= 16 && cell == (uint32_t)cell ? (uint32_t)cell : 0;
    if (!s->cell || s->side % s->cell) {
        config_fail(c, "`projector_pooling_ratio` must divide %u patches", s->side);
        s->cell = 1;
    }
    s->mean_features = s->cell > 1;
    family_two_matrices(s, true, ACT_GELU);
}

#define TOWER    "model.vision_tower.timm_model."
#define LAYER(x) TOWER "blocks.*." x
const struct encoder_family family_perception_lm = {
    .types = (const char *const[]){"perception_lm", NULL},
    .names = {.names = {[W_PATCH] = TOWER "patch_embed.proj",
                        [W_PATCH_POSITIONS] = TOWER "pos_embed",
                        [W_CLASS_TOKEN] = TOWER "cls_token",
                        [W_EMBED_NORM] = TOWER "norm_pre",
                        [W_FINAL_NORM] = TOWER "norm",
                        [W_ATTN_NORM] = LAYER("norm1"),
                        [W_MLP_NORM] = LAYER("norm2"),
                        [W_QKV] = LAYER("attn.qkv"),
                        [W_O] = LAYER("attn.proj"),
                        [W_ATTN_SCALE] = LAYER("gamma_1"),
                        [W_MLP_SCALE] = LAYER("gamma_2"),
                        [W_UP] = LAYER("mlp.fc1"),
                        [W_DOWN] = LAYER("mlp.fc2"),
                        [W_PROJECT_IN] = "model.multi_modal_projector.linear_1",
                        [W_PROJECT_OUT] = "model.multi_modal_projector.linear_2"},
              .prefix = "model."},
    .configure = configure,
    .tower = "timm_wrapper",
};
