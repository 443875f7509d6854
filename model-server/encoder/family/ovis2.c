/* Ovis 2 (arXiv 2405.20797): AIMv2 (2411.14402), whose patches become probabilities over a table of
 * visual words; a feature is the mean of the table's rows. Ovis 2.5 (2508.11737): the same behind
 * SigLIP 2 for images of any shape, with rotations; rows of the table are around an image. */
#include "common/json/json.h"
#include "model-server/encoder/family.h"
#include <string.h>

/* `rows` of the table, of which the last `others` are no words. */
static void words(struct config *c, struct encoder_spec *s, uint32_t rows, uint32_t others)
{
    if (others >= rows) {
        config_fail(c, "`num_visual_indicator_tokens` must be below `vocab_size`");
        return;
    }
    s->project =
        (struct encoder_projection){.join = s->cell * s->cell,
                                    .linear = {{W_PROJECT_IN, rows - others},
                                               {W_PROJECT_OUT, s->width, .table = rows,
                                                .norm_before = true, .softmax_before = true}},
                                    .n_linears = 2};
}

static void configure(struct config *c, struct encoder_spec *s)
{
    struct decoder_spec *b = &s->blocks;
    family_blocks(c, s, &(struct block_keys){BLOCK_KEYS, "silu", 1024, 24, 8, 2816, 1e-5});
    b->norm =
        (struct norm_spec){.kind = NORM_RMS, .eps = (float)config_num_or(c, "rms_norm_eps", 1e-5)};
    b->mlp = MLP_GATED;
    b->bias.norm = false;
    b->bias.qkv = b->bias.o = config_bool_or(c, "qkv_bias", false);
    b->bias.mlp = config_bool_or(c, "mlp_bias", false);
    s->patch_norm = true;
    family_positions(c, s, POSITIONS_TABLE, family_square(c, "image_size", 224));
    s->cell = config_u32_or(c, "hidden_stride", 1, 1, 16);
    if (s->side % s->cell)
        config_fail(c, "`hidden_stride` must divide %u patches", s->side);
    if (strcmp(json_str(c->root, "tokenize_function", "softmax"), "softmax") != 0)
        config_fail(c, "`tokenize_function` must be softmax");
    words(c, s, config_u32_or(c, "vocab_size", 16384, 2, 1u << 20),
          config_u32_or(c, "num_visual_indicator_tokens", 5, 1, 1024));
}

/* The words of the table that stand around images and videos. */
enum { AROUND = 4 };

static void configure_2_5(struct config *c, struct encoder_spec *s)
{
    const double rows = json_num(c->file, "visual_vocab_size", 65536);
    family_siglip_blocks(c, s, 1024, 24, 16, 4096);
    s->blocks.no_final_norm = true;
    family_positions(c, s, POSITIONS_CUBIC, family_square(c, "image_size", 512));
    family_grid_rope(c, s, ROPE_GRID);
    s->cell = config_u32_or(c, "hidden_stride", 2, 1, 16);
    config_only(c, "use_rope", true);
    config_only(c, "preserve_original_pe", true);
    if (json_get(c->root, "fullatt_block_indexes"))
        config_fail(c, "`fullatt_block_indexes` must be null");
    if (json_num(c->root, "num_patches", -1) > 0)
        config_fail(c, "`num_patches` must be -1");
    if (!(rows > AROUND && rows <= 1 << 20) || rows != (uint32_t)rows) {
        config_fail(c, "`visual_vocab_size` is out of bounds");
        return;
    }
    words(c, s, (uint32_t)rows, AROUND);
    s->image_begin = s->image_end = true;
    s->ends_row = (uint32_t)rows - AROUND;
}

#define TOWER    "model.vision_tower."
#define BODY     TOWER "transformer."
#define LAYER(x) BODY "encoder.layers.*." x
const struct encoder_family family_ovis2 = {
    .types = (const char *const[]){"ovis2", NULL},
    .names = {.names = {[W_PATCH] = BODY "embeddings.patch_embedding",
                        [W_PATCH_NORM] = BODY "embeddings.rms_norm",
                        [W_PATCH_POSITIONS] = BODY "embeddings.position_embedding",
                        [W_ATTN_NORM] = LAYER("rms_norm1"),
                        [W_MLP_NORM] = LAYER("rms_norm2"),
                        [W_Q] = LAYER("attention.q_proj"),
                        [W_K] = LAYER("attention.k_proj"),
                        [W_V] = LAYER("attention.v_proj"),
                        [W_O] = LAYER("attention.out_proj"),
                        [W_GATE] = LAYER("ffn.gate_proj"),
                        [W_UP] = LAYER("ffn.up_proj"),
                        [W_DOWN] = LAYER("ffn.down_proj"),
                        [W_FINAL_NORM] = BODY "rms_norm",
                        [W_PROJECT_IN] = TOWER "head_linear",
                        [W_MIDDLE_NORM] = TOWER "head_norm",
                        [W_PROJECT_OUT] = "model.visual_embeddings_table"},
              .prefix = "model."},
    .configure = configure,
};

#define NAVIT "visual_tokenizer.vit.vision_model."
const struct encoder_family family_ovis2_5 = {
    .types = (const char *const[]){"ovis2_5", NULL},
    .names = {.names = {NAMES_SIGLIP(NAVIT, NAVIT), [W_PROJECT_IN] = "visual_tokenizer.head.0",
                        [W_MIDDLE_NORM] = "visual_tokenizer.head.1", [W_PROJECT_OUT] = "vte"}},
    .configure = configure_2_5,
};
