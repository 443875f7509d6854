/* T5Gemma (arXiv 2504.06225): Gemma 2 twice, as a bidirectional encoder and as a decoder with
 * cross-attention. The encoder alone, or the decoder: see choose(). */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

extern const struct arch arch_t5gemma;
static const struct arch decoder;

/* By the class that a checkpoint was saved from, as in T5. */
static const struct arch *choose(struct config *c)
{
    const char *name = config_class(c, "");
    if (strcmp(name, "T5GemmaEncoderModel") == 0)
        return &arch_t5gemma;
    if (strcmp(name, "T5GemmaForConditionalGeneration") == 0)
        return &decoder;
    config_fail(c,
                "`architectures`: `%.60s`: only T5GemmaEncoderModel and "
                "T5GemmaForConditionalGeneration are supported",
                name);
    return NULL;
}

static bool even(struct config *c, uint32_t layer) { return (void)c, layer % 2 == 0; }

/* One of the two stacks, whose keys are in an object of their own. */
static void configure_stack(struct config *c, struct decoder_spec *s, const char *stack)
{
    const cJSON *own = config_object(c, c->file, stack);
    if (!own) {
        config_fail(c, "`%s` is missing", stack);
        return;
    }
    c->root = (cJSON *)(uintptr_t)own;
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 256,
                                             .max_positions = 8192,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 10000,
                                             .tied = true});
    config_gemma(c, s, 30);
    s->norm.plus = 1;
    s->attn_softcap = (float)config_softcap(c, "attn_logit_softcapping", 50);
    config_attn_scale(c, s, 256);
    config_windows(c, s, 4096, even);
}

/* Its windows reach as far to both sides: sliding_window does not count the token itself. */
static void configure(struct config *c, struct decoder_spec *s)
{
    s->both_ways = s->no_head = true;
    configure_stack(c, s, "encoder");
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].window += s->layers[i].window > 0;
}

static void configure_decoder(struct config *c, struct decoder_spec *s)
{
    configure_stack(c, s, "decoder");
    if (c->rope_scaling)
        config_fail(c, "--rope-scaling is not supported for models with an encoder");
    if (c->failed)
        return;
    s->start = config_u32_or(c, "bos_token_id", 2, 0, s->vocab - 1);
    c->root = c->file;
    s->start = config_u32_or(c, "bos_token_id", s->start, 0, s->vocab - 1);
    s->start = config_u32_or(c, "decoder_start_token_id", s->start, 0, s->vocab - 1);
    if (s->start >= s->vocab)
        config_fail(c, "`decoder_start_token_id` is missing");
    s->tied = config_bool_or(c, "tie_word_embeddings", true);
    s->max_positions *= 2; /* a text and an answer, each with positions of its own */
    config_pair_layers(c, s, "num_hidden_layers");
}

#define NAMES_ATTENTION(p)                                                                         \
    [W_Q] = p ".q_proj", [W_K] = p ".k_proj", [W_V] = p ".v_proj", [W_O] = p ".o_proj"
#define NAMES_SELF(p)                                                                              \
    [W_ATTN_NORM] = p "pre_self_attn_layernorm",                                                   \
    [W_POST_ATTN_NORM] = p "post_self_attn_layernorm", NAMES_ATTENTION(p "self_attn")
#define NAMES_MLP(p)                                                                               \
    [W_MLP_NORM] = p "pre_feedforward_layernorm",                                                  \
    [W_POST_MLP_NORM] = p "post_feedforward_layernorm", [W_GATE] = p "mlp.gate_proj",              \
    [W_UP] = p "mlp.up_proj", [W_DOWN] = p "mlp.down_proj"

const struct arch arch_t5gemma = {
    .types = (const char *const[]){"t5gemma", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.encoder.embed_tokens",
              [W_FINAL_NORM] = "model.encoder.norm",
              NAMES_SELF("model.encoder.layers.*."),
              NAMES_MLP("model.encoder.layers.*.")},
    .configure = configure,
    .choose = choose,
};

#define LAYER "model.decoder.layers.*."
static const struct arch attends = {
    .names = {[W_ATTN_NORM] = LAYER "pre_cross_attn_layernorm",
              [W_POST_ATTN_NORM] = LAYER "post_cross_attn_layernorm",
              NAMES_ATTENTION(LAYER "cross_attn"),
              NAMES_MLP(LAYER)},
};
static const struct arch decoder = {
    .types = (const char *const[]){NULL}, /* see choose() */
    .prefix = "model.",
    .names = {[W_EMBED] = "model.decoder.embed_tokens",
              [W_FINAL_NORM] = "model.decoder.norm",
              [W_HEAD] = "lm_head.out_proj",
              NAMES_SELF(LAYER)},
    .second = &attends,
    .configure = configure_decoder,
    .encoder = &arch_t5gemma,
};
