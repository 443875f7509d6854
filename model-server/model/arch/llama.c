/* Llama 1-3, Code Llama, Yi, SmolLM, Vicuna ...; InternLM and openPangu Embedded, with biases in
 * attention; XVERSE, Aquila and Skywork; KORMo; MobileLLM (arXiv 2402.14905); TeleChat 3 (China
 * Telecom); the text model of Emu3. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static void configure(struct config *c, struct decoder_spec *s)
{
    const char *type = json_str(c->root, "model_type", "");
    const bool emu = strcmp(type, "emu3_text_model") == 0,
               pangu = strcmp(type, "PanguEmbedded") == 0;
    const bool biased = pangu || strcmp(type, "internlm") == 0;
    config_decoder(c, s,
                   &(struct config_defaults){.max_positions = emu     ? 9216
                                                              : pangu ? 32768
                                                                      : 2048,
                                             .norm_eps = emu || pangu ? 1e-5 : 1e-6,
                                             .rope_theta = emu     ? 1000000
                                                           : pangu ? 16000000
                                                                   : 10000});
    s->act = config_act(c, "hidden_act", "silu");
    if (strcmp(type, "xverse") == 0 && json_get(c->root, "num_experts"))
        config_fail(c, "`num_experts`: XVERSE's experts are not supported");
    if (strcmp(type, "mobilellm") == 0) {
        config_only(c, "layer_sharing", false);
        s->tied |= config_bool_or(c, "share_embedding", true);
    }
    s->bias.qkv = s->bias.o = config_bool_or(c, biased ? "bias" : "attention_bias", biased);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    config_windows(c, s, 0, config_no_layer); /* as vLLM reads layer_types */
}

const struct arch arch_llama = {
    .types = (const char *const[]){"llama", "iquestcoder", "internlm", "emu3_text_model", "xverse",
                                   "aquila", "skywork", "PanguEmbedded", "kormo", "mobilellm",
                                   "telechat3", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_GATED_MLP, [W_EMBED] = "model.embed_tokens",
              [W_FINAL_NORM] = "model.norm", [W_HEAD] = "lm_head",
              /* KORMo's first: errors name the last one */
              [W_ATTN_NORM] = "model.layers.*.pre_attention_layernorm|"
                              "model.layers.*.input_layernorm",
              [W_MLP_NORM] = "model.layers.*.pre_mlp_layernorm|"
                             "model.layers.*.post_attention_layernorm"},
    .configure = configure,
};
