/* Spark X2.5 (iFLYTEK): Llama with a per-head output gate on attention and GELU; sliding windows
 * with their own RoPE in three of four layers; q, k and v in one matrix. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

static void rotations(struct config *c, struct decoder_spec *s)
{
    const cJSON *window = json_get(json_get(c->root, "rope_parameters"), "sliding_attention");
    s->rope[0].dim = config_rotary_dim(c, s->head_dim, 1);
    config_rope(c, s, 10000);
    config_window_rope(c, s, config_num_or(c, "rope_theta", 10000));
    s->rope[1].dim =
        config_rotary_part(c, s->head_dim, json_num(window, "partial_rotary_factor", 1));
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 32768, .norm_eps = 1e-6});
    s->act = config_act(c, "hidden_act", "gelu");
    s->qkv = QKV_STACKED;
    config_only(c, "attention_bias", false);
    config_only(c, "mlp_bias", false);
    config_only(c, "headwise_attn_output_gate", true);
    config_only_word(c, "gate_attn_act_mode", "sigmoid");
    s->attn_gate = ATTN_GATE_BY_HEAD;
    config_windows(c, s, 512, config_no_layer);
    rotations(c, s);
}

const struct arch arch_spark2_5 = {
    .types = (const char *const[]){"spark2_5", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_MLP, [W_EMBED] = "model.embedding", [W_FINAL_NORM] = "model.norm",
              [W_HEAD] = "lm_head", [W_ATTN_NORM] = "model.layers.*.input_layernorm",
              [W_QKV] = "model.layers.*.self_attn.q_k_v_proj",
              [W_ATTN_GATE] = "model.layers.*.self_attn.g_proj",
              [W_O] = "model.layers.*.self_attn.out_proj"},
    .configure = configure,
};
