/* config_index.c - the indexer of sparse attention: see struct index_spec. */
#include "common/json/json.h"
#include "model-server/model/config/config.h"
#include <string.h>

/* By a word of F and S. */
static bool in_pattern(struct config *c, const char *pattern, uint32_t i)
{
    if (strlen(pattern) > i && strchr("FS", pattern[i]))
        return pattern[i] == 'F';
    config_fail(c, "`index_topk_pattern` must have F or S for each layer");
    return true;
}

/* True if layer i has an indexer of its own: without a list, by a word of F and S, or by a period.
 */
static bool indexes(struct config *c, const cJSON *word, uint32_t i, uint32_t every_def)
{
    const cJSON *letters = cJSON_GetObjectItemCaseSensitive(c->root, "index_topk_pattern");
    const char *pattern = cJSON_IsString(letters) ? letters->valuestring : NULL;
    if (!word && letters && !pattern && !cJSON_IsNull(letters))
        config_fail(c, "`index_topk_pattern` must be a word of F and S");
    if (word)
        pattern = cJSON_IsString(word) ? word->valuestring : "";
    if (word && strcmp(pattern, "full") != 0 && strcmp(pattern, "shared") != 0)
        config_fail(c, "`indexer_types`: %.40s is not supported", pattern);
    if (word)
        return strcmp(pattern, "full") == 0;
    if (pattern)
        return in_pattern(c, pattern, i);
    const uint32_t every = config_u32_or(c, "index_topk_freq", every_def, 0, SPEC_MAX_LAYERS);
    const uint32_t from = config_u32_or(c, "index_skip_topk_offset", 2, 0, SPEC_MAX_LAYERS);
    return every < 2 || i < from || (i - from + 1) % every == 0;
}

void config_indexer(struct config *c, struct decoder_spec *s, const struct index_defaults *d)
{
    struct index_spec *x = &s->mla.index;
    const cJSON *word = config_layer_list(c, s, "indexer_types");
    x->heads = config_u32_or(c, "index_n_heads", d->heads, 1, 4096);
    x->dim = config_u32_or(c, "index_head_dim", 128, 2, 4096);
    x->top = config_u32_or(c, "index_topk", 2048, 1, 1u << 20);
    x->interleaved = config_bool_or(c, "indexer_rope_interleave", d->interleaved);
    x->eps = (float)d->eps;
    if (x->dim < s->mla.rope)
        config_fail(c, "`index_head_dim` must be at least `qk_rope_head_dim`");
    x->own_norm = d->own_norm;
    if (!s->mla.q_rank && !x->own_norm)
        config_fail(c, "`q_lora_rank` is required: the indexer reads that product");
    for (uint32_t i = 0, own = 0; i < s->n_layers; i++, word = word ? word->next : NULL) {
        if (s->layers[i].mixer != MIXER_MLA || s->layers[i].selects_none)
            continue;
        if (indexes(c, word, i, d->every))
            own = i + 1;
        else if (!own)
            config_fail(c, "`indexer_types`: the first layer must have an indexer");
        s->layers[i].top_of = own == i + 1 ? 0 : own;
    }
}
