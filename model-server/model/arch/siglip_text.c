/* The text model of SigLIP (arXiv 2303.15343) and SigLIP 2 (2502.14786): CLIP's, whose tokens see
 * all others, with a matrix that makes vectors of the last one, of texts that are padded to all
 * positions (common/sentence.h). Its images: encoder/family/siglip_head.c. */
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

#define LAYER "text_model.encoder.layers.*."
const struct arch arch_siglip_text = {
    .types = (const char *const[]){"siglip_text_model", "siglip2_text_model", NULL},
    .prefix = "text_model.",
    .names = {[W_EMBED] = "text_model.embeddings.token_embedding",
              [W_POSITIONS] = "text_model.embeddings.position_embedding",
              [W_FINAL_NORM] = "text_model.final_layer_norm",
              [W_ATTN_NORM] = LAYER "layer_norm1",
              [W_Q] = LAYER "self_attn.q_proj",
              [W_K] = LAYER "self_attn.k_proj",
              [W_V] = LAYER "self_attn.v_proj",
              [W_O] = LAYER "self_attn.out_proj",
              [W_MLP_NORM] = LAYER "layer_norm2",
              [W_UP] = LAYER "mlp.fc1",
              [W_DOWN] = LAYER "mlp.fc2",
              [W_VECTOR] = "text_model.head"},
    .configure = configure,
};
