/* C-RADIO (NVIDIA, arXiv 2412.07679) as the tower of Nemotron Nano VL and of Nemotron 3 Nano Omni:
 * class tokens and registers before the patches, and positions that are cut out of a square. Names
 * and keys of the repositories, and those of transformers. */
#include "common/json/json.h"
#include "common/model/model_file.h"
#include "model-server/encoder/family.h"
#include <string.h>

/* Sizes that the repositories' files name by the tower's word in timm. */
static const struct size {
    const char *name;
    uint32_t hidden, layers, heads;
} sizes[] = {{"vit_huge_patch16_224", 1280, 32, 16},
             {"vit_large_patch16_224", 1024, 24, 16},
             {"vit_base_patch16_224", 768, 12, 12}};

static const struct size *size_of(struct config *c, const cJSON *args)
{
    const char *name = json_str(args, "model", sizes[0].name);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (strcmp(sizes[i].name, name) == 0)
            return &sizes[i];
    config_fail(c, "`args.model`: %.60s is not supported", name);
    return &sizes[0];
}

static bool seen_before(const cJSON *list, const cJSON *one)
{
    const char *name = json_str(one, "name", "");
    for (const cJSON *t = json_first(list); t && t != one; t = t->next)
        if (strcmp(json_str(t, "name", ""), name) == 0)
            return true;
    return false;
}

/* A class token for each teacher, if the files say so, and registers up to the next multiple: of
 * 10, as in vLLM, where the key is absent; null is none. */
static uint32_t registers_of(struct config *c, const cJSON *args)
{
    const cJSON *teachers = json_get(args, "teachers"), *t;
    const bool none = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(args, "register_multiple"));
    const double multiple = none ? 0 : json_num(args, "register_multiple", 10);
    const double given = json_num(args, "cpe_num_registers", 0);
    uint32_t n = 0;
    cJSON_ArrayForEach(t, teachers) n += !seen_before(teachers, t);
    if (!json_bool(args, "cls_token_per_teacher", true) || !n)
        n = 1;
    if (!(multiple >= 0 && multiple <= 64 && given >= 0 && given <= 64) || n > 64) {
        config_fail(c, "`args`: register_multiple or cpe_num_registers is out of bounds");
        return 1;
    }
    const uint32_t whole = (uint32_t)multiple;
    return given ? n + (uint32_t)given : whole ? n + whole - n % whole : n;
}

/* What would compute something else. */
static void refuse(struct config *c, const cJSON *args)
{
    if (json_bool(args, "model_norm", false))
        config_fail(c, "`args.model_norm` true is not supported");
    if (cJSON_IsNumber(json_get(c->root, "vitdet_window_size")))
        config_fail(c, "`vitdet_window_size` is not supported");
    if (cJSON_IsObject(json_get(c->root, "feature_normalizer_config")))
        config_fail(c, "`feature_normalizer_config` is not supported");
    config_only(c, "separate_video_embedder", true);
    config_only(c, "use_swiglu_ffn", false);
    if (config_num_or(c, "layerscale_value", 1) != 1)
        config_fail(c, "`layerscale_value` must be 1");
    if (json_get(c->file, "ps_version"))
        family_only_word(c, "ps_version", "v2");
}

/* The norm of the cells' patches side by side, and two matrices without biases. */
static void project(struct config *c, struct encoder_spec *s)
{
    const double ratio = json_num(c->file, "downsample_ratio", 0.5);
    const double rows = json_num(c->file, "projector_hidden_size", 4096);
    const char *width =
        json_get(c->file, "vit_hidden_size") ? "vit_hidden_size" : "vision_hidden_size";
    const uint32_t middle = rows >= 1 && rows <= 1 << 20 ? (uint32_t)rows : 0;
    s->cell = ratio > 0.06 && ratio <= 1 ? (uint32_t)(1 / ratio) : 0;
    if (!s->cell || s->cell * ratio != 1) {
        config_fail(c, "`downsample_ratio` must be 1, 1/2, 1/4 or 1/8");
        s->cell = 1;
    }
    if (!middle)
        config_fail(c, "`projector_hidden_size` is out of bounds");
    if (json_num(c->file, width, s->blocks.hidden) != s->blocks.hidden)
        config_fail(c, "`%s` must be the tower's %u", width, s->blocks.hidden);
    s->project =
        (struct encoder_projection){.norm = true,
                                    .norm_joined = true,
                                    .norm_spec = {NORM_RMS, 1e-5F, 0},
                                    .norm_role = W_PROJECT_NORM,
                                    .join = s->cell * s->cell,
                                    .linear = {{W_PROJECT_IN, middle ? middle : 1},
                                               {W_PROJECT_OUT, s->width, .act_before = true}},
                                    .n_linears = 2,
                                    .act = ACT_RELU2};
}

static void configure(struct config *c, struct encoder_spec *s)
{
    const cJSON *args = json_get(c->root, "args");
    const struct size *of = size_of(c, args);
    const uint32_t hidden = config_u32_or(c, "hidden_size", of->hidden, 1, 1u << 20);
    const double ratio = config_num_or(c, "mlp_ratio", 4), ffn = hidden * ratio;
    if (!(ffn >= 1 && ffn <= 1 << 22))
        config_fail(c, "`mlp_ratio` is out of bounds");
    refuse(c, args);
    family_blocks(c, s,
                  &(struct block_keys){BLOCK_KEYS, "gelu", of->hidden, of->layers, of->heads,
                                       ffn >= 1 && ffn <= 1 << 22 ? (uint32_t)ffn : 1, 1e-6, 16});
    s->blocks.qkv = QKV_STACKED;
    s->blocks.bias.qkv = config_bool_or(c, "qkv_bias", true);
    s->blocks.sub_scale = s->may_lack_scales = true;
    /* Megatron's norm behind the last block of every tower beside a text model with draft layers */
    s->blocks.no_final_norm =
        json_num(model_file_text_config(c->file), "num_nextn_predict_layers", 0) == 0;
    s->patch_bias = false;
    s->plain_positions = true;
    const double largest = json_num(args, "cpe_max_size", config_num_or(c, "max_img_size", 2048));
    family_positions(c, s, POSITIONS_SQUARE,
                     largest >= 1 && largest <= 1 << 14 ? (uint32_t)largest : 0);
    s->registers = args ? registers_of(c, args)
                        : config_u32_or(c, "num_cls_tokens", 3, 0, 64) +
                              config_u32_or(c, "num_registers", 7, 0, 64);
    project(c, s);
}

#define TOWER                     "vision_model."
#define RADIO                     TOWER "radio_model.model."
#define FRONT(theirs, name)       RADIO "patch_generator." theirs "|" TOWER "embeddings." name
#define LAYER(theirs, name)       RADIO "blocks.*." theirs "|" TOWER "encoder.layer.*." name
#define EITHER_PROJECTOR(n, name) "mlp1." n "|multi_modal_projector." name
const struct encoder_family family_nemotron = {
    .types = (const char *const[]){"nemotron_h_omni", "NemotronH_Nano_Omni_Reasoning_V3",
                                   "NemotronH_Nano_VL_V2", NULL},
    .names = {.names = {[W_PATCH] = FRONT("embedder", "patch_projection"),
                        [W_PATCH_POSITIONS] = FRONT("pos_embed", "position_embedding"),
                        [W_CLASS_TOKEN] = FRONT("cls_token.token", "cls_register_token"),
                        [W_ATTN_NORM] = LAYER("norm1", "norm1"),
                        [W_MLP_NORM] = LAYER("norm2", "norm2"),
                        [W_QKV] = RADIO "blocks.*.attn.qkv",
                        [W_Q] = TOWER "encoder.layer.*.attention.q_proj",
                        [W_K] = TOWER "encoder.layer.*.attention.k_proj",
                        [W_V] = TOWER "encoder.layer.*.attention.v_proj",
                        [W_O] = LAYER("attn.proj", "attention.o_proj"),
                        [W_ATTN_SCALE] = LAYER("layer_scale1.lambda1", "layer_scale1.lambda1"),
                        [W_MLP_SCALE] = LAYER("layer_scale2.lambda1", "layer_scale2.lambda1"),
                        [W_UP] = LAYER("mlp.fc1", "mlp.fc1"),
                        [W_DOWN] = LAYER("mlp.fc2", "mlp.fc2"),
                        [W_FINAL_NORM] =
                            "vision_projector.vision_final_layernorm|vision_final_layernorm",
                        [W_PROJECT_NORM] = EITHER_PROJECTOR("0", "layer_norm"),
                        [W_PROJECT_IN] = EITHER_PROJECTOR("1", "linear_1"),
                        [W_PROJECT_OUT] = EITHER_PROJECTOR("3", "linear_2")}},
    .configure = configure,
};
