/* EmbeddingGemma 2 (Google), the text encoder: Gemma 4's layers with bidirectional attention;
 * per-layer embeddings come from a projection alone, and a projection after the last norm gives the
 * vectors. */
#include "model-server/model/arch.h"

static bool sliding(struct config *c, uint32_t layer)
{
    return config_all_but_nth(c, "sliding_window_pattern", 6, layer);
}

/* Layers without a window have heads of their own size. */
static void layer_sizes(struct config *c, struct decoder_spec *s)
{
    const uint32_t dim = config_u32_or(c, "global_head_dim", 512, 1, ROPE_MAX_DIM);
    const uint32_t kv = config_u32_or(c, "num_global_key_value_heads", 1, 1, 65536);
    s->rope[0].dim = s->head_dim;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        struct layer_spec *l = &s->layers[i];
        const uint32_t own_dim = config_own_size(c, i, "head_dim");
        const uint32_t own_kv = config_own_size(c, i, "num_key_value_heads");
        l->attn_scale = 1;
        if (l->window) { /* the radius, which is in it */
            l->window++;
            continue;
        }
        l->head_dim = own_dim ? own_dim : dim;
        l->n_kv_heads = own_kv ? own_kv : kv;
        if (l->head_dim > ROPE_MAX_DIM || s->n_heads % l->n_kv_heads)
            config_fail(c, "layer %u: %u heads of %u, %u of keys and values", i, s->n_heads,
                        l->head_dim, l->n_kv_heads);
        s->rope[0].dim = l->head_dim;
    }
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 256,
                                             .max_positions = 262144,
                                             .norm_eps = 1e-6,
                                             .layers = 24,
                                             .ffn = 2048,
                                             .heads = 4,
                                             .kv_heads = 2,
                                             .vocab = 262144});
    config_gemma(c, s, 0);
    s->qk_norm = QK_NORM_HEAD;
    s->v_norm = s->layer_scale = s->per_layer_plain = s->both_ways = s->no_head = true;
    s->per_layer = config_u32_or(c, "hidden_size_per_layer_input", 512, 1, 65536);
    config_windows(c, s, 512, sliding);
    layer_sizes(c, s);
    config_rope(c, s, 1000000);
    config_window_rope(c, s, 10000);
    s->rope[1].dim = s->head_dim;
}

#define PLE "model.layers.*.ple_block."
const struct arch arch_embedding_gemma2 = {
    .types = (const char *const[]){"embedding_gemma2_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_QK_NORM, NAMES_NORMS_AROUND,
              NAMES_GATED_MLP, [W_LAYER_SCALE] = "model.layers.*.layer_scalar",
              [W_LAYER_EMBED_PROJ] = "model.ple.per_layer_model_projection",
              [W_LAYER_EMBED_NORM] = "model.ple.per_layer_projection_norm",
              [W_LAYER_EMBED_GATE] = PLE "per_layer_input_gate",
              [W_LAYER_EMBED_OUT] = PLE "per_layer_projection",
              [W_LAYER_EMBED_POST_NORM] = PLE "post_per_layer_input_norm",
              [W_VECTOR] = "model.embedding_projection"},
    .configure = configure,
};
