/* GPT-2: learned positions, layer norms, biases everywhere, linear layers stored [in, out]. */
#include "model-server/model/arch.h"

static void shape(struct config *c, struct decoder_spec *s)
{
    s->hidden = config_dim(c, "n_embd");
    s->n_layers = config_layers(c, "n_layer");
    s->n_heads = s->n_kv_heads = config_heads(c, "n_head");
    s->head_dim = config_head_dim(c, 0, s->hidden, s->n_heads);
    s->ffn = config_u32_or(c, "n_inner", 4 * s->hidden, 1, 1u << 24);
    s->vocab = config_vocab(c, "vocab_size");
    s->max_positions = config_u32_or(c, "n_positions", 1024, 1, 1u << 24);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    bool scaled = config_bool_or(c, "scale_attn_weights", true);
    bool by_layer = config_bool_or(c, "scale_attn_by_inverse_layer_idx", false);
    config_only(c, "add_cross_attention", false);
    shape(c, s);
    s->norm = (struct norm_spec){.kind = NORM_LAYER,
                                 .eps = (float)config_num_or(c, "layer_norm_epsilon", 1e-5)};
    s->qkv = QKV_STACKED;
    s->mlp = MLP_PLAIN;
    s->act = config_act(c, "activation_function", "gelu_new");
    s->transposed = true;
    s->bias.norm = s->bias.qkv = s->bias.o = s->bias.mlp = true;
    s->learned_positions = true;
    s->tied = config_bool_or(c, "tie_word_embeddings", true);
    s->embed_scale = s->residual_scale = s->logit_scale = 1;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = (scaled ? spec_head_scale(s) : 1) / (by_layer ? (float)i + 1 : 1);
}

const struct arch arch_gpt2 = {
    .types = (const char *const[]){"gpt2", NULL},
    .prefix = "transformer.",
    .names = {[W_EMBED] = "transformer.wte",
              [W_POSITIONS] = "transformer.wpe",
              [W_FINAL_NORM] = "transformer.ln_f",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "transformer.h.*.ln_1",
              [W_QKV] = "transformer.h.*.attn.c_attn",
              [W_O] = "transformer.h.*.attn.c_proj",
              [W_MLP_NORM] = "transformer.h.*.ln_2",
              [W_UP] = "transformer.h.*.mlp.c_fc",
              [W_DOWN] = "transformer.h.*.mlp.c_proj"},
    .configure = configure,
};
