/* Apertus (arXiv 2509.14233): Llama with per-head QK norm and an ungated MLP with xIELU. Apertus
 * 1.5 also embeds image and audio tokens. It never generates them, so that its head may lack their
 * rows. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* The head has rows for the first `output_vocab_size` ids. A request has no other ids. */
static void head(struct config *c, struct decoder_spec *s)
{
    const uint32_t rows = config_u32_or(c, "output_vocab_size", s->vocab, 1, s->vocab);
    if (rows == s->vocab)
        return;
    if (s->tied)
        config_fail(c, "`output_vocab_size` contradicts `tie_word_embeddings`");
    s->more_embeds = s->vocab - rows;
    s->vocab = rows;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){
                       .max_positions = 65536, .norm_eps = 1e-5, .rope_theta = 12000000});
    s->xielu = strcmp(config_str_or(c, "hidden_act", "xielu"), "xielu") == 0;
    if (!s->xielu)
        s->act = config_act(c, "hidden_act", "relu2");
    s->mlp = MLP_PLAIN;
    s->qk_norm = config_bool_or(c, "qk_norm", true) ? QK_NORM_HEAD : QK_NORM_NONE;
    config_only(c, "post_norm", false);
    config_only(c, "mlp_bias", false);
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    head(c, s);
}

const struct arch arch_apertus = {
    .types = (const char *const[]){"apertus", "apertus1p5_text", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embed_tokens",
              [W_FINAL_NORM] = "model.norm",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "model.layers.*.attention_layernorm",
              NAMES_LLAMA_QKV,
              NAMES_LLAMA_O,
              NAMES_QK_NORM,
              [W_MLP_NORM] = "model.layers.*.feedforward_layernorm",
              [W_UP] = "model.layers.*.mlp.up_proj",
              [W_DOWN] = "model.layers.*.mlp.down_proj",
              [W_XIELU_ABOVE] = "model.layers.*.mlp.act_fn.alpha_p",
              [W_XIELU_BELOW] = "model.layers.*.mlp.act_fn.alpha_n"},
    .configure = configure,
};
