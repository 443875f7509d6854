/* Qwen 1.5, 2 and 2.5, the text model of dots.ocr, and MiMo (Xiaomi, arXiv 2505.07608) without its
 * draft layer: Llama with biases on q, k and v; the upper layers may have sliding windows. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* Ovis 2: the ids around a picture and between its tiles have the last rows of the tower's table.
 */
static void indicators(struct config *c, struct decoder_spec *s)
{
    const cJSON *tower = json_get(c->file, "vision_config");
    const cJSON *ids = json_get(c->file, "visual_indicator_token_ids"), *id;
    if (strcmp(json_str(c->file, "model_type", ""), "ovis2") != 0)
        return;
    const double rows = json_num(tower, "vocab_size", 16384);
    const double n = json_num(tower, "num_visual_indicator_tokens", 5);
    const double first = ids ? (id = json_first(ids)) ? id->valuedouble : -1 : 151666;
    double next = first;
    cJSON_ArrayForEach(id, ids) if (id->valuedouble == next) next++;
    if (!(rows >= n && rows <= 1 << 24 && n >= 1 && first >= 0 && first + n <= s->vocab) ||
        rows != (uint32_t)rows || n != (uint32_t)n || first != (uint32_t)first ||
        (ids && (next != first + n || cJSON_GetArraySize(ids) != (int)n))) {
        config_fail(c, "`visual_indicator_token_ids` must be consecutive ids of the vocabulary, as "
                       "many as `num_visual_indicator_tokens`");
        return;
    }
    s->other[s->n_other++] = (struct other_embeds){.first = (uint32_t)first,
                                                   .n = (uint32_t)n,
                                                   .rows = (uint32_t)rows,
                                                   .width = s->hidden,
                                                   .skip = (uint32_t)(rows - n),
                                                   .bare = true};
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){.max_positions = 32768, .norm_eps = 1e-6, .rope_theta = 10000});
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = true;
    config_windows(c, s, 4096, config_upper_layers);
    indicators(c, s);
}

const struct arch arch_qwen2 = {
    .types =
        (const char *const[]){"qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text",
                              "qwen2_5_omni_text", "mimo", "dots_ocr", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, [W_SIGHT_EMBED] = "model.visual_embeddings_table"},
    .configure = configure,
};
