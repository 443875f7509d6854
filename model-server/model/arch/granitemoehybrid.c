/* IBM Granite 4: Mamba-2 layers and a few attention layers, mostly without RoPE; experts and a
 * shared MLP, or the MLP alone; Granite's multipliers. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static bool every(struct config *c, uint32_t layer) { return (void)c, (void)layer, true; }

static void experts(struct config *c, struct decoder_spec *s)
{
    const uint32_t shared = config_dim(c, "shared_intermediate_size");
    if (config_u32_or(c, "num_local_experts", 8, 0, 4096) == 0) {
        s->ffn = shared;
        s->mlp = MLP_GATED_PACKED;
        return;
    }
    config_moe(c, s, 8, 2);
    s->moe.ffn = s->ffn;
    s->moe.renormalise = true; /* softmax over the chosen is that of all, scaled to sum to 1 */
    s->moe.shared_ffn = shared;
    s->moe.shared_packed = true;
    config_moe_layers(s);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const bool rotates = strcmp(config_str_or(c, "position_embedding_type", "nope"), "rope") == 0;
    config_decoder(c, s,
                   &(struct config_defaults){
                       .max_positions = 2048, .norm_eps = 1e-6, .rope_theta = rotates ? 10000 : 0});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    config_only_word(c, "normalization_function", "rmsnorm");
    config_multipliers(c, s);
    config_mixers(c, s, MIXER_MAMBA2, every);
    config_mamba2(c, s, &config_mamba_keys);
    experts(c, s);
}

const struct arch arch_granitemoehybrid = {
    .types = (const char *const[]){"granitemoehybrid", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O,
              NAMES_MAMBA2("model.layers.*.mamba."),
              [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              [W_GATE_UP] = "model.layers.*.shared_mlp.input_linear",
              [W_GATE] = "model.layers.*.shared_mlp.gate_proj", /* apart in GGUF files */
              [W_UP] = "model.layers.*.shared_mlp.up_proj",
              [W_DOWN] = "model.layers.*.shared_mlp.output_linear", NAMES_GRANITE_EXPERTS},
    .configure = configure,
};
