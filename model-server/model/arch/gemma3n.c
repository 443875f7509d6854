/* Gemma 3n, the text decoder: AltUp (parallel residual streams), LAuReL (a learned low-rank
 * residual beside attention), per-layer embeddings, keys and values shared by the last layers,
 * sparse activations in the first MLPs. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

/* All but every fifth. */
static bool sliding(struct config *c, uint32_t layer) { return (void)c, (layer + 1) % 5 != 0; }

/* Where the normal distribution reaches `share`, by bisection. */
static double normal_quantile(double share)
{
    double low = -40, high = 40;
    for (int i = 0; i < 100; i++) {
        const double at = (low + high) / 2;
        if (erfc(-at * M_SQRT1_2) / 2 < share)
            low = at;
        else
            high = at;
    }
    return (low + high) / 2;
}

/* The share of activations that a layer cuts off; absent: of the first ten of more than ten. */
static void sparsity(struct config *c, struct decoder_spec *s)
{
    const cJSON *j = config_layer_list(c, s, "activation_sparsity_pattern");
    const bool own = j != NULL;
    for (uint32_t i = 0; i < s->n_layers && !c->failed; i++, j = j ? j->next : NULL) {
        double share = s->n_layers > 10 && i < 10 ? 0.95 : 0;
        if (own)
            share = j && cJSON_IsNumber(j) ? j->valuedouble : NAN;
        if (!(share < 1))
            config_fail(c, "`activation_sparsity_pattern` of layer %u must be below 1", i);
        s->layers[i].sparse = share > 0;
        s->layers[i].deviations = share > 0 && share < 1 ? (float)normal_quantile(share) : 0;
    }
}

static void streams(struct config *c, struct decoder_spec *s)
{
    s->altup.n = config_u32_or(c, "altup_num_inputs", 4, 2, ALTUP_MOST);
    s->altup.active = config_u32_or(c, "altup_active_idx", 0, 0, s->altup.n - 1);
    s->altup.scaled = config_bool_or(c, "altup_correct_scale", true);
    s->laurel_rank = config_u32_or(c, "laurel_rank", 64, 1, 65536);
}

static uint32_t other_number(struct config *c, const cJSON *of, const char *key, double def)
{
    const double n = json_num(of, key, def);
    if (n >= 1 && n < 1 << 24 && n == floor(n))
        return (uint32_t)n;
    config_fail(c, "`%s` is out of bounds", key);
    return 1;
}

/* Ids of the tower's and of sound's tables, in a checkpoint with both; those are never asked for
 * without pictures or sound, but for what ends a picture. */
static void other_media(struct config *c, struct decoder_spec *s)
{
    static const struct {
        const char *key;
        double first, width;
    } tables[] = {{"vision_config", 262144, 2048}, {"audio_config", 262272, 1536}};
    enum { N = sizeof(tables) / sizeof(tables[0]) };
    for (int i = 0; i < N; i++) {
        const cJSON *of = c->file == c->root ? NULL : json_get(c->file, tables[i].key);
        struct other_embeds *o = &s->other[i];
        if (i == 0 && !cJSON_IsObject(of))
            return;
        o->first = other_number(c, of, "vocab_offset", tables[i].first);
        o->rows = other_number(c, of, "vocab_size", 128);
        o->width = other_number(c, of, "hidden_size", tables[i].width);
        o->eps = (float)json_num(of, "rms_norm_eps", 1e-6);
    }
    s->n_other = N;
    s->other[0].n = s->other[1].first - s->other[0].first;
    s->other[1].n = s->vocab - s->other[1].first;
    for (int i = 0; i < N; i++)
        if (s->other[i].first >= s->vocab || s->other[i].n < 1 || s->other[i].n > s->other[i].rows)
            config_fail(c, "`%s`: `vocab_offset` and `vocab_size` disagree", tables[i].key);
    const uint32_t image = other_number(c, c->file, "image_token_id", 262145);
    if (image >= s->vocab)
        config_fail(c, "`image_token_id` is out of bounds");
    s->given_id = image;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 256,
                                             .max_positions = 32768,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 1000000,
                                             .ffn_by_layer = true,
                                             .layers = 35,
                                             .tied = true,
                                             .heads = 8,
                                             .kv_heads = 2,
                                             .vocab = 262400});
    s->max_positions =
        config_u32_or(c, "max_position_embeddings", 32768, 1, 1u << 30); /* stretched already */
    config_gemma(c, s, 30);
    s->qk_norm = QK_NORM_HEAD;
    s->v_norm = true;
    s->per_layer = config_u32_or(c, "hidden_size_per_layer_input", 256, 1, 65536);
    s->per_layer_vocab = config_u32_or(c, "vocab_size_per_layer_input", 262144, 1, 1u << 24);
    s->given_id = config_u32_or(c, "pad_token_id", 0, 0, s->vocab - 1);
    config_layer_ffn(c, s);
    config_windows(c, s, 512, sliding);
    config_window_rope(c, s, config_num_or(c, "rope_local_base_freq", 10000));
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].attn_scale = 1;
    config_shared_kv(c, s, 15);
    sparsity(c, s);
    streams(c, s);
    other_media(c, s);
}

const struct arch arch_gemma3n = {
    .types = (const char *const[]){"gemma3n_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER,
              NAMES_LLAMA_QKV,
              NAMES_LLAMA_O,
              NAMES_QK_NORM,
              NAMES_NORMS_AROUND,
              NAMES_GATED_MLP,
              NAMES_LAYER_EMBED,
              [W_ALTUP_IN] = "model.altup_projections.*",
              [W_ALTUP_OUT] = "model.altup_unembed_projections.*",
              [W_ALTUP_ROUTER] = "model.layers.*.altup.modality_router",
              [W_ALTUP_ROUTER_NORM] = "model.layers.*.altup.router_norm",
              [W_ALTUP_PREDICT] = "model.layers.*.altup.prediction_coefs",
              [W_ALTUP_CORRECT] = "model.layers.*.altup.correction_coefs",
              [W_ALTUP_SCALE] = "model.layers.*.altup.correct_output_scale",
              [W_LAUREL_LEFT] = "model.layers.*.laurel.linear_left",
              [W_LAUREL_RIGHT] = "model.layers.*.laurel.linear_right",
              [W_LAUREL_NORM] = "model.layers.*.laurel.post_laurel_norm",
              [W_SIGHT_EMBED] = "model.embed_vision.embedding",
              [W_SIGHT_NORM] = "model.embed_vision.hard_embedding_norm",
              [W_SIGHT_PROJECT] = "model.embed_vision.embedding_projection",
              [W_SOUND_EMBED] = "model.embed_audio.embedding",
              [W_SOUND_NORM] = "model.embed_audio.hard_embedding_norm",
              [W_SOUND_PROJECT] = "model.embed_audio.embedding_projection"},
    .configure = configure,
};
