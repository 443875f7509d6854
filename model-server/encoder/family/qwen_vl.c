/* The towers of Qwen2-VL (arXiv 2409.12191), Qwen2.5-VL (2502.13923), Qwen3-VL and Qwen 3.5, and of
 * the thinkers of Qwen2.5-Omni (2503.20215) and Qwen3-Omni (2509.17765). Qwen2.5-VL's is also that
 * of OpenCUA (2508.09123), of EXAONE 4.5, with fewer key-value heads, and of HyperCLOVA X SEED
 * Think, with a projection behind; Qwen3-VL's is also that of Cohere's North Vision. */
#include "model-server/encoder/family.h"

static void common(struct config *c, struct encoder_spec *s, const struct block_keys *k)
{
    family_blocks(c, s, k);
    s->blocks.qkv = QKV_STACKED;
    s->blocks.no_final_norm = true;
    s->frames = config_u32_or(c, "temporal_patch_size", 2, 1, 8);
    s->cell = config_u32_or(c, "spatial_merge_size", 2, 1, 8);
    s->patch_bias = false;
    family_grid_rope(c, s, ROPE_GRID);
}

static void windows(struct config *c, struct encoder_spec *s)
{
    const cJSON *full = json_get(c->root, "fullatt_block_indexes"), *j;
    const uint32_t pixels = config_u32_or(c, "window_size", 112, 1, 1u << 16);
    s->windows = pixels / s->patch / s->cell;
    if (!s->windows)
        config_fail(c, "`window_size` must hold a cell of patches");
    for (uint32_t i = 0; i < s->blocks.n_layers; i++)
        s->blocks.layers[i].mutual = MUTUAL_ALONE;
    cJSON_ArrayForEach(j, full) if (cJSON_IsNumber(j) && j->valuedouble >= 0 &&
                                    j->valuedouble < s->blocks.n_layers)
        s->blocks.layers[(uint32_t)j->valuedouble]
            .mutual = MUTUAL_NONE;
}

static void configure_2(struct config *c, struct encoder_spec *s)
{
    common(c, s,
           &(struct block_keys){"embed_dim", "depth", "num_heads", "intermediate_size",
                                "quick_gelu", 1280, 32, 16, 1, 1e-6});
    s->blocks.ffn =
        (uint32_t)(s->blocks.hidden * config_num_or(c, "mlp_ratio", 4)); /* bounded by dim() */
    if (s->blocks.ffn < 1 || s->blocks.ffn > 1u << 22)
        config_fail(c, "`mlp_ratio` is out of bounds");
    s->width = config_u32(c, "hidden_size", 1, 1u << 20);
    family_merger(s, &s->project, s->width);
}

static void configure_2_5(struct config *c, struct encoder_spec *s)
{
    common(c, s,
           &(struct block_keys){"hidden_size", "depth", "num_heads", "intermediate_size", "silu",
                                1280, 32, 16, 3420, 1e-6});
    s->blocks.norm = (struct norm_spec){.kind = NORM_RMS, .eps = 1e-6F};
    s->blocks.bias.norm = false;
    s->blocks.mlp = MLP_GATED;
    s->width = config_u32(c, "out_hidden_size", 1, 1u << 20);
    windows(c, s);
    family_merger(s, &s->project, s->width);
}

/* Of the same blocks, with q, k and v apart. */
static void configure_2_5_omni(struct config *c, struct encoder_spec *s)
{
    configure_2_5(c, s);
    s->blocks.qkv = QKV_SEPARATE;
}

static void configure_exaone(struct config *c, struct encoder_spec *s)
{
    struct decoder_spec *b = &s->blocks;
    configure_2_5(c, s);
    b->n_kv_heads = config_u32_or(c, "num_key_value_heads", 8, 1, b->n_heads);
    if (b->n_heads % b->n_kv_heads)
        config_fail(c, "`num_key_value_heads` does not divide %u heads", b->n_heads);
}

static void configure_clova(struct config *c, struct encoder_spec *s)
{
    struct encoder_projection *p = &s->project;
    configure_2_5(c, s);
    s->width = family_text_width(c);
    s->feature_scale = family_feature_scale(c);
    p->linear[0].role = W_PROJECT_JOINED;
    p->linear[1].role = W_PROJECT_IN;
    p->linear[p->n_linears++] = (struct encoder_linear){W_PROJECT_OUT, s->width, true};
}

static void levels(struct config *c, struct encoder_spec *s)
{
    family_levels(c, s);
    family_merger(s, &s->level, s->width);
    s->level.norm_joined = true;
    s->level.norm_role = W_LEVEL_NORM;
    s->level.linear[0].role = W_LEVEL_IN;
    s->level.linear[1].role = W_LEVEL_OUT;
}

static void configure_3(struct config *c, struct encoder_spec *s)
{
    common(c, s,
           &(struct block_keys){"hidden_size", "depth", "num_heads", "intermediate_size",
                                "gelu_pytorch_tanh", 1152, 27, 16, 4304, 1e-6});
    s->patch_bias = true;
    s->positions = POSITIONS_STRETCHED;
    s->side = family_root(c, "num_position_embeddings", 2304);
    s->width = config_u32(c, "out_hidden_size", 1, 1u << 20);
    family_merger(s, &s->project, s->width);
    levels(c, s);
}

/* Newer files have the prefix "model.", those of Omni "thinker.", and OpenCUA's another name. */
#define BOTH(x) "model.visual." x "|visual." x "|thinker.visual." x "|vision_tower." x
#define NAMES_OUTSIDE                                                                              \
    [W_PATCH] = BOTH("patch_embed.proj"), [W_ATTN_NORM] = BOTH("blocks.*.norm1"),                  \
    [W_MLP_NORM] = BOTH("blocks.*.norm2"), [W_O] = BOTH("blocks.*.attn.proj")
#define NAMES_QWEN NAMES_OUTSIDE, [W_QKV] = BOTH("blocks.*.attn.qkv")
#define NAMES_MERGER_2                                                                             \
    [W_PROJECT_NORM] = BOTH("merger.ln_q"), [W_PROJECT_IN] = BOTH("merger.mlp.0"),                 \
    [W_PROJECT_OUT] = BOTH("merger.mlp.2")

#define NAMES_GATED                                                                                \
    [W_GATE] = BOTH("blocks.*.mlp.gate_proj"), [W_UP] = BOTH("blocks.*.mlp.up_proj"),              \
    [W_DOWN] = BOTH("blocks.*.mlp.down_proj")

const struct encoder_family family_qwen2_vl = {
    .types = (const char *const[]){"qwen2_vl", NULL},
    .names = {.names = {NAMES_QWEN, NAMES_MERGER_2, [W_UP] = BOTH("blocks.*.mlp.fc1"),
                        [W_DOWN] = BOTH("blocks.*.mlp.fc2")}},
    .configure = configure_2,
};
const struct encoder_family family_qwen2_5_vl = {
    .types = (const char *const[]){"qwen2_5_vl", "opencua", NULL},
    .names = {.names = {NAMES_QWEN, NAMES_MERGER_2, NAMES_GATED}},
    .configure = configure_2_5,
};
const struct encoder_family family_exaone4_5 = {
    .types = (const char *const[]){"exaone4_5", NULL},
    .names = {.names = {NAMES_QWEN, NAMES_MERGER_2, NAMES_GATED}},
    .configure = configure_exaone,
};
#define CLOVA(x) "model.vision_model." x
const struct encoder_family family_hyperclovax = {
    .types = (const char *const[]){"hyperclovax_vision_v2", "vlm", NULL},
    .names = {.names = {[W_PATCH] = CLOVA("patch_embed.proj"),
                        [W_ATTN_NORM] = CLOVA("blocks.*.norm1"),
                        [W_MLP_NORM] = CLOVA("blocks.*.norm2"),
                        [W_QKV] = CLOVA("blocks.*.attn.qkv"),
                        [W_O] = CLOVA("blocks.*.attn.proj"),
                        [W_GATE] = CLOVA("blocks.*.mlp.gate_proj"),
                        [W_UP] = CLOVA("blocks.*.mlp.up_proj"),
                        [W_DOWN] = CLOVA("blocks.*.mlp.down_proj"),
                        [W_PROJECT_NORM] = CLOVA("merger.ln_q"),
                        [W_PROJECT_JOINED] = CLOVA("merger.mlp.0"),
                        [W_PROJECT_IN] = CLOVA("merger.mlp.2"),
                        [W_PROJECT_OUT] = "model.vision_projector|model.projector"}},
    .configure = configure_clova,
};
const struct encoder_family family_qwen2_5_omni = {
    .types = (const char *const[]){"qwen2_5_omni_thinker", NULL},
    .names = {.names = {NAMES_OUTSIDE, NAMES_MERGER_2, [W_Q] = BOTH("blocks.*.attn.q"),
                        [W_K] = BOTH("blocks.*.attn.k"), [W_V] = BOTH("blocks.*.attn.v"),
                        NAMES_GATED}},
    .configure = configure_2_5_omni,
};
const struct encoder_family family_qwen3_omni = {
    .types = (const char *const[]){"qwen3_omni_moe_thinker", NULL},
    .names =
        {.names =
             {NAMES_QWEN, NAMES_MERGER_2, [W_UP] = BOTH("blocks.*.mlp.linear_fc1"),
              [W_DOWN] = BOTH("blocks.*.mlp.linear_fc2"), [W_PATCH_POSITIONS] = BOTH("pos_embed"),
              [W_LEVEL_NORM] = BOTH("merger_list.*.ln_q"),
              [W_LEVEL_IN] = BOTH("merger_list.*.mlp.0"),
              [W_LEVEL_OUT] = BOTH("merger_list.*.mlp.2")}},
    .configure = configure_3,
};
const struct encoder_family family_qwen3_vl = {
    .types = (const char *const[]){"qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe",
                                   "qwen4_exp", "cohere_compass", NULL},
    .names =
        {.names =
             {NAMES_QWEN, [W_UP] = BOTH("blocks.*.mlp.linear_fc1"),
              [W_DOWN] = BOTH("blocks.*.mlp.linear_fc2"), [W_PATCH_POSITIONS] = BOTH("pos_embed"),
              [W_PROJECT_NORM] = BOTH("merger.norm"), [W_PROJECT_IN] = BOTH("merger.linear_fc1"),
              [W_PROJECT_OUT] = BOTH("merger.linear_fc2"),
              [W_LEVEL_NORM] = BOTH("deepstack_merger_list.*.norm"),
              [W_LEVEL_IN] = BOTH("deepstack_merger_list.*.linear_fc1"),
              [W_LEVEL_OUT] = BOTH("deepstack_merger_list.*.linear_fc2")}},
    .configure = configure_3,
};
