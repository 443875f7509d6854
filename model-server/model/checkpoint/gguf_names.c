#include "model-server/model/checkpoint/gguf_names.h"
#include <string.h>

enum { LAYERS_MAX = 100000 };

/* llama.cpp's names of the tensors of a role, without ".weight" and ".bias", or whole names. If
 * two roles share a name, it belongs to the first one that the family has. */
struct name_row {
    const char *name;
    enum role role;
    bool bias; /* the tensor is the role's ".bias" */
};
static const struct name_row names[] = {
    {"token_embd", W_EMBED},
    {"position_embd", W_POSITIONS},
    {"token_types", W_TOKEN_TYPES},
    {"output_norm", W_FINAL_NORM},
    {"token_embd_norm", W_EMBED_NORM},
    {"token_embd_norm", W_FINAL_NORM}, /* LFM2's name for it */
    {"output", W_HEAD},
    {"blk.*.attn_norm", W_ATTN_NORM},
    {"blk.*.attn_norm_2", W_MIX_NORM}, /* MiniMax-Text-01 */
    {"blk.*.attn_norm_2", W_ATTN_NORM},
    {"blk.*.attn_sub_norm", W_ATTN_SUB_NORM},
    {"blk.*.ffn_sub_norm", W_MLP_SUB_NORM},
    {"blk.*.attn_output_norm", W_POST_ATTN_NORM},
    {"blk.*.attn_output_norm", W_MLP_NORM}, /* DBRX */
    {"blk.*.layer_output_norm", W_POST_MLP_NORM},
    {"blk.*.post_attention_norm", W_POST_ATTN_NORM},
    {"blk.*.post_attention_norm", W_MLP_NORM},
    {"blk.*.ffn_norm", W_MLP_NORM},
    {"blk.*.post_ffw_norm", W_POST_MLP_NORM},
    {"blk.*.attn_qkv", W_QKV},
    {"blk.*.attn_qkv", W_MIX_IN},
    {"blk.*.attn_gate", W_MIX_Z},
    {"blk.*.attn_gate", W_ATTN_GATE},
    {"blk.*.attn_q", W_Q},
    {"blk.*.attn_k", W_K},
    {"blk.*.attn_v", W_V},
    {"blk.*.attn_output", W_O},
    {"blk.*.attn_o", W_O}, /* T5 */
    {"blk.*.attn_rel_b", W_NEAR},
    {"blk.*.attn_q_a", W_Q_A},
    {"blk.*.attn_q_a_norm", W_Q_A_NORM},
    {"blk.*.attn_q_b", W_Q_B},
    {"blk.*.attn_kv_a_mqa", W_KV_A},
    {"blk.*.attn_kv_a_norm", W_KV_A_NORM},
    {"blk.*.attn_kv_b", W_KV_B},
    {"blk.*.attn_k_b", W_KV_B}, /* in two: gguf_latent.c */
    {"blk.*.attn_v_b", W_KV_B},
    {"blk.*.indexer.attn_q_b", W_INDEX_Q},
    {"blk.*.indexer.attn_k", W_INDEX_K},
    {"blk.*.indexer.k_norm", W_INDEX_K_NORM},
    {"blk.*.indexer.proj", W_INDEX_WEIGHTS},
    {"blk.*.indexer.q_proj", W_INDEX_Q}, /* MiniMax M3 */
    {"blk.*.indexer.k_proj", W_INDEX_K},
    {"blk.*.indexer.q_norm", W_INDEX_Q_NORM},
    {"blk.*.indexer_compressor_gate", W_INDEX_POOL_GATE}, /* GLM-5.3, DeepSeek V4 */
    {"blk.*.indexer_compressor_ape", W_INDEX_POOL_BIAS},
    {"blk.*.indexer_compressor_kv", W_INDEX_K}, /* DeepSeek V4 */
    {"blk.*.indexer_compressor_norm", W_INDEX_K_NORM},
    {"blk.*.attn_compressor_kv", W_ENTRY},
    {"blk.*.attn_compressor_norm", W_ENTRY_NORM},
    {"blk.*.attn_compressor_gate", W_ENTRY_GATE},
    {"blk.*.attn_compressor_ape", W_ENTRY_BIAS},
    {"blk.*.attn_kv", W_KV_A},
    {"blk.*.attn_output_a", W_O_A},
    {"blk.*.attn_output_b", W_O},
    {"blk.*.ffn_gate_tid2eid", W_EXPERT_IDS},
    {"blk.*.hc_attn_fn", W_STREAM_MIX},
    {"blk.*.hc_attn_base", W_STREAM_BASE},
    {"blk.*.hc_attn_scale", W_STREAM_SCALE},
    {"blk.*.hc_ffn_fn", W_STREAM_MIX_FFN},
    {"blk.*.hc_ffn_base", W_STREAM_BASE_FFN},
    {"blk.*.hc_ffn_scale", W_STREAM_SCALE_FFN},
    {"output_hc_fn", W_STREAM_MIX_LAST},
    {"output_hc_base", W_STREAM_BASE_LAST},
    {"output_hc_scale", W_STREAM_SCALE_LAST},
    {"hrm.z_l_init", W_STACK_START},
    {"blk.*.attn_q_norm", W_Q_NORM},
    {"blk.*.attn_k_norm", W_K_NORM},
    {"blk.*.attn_sinks", W_SINKS},
    {"blk.*.ffn_gate", W_GATE},
    {"blk.*.ffn_up", W_UP},
    {"blk.*.ffn_up", W_GATE_UP},
    {"blk.*.ffn_down", W_DOWN},
    {"blk.*.ffn_gate_inp", W_ROUTER},
    {"blk.*.exp_probs_b", W_SELECT_BIAS},
    {"blk.*.ffn_latent_down", W_MOE_LATENT_IN},
    {"blk.*.ffn_latent_up", W_MOE_LATENT_OUT},
    {"blk.*.ffn_routed_down", W_MOE_LATENT_IN}, /* Kimi K3 */
    {"blk.*.ffn_routed_up", W_MOE_LATENT_OUT},
    {"blk.*.ffn_routed_norm", W_MOE_LATENT_NORM},
    {"blk.*.attn_res_score", W_BLEND},
    {"blk.*.ffn_res_score", W_BLEND_FFN},
    {"output_res_score", W_BLEND_LAST},
    {"blk.*.ffn_gate_exps", W_MOE_GATE},
    {"blk.*.ffn_up_exps", W_MOE_UP},
    {"blk.*.ffn_down_exps", W_MOE_DOWN},
    {"blk.*.ffn_gate_shexp", W_SHARED_GATE},
    {"blk.*.ffn_up_shexp", W_SHARED_UP},
    {"blk.*.ffn_up_shexp", W_SHARED_GATE_UP},
    {"blk.*.ffn_down_shexp", W_SHARED_DOWN},
    {"blk.*.ffn_gate_inp_shexp", W_SHARED_GATE_OUT},
    {"blk.*.shortconv.in_proj", W_MIX_IN},
    {"blk.*.shortconv.conv", W_MIX_CONV},
    {"blk.*.ffn_gate_up_exps", W_MOE_GATE_UP},
    {"blk.*.ffn_gate_inp.scale", W_ROUTER_SCALE},
    {"blk.*.ffn_down_exps.scale", W_EXPERT_SCALE},
    {"blk.*.pre_ffw_norm_2", W_MOE_NORM},
    {"blk.*.post_ffw_norm_2", W_POST_MOE_NORM},
    {"blk.*.post_ffw_norm_1", W_POST_DENSE_NORM},
    {"blk.*.layer_output_scale", W_LAYER_SCALE},
    {"per_layer_token_embd", W_LAYER_EMBED},
    {"per_layer_model_proj", W_LAYER_EMBED_PROJ},
    {"per_layer_proj_norm", W_LAYER_EMBED_NORM},
    {"blk.*.inp_gate", W_LAYER_EMBED_GATE},
    {"blk.*.proj", W_LAYER_EMBED_OUT},
    {"blk.*.post_norm", W_LAYER_EMBED_POST_NORM},
    {"altup_proj", W_ALTUP_IN}, /* all streams in one: gguf_weights.c */
    {"altup_unembd_proj", W_ALTUP_OUT},
    {"blk.*.altup_router", W_ALTUP_ROUTER},
    {"blk.*.altup_router_norm", W_ALTUP_ROUTER_NORM},
    {"blk.*.altup_predict_coef", W_ALTUP_PREDICT},
    {"blk.*.altup_correct_coef", W_ALTUP_CORRECT},
    {"blk.*.altup_correct_scale", W_ALTUP_SCALE},
    {"blk.*.laurel_l", W_LAUREL_LEFT},
    {"blk.*.laurel_r", W_LAUREL_RIGHT},
    {"blk.*.laurel_post_norm", W_LAUREL_NORM},
    {"blk.*.shortconv.out_proj", W_MIX_OUT},
    {"blk.*.ssm_in", W_MIX_IN},
    {"blk.*.ssm_ba", W_MIX_BETA_DECAY},
    {"blk.*.ssm_beta", W_MIX_BETA},
    {"blk.*.ssm_alpha", W_MIX_DECAY},
    {"blk.*.ssm_conv1d", W_MIX_CONV},
    {"blk.*.ssm_conv1d_q", W_MIX_CONV_Q}, /* Kimi Linear */
    {"blk.*.ssm_conv1d_k", W_MIX_CONV_K},
    {"blk.*.ssm_conv1d_v", W_MIX_CONV_V},
    {"blk.*.ssm_f_a", W_MIX_DECAY_DOWN},
    {"blk.*.ssm_f_a", W_MIX_DECAY}, /* Ling 3: whole matrices */
    {"blk.*.ssm_f_b", W_MIX_DECAY_UP},
    {"blk.*.ssm_g_a", W_MIX_Z_DOWN},
    {"blk.*.ssm_g_a", W_MIX_Z},
    {"blk.*.ssm_g", W_MIX_Z}, /* Kimi K3 */
    {"blk.*.ssm_g_b", W_MIX_Z_UP},
    {"blk.*.ssm_a", W_MIX_RATE},
    {"blk.*.ssm_x", W_MIX_STEP_KEYS},
    {"blk.*.ssm_dt", W_MIX_STEP}, /* of the first Mamba */
    {"blk.*.ssm_dt", W_MIX_DT},
    {"blk.*.ssm_dt_norm", W_MIX_STEP_NORM},
    {"blk.*.ssm_b_norm", W_MIX_K_NORM},
    {"blk.*.ssm_c_norm", W_MIX_Q_NORM},
    {"blk.*.ssm_d", W_MIX_SKIP},
    {"blk.*.ssm_norm", W_MIX_NORM},
    {"blk.*.ssm_out", W_MIX_OUT},
};

/* RWKV-7's, before those above. Ends of the pairs of low rank are biases. */
static const struct name_row rwkv_names[] = {
    {"blk.*.attn_norm_2", W_MLP_NORM, false},
    {"blk.*.time_mix_lerp_fused", W_SHIFT_ALL, false},
    {"blk.*.time_mix_receptance", W_Q, false},
    {"blk.*.time_mix_key", W_K, false},
    {"blk.*.time_mix_value", W_V, false},
    {"blk.*.time_mix_output", W_O, false},
    {"blk.*.time_mix_w0", W_MIX_DECAY_UP, true},
    {"blk.*.time_mix_w1", W_MIX_DECAY_DOWN, false},
    {"blk.*.time_mix_w2", W_MIX_DECAY_UP, false},
    {"blk.*.time_mix_a0", W_MIX_RATE_UP, true},
    {"blk.*.time_mix_a1", W_MIX_RATE_DOWN, false},
    {"blk.*.time_mix_a2", W_MIX_RATE_UP, false},
    {"blk.*.time_mix_v0", W_MIX_BLEND_UP, true},
    {"blk.*.time_mix_v1", W_MIX_BLEND_DOWN, false},
    {"blk.*.time_mix_v2", W_MIX_BLEND_UP, false},
    {"blk.*.time_mix_g1", W_MIX_Z_DOWN, false},
    {"blk.*.time_mix_g2", W_MIX_Z_UP, false},
    {"blk.*.time_mix_k_k", W_MIX_ERASE, false},
    {"blk.*.time_mix_k_a", W_MIX_REPLACE, false},
    {"blk.*.time_mix_r_k", W_MIX_BONUS, false},
    {"blk.*.time_mix_ln", W_MIX_NORM, false},
    {"blk.*.time_mix_ln.bias", W_MIX_NORM_BIAS, false},
    {"blk.*.channel_mix_lerp_k", W_SHIFT_FFN, false},
    {"blk.*.channel_mix_key", W_UP, false},
    {"blk.*.channel_mix_value", W_DOWN, false},
};

bool gguf_whole_name(enum role r)
{
    return r == W_SELECT_BIAS || r == W_SINKS || r == W_ROUTER_SCALE || r == W_EXPERT_SCALE ||
           r == W_LAYER_SCALE || r == W_ALTUP_SCALE || r == W_MIX_RATE || r == W_MIX_DT ||
           r == W_MIX_SKIP || r == W_MIX_NORM || r == W_MIX_STEP_NORM || r == W_MIX_K_NORM ||
           r == W_MIX_Q_NORM || r == W_INDEX_POOL_GATE || r == W_INDEX_POOL_BIAS ||
           r == W_ENTRY_GATE || r == W_ENTRY_BIAS || r == W_EXPERT_IDS || r == W_STACK_START ||
           (r >= W_STREAM_MIX && r <= W_STREAM_SCALE_LAST) || r == W_BLEND || r == W_BLEND_FFN ||
           r == W_BLEND_LAST || (r >= W_SHIFT_Q && r <= W_SHIFT_ALL) ||
           (r >= W_MIX_ERASE && r <= W_MIX_NORM_BIAS);
}

bool gguf_name_matches(const char *name, size_t n, const char *pattern, int *layer)
{
    const char *star = strchr(pattern, '*');
    size_t head = star ? (size_t)(star - pattern) : 0;
    *layer = 0;
    if (!star)
        return strlen(pattern) == n && memcmp(name, pattern, n) == 0;
    if (n <= head || memcmp(name, pattern, head) != 0 || name[head] < '0' || name[head] > '9')
        return false;
    const char *p = name + head;
    for (; p < name + n && *p >= '0' && *p <= '9' && *layer < LAYERS_MAX; p++)
        *layer = *layer * 10 + (*p - '0');
    size_t rest = strlen(star + 1);
    return *layer < LAYERS_MAX && (size_t)(name + n - p) == rest && memcmp(p, star + 1, rest) == 0;
}

static const struct name_row *row_of(const struct name_row *rows, size_t n_rows,
                                     const struct arch *a, const char *name, size_t n, int *layer)
{
    for (size_t i = 0; i < n_rows; i++)
        if (a->names[rows[i].role] && gguf_name_matches(name, n, rows[i].name, layer))
            return &rows[i];
    return NULL;
}

#define ROW_OF(rows) row_of(rows, sizeof(rows) / sizeof((rows)[0]), a, name, n, &u->layer)

static const struct name_row *named(const struct arch *a, const char *name, size_t n,
                                    struct gguf_use *u)
{
    const struct name_row *row = a->names[W_SHIFT_ALL] ? ROW_OF(rwkv_names) : NULL;
    row = row ? row : ROW_OF(names);
    u->role = row ? row->role : u->role;
    return row;
}

static bool use_in(const struct arch *a, const char *name, struct gguf_use *u)
{
    const char *dot = strrchr(name, '.');
    u->suffix = "";
    u->of = a;
    if (named(a, name, strlen(name), u)) { /* ".scale" is part of a name, or there is no suffix */
        u->suffix = gguf_whole_name(u->role) ? "" : ".weight";
        return true;
    }
    bool bias = dot && strcmp(dot, ".bias") == 0;
    const bool weight = dot && strcmp(dot, ".weight") == 0;
    const struct name_row *row = bias || weight ? named(a, name, (size_t)(dot - name), u) : NULL;
    if (!row || (row->bias && bias))
        return false;
    bias |= row->bias;
    /* never a part of `name`, which use_in_cross() makes */
    u->suffix = gguf_whole_name(u->role) ? "" : bias ? ".bias" : ".weight";
    return true;
}

/* "blk.3.cross_attn_q.weight" is "blk.3.attn_q.weight" of the layer's second half. */
static bool use_in_cross(const struct arch *a, const char *name, struct gguf_use *u)
{
    static const char word[] = "cross_";
    enum { WORD = sizeof(word) - 1, NAME_BYTES = 128 };
    char plain[NAME_BYTES];
    const char *at = strstr(name, word);
    const size_t n = strlen(name);
    if (!at || n >= sizeof(plain))
        return false;
    memcpy(plain, name, (size_t)(at - name));
    memcpy(plain + (at - name), at + WORD, n - (size_t)(at - name) - WORD + 1);
    return a->second && use_in(a->second, plain, u);
}

static bool use_in_stack(const struct arch *a, const char *name, uint32_t stack, struct gguf_use *u)
{
    if (!use_in(a, name, u))
        return false;
    if (stack == 0 || u->layer < (int)stack || !a->second || !a->second->names[u->role])
        return true;
    u->layer -= (int)stack;
    u->of = a->second;
    return true;
}

/* Converters write a pair of RWKV's first layer that is not used, as later ones have it. */
static bool is_unread(const struct gguf_use *u)
{
    const bool blend = u->role == W_MIX_BLEND_DOWN || u->role == W_MIX_BLEND_UP;
    return blend && u->layer == 0;
}

bool gguf_use_of(const struct arch *a, const char *name, uint32_t stack, struct gguf_use *u)
{
    const bool encoders = strncmp(name, "enc.", 4) == 0, decoders = strncmp(name, "dec.", 4) == 0;
    const char *rest = name + (encoders || decoders ? 4 : 0);
    if ((encoders && a->encoder) || (decoders && !a->encoder) ||
        strstr(rest, ".cross_attn_rel_b.")) { /* no model uses these */
        u->of = NULL;
        return true;
    }
    if (use_in_stack(a, rest, stack, u)) {
        u->of = is_unread(u) ? NULL : u->of;
        return true;
    }
    return decoders && (use_in_cross(a, rest, u) || (a->second && use_in(a->second, rest, u)));
}

const char *gguf_weights_name(enum role r)
{
    if (r == W_MLP_NORM) /* the other one belongs to families with only that norm */
        return "blk.*.ffn_norm";
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].role == r)
            return names[i].name;
    return NULL;
}
