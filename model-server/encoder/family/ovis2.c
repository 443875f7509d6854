/* Ovis 2 (arXiv 2405.20797): AIMv2 (2411.14402), whose patches become probabilities over a table of
 * visual words; a feature is the mean of the table's rows. */
#include "common/json/json.h"
#include "model-server/encoder/family.h"
#include <string.h>

static void words(struct config *c, struct encoder_spec *s)
{
    const uint32_t rows = config_u32_or(c, "vocab_size", 16384, 2, 1u << 20);
    const uint32_t others = config_u32_or(c, "num_visual_indicator_tokens", 5, 1, 1024);
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
    words(c, s);
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
