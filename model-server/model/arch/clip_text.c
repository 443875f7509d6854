/* The text model of CLIP (arXiv 2103.00020) and MetaCLIP 2 (2507.22062): GPT-2 with its own tensor
 * names, and a projection of the last token. The image model: encoder/family/clip.c. */
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

/* Of the class without a projection, as diffusion models have it. */
static const struct arch bare = {
    .prefix = "text_model.",
    .names = {NAMES_CLIP_TEXT},
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
    .names = {NAMES_CLIP_TEXT, [W_VECTOR] = "text_projection"},
    .configure = configure,
    .choose = choose,
};
