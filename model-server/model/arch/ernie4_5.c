/* ERNIE 4.5, dense: Llama with interleaved RoPE; and the text model of PaddleOCR-VL, with
 * half-split multimodal RoPE (three positions). */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static void configure(struct config *c, struct decoder_spec *s)
{
    const bool seeing = strncmp(json_str(c->root, "model_type", ""), "paddleocr_vl", 12) == 0;
    config_decoder(
        c, s,
        &(struct config_defaults){
            .max_positions = 131072, .norm_eps = 1e-5, .rope_theta = 500000, .tied = true});
    s->act = config_act(c, "hidden_act", "silu");
    s->rope[0].interleaved = !seeing;
    if (seeing && !s->rope[0].has_axes)
        config_fail(c, "rope `mrope_section` must be there");
    s->bias.qkv = s->bias.o = s->bias.mlp = config_bool_or(c, "use_bias", false);
}

const struct arch arch_ernie4_5 = {
    .types = (const char *const[]){"ernie4_5", "paddleocr_vl", "paddleocr_vl_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
