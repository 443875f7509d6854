/* T5Gemma 2, its text: Gemma 3 twice, as a bidirectional encoder and as a decoder that attends to
 * the answer and to the encoder's output in one softmax. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* The end of an image has an embedding of its own, which is not scaled. */
static void end_of_image(struct config *c, struct decoder_spec *s)
{
    const double id = json_num(json_get(c->file, "encoder"), "eoi_token_index", 256000);
    if (!(id >= 0 && id < s->vocab) || id != (uint32_t)id) {
        config_fail(c, "`eoi_token_index` must be an id of the vocabulary");
        return;
    }
    s->other[s->n_other++] = (struct other_embeds){
        .first = (uint32_t)id, .n = 1, .rows = 1, .width = s->hidden, .bare = true, .vector = true};
}

/* One of the two stacks, whose keys are in an object of their own. */
static void configure_stack(struct config *c, struct decoder_spec *s, const cJSON *own)
{
    if (!cJSON_IsObject(own)) {
        config_fail(c, "`encoder.text_config` or `decoder` is missing");
        return;
    }
    c->root = (cJSON *)(uintptr_t)own;
    config_gemma3(c, s);
    if (!c->failed)
        end_of_image(c, s);
}

/* A window of an even width reaches one token farther ahead than back. */
static void configure_encoder(struct config *c, struct decoder_spec *s)
{
    s->both_ways = s->no_head = true;
    configure_stack(c, s, json_get(json_get(c->file, "encoder"), "text_config"));
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const uint32_t width = s->layers[i].window;
        s->layers[i].window = width / 2 + width % 2;
        s->layers[i].ahead = width ? 1 - width % 2 : 0;
    }
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const char *name = config_class(c, "");
    if (strcmp(name, "T5Gemma2ForConditionalGeneration") != 0)
        config_fail(c,
                    "`architectures`: `%.60s`: only T5Gemma2ForConditionalGeneration is supported",
                    name);
    configure_stack(c, s, json_get(c->file, "decoder"));
    if (c->rope_scaling)
        config_fail(c, "--rope-scaling is not supported for models with an encoder");
    if (c->failed)
        return;
    s->start = config_u32_or(c, "bos_token_id", 2, 0, s->vocab - 1);
    c->root = c->file;
    s->start = config_u32_or(c, "bos_token_id", s->start, 0, s->vocab - 1);
    s->start = config_u32_or(c, "decoder_start_token_id", s->start, 0, s->vocab - 1);
    s->tied = config_bool_or(c, "tie_word_embeddings", true);
    s->max_positions *= 2; /* a text and an answer, each with positions of its own */
    s->attends_text = true;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].merged = true;
}

#define NAMES(p)                                                                                   \
    [W_EMBED] = p "embed_tokens|model.encoder.text_model.embed_tokens", [W_FINAL_NORM] = p "norm", \
    [W_SIGHT_EMBED] =                                                                              \
        p "embed_tokens.eoi_embedding|model.encoder.text_model.embed_tokens.eoi_embedding",        \
    [W_ATTN_NORM] = p "layers.*.pre_self_attn_layernorm",                                          \
    [W_POST_ATTN_NORM] = p "layers.*.post_self_attn_layernorm",                                    \
    [W_Q] = p "layers.*.self_attn.q_proj", [W_K] = p "layers.*.self_attn.k_proj",                  \
    [W_V] = p "layers.*.self_attn.v_proj", [W_O] = p "layers.*.self_attn.o_proj",                  \
    [W_Q_NORM] = p "layers.*.self_attn.q_norm", [W_K_NORM] = p "layers.*.self_attn.k_norm",        \
    [W_MLP_NORM] = p "layers.*.pre_feedforward_layernorm",                                         \
    [W_POST_MLP_NORM] = p "layers.*.post_feedforward_layernorm",                                   \
    [W_GATE] = p "layers.*.mlp.gate_proj", [W_UP] = p "layers.*.mlp.up_proj",                      \
    [W_DOWN] = p "layers.*.mlp.down_proj"

static const struct arch encoder;
const struct arch arch_t5gemma2 = {
    .types = (const char *const[]){"t5gemma2", NULL},
    .prefix = "model.",
    .names = {NAMES("model.decoder."), [W_HEAD] = "lm_head.out_proj"},
    .configure = configure,
    .encoder = &encoder,
};
static const struct arch encoder = {
    .types = (const char *const[]){NULL}, /* see arch_t5gemma2.encoder */
    .prefix = "model.",
    .names = {NAMES("model.encoder.text_model.")},
    .configure = configure_encoder,
};
