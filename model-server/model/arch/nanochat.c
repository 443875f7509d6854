/* nanochat: norms without weights, also after the embedding and of q and k; RoPE with negated
 * angles; squared ReLU. https://github.com/karpathy/nanochat */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 2048, .norm_eps = 1e-6, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "relu2");
    s->mlp = MLP_PLAIN;
    s->norm.bare = s->embed_norm = true;
    s->qk_norm = QK_NORM_PLAIN;
    s->qk_norm_last = true; /* which undoes a stretched rotation's factor */
    s->rope[0].backwards = true;
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->logit_softcap = (float)config_softcap(c, "final_logit_softcapping", 15);
}

const struct arch arch_nanochat = {
    .types = (const char *const[]){"nanochat", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embed_tokens",
              [W_HEAD] = "lm_head",
              NAMES_LLAMA_QKV,
              NAMES_LLAMA_O,
              [W_UP] = "model.layers.*.mlp.fc1",
              [W_DOWN] = "model.layers.*.mlp.fc2"},
    .configure = configure,
};
