/* Idefics 2 (arXiv 2405.02246): SigLIP for pictures of any shape, a gated MLP, and a perceiver
 * resampler. */
#include "common/model/model_file.h"
#include "model-server/encoder/family.h"
#include <string.h>

/* Reads perceiver_config; the width is the text model's. As in transformers, eps is the text
 * model's if perceiver_config has another width. */
static void resampler(struct config *c, struct encoder_spec *s)
{
    const cJSON *tower = c->root, *own = json_get(c->file, "perceiver_config");
    const cJSON *text = model_file_text_config(c->file);
    struct encoder_resample *r = &s->resample;
    static const cJSON none = {.type = cJSON_Object};
    c->root = (cJSON *)(uintptr_t)(cJSON_IsObject(own) ? own : &none);
    r->latents = config_u32_or(c, "resampler_n_latents", 64, 1, 4096);
    r->depth = config_u32_or(c, "resampler_depth", 3, 1, ENCODER_MAX_SAMPLERS);
    r->heads = config_u32_or(c, "resampler_n_heads", 16, 1, 1024);
    r->head_dim = config_u32_or(c, "resampler_head_dim", 96, 2, 256);
    r->kv_heads = config_u32_or(c, "num_key_value_heads", 4, 1, 1024);
    r->act = config_act(c, "hidden_act", "silu");
    const bool other = config_u32_or(c, "hidden_size", 4096, 1, 1u << 20) != s->width;
    const double eps = config_num_or(c, "rms_norm_eps", 1e-6);
    r->eps = (float)(other ? json_num(text, "rms_norm_eps", 1e-5) : eps);
    if (r->heads % r->kv_heads || r->head_dim % 2)
        config_fail(c, "`num_key_value_heads` must divide `resampler_n_heads`, and "
                       "`resampler_head_dim` be even");
    c->root = (cJSON *)(uintptr_t)tower;
}

static void configure(struct config *c, struct encoder_spec *s)
{
    const cJSON *text = model_file_text_config(c->file);
    const double middle = json_num(text, "intermediate_size", 14336);
    family_siglip_blocks(c, s, 768, 12, 12, 3072);
    family_positions(c, s, POSITIONS_BUCKETS, family_square(c, "image_size", 224));
    if (strcmp(json_str(text, "hidden_act", "silu"), "silu") != 0)
        config_fail(c, "`hidden_act` of the text model must be silu");
    if (!(middle >= 1 && middle <= 1 << 20) || middle != (uint32_t)middle) {
        config_fail(c, "`intermediate_size` of the text model is out of bounds");
        return;
    }
    s->project = (struct encoder_projection){
        .join = 1,
        .linear = {{W_PROJECT_IN, 2 * (uint32_t)middle, .gated = true, .gate = W_PROJECT_GATE},
                   {W_PROJECT_OUT, s->width}},
        .n_linears = 2,
        .gate_act = ACT_SILU};
    resampler(c, s);
}

#define PROJECT "model.connector.modality_projection."
#define SAMPLER "model.connector.perceiver_resampler."
#define LAYER   SAMPLER "layers.*."
const struct encoder_family family_idefics2 = {
    .types = (const char *const[]){"idefics2", NULL},
    .names =
        {.names =
             {NAMES_SIGLIP("model.vision_model.", "vision_model."),
              [W_PROJECT_GATE] = PROJECT "gate_proj", [W_PROJECT_IN] = PROJECT "up_proj",
              [W_PROJECT_OUT] = PROJECT "down_proj", [W_SAMPLE_LATENTS] = SAMPLER "latents",
              [W_SAMPLE_NORM] = SAMPLER "norm", [W_SAMPLE_LATENT_NORM] = LAYER "input_latents_norm",
              [W_SAMPLE_CONTEXT_NORM] = LAYER "input_context_norm",
              [W_SAMPLE_Q] = LAYER "self_attn.q_proj", [W_SAMPLE_K] = LAYER "self_attn.k_proj",
              [W_SAMPLE_V] = LAYER "self_attn.v_proj", [W_SAMPLE_O] = LAYER "self_attn.o_proj",
              [W_SAMPLE_MLP_NORM] = LAYER "post_attention_layernorm",
              [W_SAMPLE_GATE] = LAYER "mlp.gate_proj", [W_SAMPLE_UP] = LAYER "mlp.up_proj",
              [W_SAMPLE_DOWN] = LAYER "mlp.down_proj"},
         .prefix = "model."},
    .configure = configure,
};
