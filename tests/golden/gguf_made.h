/* gguf_made.h - converts a checkpoint folder to GGUF as llama.cpp's convert_hf_to_gguf.py does:
 * other names, halves of heads interleaved, norms with 1 added, experts in one tensor. */
#ifndef TESTS_GOLDEN_GGUF_MADE_H
#define TESTS_GOLDEN_GGUF_MADE_H
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/quant/blocks.h"
#include "tests/golden/gguf_tokens.h"
#include "tests/golden/lora_made.h"

/* Where a family differs. */
struct gguf_kind {
    const char *model_type, *name;
    bool paired, plus;
};
static const struct gguf_kind gguf_kinds[] = {
    {"llama", "llama", true, false},         {"mixtral", "llama", true, false},
    {"qwen2", "qwen2", false, false},        {"qwen3", "qwen3", false, false},
    {"qwen3_moe", "qwen3moe", false, false}, {"gemma", "gemma", false, true},
    {"gemma2", "gemma2", false, true},       {"gemma3_text", "gemma3", false, true},
    {"phi3", "phi3", false, false},          {"granite", "granite", true, false},
    {"cohere", "command-r", false, false},   {"starcoder2", "starcoder2", false, false},
    {"stablelm", "stablelm", false, false},  {"gemma3n_text", "gemma3n", false, false},
    {"rwkv7", "rwkv7", false, false},
};

/* packing of the matrices; -1: as stored. `dequantised`: a folder for the dequantised numbers, in
 * fp32. */
struct gguf_how {
    int packing;
    const char *dequantised;
    uint32_t files; /* 0, 1: one */
};

/* ---------------------------------------------------------------- names */

static inline const char *gguf_part(const struct gguf_kind *k, const char *part)
{
    static const char *const parts[][2] = {
        {"input_layernorm", "attn_norm"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"},
        {"self_attn.qkv_proj", "attn_qkv"},
        {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"},
        {"pre_feedforward_layernorm", "ffn_norm"},
        {"post_feedforward_layernorm", "post_ffw_norm"},
        {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},
        {"mlp.gate_up_proj", "ffn_up"},
        {"mlp.c_fc", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
        {"mlp.c_proj", "ffn_down"},
        {"block_sparse_moe.gate", "ffn_gate_inp"},
        {"mlp.gate", "ffn_gate_inp"},
        {"block_sparse_moe.experts.0.w1", "ffn_gate_exps"},
        {"block_sparse_moe.experts.0.w3", "ffn_up_exps"},
        {"block_sparse_moe.experts.0.w2", "ffn_down_exps"},
        {"mlp.experts.0.gate_proj", "ffn_gate_exps"},
        {"mlp.experts.0.up_proj", "ffn_up_exps"},
        {"mlp.experts.0.down_proj", "ffn_down_exps"},
        {"per_layer_input_gate", "inp_gate"},
        {"per_layer_projection", "proj"},
        {"post_per_layer_input_norm", "post_norm"},
        {"altup.modality_router", "altup_router"},
        {"altup.router_norm", "altup_router_norm"},
        {"altup.prediction_coefs", "altup_predict_coef"},
        {"altup.correction_coefs", "altup_correct_coef"},
        {"altup.correct_output_scale", "altup_correct_scale"},
        {"laurel.linear_left", "laurel_l"},
        {"laurel.linear_right", "laurel_r"},
        {"laurel.post_laurel_norm", "laurel_post_norm"},
        {"attn_norm", "attn_norm"},
        {"ffn_norm", "attn_norm_2"},
        {"pre_norm", "token_embd_norm"}, /* of the first layer */
        {"attn.x_x", "time_mix_lerp_fused"},
        {"attn.k_k", "time_mix_k_k"},
        {"attn.k_a", "time_mix_k_a"},
        {"attn.r_k", "time_mix_r_k"},
        {"attn.g_norm", "time_mix_ln"},
        {"attn.r_proj", "time_mix_receptance"},
        {"attn.k_proj", "time_mix_key"},
        {"attn.v_proj", "time_mix_value"},
        {"attn.o_proj", "time_mix_output"},
        {"attn.w_lora.lora.0", "time_mix_w1"},
        {"attn.w_lora.lora.2", "time_mix_w2"},
        {"attn.a_lora.lora.0", "time_mix_a1"},
        {"attn.a_lora.lora.2", "time_mix_a2"},
        {"attn.v_lora.lora.0", "time_mix_v1"},
        {"attn.v_lora.lora.2", "time_mix_v2"},
        {"attn.g_lora.lora.0", "time_mix_g1"},
        {"attn.g_lora.lora.2", "time_mix_g2"},
        {"ffn.x_k", "channel_mix_lerp_k"},
        {"ffn.key", "channel_mix_key"},
        {"ffn.value", "channel_mix_value"},
    };
    if (strcmp(part, "post_attention_layernorm") == 0)
        return strcmp(k->name, "gemma2") == 0 || strncmp(k->name, "gemma3", 6) == 0
                   ? "post_attention_norm"
                   : "ffn_norm";
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strcmp(parts[i][0], part) == 0)
            return parts[i][1];
    fail_msg("no name for %s", part);
    return NULL;
}

/* "model.layers.2.mlp.up_proj.weight" as "blk.2.ffn_up.weight" */
static inline void gguf_name(const struct gguf_kind *k, const char *name, char out[PATH_LEN])
{
    static const char *const outer[][2] = {
        {"model.embed_tokens", "token_embd"},
        {"model.embeddings", "token_embd"},
        {"model.norm", "output_norm"},
        {"lm_head", "output"},
        {"model.embed_tokens_per_layer", "per_layer_token_embd"},
        {"model.per_layer_model_projection", "per_layer_model_proj"},
        {"model.per_layer_projection_norm", "per_layer_proj_norm"},
        {"model.altup_projections.0", "altup_proj"},
        {"model.altup_unembed_projections.0", "altup_unembd_proj"},
    };
    char part[PATH_LEN];
    unsigned layer;
    int at = 0;
    const char *last = strrchr(name, '.');
    const bool whole = strcmp(last, ".weight") != 0 && strcmp(last, ".bias") != 0;
    const char *dot = whole ? name + strlen(name) : last;
    if (sscanf(name, "model.layers.%u.%n", &layer, &at) == 1 && at) {
        snprintf(part, sizeof(part), "%.*s", (int)(dot - name - at), name + at);
        const char *word = gguf_part(k, part);
        if (strstr(part, "_lora.") && strcmp(dot, ".bias") == 0) /* w2's is w0 */
            snprintf(out, PATH_LEN, "blk.%u.%.*s0.weight", layer, (int)strlen(word) - 1, word);
        else if (strcmp(part, "pre_norm") == 0)
            snprintf(out, PATH_LEN, "%s%s", word, dot);
        else
            snprintf(out, PATH_LEN, "blk.%u.%s%s", layer, word, whole ? ".weight" : dot);
        return;
    }
    snprintf(part, sizeof(part), "%.*s", (int)(dot - name), name);
    for (size_t i = 0; i < sizeof(outer) / sizeof(outer[0]); i++)
        if (strcmp(outer[i][0], part) == 0) {
            snprintf(out, PATH_LEN, "%s%s", outer[i][1], dot);
            return;
        }
    fail_msg("no name for %s", name);
}

/* ---------------------------------------------------------------- metadata */

struct gguf_making {
    const struct gguf_kind *k;
    const struct gguf_how *how;
    cJSON *config;
    struct checkpoint c;
    struct gguf_write w;
    struct made_file left; /* what how->dequantised gets */
    double head_dim;
};

static inline void gguf_copy_keys(struct gguf_making *m)
{
    static const struct {
        const char *from, *to;
        bool real;
    } keys[] = {
        {"hidden_size", "embedding_length", false},
        {"num_hidden_layers", "block_count", false},
        {"max_position_embeddings", "context_length", false},
        {"intermediate_size", "feed_forward_length", false},
        {"num_attention_heads", "attention.head_count", false},
        {"num_key_value_heads", "attention.head_count_kv", false},
        {"sliding_window", "attention.sliding_window", false},
        {"num_experts", "expert_count", false},
        {"num_local_experts", "expert_count", false},
        {"num_experts_per_tok", "expert_used_count", false},
        {"moe_intermediate_size", "expert_feed_forward_length", false},
        {"rms_norm_eps", "attention.layer_norm_rms_epsilon", true},
        {"layer_norm_eps", "attention.layer_norm_epsilon", true},
        {"norm_epsilon", "attention.layer_norm_epsilon", true},
        {"rope_theta", "rope.freq_base", true},
        {"logit_scale", "logit_scale", true},
        {"logits_scaling", "logit_scale", true},
        {"embedding_multiplier", "embedding_scale", true},
        {"residual_multiplier", "residual_scale", true},
        {"attention_multiplier", "attention.scale", true},
        {"attn_logit_softcapping", "attn_logit_softcapping", true},
        {"final_logit_softcapping", "final_logit_softcapping", true},
        {"rope_local_base_freq", "rope.freq_base_swa", true},
        {"hidden_size_per_layer_input", "embedding_length_per_layer_input", false},
        {"num_kv_shared_layers", "attention.shared_kv_layers", true},
        {"altup_num_inputs", "altup.num_inputs", false},
        {"altup_active_idx", "altup.active_idx", false},
        {"norm_eps", "attention.layer_norm_epsilon", true},
        {"head_dim", "wkv.head_size", false},
        {"decay_low_rank_dim", "attention.decay_lora_rank", false},
        {"a_low_rank_dim", "attention.iclr_lora_rank", false},
        {"v_low_rank_dim", "attention.value_residual_mix_lora_rank", false},
        {"gate_low_rank_dim", "attention.gate_lora_rank", false},
    };
    char key[128];
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const cJSON *j = json_get(m->config, keys[i].from);
        if (!cJSON_IsNumber(j))
            continue;
        snprintf(key, sizeof(key), "%s.%s", m->k->name, keys[i].to);
        if (keys[i].real)
            gw_put_f32(&m->w, key, (float)j->valuedouble);
        else
            gw_put_u32(&m->w, key, (uint32_t)j->valuedouble);
    }
}

static inline void gguf_factors(struct gguf_making *m, const char *name, const cJSON *list)
{
    float v[512];
    uint64_t n = 0;
    const cJSON *j;
    cJSON_ArrayForEach(j, list) v[n++] = (float)j->valuedouble;
    gw_tensor(&m->w, name, GGUF_F32, 1, &n, v, n * sizeof(float));
}

/* The factors that generate_extra_tensors() of the converter writes for Llama 3's scaling. */
static inline void gguf_llama3(struct gguf_making *m, const cJSON *r)
{
    const double factor = json_num(r, "factor", 8), low = json_num(r, "low_freq_factor", 1),
                 high = json_num(r, "high_freq_factor", 4),
                 old = json_num(r, "original_max_position_embeddings", 8192);
    float v[512];
    uint64_t n = (uint64_t)m->head_dim / 2;
    for (uint64_t i = 0; i < n; i++) {
        double freq =
            1 / pow(json_num(m->config, "rope_theta", 10000), 2.0 * (double)i / m->head_dim);
        double wave = 2 * M_PI / freq, smooth = (old / wave - low) / (high - low);
        v[i] = (float)(wave < old / high  ? 1
                       : wave > old / low ? factor
                                          : 1 / ((1 - smooth) / factor + smooth));
    }
    gw_tensor(&m->w, "rope_freqs.weight", GGUF_F32, 1, &n, v, n * sizeof(float));
}

static inline void gguf_rope(struct gguf_making *m)
{
    const cJSON *r = json_get(m->config, "rope_scaling");
    const char *type = json_str(r, "rope_type", json_str(r, "type", ""));
    char key[128];
    double dim = m->head_dim * json_num(m->config, "partial_rotary_factor", 1);
    snprintf(key, sizeof(key), "%s.rope.dimension_count", m->k->name);
    gw_put_u32(&m->w, key, (uint32_t)dim);
    if (strcmp(type, "llama3") == 0)
        gguf_llama3(m, r);
    if (strcmp(type, "linear") == 0 || strcmp(type, "yarn") == 0) {
        snprintf(key, sizeof(key), "%s.rope.scaling.type", m->k->name);
        gw_put_str(&m->w, key, type);
        snprintf(key, sizeof(key), "%s.rope.scaling.factor", m->k->name);
        gw_put_f32(&m->w, key, (float)json_num(r, "factor", 1));
    }
    const double old =
        json_num(strcmp(type, "yarn") == 0 ? r : m->config, "original_max_position_embeddings", 0);
    if (old > 0) {
        snprintf(key, sizeof(key), "%s.rope.scaling.original_context_length", m->k->name);
        gw_put_u32(&m->w, key, (uint32_t)old);
    }
    if (strcmp(type, "longrope") == 0) {
        gguf_factors(m, "rope_factors_long.weight", json_get(r, "long_factor"));
        gguf_factors(m, "rope_factors_short.weight", json_get(r, "short_factor"));
    }
}

/* A bool for each layer: it has the window. */
static inline void gguf_pattern(struct gguf_making *m)
{
    const cJSON *types = json_get(m->config, "layer_types"), *t;
    char key[128];
    if (strncmp(m->k->name, "gemma3", 6) != 0)
        return;
    snprintf(key, sizeof(key), "%s.attention.sliding_window_pattern", m->k->name);
    gw_put_list(&m->w, key, GGUF_T_BOOL, (uint64_t)cJSON_GetArraySize(types));
    cJSON_ArrayForEach(t, types)
        buf_ch(&m->w.values, strcmp(t->valuestring, "sliding_attention") == 0);
}

/* Gemma 3n: widths of the MLPs, and deviations from the mean, a number for each layer. */
static inline void gguf_layer_numbers(struct gguf_making *m)
{
    static const float deviations[][2] = {/* the normal distribution's quantiles */
                                          {0, -INFINITY},
                                          {0.3f, -0.52440051f},
                                          {0.5f, 0},
                                          {0.8f, 0.84162123f},
                                          {0.95f, 1.6448536f}};
    const cJSON *widths = json_get(m->config, "intermediate_size"), *j;
    const cJSON *shares = json_get(m->config, "activation_sparsity_pattern");
    if (!cJSON_IsArray(widths))
        return;
    gw_put_list(&m->w, "gemma3n.feed_forward_length", GGUF_T_I32,
                (uint64_t)cJSON_GetArraySize(widths));
    cJSON_ArrayForEach(j, widths)
    {
        const int32_t v = (int32_t)j->valuedouble;
        buf_add(&m->w.values, &v, sizeof(v));
    }
    gw_put_list(&m->w, "gemma3n.activation_sparsity_scale", GGUF_T_F32,
                (uint64_t)cJSON_GetArraySize(shares));
    cJSON_ArrayForEach(j, shares)
    {
        size_t i = 0;
        while (i < 5 && deviations[i][0] != (float)j->valuedouble)
            i++;
        assert_true(i < 5);
        buf_add(&m->w.values, &deviations[i][1], sizeof(float));
    }
}

static inline void gguf_metadata(struct gguf_making *m)
{
    char key[128];
    gw_put_str(&m->w, "general.architecture", m->k->name);
    gw_put_u32(&m->w, "general.alignment", GGUF_WRITE_ALIGN);
    gguf_copy_keys(m);
    snprintf(key, sizeof(key), "%s.attention.key_length", m->k->name);
    gw_put_u32(&m->w, key, (uint32_t)m->head_dim);
    if (json_get(m->config, "use_parallel_residual")) {
        snprintf(key, sizeof(key), "%s.use_parallel_residual", m->k->name);
        gw_put_bool(&m->w, key, json_bool(m->config, "use_parallel_residual", false));
    }
    gguf_rope(m);
    gguf_pattern(m);
    gguf_layer_numbers(m);
}

/* ---------------------------------------------------------------- tensors */

/* Interleaves the halves of a head row by row. */
static inline void gguf_pair(float *v, uint64_t rows, uint64_t cols, uint64_t head)
{
    float *old = malloc(rows * cols * sizeof(*v));
    assert_non_null(old);
    memcpy(old, v, rows * cols * sizeof(*v));
    for (uint64_t h = 0; h < rows / head; h++)
        for (uint64_t half = 0; half < 2; half++)
            for (uint64_t i = 0; i < head / 2; i++)
                memcpy(v + (h * head + 2 * i + half) * cols,
                       old + (h * head + half * head / 2 + i) * cols, cols * sizeof(*v));
    free(old);
}

/* The nearest block, as found by ggml's simplest quantisers. */
static inline void gguf_block(enum gguf_packing p, const float *v, uint8_t *out)
{
    float top = 0, most = 0;
    for (int i = 0; i < 32; i++)
        if (fabsf(v[i]) > most)
            most = fabsf(v[i]), top = v[i];
    const float d = p == GGUF_Q8_0 ? most / 127 : top / -8;
    const uint16_t half = f16_of_f32(d);
    memcpy(out, &half, 2);
    for (int i = 0; i < 32; i++) {
        float q = d != 0 ? v[i] / d : 0;
        if (p == GGUF_Q8_0) {
            out[2 + i] = (uint8_t)(int8_t)lrintf(q);
            continue;
        }
        int n = (int)(q + 8.5f);
        n = n > 15 ? 15 : n;
        out[2 + i % 16] = (uint8_t)(i < 16 ? n : out[2 + i % 16] | n << 4);
    }
}

static inline void gguf_pack(struct buf *b, enum gguf_packing p, const float *v, size_t n)
{
    uint8_t block[64];
    for (size_t i = 0; i < n; i += gguf_packings[p].elements) {
        uint16_t h = p == GGUF_F16 ? f16_of_f32(v[i]) : bf16_of_f32(v[i]);
        if (p == GGUF_F32)
            memcpy(block, &v[i], 4);
        else if (p == GGUF_F16 || p == GGUF_BF16)
            memcpy(block, &h, 2);
        else
            gguf_block(p, v + i, block);
        buf_add(b, block, gguf_packings[p].bytes);
    }
}

/* Dequantises a block. */
static inline void gguf_unpack(enum gguf_packing p, const uint8_t *at, float *v, size_t n)
{
    float out[BLOCK_MAX];
    for (size_t i = 0; i < n; i += gguf_packings[p].elements, at += gguf_packings[p].bytes) {
        uint16_t h;
        memcpy(&h, at, 2);
        if (p == GGUF_F32)
            memcpy(&v[i], at, 4);
        else if (p == GGUF_F16 || p == GGUF_BF16)
            v[i] = p == GGUF_F16 ? f32_of_f16(h) : f32_of_bf16(h);
        else {
            block_numbers(p, at, out);
            memcpy(v + i, out, sizeof(float) * gguf_packings[p].elements);
        }
    }
}

static inline enum gguf_packing gguf_choose(const struct gguf_making *m, const struct tensor *t)
{
    if (t->n_dims == 1 || strstr(t->name, ".gate.weight") || strstr(t->name, ".x_x") ||
        strstr(t->name, ".r_k"))
        return GGUF_F32;
    if (m->how->packing < 0)
        return t->type == T_F16 ? GGUF_F16 : t->type == T_BF16 ? GGUF_BF16 : GGUF_F32;
    return t->dims[1] % gguf_packings[m->how->packing].elements
               ? GGUF_F16
               : (enum gguf_packing)m->how->packing;
}

/* One tensor's numbers, packed after `b`; their dequantised numbers go to m->left. */
static inline void gguf_numbers_of(struct gguf_making *m, const struct tensor *t,
                                   enum gguf_packing p, struct buf *b)
{
    const uint64_t rows = t->dims[0], cols = t->n_dims == 2 ? t->dims[1] : 1;
    float *v = made_floats(t);
    const bool plus = m->k->plus && strstr(t->name, "norm.weight");
    const bool pair = m->k->paired && (strstr(t->name, "q_proj") || strstr(t->name, "k_proj"));
    for (uint64_t i = 0; plus && i < rows; i++)
        v[i] += 1;
    if (m->how->dequantised) { /* rows are packed one by one: the order is the same */
        struct buf packed = BUF_INIT;
        float *back = malloc(rows * cols * sizeof(*back));
        assert_non_null(back);
        gguf_pack(&packed, p, v, rows * cols);
        gguf_unpack(p, (const uint8_t *)packed.p, back, rows * cols);
        for (uint64_t i = 0; plus && i < rows; i++)
            back[i] -= 1;
        made_add(&m->left, t->name, back, rows, t->n_dims == 2 ? cols : 0);
        buf_free(&packed);
        free(back);
    }
    if (pair)
        gguf_pair(v, rows, cols, (uint64_t)m->head_dim);
    gguf_pack(b, p, v, rows * cols);
    free(v);
}

static inline void gguf_add(struct gguf_making *m, const struct tensor *t)
{
    static const char *const stacks[] = {".experts.", "_projections."};
    const char *expert = NULL, *after = NULL;
    for (size_t i = 0; i < 2; i++) {
        const char *at = strstr(t->name, stacks[i]);
        if (!at)
            continue;
        expert = at + strlen(stacks[i]); /* the number */
        after = expert + 2;
        if (strncmp(expert, "0.", 2) != 0) /* written with the first */
            return;
    }
    const enum gguf_packing p = gguf_choose(m, t);
    char name[PATH_LEN], other[PATH_LEN];
    struct buf b = BUF_INIT;
    gguf_name(m->k, t->name, name);
    uint64_t dims[3] = {t->n_dims == 2 ? t->dims[1] : t->dims[0], t->dims[0], 0};
    gguf_numbers_of(m, t, p, &b);
    for (uint64_t i = dims[2] = 1; expert; i++) {
        snprintf(other, sizeof(other), "%.*s%u.%s", (int)(expert - t->name), t->name, (unsigned)i,
                 after);
        const struct tensor *next = checkpoint_find(&m->c, other);
        if (!next)
            break;
        gguf_numbers_of(m, next, p, &b);
        dims[2] = i + 1;
    }
    gw_tensor(&m->w, name, p, expert ? 3 : (uint32_t)t->n_dims, dims, b.p, b.len);
    buf_free(&b);
}

/* ---------------------------------------------------------------- the file */

static inline const struct gguf_kind *gguf_kind_of(const cJSON *config)
{
    for (size_t i = 0; i < sizeof(gguf_kinds) / sizeof(gguf_kinds[0]); i++)
        if (strcmp(gguf_kinds[i].model_type, json_str(config, "model_type", "")) == 0)
            return &gguf_kinds[i];
    fail_msg("no GGUF of %s", json_str(config, "model_type", "?"));
    return NULL;
}

static inline void gguf_save(struct gguf_making *m, const char *dir, const char *stem, uint32_t no)
{
    char path[2 * PATH_LEN];
    const uint32_t of = m->how->files;
    if (of > 1)
        snprintf(path, sizeof(path), "%s/%s-%05u-of-%05u.gguf", dir, stem, no + 1, of);
    else
        snprintf(path, sizeof(path), "%s/%s.gguf", dir, stem);
    assert_int_equal(gw_save(&m->w, path), 0);
}

/* The folder's tokenizer, or one of four tokens if only the logits matter. */
static inline void gguf_made_tokens(struct gguf_making *m, const char *from)
{
    char path[2 * PATH_LEN];
    struct err e = ERR_INIT;
    snprintf(path, sizeof(path), "%s/tokenizer.json", from);
    cJSON *j = access(path, F_OK) == 0 ? json_load(path, 64 << 20, &e) : NULL;
    const bool scored = json_bool(json_get(j, "model"), "byte_fallback", false);
    if (j)
        gguf_tokens(&m->w, from, scored ? NULL : "gpt-2");
    cJSON_Delete(j);
    if (j)
        return;
    static const char *const few[] = {"<unk>", "<s>", "</s>", "a"};
    const float scores[] = {0, 0, 0, 0};
    gw_put_str(&m->w, "tokenizer.ggml.model", "llama");
    gw_put_list(&m->w, "tokenizer.ggml.tokens", GGUF_T_STRING, 4);
    for (int i = 0; i < 4; i++)
        gw_text(&m->w.values, few[i], strlen(few[i]));
    gw_put_list(&m->w, "tokenizer.ggml.scores", GGUF_T_F32, 4);
    buf_add(&m->w.values, scores, sizeof(scores));
}

/* Writes dir/stem.gguf, or its parts, from the checkpoint in `from`; `config` replaces its
 * config.json (NULL: its own). */
static inline void gguf_made(const char *from, const cJSON *config, const struct gguf_how *how,
                             const char *dir, const char *stem)
{
    char path[2 * PATH_LEN];
    struct err e = ERR_INIT;
    struct gguf_making m = {.how = how};
    uint32_t done = 0, part = 0, all = 0;
    snprintf(path, sizeof(path), "%s/config.json", from);
    m.config = config ? cJSON_Duplicate(config, true) : json_load(path, 1 << 20, &e);
    if (!m.config || checkpoint_open(&m.c, from, NULL, &e))
        fail_msg("%s", e.msg);
    m.k = gguf_kind_of(m.config);
    gguf_made_tokens(&m, from);
    m.head_dim = json_num(m.config, "head_dim",
                          json_num(m.config, "hidden_size", 0) /
                              json_num(m.config, "num_attention_heads", 1));
    gguf_metadata(&m);
    for (uint32_t f = 0; f < m.c.n_files; f++)
        all += m.c.files[f].n;
    for (uint32_t f = 0; f < m.c.n_files; f++)
        for (uint32_t i = 0; i < m.c.files[f].n; i++, done++) {
            if (how->files > 1 && done == all * (part + 1) / how->files) {
                gguf_save(&m, dir, stem, part++);
                gw_put_u32(&m.w, "split.no", part);
                gw_put_u32(&m.w, "split.count", how->files);
            }
            gguf_add(&m, &m.c.files[f].tensors[i]);
        }
    gguf_save(&m, dir, stem, part);
    checkpoint_close(&m.c);
    if (how->dequantised) {
        char *text = cJSON_PrintUnformatted(m.config);
        made_write(&m.left, how->dequantised, "model.safetensors");
        made_text(how->dequantised, "config.json", text);
        cJSON_free(text);
    }
    cJSON_Delete(m.config);
}
#endif
