/* OPT (arXiv 2205.01068): learned positions with an offset of 2, ReLU; the 350M model is post-norm
 * and has an embedding narrower than the layers. */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 2048, .tied = true});
    const bool before = config_bool_or(c, "do_layer_norm_before", true);
    const uint32_t narrow = config_u32_or(c, "word_embed_proj_dim", s->hidden, 4, 1u << 22);
    const bool affine = config_bool_or(c, "layer_norm_elementwise_affine", true);
    config_layer_norm(c, s, "layer_norm_eps", affine);
    s->norm.bare = !affine;
    s->act = config_act(c, "activation_function", "relu");
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = s->bias.mlp = config_bool_or(c, "enable_bias", true);
    s->learned_positions = true;
    s->position_offset = 2;
    s->norms = before ? NORM_BEFORE : NORM_SUM;
    s->no_final_norm = !before || config_bool_or(c, "_remove_final_layer_norm", false);
    s->narrow_head = narrow != s->hidden;
    s->embed_dim = s->narrow_head ? narrow : 0;
    if (narrow > s->hidden || narrow % 4)
        config_fail(c, "`word_embed_proj_dim` must be a multiple of 4 up to `hidden_size`");
}

static const struct config_key keys[] = {
    {"intermediate_size", "ffn_dim", true}, {"num_key_value_heads", NULL}, {NULL, NULL}};

const struct arch arch_opt = {
    .types = (const char *const[]){"opt", NULL},
    .prefix = "model.",
    .keys = keys,
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
