/* BART (arXiv 1910.13461) and other encoder-decoders of its kind: mBART (2001.08210), Pegasus
 * (1912.08777), Marian (1804.00344), M2M100 (2010.11125), NLLB (2207.04672) also
 * with experts, Blenderbot (2004.13637), MVP (2206.12131) and PLBART (2103.06333). They differ in
 * the placement of norms and in positions. LED (2004.05150) is BART with Longformer's encoder,
 * which has bidirectional sliding-window attention; as in transformers without a mask for it, there
 * is no global attention. Text classifiers (also zero-shot ones) run both stacks. */
#include "common/json/json.h"
#include "common/text.h"
#include "model-server/model/arch.h"
#include <string.h>

/* What transformers fixes for a model_type. Files repeat some of it under old keys. */
struct kin {
    const char *type, *class;
    enum sines sines;
    bool norms_before; /* and a norm after the last layer */
    bool embed_norm;
    bool norm_first; /* of the decoder: positions are added after the embedding's norm */
    bool scaled;     /* default of scale_embedding */
    uint32_t offset; /* of positions */
    uint32_t start;  /* default of decoder_start_token_id; NO_START: none */
};
enum { NO_START = UINT32_MAX };
static const struct kin kins[] = {
    {"bart", "BartForConditionalGeneration", SINES_NONE, false, true, false, false, 2, 2},
    {"mbart", "MBartForConditionalGeneration", SINES_NONE, true, true, false, false, 2, NO_START},
    {"pegasus", "PegasusForConditionalGeneration", SINES_OF_HALF, true, false, false, false, 0, 0},
    {"marian", "MarianMTModel", SINES_OF_HALF, false, false, false, false, 0, 58100},
    {"m2m_100", "M2M100ForConditionalGeneration", SINES_TO_LAST, true, false, false, true, 2, 2},
    {"nllb-moe", "NllbMoeForConditionalGeneration", SINES_TO_LAST, true, false, false, true, 2, 2},
    {"blenderbot", "BlenderbotForConditionalGeneration", SINES_NONE, true, false, false, false, 0,
     1},
    {"blenderbot-small", "BlenderbotSmallForConditionalGeneration", SINES_NONE, false, true, true,
     false, 0, 1},
    {"mvp", "MvpForConditionalGeneration", SINES_NONE, false, true, false, false, 2, 2},
    {"led", "LEDForConditionalGeneration", SINES_NONE, false, true, false, false, 0, 2},
    {"plbart", "PLBartForConditionalGeneration", SINES_NONE, false, true, false, true, 2, NO_START},
};

static const struct kin *kin_of(const struct config *c)
{
    const char *type = json_str(c->root, "model_type", "");
    const struct kin *k = kins;
    while (strcmp(k->type, type) != 0) /* a registered type is in the list */
        k++;
    return k;
}

/* True of classifiers of whole texts, which both stacks read. LED's are not told which tokens see
 * all others. */
static bool classifies(const struct config *c, const struct kin *k)
{
    return ends_with(config_class(c, ""), "ForSequenceClassification") &&
           strcmp(k->type, "led") != 0;
}

/* Decoders alone have the same model_type, and bare models have no head. */
static void check_class(struct config *c, const struct kin *k)
{
    const char *name = config_class(c, "");
    if (c->root != c->file) /* the text model of Florence-2, which does not name its class */
        return;
    if (strcmp(name, k->class) != 0 && !classifies(c, k))
        config_fail(c, "`architectures`: `%.60s`: only %s and classifiers are supported", name,
                    k->class);
}

/* What encoder and decoder share. The family's keys name the sizes of one of them. */
static void configure_stack(struct config *c, struct decoder_spec *s, const struct kin *k)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 1024, .tied = true});
    check_class(c, k);
    config_only(c, "normalize_before", k->norms_before);
    config_only(c, "add_final_layer_norm", k->norms_before);
    config_only(c, "normalize_embedding", k->embed_norm);
    config_only(c, "static_position_embeddings", k->sines != SINES_NONE);
    config_only(c, "share_encoder_decoder_embeddings", true);
    config_only(c, "use_prompt", false); /* MVP's vectors before keys and values */
    if (config_u32_or(c, "decoder_vocab_size", s->vocab, 1, 1u << 24) != s->vocab)
        config_fail(c, "`decoder_vocab_size` must be `vocab_size`");
    s->norm = (struct norm_spec){.kind = NORM_LAYER, .eps = 1e-5F};
    s->norms = k->norms_before ? NORM_BEFORE : NORM_SUM;
    s->no_final_norm = !k->norms_before;
    s->embed_norm = k->embed_norm;
    s->act = config_act(c, "activation_function", "gelu");
    s->mlp = MLP_PLAIN;
    s->bias.norm = s->bias.qkv = s->bias.o = s->bias.mlp = s->learned_positions = true;
    s->position_offset = k->offset;
    if (k->sines == SINES_TO_LAST) /* behind the padding's */
        s->position_offset = config_u32_or(c, "pad_token_id", 1, 0, s->vocab - 1) + 1;
    config_sines(c, s, k->sines);
    if (config_bool_or(c, "scale_embedding", k->scaled))
        s->embed_scale = sqrtf((float)s->hidden);
}

/* Every n-th layer of a stack has experts, `paired`: after its cross-attention. As many tokens as
 * there are may choose an expert, when the model does not learn. */
static void configure_experts(struct config *c, struct decoder_spec *s, const char *key,
                              bool paired)
{
    struct moe_spec *m = &s->moe;
    const uint32_t each = paired ? 2 : 1, n = config_u32_or(c, key, 4, 0, SPEC_MAX_LAYERS);
    *m = (struct moe_spec){.n_experts = config_u32_or(c, "num_experts", 128, 2, 65536),
                           .top_k = 2,
                           .ffn = s->ffn,
                           .score = MOE_SOFTMAX,
                           .renormalise = true,
                           .plain = true,
                           .each_bias = true,
                           .scale = (float)(1 - config_num_or(c, "moe_token_dropout", 0.2))};
    config_only(c, "router_bias", false);
    config_only_word(c, "second_expert_policy", "all");
    config_only_num(c, "moe_eval_capacity_token_fraction", 1, 1);
    for (uint32_t i = 0; n && (i + 1) * each <= s->n_layers; i++)
        s->layers[(i + 1) * each - 1].moe = (i + 1) % n == 0;
}

static bool has_experts(const struct kin *k) { return strcmp(k->type, "nllb-moe") == 0; }

static void configure_encoder(struct config *c, struct decoder_spec *s)
{
    const struct kin *k = kin_of(c);
    configure_stack(c, s, k);
    s->both_ways = s->no_head = true;
    if (strcmp(k->type, "led") == 0)
        config_attention_window(c, s);
    if (has_experts(k))
        configure_experts(c, s, "encoder_sparse_step", false);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const struct kin *k = kin_of(c);
    const char *start = "decoder_start_token_id";
    configure_stack(c, s, k);
    s->no_head = classifies(c, k);
    s->bias.head = c->root == c->file && !s->no_head;
    s->text_positions =
        config_u32_or(c, "max_encoder_position_embeddings", s->max_positions, 1, 1u << 30);
    s->embed_norm_first = k->norm_first;
    if (k->norm_first) /* transformers has no scale before this norm */
        s->embed_scale = 1;
    s->start = k->start == NO_START ? config_u32(c, start, 0, s->vocab - 1)
                                    : config_u32_or(c, start, k->start, 0, s->vocab - 1);
    if (s->start >= s->vocab)
        config_fail(c, "`%s` is missing", start);
    config_pair_layers(c, s, "decoder_layers");
    if (has_experts(k) && !c->failed)
        configure_experts(c, s, "decoder_sparse_step", true);
}

#define KEYS(stack)                                                                                \
    {"hidden_size", "d_model"}, {"num_hidden_layers", stack "_layers"},                            \
        {"num_attention_heads", stack "_attention_heads"},                                         \
        {"intermediate_size", stack "_ffn_dim", true}, {"num_key_value_heads", NULL},              \
        {"max_position_embeddings", "max_" stack "_position_embeddings"},                          \
    {                                                                                              \
        NULL, NULL                                                                                 \
    }
static const struct config_key encoder_keys[] = {KEYS("encoder")};
static const struct config_key decoder_keys[] = {KEYS("decoder")};

/* The norms are before the branches or of the sums; `p` is the prefix of a layer. */
#define NAMES_SUM_NORMS(p, attention)                                                              \
    [W_POST_ATTN_NORM] = p attention "_layer_norm", [W_POST_MLP_NORM] = p "final_layer_norm"

/* The second ones are NLLB-MoE's. */
#define CROSS(of)                                                                                  \
    "model.decoder.layers.*.encoder_attn" of "|model.decoder.layers.*.cross_attention" of
#define NAMES_FFN(p)                                                                               \
    [W_MLP_NORM] = p "final_layer_norm|" p "ff_layer_norm", [W_UP] = p "fc1|" p "ffn.fc1",         \
    [W_DOWN] = p "fc2|" p "ffn.fc2", [W_ROUTER] = p "ffn.router.classifier",                       \
    [W_MOE_UP] = p "ffn.experts.expert_*.fc1", [W_MOE_DOWN] = p "ffn.experts.expert_*.fc2"

/* the second one is LED's */
#define PREFIX "model.|led."
#define ENCODER_ATTENTION(usual, led)                                                              \
    "model.encoder.layers.*.self_attn." usual "|model.encoder.layers.*.self_attn." led

static const struct arch encoder = {
    .prefix = PREFIX,
    .keys = encoder_keys,
    .names = {[W_EMBED] = "model.shared|model.encoder.embed_tokens",
              [W_POSITIONS] = "model.encoder.embed_positions",
              [W_EMBED_NORM] = "model.encoder.layernorm_embedding",
              [W_FINAL_NORM] = "model.encoder.layer_norm",
              [W_ATTN_NORM] = "model.encoder.layers.*.self_attn_layer_norm",
              [W_Q] = ENCODER_ATTENTION("q_proj", "longformer_self_attn.query"),
              [W_K] = ENCODER_ATTENTION("k_proj", "longformer_self_attn.key"),
              [W_V] = ENCODER_ATTENTION("v_proj", "longformer_self_attn.value"),
              [W_O] = ENCODER_ATTENTION("out_proj", "output"),
              NAMES_FFN("model.encoder.layers.*."),
              NAMES_SUM_NORMS("model.encoder.layers.*.", "self_attn")},
    .configure = configure_encoder,
};
static const struct arch attends = {
    .prefix = PREFIX,
    .names = {[W_ATTN_NORM] = CROSS("_layer_norm"),
              [W_Q] = CROSS(".q_proj"),
              [W_K] = CROSS(".k_proj"),
              [W_V] = CROSS(".v_proj"),
              [W_O] = CROSS(".out_proj"),
              NAMES_FFN("model.decoder.layers.*."),
              NAMES_SUM_NORMS("model.decoder.layers.*.", "encoder_attn")},
};
const struct arch arch_bart = {
    .types = (const char *const[]){"bart", "mbart", "pegasus", "marian", "m2m_100", "nllb-moe",
                                   "blenderbot", "blenderbot-small", "mvp", "plbart", "led", NULL},
    .prefix = PREFIX,
    .keys = decoder_keys,
    .names = {[W_EMBED] = "model.shared|model.decoder.embed_tokens",
              [W_HEAD] = "lm_head",
              [W_HEAD_BIAS] = "final_logits_bias",
              [W_POSITIONS] = "model.decoder.embed_positions",
              [W_EMBED_NORM] = "model.decoder.layernorm_embedding",
              [W_FINAL_NORM] = "model.decoder.layer_norm",
              NAMES_FAIRSEQ("model.decoder.layers.*."),
              NAMES_SUM_NORMS("model.decoder.layers.*.", "self_attn")},
    .second = &attends,
    .configure = configure,
    .encoder = &encoder,
};
