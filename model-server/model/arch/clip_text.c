/* The text model of CLIP (arXiv 2103.00020) and MetaCLIP 2 (2507.22062): GPT-2 under names of its
 * own, with a matrix that makes vectors of the last token. Its images: encoder/family/clip.c. */
#include "common/text.h"
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){
                       .max_positions = 77, .layers = 12, .ffn = 2048, .heads = 8, .vocab = 49408});
    config_layer_norm(c, s, "layer_norm_eps", true);
    s->act = config_act(c, "hidden_act", "quick_gelu");
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = s->bias.mlp = true;
    s->learned_positions = s->no_head = true;
}

#define LAYER "text_model.encoder.layers.*."
#define NAMES_CLIP                                                                                 \
    [W_EMBED] = "text_model.embeddings.token_embedding",                                           \
    [W_POSITIONS] = "text_model.embeddings.position_embedding",                                    \
    [W_FINAL_NORM] = "text_model.final_layer_norm", [W_ATTN_NORM] = LAYER "layer_norm1",           \
    [W_Q] = LAYER "self_attn.q_proj", [W_K] = LAYER "self_attn.k_proj",                            \
    [W_V] = LAYER "self_attn.v_proj", [W_O] = LAYER "self_attn.out_proj",                          \
    [W_MLP_NORM] = LAYER "layer_norm2", [W_UP] = LAYER "mlp.fc1", [W_DOWN] = LAYER "mlp.fc2"

/* Of the class without a projection, as diffusion models have it. */
static const struct arch bare = {
    .prefix = "text_model.",
    .names = {NAMES_CLIP},
    .configure = configure,
};

extern const struct arch arch_clip_text;
static const struct arch *choose(struct config *c)
{
    return ends_with(config_class(c, ""), "TextModel") ? &bare : &arch_clip_text;
}

const struct arch arch_clip_text = {
    .types = (const char *const[]){"clip_text_model", "metaclip_2_text_model", NULL},
    .prefix = "text_model.",
    .names = {NAMES_CLIP, [W_VECTOR] = "text_projection"},
    .configure = configure,
    .choose = choose,
};
