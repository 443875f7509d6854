/* CodeGen (arXiv 2203.13474): GPT-J with q, v and k of a quarter of the heads side by side. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 2048, .ffn_times = 4});
    config_layer_norm(c, s, "layer_norm_epsilon", true);
    s->rope[0].dim = config_u32_or(c, "rotary_dim", s->head_dim, 2, s->head_dim);
    s->rope[0].interleaved = true;
    if (s->rope[0].dim % 2)
        config_fail(c, "`rotary_dim` must be even");
    if (s->n_heads % 4)
        config_fail(c, "`n_head` must be a multiple of 4");
    config_rope(c, s, 10000);
    s->act = config_act(c, "activation_function", "gelu_new");
    s->qkv = QKV_QUARTERS;
    s->mlp = MLP_PLAIN;
    s->parallel = s->shared_norm = true;
    s->bias.mlp = s->bias.head = true;
}

const struct arch arch_codegen = {
    .types = (const char *const[]){"codegen", NULL},
    .prefix = "transformer.",
    .keys = config_keys_gpt2,
    .names = {[W_EMBED] = "transformer.wte",
              [W_FINAL_NORM] = "transformer.ln_f",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "transformer.h.*.ln_1",
              [W_QKV] = "transformer.h.*.attn.qkv_proj",
              [W_O] = "transformer.h.*.attn.out_proj",
              [W_UP] = "transformer.h.*.mlp.fc_in",
              [W_DOWN] = "transformer.h.*.mlp.fc_out"},
    .configure = configure,
};
