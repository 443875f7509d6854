/* Liquid AI's LFM3: LFM2 with wider convolutions, norms before and after each sublayer, sliding
 * windows with their own RoPE, and a per-head output gate on attention. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* The word of a layer; without layer_types two of four are convolutions. */
static const char *kind_of(struct config *c, uint32_t layer)
{
    const cJSON *t = cJSON_GetArrayItem(json_get(c->root, "layer_types"), (int)layer);
    if (t)
        return cJSON_IsString(t) ? t->valuestring : "";
    return layer % 4 == 2            ? "full_attention"
           : layer % 4 == 0 && layer ? "sliding_attention"
                                     : "conv";
}

static void kinds(struct config *c, struct decoder_spec *s)
{
    const uint32_t window = config_u32_or(c, "sliding_window", 256, 1, 1u << 30);
    config_layer_list(c, s, "layer_types");
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const char *kind = kind_of(c, i);
        if (strcmp(kind, "conv") == 0)
            s->layers[i].mixer = MIXER_CONV;
        else if (strcmp(kind, "sliding_attention") == 0)
            s->layers[i].window = window;
        else if (strcmp(kind, "full_attention") != 0)
            config_fail(c, "layers of type `%.40s` are not supported", kind);
    }
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){
                       .head_dim = 128, .max_positions = 128000, .norm_eps = 1e-5, .tied = true});
    s->norm.eps = (float)config_num_or(c, "norm_eps", 1e-5);
    s->act = ACT_SILU;
    s->qk_norm = QK_NORM_HEAD;
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    if (config_bool_or(c, "use_sandwich_norm", true))
        s->norms = NORM_AROUND;
    if (config_bool_or(c, "use_attention_gate", true))
        s->attn_gate = ATTN_GATE_BY_HEAD;
    s->recur.conv = config_u32_or(c, "conv_L_cache", 7, 2, CONV_MOST);
    s->recur.conv_bias = s->recur.proj_bias = config_bool_or(c, "conv_bias", false);
    kinds(c, s);
    s->rope[0].dim = s->head_dim;
    config_rope(c, s, 1000000);
    config_window_rope(c, s, 10000);
    s->rope[1].dim = s->head_dim;
}

const struct arch arch_lfm3 = {
    .types = (const char *const[]){"lfm3", NULL},
    .prefix = "model.",
    .names =
        {NAMES_LLAMA_QKV, NAMES_LLAMA_O,
         NAMES_QK_NORM, [W_EMBED] = "model.embed_tokens", [W_FINAL_NORM] = "model.embedding_norm",
         [W_HEAD] = "lm_head", [W_ATTN_NORM] = "model.layers.*.operator_norm",
         [W_POST_ATTN_NORM] = "model.layers.*.post_operator_norm",
         [W_ATTN_GATE] = "model.layers.*.self_attn.gate_proj|"
                         "model.layers.*.self_attn.g_proj",
         [W_MLP_NORM] = "model.layers.*.ffn_norm",
         [W_POST_MLP_NORM] = "model.layers.*.post_ffn_norm",
         [W_GATE] = "model.layers.*.feed_forward.w1", [W_UP] = "model.layers.*.feed_forward.w3",
         [W_DOWN] = "model.layers.*.feed_forward.w2", [W_MIX_IN] = "model.layers.*.conv.in_proj",
         [W_MIX_CONV] = "model.layers.*.conv.conv", [W_MIX_OUT] = "model.layers.*.conv.out_proj"},
    .configure = configure,
};
