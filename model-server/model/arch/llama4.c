/* Llama 4, the text decoder: chunked attention with RoPE in most layers, full attention without
 * RoPE in the others; one expert per token, with its input scaled by the router score.
 * https://github.com/meta-llama/llama-models/blob/main/models/llama4/MODEL_CARD.md */
#include "common/json/json.h"
#include "model-server/model/arch.h"

static void attention(struct config *c, struct decoder_spec *s)
{
    const uint32_t chunk = config_u32_or(c, "attention_chunk_size", 8192, 1, 1u << 30);
    const bool grows = config_bool_or(c, "attn_temperature_tuning", true);
    config_no_rope_layers(c, s, 4);
    s->q_growth = (struct q_growth){config_num_or(c, "attn_scale", 0.1),
                                    config_num_or(c, "floor_scale", 8192), 1};
    if (!(s->q_growth.length > 0))
        config_fail(c, "`floor_scale` must be positive");
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const bool rotates = s->layers[i].rope != SPEC_NO_ROPE;
        s->layers[i].chunk = rotates ? chunk : 0;
        s->layers[i].q_grows = !rotates && grows;
    }
    if (config_bool_or(c, "use_qk_norm", true)) {
        s->qk_norm = QK_NORM_PLAIN;
        s->qk_norm_last = true; /* a rotation that has a factor (yarn) does not keep lengths */
    }
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
}

/* Those in moe_layers, else every nth. */
static void experts(struct config *c, struct decoder_spec *s)
{
    const cJSON *list = json_get(c->root, "moe_layers"), *j;
    const uint32_t step = config_u32_or(c, "interleave_moe_layer_step", 1, 1, SPEC_MAX_LAYERS);
    config_moe(c, s, 16, 1);
    s->moe.ffn = s->moe.shared_ffn = s->ffn;
    s->moe.score = MOE_SIGMOID;
    s->moe.scale_input = true;
    s->ffn = config_u32_or(c, "intermediate_size_mlp", 16384, 1, 1u << 22);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].moe = !cJSON_IsArray(list) && (i + 1) % step == 0;
    cJSON_ArrayForEach(j, list)
    {
        if (cJSON_IsNumber(j) && j->valuedouble >= 0 && j->valuedouble < s->n_layers)
            s->layers[(uint32_t)j->valuedouble].moe = true;
    }
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .head_dim = 128, .max_positions = 131072, .norm_eps = 1e-5, .rope_theta = 500000});
    s->rope[0].interleaved = true;
    s->act = config_act(c, "hidden_act", "silu");
    attention(c, s);
    experts(c, s);
}

const struct arch arch_llama4 = {
    .types = (const char *const[]){"llama4_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV,
              NAMES_LLAMA_O, [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              [W_GATE] = "model.layers.*.feed_forward.gate_proj",
              [W_UP] = "model.layers.*.feed_forward.up_proj",
              [W_DOWN] = "model.layers.*.feed_forward.down_proj",
              [W_ROUTER] = "model.layers.*.feed_forward.router",
              [W_MOE_GATE_UP] = "model.layers.*.feed_forward.experts.gate_up_proj",
              [W_MOE_GATE] = "model.layers.*.feed_forward.experts.*.gate_proj",
              [W_MOE_UP] = "model.layers.*.feed_forward.experts.*.up_proj",
              [W_MOE_DOWN] = "model.layers.*.feed_forward.experts.down_proj|"
                             "model.layers.*.feed_forward.experts.*.down_proj",
              [W_SHARED_GATE] = "model.layers.*.feed_forward.shared_expert.gate_proj",
              [W_SHARED_UP] = "model.layers.*.feed_forward.shared_expert.up_proj",
              [W_SHARED_DOWN] = "model.layers.*.feed_forward.shared_expert.down_proj"},
    .configure = configure,
};
