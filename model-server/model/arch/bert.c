/* BERT (arXiv 1810.04805): a post-norm encoder with learned positions and token type embeddings;
 * ERNIE 1 to 3 (1904.09223, 1907.12412, 2107.02137), which may also have task embeddings. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static void configure(struct config *c, struct decoder_spec *s)
{
    config_encoder(c, s, 0);
    config_masked_head(c, s, s->act);
    if (config_bool_or(c, "use_task_id", false))
        s->token_tasks = config_u32_or(c, "task_type_vocab_size", 3, 1, 1u << 16);
}

static void configure_jina(struct config *c, struct decoder_spec *s)
{
    const char *glu = config_str_or(c, "feed_forward_type", "original");
    config_decoder(c, s, &(struct config_defaults){.max_positions = 512});
    config_sums(s, config_num_or(c, "layer_norm_eps", 1e-12));
    config_type_rows(c, s);
    config_only(c, "is_decoder", false);
    config_only(c, "qk_layernorm", false); /* Jina's model of code, in GGUF files */
    s->first_type_only = false;            /* nothing rotates: positions are only those of types */
    s->alibi = (struct alibi_spec){.order = ALIBI_PAPER, .most = 8};
    s->near = (struct near_spec){.of = NEAR_OF_SLOPES, .most = s->max_positions};
    s->mlp = MLP_GATED_PACKED;
    s->bias.qkv = s->bias.o = s->bias.down = true;
    s->act = strcmp(glu, "reglu") == 0 ? ACT_RELU : ACT_GELU;
    if (s->act == ACT_GELU && strcmp(glu, "geglu") != 0)
        config_fail(c, "`feed_forward_type`: `%.40s` is not supported", glu);
    if (s->max_positions > 1u << 20)
        config_fail(c, "`max_position_embeddings` must be at most %u", 1u << 20);
}

/* GGUF files of before 2025 have both halves of the gated matrix apart. */
static void configure_halves(struct config *c, struct decoder_spec *s)
{
    configure_jina(c, s);
    s->mlp = MLP_GATED;
}

#define NAMES_JINA                                                                                 \
    NAMES_BERT_ATTENTION("bert."), [W_EMBED] = "bert.embeddings.word_embeddings",                  \
                                   [W_TOKEN_TYPES] = "bert.embeddings.token_type_embeddings",      \
                                   [W_EMBED_NORM] = "bert.embeddings.LayerNorm",                   \
                                   [W_POST_ATTN_NORM] =                                            \
                                       "bert.encoder.layer.*.attention.output.LayerNorm",          \
                                   [W_DOWN] = "bert.encoder.layer.*.mlp.wo",                       \
                                   [W_POST_MLP_NORM] = "bert.encoder.layer.*.mlp.layernorm"
static const struct arch jina = {
    .prefix = "bert.",
    .names = {NAMES_JINA, [W_GATE_UP] = "bert.encoder.layer.*.mlp.gated_layers"},
    .configure = configure_jina,
};
static const struct arch jina_halves = {
    .prefix = "bert.",
    .names = {NAMES_JINA, [W_GATE] = "bert.encoder.layer.*.mlp.gated_layers_w",
              [W_UP] = "bert.encoder.layer.*.mlp.gated_layers_v"},
    .configure = configure_halves,
};

extern const struct arch arch_bert;
static const struct arch *choose(struct config *c)
{
    const char *positions = json_str(c->root, "position_embedding_type", "");
    if (strcmp(positions, "alibi") != 0)
        return &arch_bert;
    return json_bool(c->root, "gated_layers_in_halves", false) ? &jina_halves : &jina;
}

const struct arch arch_bert = {
    .types = (const char *const[]){"bert", "ernie", NULL},
    .prefix = "bert.|ernie.",
    .names = {NAMES_BERT("bert."),
              NAMES_BERT_HEAD, [W_TOKEN_TASKS] = "bert.embeddings.task_type_embeddings"},
    .configure = configure,
    .choose = choose,
};
