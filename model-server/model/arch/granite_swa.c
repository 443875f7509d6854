/* IBM Granite with sliding-window attention in three of four layers and a learned attention sink
 * per head; also with experts. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static bool all_but_first_of_four(struct config *c, uint32_t layer)
{
    return (void)c, layer % 4 != 0;
}

/* 0 in layer_rope_theta: the layer does not rotate. */
static void bases(struct config *c, struct decoder_spec *s)
{
    const cJSON *j = config_layer_list(c, s, "layer_rope_theta");
    for (uint32_t i = 0; j && i < s->n_layers; i++, j = j->next) {
        const double theta = cJSON_IsNumber(j) ? j->valuedouble : -1;
        if (theta == 0)
            s->layers[i].rope = SPEC_NO_ROPE;
        else if (theta != s->rope[0].theta)
            config_fail(c, "`layer_rope_theta`: only 0 and `rope_theta` are supported");
    }
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){
                       .max_positions = 8192, .norm_eps = 1e-5, .rope_theta = 10000, .tied = true});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    config_multipliers(c, s);
    config_windows(c, s, 128, all_but_first_of_four);
    bases(c, s);
    s->sinks = SINKS_ALL;
    if (strcmp(json_str(c->root, "model_type", ""), "granitemoe_swa") == 0)
        config_granite_experts(c, s);
}

#define MOE "model.layers.*.block_sparse_moe."
const struct arch arch_granite_swa = {
    .types = (const char *const[]){"granite_swa", "granitemoe_swa", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, [W_SINKS] = "model.layers.*.self_attn.sinks", [W_ROUTER] = MOE "router",
              [W_MOE_GATE_UP] = MOE "experts.gate_up_proj",
              [W_MOE_GATE] = MOE "experts.*.gate_proj", [W_MOE_UP] = MOE "experts.*.up_proj",
              [W_MOE_DOWN] = MOE "experts.down_proj|" MOE "experts.*.down_proj",
              [W_SHARED_GATE_UP] = "model.layers.*.shared_mlp.input_linear",
              [W_SHARED_DOWN] = "model.layers.*.shared_mlp.output_linear"},
    .configure = configure,
};
