/* Gemma 3, the text decoder: windows with a rotation of their own, q and k normalised. arXiv
 * 2503.19786 */
#include "common/json/json.h"
#include "model-server/model/arch.h"

static bool all_but_every_nth(struct config *c, uint32_t layer)
{
    double n =
        config_num_or(c, "sliding_window_pattern", config_num_or(c, "_sliding_window_pattern", 6));
    return n < 1 || (layer + 1) % (uint32_t)n != 0;
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 256,
                                             .max_positions = 131072,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 1000000,
                                             .tied = true,
                                             .heads = 8,
                                             .kv_heads = 4,
                                             .vocab = 262208});
    s->max_positions =
        config_u32_or(c, "max_position_embeddings", 131072, 1, 1u << 30); /* stretched already */
    config_gemma(c, s, 0);
    s->norm.plus = 1;
    s->qk_norm = QK_NORM_HEAD;
    s->both_ways = s->no_head = config_bool_or(c, "use_bidirectional_attention", false);
    config_attn_scale(c, s, 256);
    config_windows(c, s, 4096, all_but_every_nth);
    for (uint32_t i = 0; s->both_ways && i < s->n_layers; i++) /* EmbeddingGemma */
        s->layers[i].window = s->layers[i].window ? s->layers[i].window / 2 + 1 : 0;
    config_window_rope(c, s, config_num_or(c, "rope_local_base_freq", 10000));
    config_mutual_pictures(c, s);
}

const struct arch arch_gemma3_text = {
    .types = (const char *const[]){"gemma3_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_QK_NORM, NAMES_NORMS_AROUND,
              NAMES_GATED_MLP},
    .configure = configure,
};
