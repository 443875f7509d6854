/* Molmo 2 (Ai2, arXiv 2601.10611), the text model: Qwen 3, or OLMo 3 with its norms, with its own
 * tensor names, q, k and v in one matrix, and up and gate in another. Image tokens have an
 * embedding table of their own and no rows in the head. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* Layers that are not listed rotate without the scaling. */
static void rotations(struct config *c, struct decoder_spec *s)
{
    const cJSON *list = json_get(c->root, "rope_scaling_layers"), *j = NULL;
    if (!list || cJSON_IsNull(list))
        return;
    s->rope[1] = (struct rope_spec){.kind = ROPE_DEFAULT,
                                    .dim = s->rope[0].dim,
                                    .theta = s->rope[0].theta,
                                    .attention_factor = 1};
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].rope = 1;
    for (j = list->child; j; j = j->next)
        if (cJSON_IsNumber(j) && j->valuedouble >= 0 && j->valuedouble < s->n_layers)
            s->layers[(uint32_t)j->valuedouble].rope = 0;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 128,
                                             .max_positions = 36864,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 10000,
                                             .kv_heads = 8});
    s->act = config_act(c, "hidden_act", "silu");
    s->mlp = MLP_UP_PACKED;
    s->qkv = QKV_STACKED;
    s->bias.qkv = config_bool_or(c, "attention_bias", false);
    s->norms = config_bool_or(c, "norm_after", false) ? NORM_AFTER : NORM_BEFORE;
    const char *kind = config_str_or(c, "qk_norm_type", "qwen3");
    s->qk_norm = strcmp(kind, "olmo") == 0 ? QK_NORM_ALL : QK_NORM_HEAD;
    if (s->qk_norm == QK_NORM_HEAD && strcmp(kind, "qwen3") != 0)
        config_fail(c, "`qk_norm_type` `%.40s` is not supported", kind);
    config_only(c, "use_qk_norm", true);
    rotations(c, s);
}

static const struct config_key keys[] = {{"attention_bias", "qkv_bias", false},
                                         {"rms_norm_eps", "layer_norm_eps", false},
                                         {NULL, NULL, false}};

#define BLOCK "model.transformer.blocks.*."
const struct arch arch_molmo2 = {
    .types = (const char *const[]){"molmo2_text", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.transformer.wte.embedding",
              [W_EMBED_MORE] = "model.transformer.wte.new_embedding",
              [W_FINAL_NORM] = "model.transformer.ln_f",
              [W_HEAD] = "lm_head",
              [W_ATTN_NORM] = BLOCK "attn_norm",
              [W_POST_ATTN_NORM] = BLOCK "attn_norm",
              [W_QKV] = BLOCK "self_attn.att_proj",
              [W_O] = BLOCK "self_attn.attn_out",
              [W_Q_NORM] = BLOCK "self_attn.q_norm",
              [W_K_NORM] = BLOCK "self_attn.k_norm",
              [W_MLP_NORM] = BLOCK "ff_norm",
              [W_POST_MLP_NORM] = BLOCK "ff_norm",
              [W_GATE_UP] = BLOCK "mlp.ff_proj",
              [W_DOWN] = BLOCK "mlp.ff_out"},
    .keys = keys,
    .configure = configure,
};
