/* Mistral Large 4: DeepSeek V3.2 with queries scaled by position per head, learned RoPE
 * frequencies, layers without RoPE, and layers that reuse the latents of earlier ones. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* The last layer before layer i whose latents a later one reads, among those that rotate as it
 * does; -1: none. transformers has one such place for each kind. */
static int64_t read_before(const cJSON *sources, const struct decoder_spec *s, uint32_t i)
{
    int64_t last = -1;
    for (uint32_t k = 0; k < i; k++) {
        bool read = false;
        for (uint32_t later = k + 1; later < s->n_layers; later++)
            read |= cJSON_GetArrayItem(sources, (int)later)->valuedouble == k;
        if (read && s->layers[k].rope == s->layers[i].rope)
            last = k;
    }
    return last;
}

static void sources(struct config *c, struct decoder_spec *s)
{
    const cJSON *j = config_layer_list(c, s, "kv_source_layers"), *list = j;
    for (uint32_t i = 0; j && i < s->n_layers; i++, j = j->next)
        if (!cJSON_IsNumber(j) || !(j->valuedouble >= 0 && j->valuedouble <= i)) {
            config_fail(c, "`kv_source_layers`: layer %u must read itself or an earlier layer", i);
            return;
        }
    const cJSON *all = json_get(c->root, "kv_source_layers");
    j = list;
    for (uint32_t i = 0; j && i < s->n_layers; i++, j = j->next) {
        const uint32_t of = (uint32_t)j->valuedouble;
        if (of == i)
            continue;
        if (s->layers[of].kv_of || (int64_t)of != read_before(all, s, i)) {
            config_fail(c,
                        "`kv_source_layers`: layer %u must read the last layer before it that "
                        "others read and that rotates as it does",
                        i);
            return;
        }
        s->layers[i].kv_of = of + 1;
    }
}

/* Without a rotation in the file, that of transformers' class: yarn from 512 positions. */
static void rotation(struct config *c, struct decoder_spec *s)
{
    struct rope_spec *r = &s->rope[0];
    r->interleaved = r->learned = true;
    config_rope(c, s, 10000);
    if (r->kind == ROPE_DYNAMIC || r->kind == ROPE_LONGROPE)
        config_fail(c, "learned frequencies are not supported with a rotation by the length");
    if (c->rope_scaling || json_get(c->root, "rope_parameters") ||
        json_get(c->root, "rope_scaling") || json_get(c->root, "rope_theta"))
        return;
    r->kind = ROPE_YARN;
    r->factor = 2048;
    r->original = 512;
    r->beta_fast = 32;
    r->beta_slow = 1;
    r->truncate = true;
}

static void attention(struct config *c, struct decoder_spec *s)
{
    const cJSON *type = config_layer_list(c, s, "layer_types");
    const double m_all = config_rope_mscale(c);
    config_latent(c, s, 0, 128);
    if (s->mla.q_rank)
        config_fail(c, "`q_lora_rank` is not supported: queries have one matrix");
    s->mla.nope = config_u32_or(c, "qk_nope_head_dim", 64, 1, 4096);
    s->mla.eps = s->norm.eps;
    s->head_dim = s->mla.nope + s->mla.rope;
    rotation(c, s);
    config_no_rope_layers(c, s, 4);
    s->mla_other = s->mla;
    s->mla_other.nope += s->mla.rope;
    s->mla_other.rope = 0;
    s->q_growth = (struct q_growth){.by_head = true, .length = 1};
    for (uint32_t i = 0; i < s->n_layers; i++, type = type ? type->next : NULL) {
        struct layer_spec *l = &s->layers[i];
        const char *word = type && cJSON_IsString(type) ? type->valuestring : "";
        if (type && strcmp(word, "indexed_attention") != 0)
            config_fail(c, "layers of type `%.40s` are not supported", word);
        l->mixer = MIXER_MLA;
        l->q_grows = true;
        l->other_mla = l->rope == SPEC_NO_ROPE;
        l->attn_scale = spec_head_scale(s) * (float)(m_all * m_all);
    }
    config_indexer(
        c, s,
        &(struct index_defaults){
            .heads = 32, .every = 1, .interleaved = true, .eps = 1e-6, .own_norm = true});
    s->mla.index.interleaved = true;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.head_dim = 64, .max_positions = 1048576, .norm_eps = 1e-5});
    s->act = config_act(c, "hidden_act", "silu");
    config_only(c, "attention_bias", false);
    config_only(c, "mlp_bias", false);
    config_only(c, "norm_topk_prob", true);
    attention(c, s);
    if (!c->failed)
        sources(c, s);
    s->moe.score = MOE_SOFTMAX;
    s->moe.group_pairs = true;
    config_deepseek_moe(c, s);
    s->moe.shared_ffn = s->moe.ffn * config_u32_or(c, "n_shared_experts", 1, 1, 64);
    config_mlp_layer_types(c, s, config_u32_or(c, "first_k_dense_replace", 1, 0, SPEC_MAX_LAYERS));
    s->logit_softcap = (float)config_softcap(c, "final_logit_softcapping", 30);
}

/* The names of transformers, then those of the repository. */
#define NAME(v5, hub)      "model.layers.*." v5 "|model.layers.*." hub
#define NAME_ATTN(v5, hub) NAME("self_attn." v5, "attention." hub)
#define NAME_MLP(v5, hub)  NAME("mlp." v5, hub)

const struct arch arch_mistral_large4 = {
    .types = (const char *const[]){"mistral_large4_text", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embed_tokens|tok_embeddings",
              [W_FINAL_NORM] = "model.norm",
              [W_HEAD] = "lm_head|output",
              [W_ROPE_LEARNED] = "model.rotary_emb.alpha|lerope.alpha",
              [W_ATTN_NORM] = NAME("input_layernorm", "attention_norm"),
              [W_Q] = NAME_ATTN("q_proj", "wq"),
              [W_KV_A] = NAME_ATTN("kv_a_proj_with_mqa", "wkv_a_with_mqa"),
              [W_KV_A_NORM] = NAME_ATTN("kv_a_layernorm", "kv_a_norm"),
              [W_KV_B] = NAME_ATTN("kv_b_proj", "wkv_b"),
              [W_O] = NAME_ATTN("o_proj", "wo"),
              [W_HEAD_SLOPE] = NAME_ATTN("softmax_scaling.scale", "ssmax_scaling.s"),
              [W_HEAD_OFFSET] = NAME_ATTN("softmax_scaling.bias", "ssmax_scaling.b"),
              [W_INDEX_IN_NORM] = NAME_ATTN("indexer.q_input_norm", "indexer.q_input_norm"),
              [W_INDEX_Q] = NAME_ATTN("indexer.wq_b", "indexer.wq_b"),
              [W_INDEX_K] = NAME_ATTN("indexer.wk", "indexer.wk"),
              [W_INDEX_K_NORM] = NAME_ATTN("indexer.k_norm", "indexer.k_norm"),
              [W_INDEX_WEIGHTS] = NAME_ATTN("indexer.weights_proj", "indexer.weights_proj"),
              [W_INDEX_SLOPE] =
                  NAME_ATTN("indexer.softmax_scaling.scale", "indexer.ssmax_scaling.s"),
              [W_INDEX_OFFSET] =
                  NAME_ATTN("indexer.softmax_scaling.bias", "indexer.ssmax_scaling.b"),
              [W_MLP_NORM] = NAME("post_attention_layernorm", "ffn_norm"),
              [W_GATE] = NAME_MLP("gate_proj", "feed_forward.w1"),
              [W_UP] = NAME_MLP("up_proj", "feed_forward.w3"),
              [W_DOWN] = NAME_MLP("down_proj", "feed_forward.w2"),
              [W_ROUTER] = NAME_MLP("gate", "gate"),
              [W_MOE_GATE_UP] = "model.layers.*.mlp.experts.gate_up_proj",
              [W_MOE_GATE] = NAME_MLP("experts.*.gate_proj", "experts.*.w1"),
              [W_MOE_UP] = NAME_MLP("experts.*.up_proj", "experts.*.w3"),
              [W_MOE_DOWN] = "model.layers.*.mlp.experts.down_proj|" NAME_MLP("experts.*.down_proj",
                                                                              "experts.*.w2"),
              [W_SHARED_GATE] = NAME_MLP("shared_experts.gate_proj", "shared_experts.w1"),
              [W_SHARED_UP] = NAME_MLP("shared_experts.up_proj", "shared_experts.w3"),
              [W_SHARED_DOWN] = NAME_MLP("shared_experts.down_proj", "shared_experts.w2")},
    .configure = configure,
};
