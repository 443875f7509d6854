/* Arcee AFM, and the text model of Cosmos 3 Edge: Llama whose MLP has no gate and the square of
 * ReLU. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static void configure(struct config *c, struct decoder_spec *s)
{
    const bool edge = strcmp(json_str(c->root, "model_type", ""), "cosmos3_edge_text") == 0;
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = edge ? 128 : 0,
                                             .max_positions = edge ? 131072 : 4096,
                                             .norm_eps = 1e-5,
                                             .rope_theta = edge ? 1e8 : 10000});
    s->act = config_act(c, "hidden_act", "relu2");
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
}

#define ATTENTION "model.layers.*.self_attn."
const struct arch arch_arcee = {
    .types = (const char *const[]){"arcee", "cosmos3_edge_text", NULL},
    .prefix = "model.",
    .names =
        {NAMES_LLAMA_OUTER, [W_Q] = ATTENTION "q_proj|" ATTENTION "to_q",
         [W_K] = ATTENTION "k_proj|" ATTENTION "to_k", [W_V] = ATTENTION "v_proj|" ATTENTION "to_v",
         [W_O] = ATTENTION "o_proj|" ATTENTION "to_out",
         [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
         [W_UP] = "model.layers.*.mlp.up_proj|model.layers.*.mlp.fc1",
         [W_DOWN] = "model.layers.*.mlp.down_proj|model.layers.*.mlp.fc2"},
    .configure = configure,
};
