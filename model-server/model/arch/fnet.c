/* FNet (arXiv 2105.03824): BERT with Fourier transforms in place of attention, and a projection
 * after the embedding norm. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    /* heads only bound the ranks */
    config_decoder(c, s,
                   &(struct config_defaults){
                       .max_positions = 512, .heads = 64, .kv_heads = 64, .head_dim = 16});
    config_sums(s, config_num_or(c, "layer_norm_eps", 1e-12));
    s->act = config_act(c, "hidden_act", "gelu_new");
    s->mlp = MLP_PLAIN;
    s->learned_positions = s->bias.mlp = true;
    s->token_types = config_u32_or(c, "type_vocab_size", 4, 1, 16);
    s->embed_dim = s->hidden;
    config_masked_head(c, s, s->act);
    config_only(c, "use_tpu_fourier_optimizations", false); /* texts of one length alone */
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].mixer = MIXER_FOURIER;
}

static const struct config_key keys[] = {
    {"num_attention_heads", NULL}, {"num_key_value_heads", NULL}, {"head_dim", NULL}, {NULL, NULL}};

const struct arch arch_fnet = {
    .types = (const char *const[]){"fnet", NULL},
    .prefix = "fnet.",
    .keys = keys,
    .names = {NAMES_BERT_TABLES("fnet."),
              NAMES_BERT_HEAD, [W_EMBED_PROJECT] = "fnet.embeddings.projection",
              [W_POST_ATTN_NORM] = "fnet.encoder.layer.*.fourier.output.LayerNorm",
              [W_UP] = "fnet.encoder.layer.*.intermediate.dense",
              [W_DOWN] = "fnet.encoder.layer.*.output.dense",
              [W_POST_MLP_NORM] = "fnet.encoder.layer.*.output.LayerNorm"},
    .configure = configure,
};
