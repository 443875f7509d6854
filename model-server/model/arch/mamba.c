/* Mamba (arXiv 2312.00752) and Falcon Mamba (2410.05355), which normalises dt, B and C: no
 * attention, no feed-forward, no position limit. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static void configure(struct config *c, struct decoder_spec *s)
{
    s->hidden = s->ffn = config_dim(c, "hidden_size");
    s->n_layers = config_layers(c, "num_hidden_layers");
    s->vocab = config_vocab(c, "vocab_size");
    s->tied = config_bool_or(c, "tie_word_embeddings", true);
    s->norm = (struct norm_spec){.kind = NORM_RMS,
                                 .eps = (float)config_num_or(c, "layer_norm_epsilon", 1e-5)};
    s->embed_scale = s->residual_scale = s->logit_scale = 1;
    const double expanded = config_num_or(c, "expand", 2) * s->hidden;
    config_mamba(c, s,
                 &(struct mamba_keys){.state = "state_size",
                                      .conv = "conv_kernel",
                                      .conv_bias = "use_conv_bias",
                                      .proj_bias = "use_bias"},
                 "time_step_rank", config_num_or(c, "intermediate_size", expanded));
    if (strcmp(json_str(c->root, "model_type", ""), "falcon_mamba") == 0) {
        s->recur.scan_norm = SCAN_NORM_BARE;
        s->recur.scan_eps = (float)config_num_or(c, "mixer_rms_eps", 1e-6);
    }
    s->n_heads = s->n_kv_heads = s->recur.heads;
    s->head_dim = s->recur.value_dim;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i] = (struct layer_spec){.mixer = MIXER_MAMBA, .no_ffn = true};
}

const struct arch arch_mamba = {
    .types = (const char *const[]){"mamba", "falcon_mamba", NULL},
    .prefix = "backbone.",
    .names =
        {NAMES_MAMBA("backbone.layers.*.mixer."),
         [W_EMBED] = "backbone.embedding|backbone.embeddings", [W_FINAL_NORM] = "backbone.norm_f",
         [W_HEAD] = "lm_head", [W_ATTN_NORM] = "backbone.layers.*.norm"},
    .configure = configure,
};
