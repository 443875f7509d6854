/* EuroBERT (arXiv 2503.05500), NVIDIA's Llama Nemotron Embed and Rerank: Llama with bidirectional
 * attention. UltraBERT: a bidirectional sliding window with its own RoPE in two of three layers. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

static const double WIDE = 2560000, NARROW = 10000; /* UltraBERT's bases of both rotations */

static bool all_but_third(struct config *c, uint32_t layer)
{
    return (void)c, (layer + 1) % 3 != 0;
}

/* Element `layer` of a list of numbers. */
static double listed(const cJSON *list, uint32_t layer)
{
    const cJSON *j = cJSON_GetArrayItem(list, (int)layer);
    return cJSON_IsNumber(j) ? j->valuedouble : 0;
}

/* The repository's files list a window of each layer, 0 where it sees all, and a base of each. */
static void windows_listed(struct config *c, struct decoder_spec *s)
{
    const cJSON *bases = json_get(c->root, "rope_theta");
    double base[2] = {WIDE, NARROW};
    if (!config_layer_list(c, s, "attention_windows") ||
        (cJSON_IsArray(bases) && !config_layer_list(c, s, "rope_theta")))
        return;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const double n = listed(json_get(c->root, "attention_windows"), i);
        if (!(n >= 0 && n <= 1u << 24) || n != (uint32_t)n)
            config_fail(c, "`attention_windows` of layer %u must be an integer from 0 to 2^24", i);
        s->layers[i].window = c->failed || n == 0 ? 0 : (uint32_t)n + 1;
        if (cJSON_IsArray(bases))
            base[n != 0] = listed(bases, i);
    }
    s->rope[0].theta = base[0];
    config_window_rope(c, s, base[1]);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const char *type = json_str(c->root, "model_type", "");
    const bool ultra = strcmp(type, "ultrabert") == 0, llama = strcmp(type, "llama_bidirec") == 0;
    config_decoder(c, s,
                   &(struct config_defaults){.max_positions = ultra   ? 32768
                                                              : llama ? 2048
                                                                      : 8192,
                                             .norm_eps = ultra || llama ? 1e-6 : 1e-5});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    s->both_ways = s->no_head = true;
    if (llama)
        config_only_word(c, "pooling", "avg");
    s->rope[0].dim = s->head_dim;
    if (ultra && json_get(c->root, "attention_windows")) {
        s->rope[0] = (struct rope_spec){
            .kind = ROPE_DEFAULT, .dim = s->head_dim, .theta = WIDE, .attention_factor = 1};
        windows_listed(c, s);
        return;
    }
    config_rope(c, s, ultra ? WIDE : llama ? 10000 : 250000);
    if (!ultra)
        return;
    config_windows(c, s, 128, all_but_third);
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].window += s->layers[i].window > 0; /* it counts the tokens to one side */
    config_window_rope(c, s, NARROW);
}

const struct arch arch_eurobert = {
    .types = (const char *const[]){"eurobert", "ultrabert", "llama_bidirec", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
