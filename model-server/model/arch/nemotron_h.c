/* NVIDIA Nemotron-H (arXiv 2504.03624), Nemotron Nano 2 and 3, Nemotron 3 Super: each layer is one
 * of Mamba-2, attention without RoPE, an MLP, or experts; MLPs and experts are ungated. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <math.h>
#include <string.h>

/* By letter of hybrid_override_pattern and by word of layers_block_type. */
static const struct kind {
    const char *words[3];
    enum mixer_kind mixer;
    char letter;
    bool moe;
} kinds[] = {
    {{"mamba", "linear_attention"}, MIXER_MAMBA2, 'M', false},
    {{"attention", "full_attention"}, MIXER_ATTENTION, '*', false},
    {{"mlp"}, MIXER_NONE, '-', false},
    {{"moe"}, MIXER_NONE, 'E', true},
};

static bool is_kind(const struct kind *k, char letter, const char *word)
{
    bool same = !word && k->letter == letter;
    for (int i = 0; word && k->words[i]; i++)
        same |= strcmp(k->words[i], word) == 0;
    return same;
}

static void set_kind(struct config *c, struct layer_spec *l, char letter, const char *word)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (is_kind(&kinds[i], letter, word)) {
            l->mixer = kinds[i].mixer;
            l->no_ffn = l->mixer != MIXER_NONE;
            l->moe = kinds[i].moe;
            return;
        }
    if (word)
        config_fail(c, "layers of type `%.40s` are not supported", word);
    else
        config_fail(c, "`hybrid_override_pattern`: `%c` is no kind of layer", letter);
}

static uint32_t layers_named(struct config *c)
{
    const cJSON *words = json_get(c->root, "layers_block_type");
    const size_t n = words ? (size_t)cJSON_GetArraySize(words)
                           : strlen(config_str_or(c, "hybrid_override_pattern", ""));
    return n < SPEC_MAX_LAYERS ? (uint32_t)n : SPEC_MAX_LAYERS;
}

static void layers(struct config *c, struct decoder_spec *s)
{
    const cJSON *words = json_get(c->root, "layers_block_type"), *w = words ? words->child : NULL;
    const char *pattern = config_str_or(c, "hybrid_override_pattern", "");
    if (layers_named(c) != s->n_layers) {
        config_fail(c, "`hybrid_override_pattern` does not name %u layers", s->n_layers);
        return;
    }
    for (uint32_t i = 0; i < s->n_layers; i++, w = w ? w->next : NULL)
        set_kind(c, &s->layers[i], w ? 0 : pattern[i],
                 w ? cJSON_IsString(w) ? w->valuestring : "" : NULL);
}

static void experts(struct config *c, struct decoder_spec *s)
{
    bool any = false;
    for (uint32_t i = 0; i < s->n_layers; i++)
        any |= s->layers[i].moe;
    if (!any)
        return;
    bool moe[SPEC_MAX_LAYERS] = {false};
    for (uint32_t i = 0; i < s->n_layers; i++)
        moe[i] = s->layers[i].moe;
    s->moe.score = MOE_SIGMOID;
    s->moe.select_bias = s->moe.group_pairs = s->moe.plain = true;
    config_deepseek_moe(c, s);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].moe = moe[i];
    s->moe.shared_ffn =
        config_u32_or(c, "moe_shared_expert_intermediate_size", s->moe.shared_ffn, 0, 1u << 22);
    s->moe.latent = config_u32_or(c, "moe_latent_size", 0, 0, 1u << 22);
    if (s->moe.latent && s->bias.mlp)
        config_fail(c, "`moe_latent_size` with `mlp_bias` is not supported");
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .head_dim = 128, .max_positions = 4096, .norm_eps = 1e-5, .layers = layers_named(c)});
    s->norm.eps = (float)config_num_or(c, "layer_norm_epsilon", 1e-5);
    s->act = config_act(c, "mlp_hidden_act", "relu2");
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    layers(c, s);
    config_mamba2(c, s,
                  &(struct mamba_keys){"mamba_num_heads", "mamba_head_dim", "n_groups",
                                       "ssm_state_size", "conv_kernel", "use_conv_bias",
                                       "use_bias"});
    /* transformers takes the least step of the initialisation for the limit; NVIDIA's own code and
     * 4.57 read time_step_limit, whose least is 0 in all files. Trained steps are above either. */
    s->recur.dt_min = (float)config_num_or(c, "time_step_min", 0.001);
    s->recur.dt_max = INFINITY;
    experts(c, s);
}

const struct arch arch_nemotron_h = {
    .types = (const char *const[]){"nemotron_h", NULL},
    .prefix = "backbone.|model.",
    .names =
        {NAMES_MAMBA2("backbone.layers.*.mixer."),
         [W_EMBED] = "backbone.embeddings",
         [W_FINAL_NORM] = "backbone.norm_f",
         [W_HEAD] = "lm_head",
         [W_ATTN_NORM] = "backbone.layers.*.norm",
         [W_MLP_NORM] = "backbone.layers.*.norm",
         [W_Q] = "backbone.layers.*.mixer.q_proj",
         [W_K] = "backbone.layers.*.mixer.k_proj",
         [W_V] = "backbone.layers.*.mixer.v_proj",
         [W_O] = "backbone.layers.*.mixer.o_proj",
         [W_UP] = "backbone.layers.*.mixer.up_proj",
         [W_DOWN] = "backbone.layers.*.mixer.down_proj",
         [W_ROUTER] = "backbone.layers.*.mixer.gate",
         [W_SELECT_BIAS] = "backbone.layers.*.mixer.gate.e_score_correction_bias",
         [W_MOE_UP] =
             "backbone.layers.*.mixer.experts.up_proj|backbone.layers.*.mixer.experts.*.up_proj",
         [W_MOE_DOWN] = "backbone.layers.*.mixer.experts.down_proj|backbone.layers.*.mixer.experts."
                        "*.down_proj",
         [W_MOE_LATENT_IN] = "backbone.layers.*.mixer.fc1_latent_proj",
         [W_MOE_LATENT_OUT] = "backbone.layers.*.mixer.fc2_latent_proj",
         [W_SHARED_UP] = "backbone.layers.*.mixer.shared_experts.up_proj",
         [W_SHARED_DOWN] = "backbone.layers.*.mixer.shared_experts.down_proj"},
    .configure = configure,
};
