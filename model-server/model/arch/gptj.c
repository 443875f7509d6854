/* GPT-J: parallel attention and MLP after one norm, interleaved RoPE on the first rotary_dim
 * elements of each head. */
#include "model-server/model/arch.h"

const struct arch arch_gptj = {
    .types = (const char *const[]){"gptj", NULL},
    .prefix = "transformer.",
    .keys = config_keys_gpt2,
    .names = {NAMES_GPTJ, [W_Q] = "transformer.h.*.attn.q_proj",
              [W_K] = "transformer.h.*.attn.k_proj", [W_V] = "transformer.h.*.attn.v_proj"},
    .configure = config_gptj,
};
