/* Pure Mamba-2 (arXiv 2405.21060; Codestral Mamba): no attention, no feed-forward, no position
 * limit. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    s->hidden = s->ffn = config_dim(c, "hidden_size");
    s->n_layers = config_layers(c, "num_hidden_layers");
    s->vocab = config_vocab(c, "vocab_size");
    s->tied = config_bool_or(c, "tie_word_embeddings", false);
    s->norm = (struct norm_spec){.kind = NORM_RMS,
                                 .eps = (float)config_num_or(c, "layer_norm_epsilon", 1e-5)};
    s->embed_scale = s->residual_scale = s->logit_scale = 1;
    config_act(c, "hidden_act", "silu");
    config_only(c, "rms_norm", true);
    config_mamba2(c, s,
                  &(struct mamba_keys){"num_heads", "head_dim", "n_groups", "state_size",
                                       "conv_kernel", "use_conv_bias", "use_bias"});
    s->n_heads = s->n_kv_heads = s->recur.heads;
    s->head_dim = s->recur.value_dim;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i] = (struct layer_spec){.mixer = MIXER_MAMBA2, .no_ffn = true};
}

const struct arch arch_mamba2 = {
    .types = (const char *const[]){"mamba2", NULL},
    .prefix = "backbone.",
    .names =
        {NAMES_MAMBA2("backbone.layers.*.mixer."),
         [W_EMBED] = "backbone.embedding|backbone.embeddings", [W_FINAL_NORM] = "backbone.norm_f",
         [W_HEAD] = "lm_head", [W_ATTN_NORM] = "backbone.layers.*.norm"},
    .configure = configure,
};
