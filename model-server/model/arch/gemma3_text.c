/* Gemma 3, the text decoder: sliding windows with their own RoPE base, QK norm. arXiv 2503.19786 */
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_gemma3(c, s);
    s->both_ways = s->no_head = config_bool_or(c, "use_bidirectional_attention", false);
    for (uint32_t i = 0; s->both_ways && i < s->n_layers; i++) /* EmbeddingGemma */
        s->layers[i].window = s->layers[i].window ? s->layers[i].window / 2 + 1 : 0;
    config_mutual_pictures(c, s);
}

const struct arch arch_gemma3_text = {
    .types = (const char *const[]){"gemma3_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_QK_NORM, NAMES_NORMS_AROUND,
              NAMES_GATED_MLP},
    .configure = configure,
};
