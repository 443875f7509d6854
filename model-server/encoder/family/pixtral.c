/* The tower of Pixtral (arXiv 2410.07073), behind LLaVA's projector or Mistral 3's, which
 * LightOnOCR and Mistral Large 4 have too. */
#include "model-server/encoder/family.h"
#include <string.h>

static const struct block_keys sizes = {BLOCK_KEYS, "gelu", 1024, 24, 16, 4096, 1e-5};

static void pixtral(struct config *c, struct encoder_spec *s, const struct block_keys *keys)
{
    family_blocks(c, s, keys);
    struct decoder_spec *b = &s->blocks;
    b->norm = (struct norm_spec){.kind = NORM_RMS, .eps = 1e-5F};
    b->bias.norm = b->bias.qkv = b->bias.o = b->bias.mlp = false;
    b->mlp = MLP_GATED;
    b->embed_norm = b->no_final_norm = true;
    s->patch_bias = false;
    family_grid_rope(c, s, ROPE_GRID_TURNS);
    b->n_layers = family_layers_used(c, b->n_layers, "vision_feature_layer", -1);
}

static void configure(struct config *c, struct encoder_spec *s)
{
    const bool bias = json_bool(c->file, "multimodal_projector_bias", true);
    pixtral(c, s, &sizes);
    family_two_matrices(s, bias, family_word_act(c, "projector_hidden_act", "gelu"));
}

/* `eps` is the default of the text model's norms. */
static void merged(struct config *c, struct encoder_spec *s, const struct block_keys *keys,
                   double eps)
{
    const bool bias = json_bool(c->file, "multimodal_projector_bias", false);
    const double cell = json_num(c->file, "spatial_merge_size", 2);
    eps = json_num(json_get(c->file, "text_config"), "rms_norm_eps", eps);
    pixtral(c, s, keys);
    if (!(cell >= 1 && cell <= 16))
        config_fail(c, "`spatial_merge_size` is out of bounds");
    else
        s->cell = (uint32_t)cell;
    s->project = (struct encoder_projection){
        .norm = true,
        .norm_spec = {NORM_RMS, (float)eps, 0},
        .norm_role = W_PROJECT_NORM,
        .join = s->cell * s->cell,
        .linear = {{W_PROJECT_JOINED, s->blocks.hidden, .channels_first = true},
                   {W_PROJECT_IN, s->width, bias},
                   {W_PROJECT_OUT, s->width, bias, true}},
        .n_linears = 3,
        .act = family_word_act(c, "projector_hidden_act", "gelu")};
    s->leaves_rest = true; /* LightOnOCR's pictures are multiples of a patch, not of a cell */
}

static void configure_mistral3(struct config *c, struct encoder_spec *s)
{
    merged(c, s, &sizes, 1e-6);
}

/* The two elements of a head that rotate together are neighbours in the published files. */
static void configure_large4(struct config *c, struct encoder_spec *s)
{
    merged(c, s, &(struct block_keys){BLOCK_KEYS, "silu", 2048, 30, 16, 6144, 1e-5, 14}, 1e-5);
    s->blocks.rope[0].interleaved = true;
}

/* LightOnOCR calls the tower and the projector otherwise, in files that say mistral3. */
#define TOWER(x)   "model.vision_tower." x "|model.vision_encoder." x
#define LAYER(x)   TOWER("transformer.layers.*." x)
#define PROJECT(x) "model.multi_modal_projector." x "|model.vision_projection." x
#define NAMES_PIXTRAL                                                                              \
    [W_PATCH] = TOWER("patch_conv"), [W_EMBED_NORM] = TOWER("ln_pre"),                             \
    [W_ATTN_NORM] = LAYER("attention_norm"), [W_MLP_NORM] = LAYER("ffn_norm"),                     \
    [W_Q] = LAYER("attention.q_proj"), [W_K] = LAYER("attention.k_proj"),                          \
    [W_V] = LAYER("attention.v_proj"), [W_O] = LAYER("attention.o_proj"),                          \
    [W_GATE] = LAYER("feed_forward.gate_proj"), [W_UP] = LAYER("feed_forward.up_proj"),            \
    [W_DOWN] = LAYER("feed_forward.down_proj"), [W_PROJECT_IN] = PROJECT("linear_1"),              \
    [W_PROJECT_OUT] = PROJECT("linear_2")

const struct encoder_family family_pixtral = {
    .types = (const char *const[]){"llava", NULL},
    .names = {.names = {NAMES_PIXTRAL}, .prefix = "model."},
    .configure = configure,
    .tower = "pixtral",
};
const struct encoder_family family_mistral3 = {
    .types = (const char *const[]){"mistral3", "lighton_ocr", NULL},
    .names = {.names = {NAMES_PIXTRAL, [W_PROJECT_NORM] = PROJECT("norm"),
                        [W_PROJECT_JOINED] = PROJECT("patch_merger.merging_layer")},
              .prefix = "model."},
    .configure = configure_mistral3,
};

#define LARGE4(x) "vision_encoder.transformer.layers.*." x
const struct encoder_family family_mistral_large4 = {
    .types = (const char *const[]){"mistral_large4", NULL},
    .names = {.names = {[W_PATCH] = "vision_encoder.patch_conv",
                        [W_EMBED_NORM] = "vision_encoder.ln_pre",
                        [W_ATTN_NORM] = LARGE4("attention_norm"),
                        [W_MLP_NORM] = LARGE4("ffn_norm"),
                        [W_Q] = LARGE4("attention.wq"),
                        [W_K] = LARGE4("attention.wk"),
                        [W_V] = LARGE4("attention.wv"),
                        [W_O] = LARGE4("attention.wo"),
                        [W_GATE] = LARGE4("feed_forward.w1"),
                        [W_UP] = LARGE4("feed_forward.w3"),
                        [W_DOWN] = LARGE4("feed_forward.w2"),
                        [W_PROJECT_NORM] = "pre_mm_projector_norm",
                        [W_PROJECT_JOINED] = "patch_merger.merging_layer",
                        [W_PROJECT_IN] = "vision_language_adapter.w_in",
                        [W_PROJECT_OUT] = "vision_language_adapter.w_out"}},
    .configure = configure_large4,
    .tower = "pixtral",
};
