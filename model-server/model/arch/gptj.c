/* GPT-J: both branches behind one norm, neighbouring elements of the first rotary_dim rotate. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 2048, .ffn_times = 4});
    config_layer_norm(c, s, "layer_norm_epsilon", true);
    s->rope[0].dim = config_u32_or(c, "rotary_dim", s->head_dim, 2, s->head_dim);
    s->rope[0].interleaved = true;
    if (s->rope[0].dim % 2)
        config_fail(c, "`rotary_dim` must be even");
    config_rope(c, s, 10000);
    s->act = config_act(c, "activation_function", "gelu_new");
    s->mlp = MLP_PLAIN;
    s->parallel = s->shared_norm = true;
    s->bias.mlp = s->bias.head = true;
}

const struct arch arch_gptj = {
    .types = (const char *const[]){"gptj", NULL},
    .prefix = "transformer.",
    .keys = config_keys_gpt2,
    .names = {[W_EMBED] = "transformer.wte",
              [W_FINAL_NORM] = "transformer.ln_f",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "transformer.h.*.ln_1",
              [W_Q] = "transformer.h.*.attn.q_proj",
              [W_K] = "transformer.h.*.attn.k_proj",
              [W_V] = "transformer.h.*.attn.v_proj",
              [W_O] = "transformer.h.*.attn.out_proj",
              [W_UP] = "transformer.h.*.mlp.fc_in",
              [W_DOWN] = "transformer.h.*.mlp.fc_out"},
    .configure = configure,
};
