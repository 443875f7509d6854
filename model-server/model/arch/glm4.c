/* GLM-4 9B and 32B, and the text models of GLM-4.1V and GLM-OCR: interleaved RoPE on half of each
 * head, gate and up in one matrix; the 0414 models (glm4) and the vision models have norms before
 * and after each sublayer. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static void configure(struct config *c, struct decoder_spec *s)
{
    const char *type = json_str(c->root, "model_type", "");
    const bool ocr = strcmp(type, "glm_ocr_text") == 0;
    const bool seeing = ocr || strcmp(type, "glm4v_text") == 0;
    config_decoder(c, s,
                   &(struct config_defaults){.max_positions = seeing && !ocr ? 32768 : 131072,
                                             .norm_eps = seeing ? 1e-5 : 1.5625e-7,
                                             .rope_theta = 10000,
                                             .rotary = seeing ? 1 : 0.5});
    s->act = config_act(c, "hidden_act", "silu");
    s->rope[0].interleaved = true;
    s->mlp = MLP_GATED_PACKED;
    s->bias.qkv = config_bool_or(c, "attention_bias", true);
    if (seeing) {
        s->bias.qkv = !ocr; /* whatever the file says */
        if (!s->rope[0].has_axes)
            config_fail(c, "rope `mrope_section` must be there");
    }
    if (seeing || strcmp(type, "glm4") == 0)
        s->norms = NORM_AROUND;
}

const struct arch arch_glm4 = {
    .types = (const char *const[]){"glm4", "glm", "glm4v_text", "glm_ocr_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV,
              NAMES_LLAMA_O, [W_POST_ATTN_NORM] = "model.layers.*.post_self_attn_layernorm",
              [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              [W_POST_MLP_NORM] = "model.layers.*.post_mlp_layernorm",
              [W_GATE_UP] = "model.layers.*.mlp.gate_up_proj",
              [W_DOWN] = "model.layers.*.mlp.down_proj"},
    .configure = configure,
};
