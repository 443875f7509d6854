/* XLM (arXiv 1901.07291) and FlauBERT (1912.05372), encoders: BERT with their own tensor names.
 * Language embeddings are not used, since no language is given. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 512, .ffn_times = 4});
    config_sums(s, config_num_or(c, "layer_norm_eps", 1e-12));
    config_only(c, "causal", false);
    config_only(c, "is_encoder", true);
    if (config_bool_or(c, "pre_norm", false)) /* FlauBERT large; no norm follows the last layer */
        s->norms = NORM_BEFORE;
    s->mlp = MLP_PLAIN;
    s->act = config_bool_or(c, "gelu_activation", true) ? ACT_GELU : ACT_RELU;
    s->learned_positions = s->bias.qkv = s->bias.o = s->bias.mlp = true; /* sines are stored too */
    /* of classifiers */
    config_only_word(c, "summary_type", "first");
    if (json_get(c->root, "summary_activation"))
        config_fail(c, "`summary_activation` is not supported");
}

static const struct config_key keys[] = {{"hidden_size", "emb_dim"},
                                         {"num_hidden_layers", "n_layers"},
                                         {"num_attention_heads", "n_heads"},
                                         {"num_key_value_heads", NULL},
                                         {"intermediate_size", NULL},
                                         {"vocab_size", "n_words"},
                                         {NULL, NULL}};

#define NORM_1 "transformer.layer_norm1.*"
#define NORM_2 "transformer.layer_norm2.*"
const struct arch arch_xlm = {
    .types = (const char *const[]){"xlm", "flaubert", NULL},
    .prefix = "transformer.",
    .keys = keys,
    .names = {[W_EMBED] = "transformer.embeddings",
              [W_POSITIONS] = "transformer.position_embeddings",
              [W_EMBED_NORM] = "transformer.layer_norm_emb",
              [W_Q] = "transformer.attentions.*.q_lin",
              [W_K] = "transformer.attentions.*.k_lin",
              [W_V] = "transformer.attentions.*.v_lin",
              [W_O] = "transformer.attentions.*.out_lin",
              [W_UP] = "transformer.ffns.*.lin1",
              [W_DOWN] = "transformer.ffns.*.lin2",
              [W_ATTN_NORM] = NORM_1, /* before the branches, or of the sums */
              [W_POST_ATTN_NORM] = NORM_1,
              [W_MLP_NORM] = NORM_2,
              [W_POST_MLP_NORM] = NORM_2},
    .configure = configure,
};
