/* DeepSeek-OCR (arXiv 2510.18234): CLIP reads the features of SAM, and both stand side by side
 * before the projection. DeepSeek-OCR 2 reads them with a decoder, where learned queries follow
 * them. The first has the names and keys of its authors, the second those of transformers. */
#include "model-server/encoder/family/sam.h"
#include <string.h>

/* SAM in the files of one of the two. */
struct sam_files {
    const char *objects[2]; /* of vision_config, from the outer one on; NULL: none */
    bool image_outside;     /* image_size stands in vision_config itself */
    double out;             /* default of the last convolution's channels */
    const char *names[SAM_N_NAMES + 1];
};

/* Opens objects within vision_config, of which some may be missing; returns what was open. */
static cJSON *enter(struct config *c, const char *const objects[2])
{
    static const cJSON none = {.type = cJSON_Object};
    cJSON *const tower = c->root;
    for (int i = 0; i < 2 && objects[i]; i++) {
        const cJSON *in = config_object(c, c->root, objects[i]);
        c->root = (cJSON *)(uintptr_t)(in ? in : &none);
    }
    return tower;
}

/* Reads the sizes of SAM, and with `s` fills its tower. Returns the patches of a side that it
 * leaves of its largest picture; 0: the config failed. */
static uint32_t read_sam(struct config *c, const struct sam_files *f, struct sam_sizes *z,
                         struct encoder_spec *s)
{
    const uint32_t image = f->image_outside ? family_square(c, "image_size", 1024) : 1024;
    cJSON *const tower = enter(c, f->objects);
    const cJSON *channels = json_get(c->root, "downsample_channels"), *first = json_first(channels);
    const double halved = first ? first->valuedouble : 512;
    const double out = first && first->next ? first->next->valuedouble : f->out;
    uint32_t patch = 1;
    *z = (struct sam_sizes){.fitted = true};
    const bool read = sam_read(c, z, image, &patch);
    if (!(halved >= 1 && halved <= 1 << 14 && out >= 1 && out <= 1 << 14))
        config_fail(c, "`downsample_channels` must be two numbers");
    else
        z->halved = (uint32_t)halved, z->out = (uint32_t)out;
    if (read && z->side % 16)
        config_fail(c, "`image_size` must be a multiple of 16 patches");
    if (s && !c->failed) {
        s->conv.names = f->names;
        sam_tower(c, s, z, patch);
    }
    c->root = tower;
    return c->failed ? 0 : z->side / 4;
}

static void configure_before(struct config *c, struct encoder_spec *s, const struct sam_files *f)
{
    struct sam_sizes z;
    s->patch = s->cell = s->frames = s->project.join = s->width = 1;
    read_sam(c, f, &z, s);
}

/* ---------------------------------------------------------------- DeepSeek-OCR */

#define SAM_ONE "model.sam_model."
static const struct sam_files sam_one = {
    .objects = {"width", "sam_vit_b"},
    .image_outside = true,
    .out = 1024,
    .names = {SAM_NAMES_PLAIN(SAM_ONE, SAM_ONE "net_2", SAM_ONE "net_3")}};

static void configure_before_one(struct config *c, struct encoder_spec *s)
{
    configure_before(c, s, &sam_one);
}

/* CLIP, whose patches are SAM's features. */
static void clip(struct config *c, struct encoder_spec *s)
{
    static const struct block_keys keys = {"width",      "layers", "heads", "intermediate_size",
                                           "quick_gelu", 1024,     24,      16,
                                           4096,         1e-5,     14};
    cJSON *const tower = enter(c, (const char *const[]){"width", "clip-l-14-224"});
    family_blocks(c, s, &keys);
    family_positions(c, s, POSITIONS_FITTED, family_square(c, "image_size", 224));
    c->root = tower;
    s->blocks.qkv = QKV_STACKED;
    s->blocks.embed_norm = s->blocks.no_final_norm = true;
    s->class_token = s->of_features = true;
    s->patch_bias = false;
    s->patch = 1;
}

static void configure_one(struct config *c, struct encoder_spec *s)
{
    struct sam_sizes z;
    const cJSON *projector = json_get(c->file, "projector_config");
    clip(c, s);
    if (read_sam(c, &sam_one, &z, NULL) && z.out != s->blocks.hidden)
        config_fail(c, "`width` of clip-l-14-224 must be the last of `downsample_channels`");
    if (strcmp(json_str(projector, "projector_type", "linear"), "linear") != 0)
        config_fail(c, "`projector_type` must be linear");
    s->side_at[0] = s->blocks.n_layers - 1;
    s->side_at[1] = ENCODER_INPUT;
    s->n_sides = 2;
    s->tiles_joined = s->whole_joined = s->image_end = true;
    s->project = (struct encoder_projection){
        .join = 2, .linear = {{W_PROJECT_OUT, s->width, true}}, .n_linears = 1};
}

#define CLIP_IN    "model.vision_model."
#define CLIP_LAYER CLIP_IN "transformer.layers.*."
static const struct encoder_family before_one = {
    .names = {.prefix = "model."},
    .configure = configure_before_one,
};
const struct encoder_family family_deepseek_ocr = {
    .types = (const char *const[]){"deepseek_vl_v2", NULL},
    .names = {.names = {[W_PATCH_POSITIONS] = CLIP_IN "embeddings.position_embedding",
                        [W_CLASS_TOKEN] = CLIP_IN "embeddings.class_embedding",
                        [W_EMBED_NORM] = CLIP_IN "pre_layrnorm",
                        [W_ATTN_NORM] = CLIP_LAYER "layer_norm1",
                        [W_MLP_NORM] = CLIP_LAYER "layer_norm2",
                        [W_QKV] = CLIP_LAYER "self_attn.qkv_proj",
                        [W_O] = CLIP_LAYER "self_attn.out_proj",
                        [W_UP] = CLIP_LAYER "mlp.fc1",
                        [W_DOWN] = CLIP_LAYER "mlp.fc2",
                        [W_ROW_END] = "model.image_newline",
                        [W_IMAGE_END] = "model.view_seperator",
                        [W_PROJECT_OUT] = "model.projector.layers"},
              .prefix = "model."},
    .configure = configure_one,
    .before = &before_one,
    .tower = "deeplip_b_l",
};

/* ---------------------------------------------------------------- DeepSeek-OCR 2 */

#define SAM_TWO "model.vision_tower.sam_encoder."
static const struct sam_files sam_two = {
    .objects = {"sam_config", NULL},
    .out = 896,
    .names = {SAM_NAMES(SAM_TWO, SAM_TWO "proj.conv1", SAM_TWO "proj.conv2")}};

static void configure_before_two(struct config *c, struct encoder_spec *s)
{
    configure_before(c, s, &sam_two);
}

/* Qwen2's blocks. */
static void decode(struct config *c, struct encoder_spec *s)
{
    cJSON *const tower = enter(c, (const char *const[]){"encoder_config", NULL});
    struct decoder_spec *b = &s->blocks;
    family_blocks(c, s, &(struct block_keys){BLOCK_KEYS, "silu", 896, 24, 14, 4864, 1e-6, 1});
    b->n_kv_heads = config_u32_or(c, "num_key_value_heads", b->n_heads, 1, 1u << 16);
    if (b->n_heads % b->n_kv_heads)
        config_fail(c, "`num_key_value_heads` does not divide %u heads", b->n_heads);
    b->norm =
        (struct norm_spec){.kind = NORM_RMS, .eps = (float)config_num_or(c, "rms_norm_eps", 1e-6)};
    b->bias.norm = b->bias.o = b->bias.mlp = false;
    b->mlp = MLP_GATED;
    config_only(c, "use_sliding_window", false);
    b->rope[0].dim = b->head_dim;
    config_rope(c, b, 10000);
    if (b->rope[0].has_axes || b->rope[0].kind == ROPE_DYNAMIC || b->head_dim % 2)
        config_fail(c, "`rope_type` of `encoder_config` is not supported");
    for (uint32_t i = 0; i < b->n_layers; i++)
        b->layers[i].mutual = MUTUAL_ALONE;
    s->of_features = true;
    s->patch_bias = false;
    s->patch = 1;
    c->root = tower;
}

static void configure_two(struct config *c, struct encoder_spec *s)
{
    struct sam_sizes z;
    decode(c, s);
    /* the smaller one of two pictures has three quarters of the patches of a side */
    const uint32_t side = read_sam(c, &sam_two, &z, NULL), less = side / 4 * 3;
    s->queries =
        (struct encoder_queries){2, {side * side, less * less}, {W_QUERIES_MANY, W_QUERIES_FEW}};
    if (side && z.out != s->blocks.hidden)
        config_fail(c, "`hidden_size` of `encoder_config` must be the last of "
                       "`downsample_channels`");
    s->image_end = true;
    s->project = (struct encoder_projection){
        .join = 1, .linear = {{W_PROJECT_OUT, s->width, true}}, .n_linears = 1};
}

#define DECODER(x) "model.vision_tower.vision_encoder." x
static const struct encoder_family before_two = {
    .names = {.prefix = "model."},
    .configure = configure_before_two,
};
const struct encoder_family family_deepseek_ocr2 = {
    .types = (const char *const[]){"deepseek_ocr2", NULL},
    .names = {.names = {[W_ATTN_NORM] = DECODER("layers.*.input_layernorm"),
                        [W_MLP_NORM] = DECODER("layers.*.post_attention_layernorm"),
                        [W_Q] = DECODER("layers.*.self_attn.q_proj"),
                        [W_K] = DECODER("layers.*.self_attn.k_proj"),
                        [W_V] = DECODER("layers.*.self_attn.v_proj"),
                        [W_O] = DECODER("layers.*.self_attn.o_proj"),
                        [W_GATE] = DECODER("layers.*.mlp.gate_proj"),
                        [W_UP] = DECODER("layers.*.mlp.up_proj"),
                        [W_DOWN] = DECODER("layers.*.mlp.down_proj"),
                        [W_FINAL_NORM] = DECODER("norm"),
                        [W_QUERIES_FEW] = "model.vision_tower.query_768_resolution",
                        [W_QUERIES_MANY] = "model.vision_tower.query_1024_resolution",
                        [W_IMAGE_END] = "model.view_separator",
                        [W_PROJECT_OUT] = "model.multi_modal_projector"},
              .prefix = "model."},
    .configure = configure_two,
    .before = &before_two,
};
