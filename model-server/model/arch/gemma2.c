/* Gemma 2 (arXiv 2408.00118): norms before and after each sublayer, soft-capped scores and logits,
 * sliding-window attention in every other layer; VaultGemma (arXiv 2510.15001): without the norms
 * after the sublayers. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static bool even(struct config *c, uint32_t layer) { return (void)c, layer % 2 == 0; }

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 256,
                                             .max_positions = 8192,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 10000,
                                             .tied = true});
    config_gemma(c, s, 30);
    s->norm.plus = 1;
    if (strcmp(json_str(c->root, "model_type", ""), "vaultgemma") == 0)
        s->norms = NORM_BEFORE;
    s->attn_softcap = (float)config_softcap(c, "attn_logit_softcapping", 50);
    config_attn_scale(c, s, 256);
    config_windows(c, s, 4096, even);
    config_mutual_pictures(c, s);
}

const struct arch arch_gemma2 = {
    .types = (const char *const[]){"gemma2", "vaultgemma", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_NORMS_AROUND,
              NAMES_GATED_MLP},
    .configure = configure,
};
