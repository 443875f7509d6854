/* Nemotron Labs Dory (NVIDIA): a normalised residual stream (nGPT, arXiv 2410.01131), per-head QK
 * norm, an output gate on attention, sliding windows with their own RoPE in three of four layers.
 * The middle layers run several times, with separate keys and values for each pass. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* Files list attention and MLP as layers of their own, and count both. */
static uint32_t blocks(struct config *c)
{
    const cJSON *list = json_get(c->root, "layer_types"), *j;
    cJSON_ArrayForEach(j, list)
    {
        if (cJSON_IsString(j) && strcmp(j->valuestring, "mlp") == 0)
            return 2;
    }
    return 1;
}

static void windows(struct config *c, struct decoder_spec *s, uint32_t each)
{
    const uint32_t window = config_u32_or(c, "sliding_window", 1024, 1, 1u << 30);
    const cJSON *list = json_get(c->root, "layer_types");
    const bool said = cJSON_IsArray(list);
    if (said && (uint32_t)cJSON_GetArraySize(list) != each * s->n_layers) {
        config_fail(c, "`layer_types` does not name %u layers", each * s->n_layers);
        return;
    }
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const cJSON *j = said ? cJSON_GetArrayItem(list, (int)(i * each)) : NULL;
        const cJSON *mlp = said && each > 1 ? j->next : NULL;
        const char *usual = (i + 1) % 4 ? "sliding_attention" : "full_attention";
        const char *kind = !j ? usual : cJSON_IsString(j) ? j->valuestring : "";
        if (strcmp(kind, "sliding_attention") == 0)
            s->layers[i].window = window;
        else if (strcmp(kind, "full_attention") != 0)
            config_fail(c, "layers of type `%.40s` are not supported", kind);
        if (mlp && !(cJSON_IsString(mlp) && strcmp(mlp->valuestring, "mlp") == 0))
            config_fail(c, "`layer_types`: attention and `mlp` do not take turns");
    }
}

/* A number of layers of the file. */
static uint32_t part(struct config *c, const char *key, uint32_t def, uint32_t each)
{
    const uint32_t n = config_u32_or(c, key, def * each, 0, SPEC_MAX_LAYERS);
    if (n % each)
        config_fail(c, "`%s` is no number of pairs", key);
    return n / each;
}

/* The layers in the middle, repeated; those at the end move behind them. */
static void turns(struct config *c, struct decoder_spec *s, uint32_t each)
{
    enum { USUAL = 8 };
    const uint32_t first = part(c, "n_input_layers", USUAL, each);
    const uint32_t last = part(c, "n_output_layers", USUAL, each), n = s->n_layers;
    const uint32_t rest = first + last < n ? n - first - last : 0;
    const uint32_t middle = part(c, "n_recurrent_layers", rest, each);
    const uint32_t times = config_u32_or(c, "n_recurrent_loops", 2, 1, SPEC_MAX_LAYERS);
    config_only_word(c, "recurrent_kv_cache_mode", "per_loop");
    if (first + middle + last != n || middle == 0)
        config_fail(c, "`n_input_layers`, `n_recurrent_layers` and `n_output_layers` are not the "
                       "layers");
    else if (first == 0)
        config_fail(c, "`n_input_layers`: 0 is not supported");
    else if (n + (uint64_t)middle * (times - 1) > SPEC_MAX_LAYERS)
        config_fail(c, "`n_recurrent_loops`: more than %u layers", (uint32_t)SPEC_MAX_LAYERS);
    if (c->failed)
        return;
    const uint32_t more = middle * (times - 1), end = first + middle;
    memmove(&s->layers[end + more], &s->layers[end], last * sizeof(s->layers[0]));
    for (uint32_t i = end; i < end + more; i++) {
        s->layers[i] = s->layers[i - middle];
        s->layers[i].same_as = first + (i - first) % middle + 1;
    }
    s->sphere.before_turns = first;
    for (uint32_t i = 0; i < times; i++)
        s->layers[first + i * middle - 1].turn_ends = true;
    s->n_layers = n + more;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const uint32_t each = blocks(c);
    const double start = config_num_or(c, "initializer_range", 0.0177);
    config_decoder(
        c, s, &(struct config_defaults){.head_dim = 256, .max_positions = 8192, .rope_theta = 1e7});
    if (s->n_layers % each)
        config_fail(c, "`num_hidden_layers` is no number of pairs");
    if (!(start > 0))
        config_fail(c, "`initializer_range` must be above 0");
    s->n_layers /= each;
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    s->norm = (struct norm_spec){.kind = NORM_RMS, .eps = 1e-6F, .bare = true};
    s->qk_norm = QK_NORM_BY_HEAD;
    s->qk_norm_last = s->sub_norms = true;
    s->qk_norm_eps = s->norm.eps / (float)s->head_dim;
    s->attn_gate = ATTN_GATE_APART;
    s->sphere.rate = (float)(config_num_or(c, "ngpt_alpha_init", 0.05) / start);
    s->sphere.q = (float)(sqrt(s->head_dim) / start);
    s->sphere.gate = (float)(sqrt(sqrt(s->hidden)) / start);
    s->sphere.mlp = sqrtf((float)s->hidden);
    s->sphere.head = (float)(1 / start);
    if (s->sphere.rate == 0)
        config_fail(c, "`ngpt_alpha_init`: 0 is not supported");
    windows(c, s, each);
    config_window_rope(c, s, 10000);
    for (uint32_t i = 0; i < s->n_layers; i++) /* q and k have the length sqrt(head_dim) here */
        s->layers[i].attn_scale = spec_head_scale(s) / (float)s->head_dim;
    turns(c, s, each);
}

/* NVIDIA's files count attention and MLP; those that transformers saves have both in a layer. */
#define ATTN(own, what)                                                                            \
    "model.layers.*.self_attn." what "|backbone.layers.*.self_attn." own                           \
    "|backbone.layers.<.mixer." own
#define MLP(what)                                                                                  \
    "model.layers.*.mlp." what "|backbone.layers.*.mlp." what "|backbone.layers.>.mixer." what
const struct arch arch_dory = {
    .types = (const char *const[]){"dory", NULL},
    .names = {[W_EMBED] = "model.embed_tokens|backbone.embeddings",
              [W_FINAL_NORM] = "model.norm", /* without weights, as all norms */
              [W_HEAD] = "lm_head",
              [W_Q] = ATTN("q_proj", "q_proj"),
              [W_K] = ATTN("k_proj", "k_proj"),
              [W_V] = ATTN("v_proj", "v_proj"),
              [W_O] = ATTN("o_proj", "o_proj"),
              [W_ATTN_GATE] = ATTN("g_proj", "gate_proj"),
              [W_SPHERE_Q] = ATTN("sqk", "sqk"),
              [W_SPHERE_GATE] = ATTN("s_gate", "s_gate"),
              [W_SPHERE_RATE] = "model.layers.*.lambda_1|backbone.layers.*.lambda_1|"
                                "backbone.layers.<.attn_alpha",
              [W_SPHERE_RATE_FFN] = "model.layers.*.lambda_2|backbone.layers.*.lambda_2|"
                                    "backbone.layers.>.mlp_alpha",
              [W_GATE] = MLP("gate_proj"),
              [W_UP] = MLP("up_proj"),
              [W_DOWN] = MLP("down_proj"),
              [W_SPHERE_MLP_GATE] = MLP("suv_gate"),
              [W_SPHERE_MLP_UP] = MLP("suv_up"),
              [W_SPHERE_HEAD] = "lm_head.logit_scale"},
    .configure = configure,
};
