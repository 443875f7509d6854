/* Muse Glimmer (Meta), the text model: Gemma 2's norms before and after each sublayer, a norm after
 * the embedding and per-head QK norm without weights; sliding windows and RoPE in three of four
 * layers, neither in the others; an output gate on attention; scaled, soft-capped logits. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

/* Every fourth layer, counted from the last one, has no window. */
static bool has_window(struct config *c, uint32_t layer)
{
    const double n = json_num(c->root, "num_hidden_layers", 0);
    return ((uint32_t)n - 1 - layer) % 4 != 0;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .head_dim = 128, .max_positions = 131072, .norm_eps = 1e-5, .rope_theta = 500000});
    s->act = config_act(c, "hidden_activation", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->norm.plus = 1;
    s->norm.post_eps = (float)config_num_or(c, "post_norm_eps", 1e-8);
    s->norm.plain_ends = s->embed_norm = true;
    s->norms = NORM_AROUND;
    s->qk_norm = QK_NORM_PLAIN;
    s->qk_norm_still = true;
    s->attn_gate = ATTN_GATE_APART;
    config_windows(c, s, 2048, has_window);
    config_layer_thetas(c, s, has_window);
    const float scale = (float)config_num_or(c, "qk_scale_factor", 3.87) * spec_head_scale(s);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = scale;
    s->logit_scale = (float)config_num_or(c, "output_multiplier", 0.19611613513818404);
    s->logit_softcap = (float)config_softcap(c, "final_logit_softcapping", 20);
}

const struct arch arch_muse_glimmer = {
    .types = (const char *const[]){"muse_glimmer_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_GATED_MLP,
              NAMES_NORMS_AROUND, [W_ATTN_GATE] = "model.layers.*.self_attn.gate_proj"},
    .configure = configure,
};
