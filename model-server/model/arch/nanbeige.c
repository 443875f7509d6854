/* Nanbeige 4.2 (Nanbeige LLM Lab): Llama whose layers run twice, with separate keys and values for
 * each pass; the final norm follows each pass. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

/* Parts of the repository's code that no released model has. */
static void refuse_others(struct config *c)
{
    static const char *const unlike[] = {
        "qk_layernorm",  "ngram_insert_all_layers", "enable_double_loop_split",
        "loop_share_kv", "enable_hyper_connection", "enable_depth_attention"};
    for (size_t i = 0; i < sizeof(unlike) / sizeof(unlike[0]); i++)
        config_only(c, unlike[i], false);
    if (config_num_or(c, "emb_neighbor_num", 0) != 0 ||
        cJSON_GetArraySize(json_get(c->root, "insert_ngram_layer_idx")) > 0)
        config_fail(c, "`emb_neighbor_num`: embeddings of n-grams are not supported");
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 2048, .norm_eps = 1e-6, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    refuse_others(c);
    config_turns(c, s, "num_loops", 1, !config_bool_or(c, "skip_loop_final_norm", false));
}

const struct arch arch_nanbeige = {
    .types = (const char *const[]){"nanbeige", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
