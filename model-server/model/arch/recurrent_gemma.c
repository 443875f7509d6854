/* RecurrentGemma (Griffin, arXiv 2402.19427, 2404.07839): two layers of a real-gated linear
 * recurrent unit, then one of sliding-window attention; gated MLPs, norms that scale by 1 + w. */
#include "common/json/json.h"
#include "model-server/backend/numbers.h"
#include "model-server/model/arch.h"
#include <string.h>

/* block_types: a period of the layers. */
static void blocks(struct config *c, struct decoder_spec *s)
{
    const cJSON *list = json_get(c->root, "block_types");
    const uint32_t n = cJSON_IsArray(list) ? (uint32_t)cJSON_GetArraySize(list) : 0;
    const uint32_t window = config_u32_or(c, "attention_window_size", 2048, 1, 1u << 30);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const cJSON *j = n ? cJSON_GetArrayItem(list, (int)(i % n)) : NULL;
        const char *def = i % 3 == 2 ? "attention" : "recurrent";
        const char *kind = n ? cJSON_IsString(j) ? j->valuestring : "" : def;
        if (strcmp(kind, "recurrent") == 0)
            s->layers[i].mixer = MIXER_GATED;
        else if (strcmp(kind, "attention") == 0)
            s->layers[i].window = window;
        else
            config_fail(c, "`block_types`: layers of type `%.40s` are not supported", kind);
    }
}

static void recurrence(struct config *c, struct decoder_spec *s)
{
    struct recur_spec *r = &s->recur;
    const uint32_t width = config_u32_or(c, "lru_width", s->hidden, 1, 1u << 22);
    r->heads = r->key_heads = s->n_heads;
    r->key_dim = 1;
    r->value_dim = width / r->heads;
    if (width % r->heads || !r->value_dim || r->value_dim > CONFIG_MOST_DIM)
        config_fail(c, "`lru_width`: %u channels of %u heads are not supported", width, r->heads);
    r->conv = config_u32_or(c, "conv1d_width", 4, 2, CONV_MOST);
    r->conv_bias = r->proj_bias = true;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.max_positions = 8192,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 10000,
                                             .rotary = 0.5,
                                             .layers = 26,
                                             .heads = 10,
                                             .ffn_times = 3,
                                             .tied = true});
    s->max_positions = 0; /* only windows and states: no end */
    if (s->ffn % 2)
        config_fail(c, "`intermediate_size` must be even");
    s->ffn /= 2; /* gate and up together */
    s->norm.plus = 1;
    s->act = config_act(c, "hidden_activation", "gelu_pytorch_tanh");
    if (s->act != ACT_GELU_TANH) /* it is the recurrence's gate as well */
        config_fail(c, "`hidden_activation`: only gelu_pytorch_tanh is supported");
    s->bias.qkv = config_bool_or(c, "attention_bias", false);
    s->bias.o = s->bias.mlp = true;
    s->embed_scale = f32_of_bf16(bf16_of_f32(sqrtf((float)s->hidden)));
    s->logit_softcap = (float)config_softcap(c, "logits_soft_cap", 30);
    blocks(c, s);
    recurrence(c, s);
}

#define BLOCK(what) "model.layers.*.temporal_block." what
#define MLP(what)   "model.layers.*.mlp_block." what
const struct arch arch_recurrent_gemma = {
    .types = (const char *const[]){"recurrent_gemma", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embed_tokens",
              [W_FINAL_NORM] = "model.final_norm",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = "model.layers.*.temporal_pre_norm",
              [W_Q] = BLOCK("q_proj"),
              [W_K] = BLOCK("k_proj"),
              [W_V] = BLOCK("v_proj"),
              [W_O] = BLOCK("o_proj"),
              [W_MIX_IN] = BLOCK("linear_x"),
              [W_MIX_Z] = BLOCK("linear_y"),
              [W_MIX_OUT] = BLOCK("linear_out"),
              [W_MIX_CONV] = BLOCK("conv_1d"),
              [W_MIX_RATE] = BLOCK("rg_lru.recurrent_param"),
              [W_MIX_BETA] = BLOCK("rg_lru.input_gate_weight"),
              [W_MIX_BETA_BIAS] = BLOCK("rg_lru.input_gate_bias"),
              [W_MIX_DECAY] = BLOCK("rg_lru.recurrent_gate_weight"),
              [W_MIX_DT] = BLOCK("rg_lru.recurrent_gate_bias"),
              [W_MLP_NORM] = "model.layers.*.channel_pre_norm",
              [W_GATE] = MLP("gate_proj"),
              [W_UP] = MLP("up_proj"),
              [W_DOWN] = MLP("down_proj")},
    .configure = configure,
};
