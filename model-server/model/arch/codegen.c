/* CodeGen (arXiv 2203.13474): GPT-J with q, v and k in one matrix, interleaved by quarters of the
 * heads. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_gptj(c, s);
    s->qkv = QKV_QUARTERS;
    if (s->n_heads % 4)
        config_fail(c, "`n_head` must be a multiple of 4");
}

const struct arch arch_codegen = {
    .types = (const char *const[]){"codegen", NULL},
    .prefix = "transformer.",
    .keys = config_keys_gpt2,
    .names = {NAMES_GPTJ, [W_QKV] = "transformer.h.*.attn.qkv_proj"},
    .configure = configure,
};
