/* Architectures with several kinds of layers: recurrent hybrids, Gemma 4, Llama 4. */
#include "common/gguf/families.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool layer_has(const struct gguf_meta *m, int layer, const char *part)
{
    char name[GGUF_KEY_MAX];
    snprintf(name, sizeof(name), "blk.%d.%s", layer, part);
    return meta_has(m, name);
}

static int layers(const struct gguf_meta *m)
{
    const double n = meta_layers(m);
    return n > 0 && n < GGUF_LAYERS_MAX ? (int)n : 0;
}

/* True if any layer has the tensor. */
static bool any_has(const struct gguf_meta *m, const char *part)
{
    for (int i = 0; i < layers(m); i++)
        if (layer_has(m, i, part))
            return true;
    return false;
}

/* ---------------------------------------------------------------- the gated delta rule */

void gguf_qwen35(const struct gguf_meta *m)
{
    const double heads = meta_number_or(m, "ssm.time_step_rank", 0);
    if (meta_number_or(m, "expert_count", 0) > 0) {
        gguf_experts(m);
        meta_put(m, "num_experts", meta_number_or(m, "expert_count", 0));
        meta_copy(m, "expert_shared_feed_forward_length", "shared_expert_intermediate_size");
    }
    meta_copy(m, "ssm.conv_kernel", "linear_conv_kernel_dim");
    meta_copy(m, "ssm.state_size", "linear_key_head_dim");
    meta_copy(m, "ssm.group_count", "linear_num_key_heads");
    meta_copy(m, "ssm.time_step_rank", "linear_num_value_heads");
    if (heads > 0)
        meta_put(m, "linear_value_head_dim", meta_number_or(m, "ssm.inner_size", 0) / heads);
    gguf_kinds(m, "layer_types", "ssm_a", "linear_attention", "full_attention");
}

/* ---------------------------------------------------------------- Mamba-2 */

struct mamba_words {
    const char *heads, *head_dim, *groups, *state, *conv, *conv_bias;
};

static void mamba(const struct gguf_meta *m, const struct mamba_words *w)
{
    const double heads = meta_number_or(m, "ssm.time_step_rank", 0);
    meta_copy(m, "ssm.time_step_rank", w->heads);
    if (heads > 0)
        meta_put(m, w->head_dim, meta_number_or(m, "ssm.inner_size", 0) / heads);
    meta_copy(m, "ssm.group_count", w->groups);
    meta_copy(m, "ssm.state_size", w->state);
    meta_copy(m, "ssm.conv_kernel", w->conv);
    cJSON_AddBoolToObject(m->config, w->conv_bias, any_has(m, "ssm_conv1d.bias"));
}

static const struct mamba_words with_prefix = {"mamba_n_heads", "mamba_d_head", "mamba_n_groups",
                                               "mamba_d_state", "mamba_d_conv", "mamba_conv_bias"};

/* `rope.scaling.finetuned` is the switch for rotary positions here, as in llama.cpp. Bamba has this
 * architecture as well, without Granite's multipliers. */
void gguf_granite_hybrid(const struct gguf_meta *m)
{
    const double dim = gguf_head_size(m->s, m->f);
    double scale;
    gguf_granite(m);
    if (!meta_number(m, "attention.scale", &scale) && dim > 0)
        meta_put(m, "attention_multiplier", 1 / sqrt(dim));
    mamba(m, &with_prefix);
    gguf_kinds(m, "layer_types", "ssm_a", "mamba", "attention");
    cJSON_AddStringToObject(m->config, "position_embedding_type",
                            meta_bool_or(m, "rope.scaling.finetuned", true) ? "rope" : "nope");
    meta_put(m, "num_local_experts", meta_number_or(m, "expert_count", 0));
    meta_copy(m, "expert_used_count", "num_experts_per_tok");
    meta_put(m, "shared_intermediate_size",
             meta_number_or(m, "expert_shared_feed_forward_length",
                            gguf_family_number(m->s, m->f, "feed_forward_length")));
}

void gguf_nemotron_h(const struct gguf_meta *m)
{
    static const struct mamba_words words = {"mamba_num_heads", "mamba_head_dim", "n_groups",
                                             "ssm_state_size",  "conv_kernel",    "use_conv_bias"};
    char pattern[GGUF_LAYERS_MAX + 1];
    int n = 0;
    for (; n < layers(m); n++)
        pattern[n] = layer_has(m, n, "ssm_a")                 ? 'M'
                     : layer_has(m, n, "attn_q.weight")       ? '*'
                     : layer_has(m, n, "ffn_gate_inp.weight") ? 'E'
                                                              : '-';
    pattern[n] = 0;
    cJSON_AddStringToObject(m->config, "hybrid_override_pattern", pattern);
    mamba(m, &words);
    meta_copy(m, "attention.layer_norm_rms_epsilon", "layer_norm_epsilon");
    cJSON_AddBoolToObject(m->config, "attention_bias", any_has(m, "attn_q.bias"));
    cJSON_AddBoolToObject(m->config, "mlp_bias", any_has(m, "ffn_up.bias"));
    if (meta_number_or(m, "expert_count", 0) > 0) {
        gguf_deepseek_experts(m);
        meta_copy(m, "expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size");
        meta_copy(m, "moe_latent_size", "moe_latent_size");
    }
}

/* The converter multiplies the weights by all of the multipliers. */
void gguf_falcon_h1(const struct gguf_meta *m)
{
    mamba(m, &with_prefix);
    meta_copy(m, "ssm.inner_size", "mamba_d_ssm");
    cJSON_AddBoolToObject(m->config, "mamba_rms_norm", layer_has(m, 0, "ssm_norm.weight"));
    cJSON_AddBoolToObject(m->config, "mamba_norm_before_gate", false);
    gguf_qkv_bias(m);
}

void gguf_mamba2(const struct gguf_meta *m)
{
    static const struct mamba_words words = {"num_heads",  "head_dim",    "n_groups",
                                             "state_size", "conv_kernel", "use_conv_bias"};
    mamba(m, &words);
    meta_copy(m, "attention.layer_norm_rms_epsilon", "layer_norm_epsilon");
}

/* The first Mamba; Falcon's normalises steps, keys and queries. */
void gguf_mamba(const struct gguf_meta *m)
{
    cJSON_ReplaceItemInObjectCaseSensitive(
        m->config, "model_type",
        cJSON_CreateString(meta_bool_or(m, "ssm.dt_b_c_rms", false) ? "falcon_mamba" : "mamba"));
    meta_copy(m, "ssm.inner_size", "intermediate_size");
    meta_copy(m, "ssm.state_size", "state_size");
    meta_copy(m, "ssm.conv_kernel", "conv_kernel");
    meta_copy(m, "ssm.time_step_rank", "time_step_rank");
    meta_copy(m, "attention.layer_norm_rms_epsilon", "layer_norm_epsilon");
    cJSON_AddBoolToObject(m->config, "use_conv_bias", any_has(m, "ssm_conv1d.bias"));
    cJSON_AddBoolToObject(m->config, "use_bias", any_has(m, "ssm_in.bias"));
}

void gguf_rwkv7(const struct gguf_meta *m)
{
    meta_copy(m, "wkv.head_size", "head_dim");
    meta_copy(m, "attention.layer_norm_epsilon", "norm_eps");
    meta_copy(m, "attention.decay_lora_rank", "decay_low_rank_dim");
    meta_copy(m, "attention.iclr_lora_rank", "a_low_rank_dim");
    meta_copy(m, "attention.value_residual_mix_lora_rank", "v_low_rank_dim");
    meta_copy(m, "attention.gate_lora_rank", "gate_low_rank_dim");
    cJSON_AddBoolToObject(m->config, "norm_bias", layer_has(m, 0, "attn_norm.bias"));
}

/* Every n-th layer has the tensor, from one layer on: writes both. */
static void period(const struct gguf_meta *m, const char *part, const char *every, const char *from)
{
    int at[2], n = 0;
    for (int i = 0; i < layers(m) && n < 2; i++)
        if (layer_has(m, i, part))
            at[n++] = i;
    meta_put(m, from, n > 0 ? at[0] : layers(m));
    meta_put(m, every, n > 1 ? at[1] - at[0] : layers(m) + 1);
}

void gguf_jamba(const struct gguf_meta *m)
{
    const double hidden = meta_number_or(m, "embedding_length", 1);
    period(m, "attn_q.weight", "attn_layer_period", "attn_layer_offset");
    period(m, "ffn_gate_inp.weight", "expert_layer_period", "expert_layer_offset");
    meta_put(m, "num_experts", meta_number_or(m, "expert_count", 1));
    meta_copy(m, "expert_used_count", "num_experts_per_tok");
    meta_put(m, "mamba_expand", meta_number_or(m, "ssm.inner_size", 0) / hidden);
    meta_copy(m, "ssm.state_size", "mamba_d_state");
    meta_copy(m, "ssm.conv_kernel", "mamba_d_conv");
    meta_copy(m, "ssm.time_step_rank", "mamba_dt_rank");
    cJSON_AddBoolToObject(m->config, "mamba_conv_bias", any_has(m, "ssm_conv1d.bias"));
    cJSON_AddBoolToObject(m->config, "mamba_proj_bias", any_has(m, "ssm_in.bias"));
}

/* ---------------------------------------------------------------- PLaMo */

/* A file tells layers of attention by their tensors, and has no windows, as llama.cpp has none. */
void gguf_plamo2(const struct gguf_meta *m)
{
    const double heads = meta_number_or(m, "ssm.time_step_rank", 0);
    cJSON *all = cJSON_AddArrayToObject(m->config, "full_attention_idx");
    int at[2], n = 0;
    for (int i = 0; i < layers(m); i++) {
        cJSON_AddItemToArray(all, cJSON_CreateNumber(i));
        if (n < 2 && layer_has(m, i, "attn_qkv.weight"))
            at[n++] = i;
    }
    const bool last = n == 1 && at[0] == layers(m) - 1; /* of few layers: see is_mamba() */
    if (n)
        meta_put(m, "mamba_step", last ? 2 * layers(m) : n > 1 ? at[1] - at[0] : 2 * at[0]);
    meta_copy(m, "ssm.time_step_rank", "mamba_num_heads");
    meta_copy(m, "ssm.state_size", "mamba_d_state");
    meta_copy(m, "ssm.conv_kernel", "mamba_d_conv");
    if (heads * gguf_head_size(m->s, m->f) != meta_number_or(m, "ssm.inner_size", 0))
        meta_put(m, "mamba_num_heads", 0); /* refused by this key */
}

/* Without a window no layer has one. The file does not tell that the ends of the ramp are not
 * rounded, which the family's own keys imply. */
void gguf_plamo3(const struct gguf_meta *m)
{
    static const char pattern[] = "attention.sliding_window_pattern";
    const double window = meta_number_or(m, "attention.sliding_window", 0);
    const double every = meta_numbers(m, pattern) ? 0 /* no list: refused */
                                                  : meta_number_or(m, pattern, 8);
    meta_put(m, "sliding_window_pattern", window > 0 ? every : 1);
    if (window > 0)
        meta_put(m, "window_size", window);
    meta_put(m, "rope_theta", meta_number_or(m, "rope.freq_base", 10000));
    meta_copy(m, "rope.freq_base_swa", "rope_local_theta");
    meta_copy(m, "rope.scaling.factor", "rope_scaling_factor");
    meta_copy(m, "rope.scaling.original_context_length", "initial_context_length");
}

/* ---------------------------------------------------------------- Gemma 4 */

/* True if layer i has a sliding window. */
static bool slides(const struct gguf_value *list, int i)
{
    return list && (uint64_t)i < list->n && gguf_number_at(list, (uint64_t)i) != 0;
}

static double at_layer(const struct gguf_meta *m, const char *key, int i)
{
    const struct gguf_value *list = meta_numbers(m, key);
    return list && (uint64_t)i < list->n ? gguf_number_at(list, (uint64_t)i)
                                         : meta_number_or(m, key, 0);
}

/* The rotated fraction of a head in full-attention layers: the frequency factors of the other pairs
 * are practically infinite. */
static double turning(const struct gguf_meta *m)
{
    const struct gguf_tensor *t = gguf_set_tensor(m->s, "rope_freqs.weight");
    double n = 0;
    if (!t || t->packing != GGUF_F32 || t->dims[0] == 0 || t->bytes != t->dims[0] * 4)
        return 1;
    for (uint64_t i = 0; i < t->dims[0]; i++) {
        float v;
        memcpy(&v, t->data + i * 4, 4);
        n += v == 1;
    }
    return n / (double)t->dims[0];
}

static void rotation(cJSON *all, const char *kind, const char *type, double theta, double part)
{
    cJSON *o = cJSON_AddObjectToObject(all, kind);
    cJSON_AddStringToObject(o, "rope_type", type);
    meta_put_in(o, "rope_theta", theta);
    meta_put_in(o, "partial_rotary_factor", part);
}

static void gemma4_heads(const struct gguf_meta *m, const struct gguf_value *list)
{
    int full = -1, local = -1;
    for (int i = layers(m); i-- > 0;)
        *(slides(list, i) ? &local : &full) = i;
    meta_set(m, "head_dim", meta_number_or(m, "attention.key_length_swa", 0));
    meta_copy(m, "attention.key_length", "global_head_dim");
    meta_set(m, "num_key_value_heads",
             at_layer(m, "attention.head_count_kv", local < 0 ? 0 : local));
    if (full < 0)
        return;
    const bool same = !layer_has(m, full, "attn_v.weight") && layer_has(m, full, "attn_k.weight");
    cJSON_AddBoolToObject(m->config, "attention_k_eq_v", same);
    if (same)
        meta_put(m, "num_global_key_value_heads", at_layer(m, "attention.head_count_kv", full));
}

void gguf_gemma4(const struct gguf_meta *m)
{
    const struct gguf_value *list = meta_numbers(m, "attention.sliding_window_pattern");
    const double ffn = at_layer(m, "feed_forward_length", 0);
    gguf_window(m);
    gguf_caps(m);
    gguf_pattern(m);
    gemma4_heads(m, list);
    cJSON *all = cJSON_AddObjectToObject(m->config, "rope_parameters");
    rotation(all, "full_attention", "proportional", meta_number_or(m, "rope.freq_base", 1e6),
             turning(m));
    rotation(all, "sliding_attention", "default", meta_number_or(m, "rope.freq_base_swa", 1e4), 1);
    meta_put(m, "num_kv_shared_layers", meta_number_or(m, "attention.shared_kv_layers", 0));
    meta_put(m, "hidden_size_per_layer_input",
             meta_number_or(m, "embedding_length_per_layer_input", 0));
    meta_set(m, "intermediate_size", ffn);
    cJSON_AddBoolToObject(m->config, "use_double_wide_mlp",
                          at_layer(m, "feed_forward_length", layers(m) - 1) > ffn);
    if (meta_number_or(m, "expert_count", 0) > 0) {
        cJSON_AddBoolToObject(m->config, "enable_moe_block", true);
        meta_copy(m, "expert_count", "num_experts");
        meta_copy(m, "expert_used_count", "top_k_experts");
        meta_copy(m, "expert_feed_forward_length", "moe_intermediate_size");
    }
}

/* ---------------------------------------------------------------- Gemma 3n */

/* The rows of a layer's tensor, or 0. */
static double rows_of(const struct gguf_meta *m, const char *name)
{
    const struct gguf_tensor *t = gguf_set_tensor(m->s, name);
    return t && t->n_dims == 2 ? (double)t->dims[1] : 0;
}

/* The file has what config.json's shares of the normal distribution amount to: deviations from the
 * mean, -infinity for 0. */
static void sparsity(const struct gguf_meta *m)
{
    static const double DECIMALS = 1e6;
    const struct gguf_value *list = meta_numbers(m, "activation_sparsity_scale");
    cJSON *shares = cJSON_AddArrayToObject(m->config, "activation_sparsity_pattern");
    for (int i = 0; i < layers(m); i++) {
        const double v =
            list && (uint64_t)i < list->n ? gguf_number_at(list, (uint64_t)i) : -HUGE_VAL;
        const double share = erfc(-v * M_SQRT1_2) / 2;
        cJSON_AddItemToArray(shares, cJSON_CreateNumber(round(share * DECIMALS) / DECIMALS));
    }
}

void gguf_gemma3n(const struct gguf_meta *m)
{
    gguf_window(m);
    gguf_pattern(m);
    sparsity(m);
    meta_copy(m, "final_logit_softcapping", "final_logit_softcapping"); /* absent: 30 */
    meta_put(m, "rope_local_base_freq", meta_number_or(m, "rope.freq_base_swa", 10000));
    meta_put(m, "num_kv_shared_layers", meta_number_or(m, "attention.shared_kv_layers", 0));
    meta_copy(m, "embedding_length_per_layer_input", "hidden_size_per_layer_input");
    meta_put(m, "vocab_size_per_layer_input", rows_of(m, "per_layer_token_embd.weight"));
    meta_put(m, "laurel_rank", rows_of(m, "blk.0.laurel_l.weight"));
    meta_copy(m, "altup.num_inputs", "altup_num_inputs");
    meta_copy(m, "altup.active_idx", "altup_active_idx");
    cJSON *widths = cJSON_CreateArray();
    for (int i = 0; i < layers(m); i++)
        cJSON_AddItemToArray(widths, cJSON_CreateNumber(at_layer(m, "feed_forward_length", i)));
    cJSON_ReplaceItemInObjectCaseSensitive(m->config, "intermediate_size", widths);
}

/* ---------------------------------------------------------------- Llama 4 */

/* The chunk size and the temperature scaling are not in the file: the defaults are those of both
 * released models. The larger one (128 experts) has no norms of q and k, as in llama.cpp. */
void gguf_llama4(const struct gguf_meta *m)
{
    cJSON *moe = cJSON_AddArrayToObject(m->config, "moe_layers");
    meta_set(m, "intermediate_size_mlp", gguf_family_number(m->s, m->f, "feed_forward_length"));
    meta_set(m, "intermediate_size", meta_number_or(m, "expert_feed_forward_length", 0));
    meta_copy(m, "expert_count", "num_local_experts");
    meta_copy(m, "expert_used_count", "num_experts_per_tok");
    cJSON_AddBoolToObject(m->config, "use_qk_norm", meta_number_or(m, "expert_count", 0) != 128);
    for (int i = 0; i < layers(m); i++)
        if (layer_has(m, i, "ffn_gate_inp.weight"))
            cJSON_AddItemToArray(moe, cJSON_CreateNumber(i));
}

double gguf_first_rows(const struct gguf_meta *m, const char *part)
{
    char name[GGUF_KEY_MAX];
    for (int i = 0; i < meta_layers(m) && i < GGUF_LAYERS_MAX; i++) {
        snprintf(name, sizeof(name), "blk.%d.%s", i, part);
        const struct gguf_tensor *t = gguf_set_tensor(m->s, name);
        if (t)
            return (double)t->dims[1];
    }
    return 0;
}

/* Files since the latent vector is one key-value head of its own have the sizes of a head's key and
 * value apart. */
void gguf_kimi_delta(const struct gguf_meta *m)
{
    const double rope = meta_number_or(m, "rope.dimension_count", 0);
    const double key = meta_number_or(m, "attention.key_length", 0);
    gguf_deepseek_experts(m);
    gguf_kinds(m, "layer_types", "ssm_conv1d_q.weight", "linear_attention", "full_attention");
    gguf_kinds(m, "mlp_layer_types", "ffn_gate_inp.weight", "sparse", "dense");
    meta_put(m, "linear_num_heads", gguf_first_rows(m, "ssm_beta.weight"));
    meta_copy(m, "kda.head_dim", "linear_head_dim");
    meta_copy(m, "ssm.conv_kernel", "linear_conv_kernel_dim");
    meta_copy(m, "attention.q_lora_rank", "q_lora_rank");
    meta_copy(m, "attention.kv_lora_rank", "kv_lora_rank");
    meta_put(m, "qk_rope_head_dim", rope);
    meta_put(m, "qk_nope_head_dim", meta_number_or(m, "attention.key_length_mla", key) - rope);
    meta_put(m, "v_head_dim",
             meta_number_or(m, "attention.value_length_mla",
                            meta_number_or(m, "attention.value_length", 0)));
}

void gguf_kimi_linear(const struct gguf_meta *m)
{
    gguf_kimi_delta(m);
    meta_copy(m, "expert_count", "num_local_experts");
}

/* Kimi K3: sizes of the delta layers are in an object, as in its config.json. */
void gguf_kimi_k3(const struct gguf_meta *m)
{
    static const char *const keys[][2] = {
        {"expert_latent_length", "routed_expert_hidden_size"},
        {"attn_res.block_size", "attn_res_block_size"},
        {"activation.situ_beta", "activation_situ_beta"},
        {"activation.situ_linear_beta", "activation_situ_linear_beta"}};
    double v;
    gguf_kimi_delta(m);
    meta_copy(m, "expert_count", "num_experts");
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        meta_copy(m, keys[i][0], keys[i][1]);
    cJSON_AddStringToObject(m->config, "hidden_act", "situ");
    cJSON_AddBoolToObject(m->config, "mla_use_output_gate",
                          gguf_first_rows(m, "attn_gate.weight") > 0);
    cJSON_AddBoolToObject(m->config, "latent_moe_use_norm",
                          gguf_first_rows(m, "ffn_routed_norm.weight") > 0);
    cJSON *own = cJSON_AddObjectToObject(m->config, "linear_attn_config");
    meta_put_in(own, "num_heads", gguf_first_rows(m, "ssm_beta.weight"));
    meta_put_in(own, "head_dim", meta_number_or(m, "kda.head_dim", 0));
    meta_put_in(own, "short_conv_kernel_size", meta_number_or(m, "ssm.conv_kernel", 0));
    cJSON_AddBoolToObject(own, "use_full_rank_gate", gguf_first_rows(m, "ssm_g.weight") > 0);
    if (meta_number(m, "kda.gate_lower_bound", &v))
        meta_put_in(own, "gate_lower_bound", v);
}

/* Ling 3. llama.cpp refuses decays without a floor. */
void gguf_bailing3(const struct gguf_meta *m)
{
    gguf_kimi_delta(m);
    meta_copy(m, "expert_count", "num_experts");
    meta_copy(m, "kda.gate_lower_bound", "kda_lower_bound");
    cJSON_AddBoolToObject(m->config, "kda_safe_gate", true);
    meta_copy_list(m, "swiglu_clamp_exp", "expert_swiglu_limit_list");
    meta_copy_list(m, "swiglu_clamp_shexp", "share_expert_swiglu_limit_list");
}

/* ---------------------------------------------------------------- layers of different sizes */

static double of_layer(const struct gguf_meta *m, const char *key, int layer)
{
    const struct gguf_value *list = meta_numbers(m, key);
    if (!list)
        return meta_number_or(m, key, 0);
    return (uint64_t)layer < list->n ? gguf_number_at(list, (uint64_t)layer) : 0;
}

/* Llama-Nemotron: layers without heads have no attention, those of width 0 no MLP. llama.cpp's
 * files may also have layers with heads of queries alone, which are one matrix. */
void gguf_deci(const struct gguf_meta *m)
{
    cJSON *blocks = cJSON_AddArrayToObject(m->config, "block_configs");
    gguf_qkv_bias(m);
    for (int i = 0; i < meta_layers(m) && i < GGUF_LAYERS_MAX; i++) {
        cJSON *block = cJSON_CreateObject();
        cJSON *attention = cJSON_AddObjectToObject(block, "attention");
        cJSON *ffn = cJSON_AddObjectToObject(block, "ffn");
        const double heads = of_layer(m, "attention.head_count", i);
        const double kv = of_layer(m, "attention.head_count_kv", i);
        const double width = of_layer(m, "feed_forward_length", i);
        cJSON_AddBoolToObject(attention, "no_op", heads == 0);
        cJSON_AddBoolToObject(attention, "replace_with_linear", heads > 0 && kv == 0);
        if (kv > 0)
            meta_put_in(attention, "n_heads_in_group", floor(heads / kv));
        cJSON_AddBoolToObject(ffn, "no_op", width == 0);
        meta_put_in(ffn, "intermediate_size", width);
        cJSON_AddItemToArray(blocks, block);
    }
}

/* The multipliers come to the widths of the file, which are their own multiples. */
void gguf_openelm(const struct gguf_meta *m)
{
    static const char *const keys[][2] = {{"attention.head_count", "num_query_heads"},
                                          {"attention.head_count_kv", "num_kv_heads"},
                                          {"feed_forward_length", "ffn_multipliers"}};
    const double hidden = meta_number_or(m, "embedding_length", 1);
    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
        cJSON *list = cJSON_AddArrayToObject(m->config, keys[k][1]);
        for (int i = 0; i < meta_layers(m) && i < GGUF_LAYERS_MAX; i++) {
            const double n = of_layer(m, keys[k][0], i);
            cJSON_AddItemToArray(list, cJSON_CreateNumber(k < 2 ? n : (n + 0.25) / hidden));
        }
    }
    meta_put(m, "ffn_dim_divisor", 1);
    cJSON_AddBoolToObject(m->config, "ffn_with_glu", true);
    cJSON_AddBoolToObject(m->config, "normalize_qk_projections",
                          meta_has(m, "blk.0.attn_q_norm.weight"));
    cJSON_AddBoolToObject(m->config, "share_input_output_layers", !meta_has(m, "output.weight"));
}
