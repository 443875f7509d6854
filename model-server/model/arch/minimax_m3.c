/* MiniMax M3: Llama's layers with Gemma's norms, DeepSeek's experts with gpt-oss's activation, and
 * block-sparse attention: in most layers an indexer selects key blocks for each key-value head.
 * Most checkpoints are those of the vision model. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* The repository's files have the indexer's keys in an object, with words of their own. */
static cJSON *own_keys(struct config *c)
{
    return (cJSON *)(uintptr_t)config_object(c, c->root, "sparse_attention_config");
}

static uint32_t index_size(struct config *c, const char *key, const char *own, uint32_t def)
{
    cJSON *const root = c->root, *in = own_keys(c);
    const bool has = json_get(in, own);
    c->root = has ? in : root;
    const uint32_t n = config_u32_or(c, has ? own : key, def, 1, 1u << 20);
    c->root = root;
    return n;
}

/* One number a layer, 0: it has no indexer. */
static const cJSON *own_layers(struct config *c, const struct decoder_spec *s)
{
    cJSON *const root = c->root, *in = own_keys(c);
    c->root = in ? in : root;
    const cJSON *list = config_layer_list(c, s, "sparse_attention_freq");
    c->root = root;
    return list;
}

/* True if the layer has an indexer; by its word, or else by its number. */
static bool is_sparse(struct config *c, const cJSON *word, const cJSON *number)
{
    if (!word)
        return number && cJSON_IsNumber(number) && number->valuedouble != 0;
    const char *w = cJSON_IsString(word) ? word->valuestring : "";
    if (strcmp(w, "minimax_m3_sparse") != 0 && strcmp(w, "full_attention") != 0)
        config_fail(c, "layers of type `%.40s` are not supported", w);
    return strcmp(w, "minimax_m3_sparse") == 0;
}

static void indexer(struct config *c, struct decoder_spec *s)
{
    struct block_spec *b = &s->blocks;
    const cJSON *word = config_layer_list(c, s, "layer_types");
    const cJSON *number = word ? NULL : own_layers(c, s);
    bool any = false;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        s->layers[i].by_blocks = is_sparse(c, word, number);
        any |= s->layers[i].by_blocks;
        word = word ? word->next : NULL;
        number = number ? number->next : NULL;
    }
    if (!any)
        return;
    b->dim = index_size(c, "index_head_dim", "sparse_index_dim", 128);
    b->block = index_size(c, "index_block_size", "sparse_block_size", 128);
    b->top = index_size(c, "index_topk_blocks", "sparse_topk_blocks", 16);
    b->local = index_size(c, "index_local_blocks", "sparse_local_block", 1);
    if (index_size(c, "index_n_heads", "sparse_num_index_heads", 4) != s->n_kv_heads)
        config_fail(c, "`index_n_heads` must be `num_key_value_heads`");
    if (b->dim < s->rope[0].dim)
        config_fail(c, "`index_head_dim` must be at least the rotated part of a head, %u",
                    s->rope[0].dim);
    if (b->local > b->top)
        config_fail(c, "`index_local_blocks` must be at most `index_topk_blocks`");
    if ((uint64_t)b->top * b->block > 1u << 20)
        config_fail(c, "`index_topk_blocks` times `index_block_size` must be at most %u", 1u << 20);
}

/* Layers with experts: by words, by numbers of the repository's files, or all. */
static void experts(struct config *c, struct decoder_spec *s)
{
    struct moe_spec *m = &s->moe;
    config_moe(c, s, 128, 4);
    m->score = MOE_SIGMOID;
    m->select_bias = m->renormalise = m->shared_packed = true;
    m->scale = (float)config_num_or(c, "routed_scaling_factor", 2);
    m->ffn = s->ffn;
    m->shared_ffn = config_u32_or(c, "shared_intermediate_size", 3072, 1, 1u << 22);
    config_mlp_layer_types(c, s, 0);
    const cJSON *n =
        json_get(c->root, "mlp_layer_types") ? NULL : config_layer_list(c, s, "moe_layer_freq");
    for (uint32_t i = 0; n && i < s->n_layers; i++, n = n->next)
        s->layers[i].moe = cJSON_IsNumber(n) && n->valuedouble != 0;
    s->ffn = config_u32_or(c, "dense_intermediate_size", 12288, 1, 1u << 22);
}

/* The factor of the activation is that of gpt-oss. */
static void activation(struct config *c, struct decoder_spec *s)
{
    s->act = config_act_limit(c, "swiglu_limit", ACT_SWIGLU_CLAMPED);
    if (config_num_or(c, "swiglu_alpha", 1.702) != 1.702)
        config_fail(c, "`swiglu_alpha`: only 1.702 is supported");
}

/* `rotary_dim` counts without a fraction: transformers saves its default beside one. */
static uint32_t rotated(struct config *c, const struct decoder_spec *s)
{
    if (config_rope_num(c, "partial_rotary_factor", 0) != 0)
        return config_rotary_dim(c, s->head_dim, 1);
    const double n = config_u32_or(c, "rotary_dim", s->head_dim / 2, 2, s->head_dim);
    return config_rotary_part(c, s->head_dim, n / s->head_dim);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.head_dim = 128, .max_positions = 524288, .norm_eps = 1e-6});
    s->norm.plus = 1;
    s->qk_norm = QK_NORM_HEAD;
    s->rope[0].dim = rotated(c, s);
    config_rope(c, s, 5000000);
    s->mlp = MLP_GATED_PACKED;
    activation(c, s);
    indexer(c, s);
    experts(c, s);
}

#define NAMES_INDEX(form)                                                                          \
    "model.layers.*.self_attn.indexer." form "|model.layers.*.self_attn.index_" form
#define NAMES_M3_MLP(of) "model.layers.*.mlp." of "|model.layers.*.block_sparse_moe." of

const struct arch arch_minimax_m3 = {
    .types = (const char *const[]){"minimax_m3_vl_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER,
              NAMES_LLAMA_QKV,
              NAMES_LLAMA_O,
              NAMES_LLAMA_MLP,
              NAMES_QK_NORM,
              [W_GATE_UP] = "model.layers.*.mlp.gate_up_proj",
              [W_ROUTER] = NAMES_M3_MLP("gate"),
              [W_SELECT_BIAS] = "model.layers.*.mlp.gate.e_score_correction_bias|"
                                "model.layers.*.block_sparse_moe.e_score_correction_bias",
              [W_MOE_GATE_UP] = "model.layers.*.mlp.experts.gate_up_proj",
              [W_MOE_GATE] = "model.layers.*.block_sparse_moe.experts.*.w1",
              [W_MOE_UP] = "model.layers.*.block_sparse_moe.experts.*.w3",
              [W_MOE_DOWN] = "model.layers.*.mlp.experts.down_proj|"
                             "model.layers.*.block_sparse_moe.experts.*.w2",
              [W_SHARED_GATE_UP] = NAMES_M3_MLP("shared_experts.gate_up_proj"),
              [W_SHARED_GATE] = NAMES_M3_MLP("shared_experts.gate_proj"),
              [W_SHARED_UP] = NAMES_M3_MLP("shared_experts.up_proj"),
              [W_SHARED_DOWN] = NAMES_M3_MLP("shared_experts.down_proj"),
              [W_INDEX_Q] = NAMES_INDEX("q_proj"),
              [W_INDEX_K] = NAMES_INDEX("k_proj"),
              [W_INDEX_Q_NORM] = NAMES_INDEX("q_norm"),
              [W_INDEX_K_NORM] = NAMES_INDEX("k_norm")},
    .configure = configure,
};
