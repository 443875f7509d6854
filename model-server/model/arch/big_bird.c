/* BigBird (arXiv 2007.14062): BERT. Up to a certain length its block-sparse attention is full
 * attention; longer texts are refused. */
#include "model-server/model/arch.h"
#include <string.h>

static void whole_texts(struct config *c, struct decoder_spec *s)
{
    enum { FIXED = 5 }; /* blocks that each row sees: the first, the last, three around it */
    const char *kind = config_str_or(c, "attention_type", "block_sparse");
    const uint32_t block = config_u32_or(c, "block_size", 64, 1, 1u << 16);
    const uint32_t most = (FIXED + 2 * config_u32_or(c, "num_random_blocks", 3, 0, 1024)) * block;
    if (strcmp(kind, "original_full") == 0 || s->max_positions <= most)
        return;
    if (strcmp(kind, "block_sparse") != 0)
        config_fail(c, "`attention_type`: `%.40s` is not supported", kind);
    s->more_positions = s->max_positions - most;
    s->max_positions = most;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_encoder(c, s, 0);
    s->act = config_act(c, "hidden_act", "gelu_new");
    s->bias.qkv = config_bool_or(c, "use_bias", true);
    if (config_bool_or(c, "rescale_embeddings", false))
        s->embed_scale = sqrtf((float)s->hidden);
    whole_texts(c, s);
}

const struct arch arch_big_bird = {
    .types = (const char *const[]){"big_bird", NULL},
    .prefix = "bert.",
    .names = {NAMES_BERT("bert.")},
    .configure = configure,
};
