/* GTE 1.5 and GTE multilingual (arXiv 2407.19669): BERT with RoPE and a gated MLP. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <math.h>
#include <string.h>

/* The repository's own "ntk": the base grows by the factor, and each angle falls by its root. */
static void rope(struct config *c, struct decoder_spec *s)
{
    const cJSON *scaling = json_get(c->root, "rope_scaling");
    const double factor = json_num(scaling, "factor", 0);
    s->rope[0].dim = s->head_dim;
    if (c->rope_scaling || strcmp(json_str(scaling, "type", ""), "ntk") != 0) {
        config_rope(c, s, json_get(c->root, "position_embedding_type") ? 10000 : 160000);
        return;
    }
    if (json_get(scaling, "mixed_b") || !(factor >= 1) || factor > 1e6)
        config_fail(c, "`rope_scaling`: ntk needs a `factor` from 1 on, and has no `mixed_b`");
    s->rope[0].kind = ROPE_LINEAR;
    s->rope[0].theta = config_num_or(c, "rope_theta", 10000) * factor;
    s->rope[0].factor = pow(factor, 2.0 / s->head_dim);
    s->rope[0].attention_factor = 1;
    if (!(s->rope[0].theta > 1))
        config_fail(c, "`rope_theta` must be above 1");
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 8192});
    config_sums(s, config_num_or(c, "layer_norm_eps", 1e-12));
    config_type_rows(c, s);
    config_only_word(c, "position_embedding_type", "rope");
    config_only_word(c, "layer_norm_type", "layer_norm");
    config_only(c, "logn_attention_scale", false);
    config_only(c, "pack_qkv", true);
    s->act = config_act(c, "hidden_act", "gelu");
    config_masked_head(c, s, s->act);
    s->qkv = QKV_STACKED;
    s->mlp = MLP_UP_PACKED;
    s->bias.qkv = s->bias.o = s->bias.down = true;
    rope(c, s);
}

const struct arch arch_gte = {
    .types = (const char *const[]){"new", "gte", NULL},
    .prefix = "new.|gte.",
    .names = {NAMES_ROBERTA_HEAD, [W_EMBED] = "new.embeddings.word_embeddings",
              [W_TOKEN_TYPES] = "new.embeddings.token_type_embeddings",
              [W_EMBED_NORM] = "new.embeddings.LayerNorm",
              [W_QKV] = "new.encoder.layer.*.attention.qkv_proj",
              [W_O] = "new.encoder.layer.*.attention.o_proj",
              [W_POST_ATTN_NORM] = "new.encoder.layer.*.attn_ln",
              [W_GATE_UP] = "new.encoder.layer.*.mlp.up_gate_proj",
              [W_DOWN] = "new.encoder.layer.*.mlp.down_proj",
              [W_POST_MLP_NORM] = "new.encoder.layer.*.mlp_ln"},
    .configure = configure,
};
