/* OPT (arXiv 2205.01068): learned positions that begin at 2, ReLU; that of 350M has norms of sums
 * and a narrow embedding. */
#include "model-server/model/arch.h"

static void shape(struct config *c, struct decoder_spec *s)
{
    s->hidden = config_dim(c, "hidden_size");
    s->n_layers = config_layers(c, "num_hidden_layers");
    s->n_heads = s->n_kv_heads = config_heads(c, "num_attention_heads");
    s->head_dim = config_head_dim(c, 0, s->hidden, s->n_heads);
    s->ffn = config_dim(c, "ffn_dim");
    s->vocab = config_vocab(c, "vocab_size");
    s->max_positions = config_u32_or(c, "max_position_embeddings", 2048, 1, 1u << 24);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = spec_head_scale(s);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    shape(c, s);
    config_only(c, "layer_norm_elementwise_affine", true);
    const bool before = config_bool_or(c, "do_layer_norm_before", true);
    const uint32_t narrow = config_u32_or(c, "word_embed_proj_dim", s->hidden, 4, 1u << 22);
    config_layer_norm(c, s, "layer_norm_eps", true);
    s->act = config_act(c, "activation_function", "relu");
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = s->bias.mlp = config_bool_or(c, "enable_bias", true);
    s->learned_positions = true;
    s->position_offset = 2;
    s->tied = config_bool_or(c, "tie_word_embeddings", true);
    s->norms = before ? NORM_BEFORE : NORM_SUM;
    s->no_final_norm = !before || config_bool_or(c, "_remove_final_layer_norm", false);
    s->narrow_head = narrow != s->hidden;
    s->embed_dim = s->narrow_head ? narrow : 0;
    if (narrow > s->hidden || narrow % 4)
        config_fail(c, "`word_embed_proj_dim` must be a multiple of 4 up to `hidden_size`");
    s->embed_scale = s->residual_scale = s->logit_scale = 1;
}

const struct arch arch_opt = {
    .types = (const char *const[]){"opt", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.decoder.embed_tokens",
              [W_POSITIONS] = "model.decoder.embed_positions",
              [W_FINAL_NORM] = "model.decoder.final_layer_norm",
              [W_HEAD] = "lm_head",
              NAMES_FAIRSEQ("model.decoder.layers.*."),
              [W_EMBED_PROJECT] = "model.decoder.project_in",
              [W_HEAD_PROJECT] = "model.decoder.project_out",
              [W_POST_ATTN_NORM] = "model.decoder.layers.*.self_attn_layer_norm",
              [W_POST_MLP_NORM] = "model.decoder.layers.*.final_layer_norm"},
    .configure = configure,
};
