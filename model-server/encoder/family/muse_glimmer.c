/* The tower of Muse Glimmer (Meta): the Perception Encoder's blocks (arXiv 2504.13181), with
 * rotations by column and row, in most of which patches attend to a window; an adapter and a
 * projection of cells, whose results have norm 1 as the embeddings of texts have. */
#include "common/json/json.h"
#include "model-server/encoder/family.h"
#include <string.h>

/* Layers with windows: all but every fourth and the last, unless the file lists them. Windows are
 * as wide as the grid of learned positions, in patches. */
static void windows(struct config *c, struct encoder_spec *s)
{
    const uint32_t n = s->blocks.n_layers;
    const cJSON *list = config_layer_list(c, &s->blocks, "layer_types");
    if (s->side % s->cell)
        config_fail(c, "`pos_emb_height` must be a multiple of `merge_size`");
    s->windows = s->side / s->cell;
    for (uint32_t i = 0; i < n; i++, list = list ? list->next : NULL) {
        const char *word = list && cJSON_IsString(list) ? list->valuestring : "";
        bool full = (i + 1) % 4 == 0 || i + 1 == n;
        if (list)
            full = strcmp(word, "full_attention") == 0;
        if (list && !full && strcmp(word, "window_attention") != 0)
            config_fail(c, "layers of type `%.40s` are not supported", word);
        s->blocks.layers[i].mutual = full ? MUTUAL_NONE : MUTUAL_ALONE;
    }
}

/* Two matrices and a third one, each of the first two followed by the activation. */
static void project(struct config *c, struct encoder_spec *s)
{
    const double rows = json_num(c->file, "projector_hidden_size", 4096);
    const uint32_t middle = rows >= 1 && rows <= 1 << 20 ? (uint32_t)rows : 0;
    if (!middle)
        config_fail(c, "`projector_hidden_size` is out of bounds");
    if (json_num(c->file, "out_hidden_size", 6144) != s->blocks.hidden * s->cell * s->cell)
        config_fail(c, "`out_hidden_size` must be that of %u x %u patches", s->cell, s->cell);
    s->project = (struct encoder_projection){
        .join = s->cell * s->cell,
        .linear = {{W_PROJECT_JOINED, middle ? middle : 1, .channels_first = true},
                   {W_PROJECT_IN, middle ? middle : 1, .act_before = true},
                   {W_PROJECT_OUT, s->width, .act_before = true}},
        .n_linears = 3,
        .act = family_word_act(c, "projector_hidden_act", "gelu"),
        .after_eps = (float)json_num(json_get(c->file, "text_config"), "rms_norm_eps", 1e-5)};
}

static void configure(struct config *c, struct encoder_spec *s)
{
    family_blocks(c, s, &(struct block_keys){BLOCK_KEYS, "gelu", 1536, 50, 16, 8960, 1e-5, 14});
    if (s->blocks.norm.eps != 1e-5F) /* norms of the blocks have it, those around them the file's */
        config_fail(c, "`layer_norm_eps` must be 1e-5");
    s->blocks.embed_norm = true;
    s->patch_bias = false;
    s->patch_frames_first = true;
    s->frames = config_u32_or(c, "patch_temporal", 2, 1, 8);
    s->cell = config_u32_or(c, "merge_size", 2, 1, 8);
    s->positions = POSITIONS_TRANSPOSED;
    s->side = config_u32_or(c, "pos_emb_height", 32, 1, 1u << 12);
    if (config_u32_or(c, "pos_emb_width", 32, 1, 1u << 12) != s->side)
        config_fail(c, "`pos_emb_width` must be `pos_emb_height`");
    family_grid_rope(c, s, ROPE_GRID);
    family_columns_first(s);
    s->first_turn = 1;
    windows(c, s);
    project(c, s);
}

#define TOWER    "model.vision_tower."
#define LAYER(x) TOWER "layers.*." x
const struct encoder_family family_muse_glimmer = {
    .types = (const char *const[]){"muse_glimmer", "muse_spark", NULL},
    .names = {.names = {[W_PATCH] = TOWER "patch_embedder.patch_embedding",
                        [W_PATCH_POSITIONS] = TOWER "patch_embedder.position_embedding_table",
                        [W_EMBED_NORM] = TOWER "ln_pre",
                        [W_FINAL_NORM] = TOWER "ln_post",
                        [W_ATTN_NORM] = LAYER("norm1"),
                        [W_MLP_NORM] = LAYER("norm2"),
                        [W_Q] = LAYER("attn.q_proj"),
                        [W_K] = LAYER("attn.k_proj"),
                        [W_V] = LAYER("attn.v_proj"),
                        [W_O] = LAYER("attn.proj"),
                        [W_UP] = LAYER("mlp.fc1"),
                        [W_DOWN] = LAYER("mlp.fc2"),
                        [W_PROJECT_JOINED] = "model.vision_adapter.fc1",
                        [W_PROJECT_IN] = "model.vision_adapter.fc2",
                        [W_PROJECT_OUT] = "model.vision_projection"},
              .prefix = "model."},
    .configure = configure,
};
