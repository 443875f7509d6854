/* GLM-4 9B and 32B: neighbouring elements of half of each head rotate, gate and up are one matrix;
 * the 0414 models (glm4) have norms around both branches. */
#include "common/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .max_positions = 131072, .norm_eps = 1.5625e-7, .rope_theta = 10000, .rotary = 0.5});
    s->act = config_act(c, "hidden_act", "silu");
    s->rope[0].interleaved = true;
    s->mlp = MLP_GATED_PACKED;
    s->bias.qkv = config_bool_or(c, "attention_bias", false);
    if (strcmp(json_str(c->root, "model_type", ""), "glm4") == 0)
        s->norms = NORM_AROUND;
}

const struct arch arch_glm4 = {
    .types = (const char *const[]){"glm4", "glm", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV,
              NAMES_LLAMA_O, [W_POST_ATTN_NORM] = "model.layers.*.post_self_attn_layernorm",
              [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              [W_POST_MLP_NORM] = "model.layers.*.post_mlp_layernorm",
              [W_GATE_UP] = "model.layers.*.mlp.gate_up_proj",
              [W_DOWN] = "model.layers.*.mlp.down_proj"},
    .configure = configure,
};
