/* XLNet (arXiv 1906.08237), an encoder: BERT with relative positions and relative token types only.
 * Texts are limited to 512 tokens, as in training, although the model has no limit. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

enum { TEXT_MOST = 512, TYPES = 4 }; /* types: of both texts, of the last token, of padding */

/* Of classifiers. The row that makes the summary: text_head_load.c. */
static void summary(struct config *c)
{
    const char *of = config_str_or(c, "summary_type", "last");
    if (strcmp(of, "last") != 0 && strcmp(of, "first") != 0 && strcmp(of, "mean") != 0 &&
        strcmp(of, "cls_index") != 0)
        config_fail(c, "`summary_type`: `%.40s` is not supported", of);
    config_only(c, "summary_use_proj", true);
    config_only(c, "summary_proj_to_labels", false);
    if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(c->root, "summary_activation")))
        config_fail(c, "`summary_activation`: null is not supported");
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const double clamp = config_num_or(c, "clamp_len", -1);
    config_decoder(c, s, &(struct config_defaults){.max_positions = TEXT_MOST});
    config_sums(s, config_num_or(c, "layer_norm_eps", 1e-12));
    config_only_word(c, "attn_type", "bi");
    config_only(c, "bi_data", false);
    if (config_u32_or(c, "d_head", s->head_dim, 1, 1u << 16) != s->head_dim)
        config_fail(c, "`d_head`: only `d_model` / `n_head` is supported");
    if (s->hidden % 2)
        config_fail(c, "`d_model` must be even");
    summary(c);
    s->max_positions = TEXT_MOST;
    s->relative.reach = clamp >= 1 && clamp < TEXT_MOST - 1 ? (uint32_t)clamp : TEXT_MOST - 1;
    if (clamp > 0 && clamp < 1)
        config_fail(c, "`clamp_len` must be an integer");
    s->embed_norm = false;
    s->token_types = TYPES;
    s->act = config_act(c, "hidden_act", "gelu");
    s->mlp = MLP_PLAIN;
    s->bias.mlp = true;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].mixer = MIXER_RELATIVE;
}

static const struct config_key keys[] = {
    {"hidden_size", "d_model"},        {"num_hidden_layers", "n_layer"},
    {"num_attention_heads", "n_head"}, {"num_key_value_heads", NULL},
    {"intermediate_size", "d_inner"},  {"hidden_act", "ff_activation"},
    {"max_position_embeddings", NULL}, {NULL, NULL}};

#define LAYER "transformer.layer.*."
const struct arch arch_xlnet = {
    .types = (const char *const[]){"xlnet", NULL},
    .prefix = "transformer.",
    .keys = keys,
    .names = {[W_EMBED] = "transformer.word_embedding",
              [W_Q] = LAYER "rel_attn.q",
              [W_K] = LAYER "rel_attn.k",
              [W_V] = LAYER "rel_attn.v",
              [W_O] = LAYER "rel_attn.o",
              [W_RELATIVE] = LAYER "rel_attn.r",
              [W_RELATIVE_KEY_BIAS] = LAYER "rel_attn.r_w_bias",
              [W_RELATIVE_BIAS] = LAYER "rel_attn.r_r_bias",
              [W_RELATIVE_TYPE_BIAS] = LAYER "rel_attn.r_s_bias",
              [W_RELATIVE_TYPES] = LAYER "rel_attn.seg_embed",
              [W_POST_ATTN_NORM] = LAYER "rel_attn.layer_norm",
              [W_UP] = LAYER "ff.layer_1",
              [W_DOWN] = LAYER "ff.layer_2",
              [W_POST_MLP_NORM] = LAYER "ff.layer_norm"},
    .configure = configure,
};
