/* GPT (Radford et al., 2018): post-norm GPT-2 without a final norm. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.max_positions = 512, .ffn_times = 4, .tied = true});
    config_layer_norm(c, s, "layer_norm_epsilon", true);
    s->norms = NORM_SUM;
    s->no_final_norm = true;
    s->qkv = QKV_STACKED;
    s->mlp = MLP_PLAIN;
    const bool gelu = strcmp(config_str_or(c, "afn", "gelu"), "gelu") == 0;
    s->act = gelu ? ACT_GELU_TANH : config_act(c, "afn", "gelu"); /* the word meant the tanh form */
    s->transposed = s->learned_positions = true;
    s->bias.qkv = s->bias.o = s->bias.mlp = true;
}

const struct arch arch_openai_gpt = {
    .types = (const char *const[]){"openai-gpt", NULL},
    .prefix = "transformer.",
    .keys = config_keys_gpt2,
    .names = {[W_EMBED] = "transformer.tokens_embed",
              [W_POSITIONS] = "transformer.positions_embed",
              [W_HEAD] = "lm_head",
              [W_POST_ATTN_NORM] = "transformer.h.*.ln_1",
              [W_QKV] = "transformer.h.*.attn.c_attn",
              [W_O] = "transformer.h.*.attn.c_proj",
              [W_POST_MLP_NORM] = "transformer.h.*.ln_2",
              [W_UP] = "transformer.h.*.mlp.c_fc",
              [W_DOWN] = "transformer.h.*.mlp.c_proj"},
    .configure = configure,
};
