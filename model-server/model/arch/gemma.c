/* Gemma 1: norms that scale by 1 + w, scaled embeddings, a tied head. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 256,
                                             .max_positions = 8192,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 10000,
                                             .tied = true});
    const bool newer = json_get(c->root, "hidden_activation") != NULL;
    s->act = config_act(c, newer ? "hidden_activation" : "hidden_act", "gelu_pytorch_tanh");
    if (!newer && s->act == ACT_GELU) /* of the first checkpoints, which meant the tanh form */
        s->act = ACT_GELU_TANH;
    s->norm.plus = 1;
    s->embed_scale = sqrtf((float)s->hidden);
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    config_mutual_pictures(c, s);
}

const struct arch arch_gemma = {
    .types = (const char *const[]){"gemma", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
