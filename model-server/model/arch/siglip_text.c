/* The text model of SigLIP (arXiv 2303.15343) and SigLIP 2 (2502.14786): CLIP's with bidirectional
 * attention and a projection of the last token; texts are padded to all positions
 * (common/model/sentence.h). The image model: encoder/family/siglip_head.c. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.hidden = 768,
                                             .max_positions = 64,
                                             .layers = 12,
                                             .ffn = 3072,
                                             .heads = 12,
                                             .vocab = 32000});
    s->norm = (struct norm_spec){.kind = NORM_LAYER,
                                 .eps = (float)config_num_or(c, "layer_norm_eps", 1e-6)};
    s->act = config_act(c, "hidden_act", "gelu_pytorch_tanh");
    s->mlp = MLP_PLAIN;
    s->bias.norm = s->bias.qkv = s->bias.o = s->bias.mlp = true;
    s->learned_positions = s->both_ways = s->no_head = true;
}

const struct arch arch_siglip_text = {
    .types = (const char *const[]){"siglip_text_model", "siglip2_text_model", NULL},
    .prefix = "text_model.",
    .names = {NAMES_CLIP_TEXT, [W_VECTOR] = "text_model.head"},
    .configure = configure,
};
