/* llama-server's logit_bias names tokens by texts, too: each token of the text gets the bias. */
#include "common/json/json.h"
#include "router/api/llama/llama.h"
#include <stdlib.h>
#include <string.h>

static bool is_id(const char *s) { return s[strspn(s, "0123456789")] == 0; }

/* The text that an entry names its tokens by; NULL: it has an id, or is for body_bias() to refuse.
 */
static const char *text_of(const cJSON *entry, const cJSON **value)
{
    const bool pair = cJSON_IsArray(entry) && cJSON_GetArraySize(entry) == 2;
    const char *text = pair ? cJSON_GetStringValue(entry->child) : entry->string;
    *value = pair ? entry->child->next : entry;
    return text && (pair || !is_id(text)) ? text : NULL;
}

static cJSON *pair_of(double id, const cJSON *value)
{
    cJSON *pair = cJSON_CreateArray();
    cJSON_AddItemToArray(pair, cJSON_CreateNumber(id));
    cJSON_AddItemToArray(pair, cJSON_Duplicate(value, true));
    return pair;
}

static int add_text(struct call *c, const char *text, const cJSON *value, cJSON *to, struct err *e)
{
    struct tok_ids ids = {0};
    int rc = tokenizer_encode(c->edge->tokenizer, text, strlen(text), 0, c->scratch, &ids, e);
    for (uint32_t i = 0; rc == 0 && i < ids.n; i++)
        cJSON_AddItemToArray(to, pair_of(ids.id[i], value));
    tok_ids_free(&ids);
    return rc;
}

static bool has_texts(const cJSON *bias)
{
    const cJSON *value;
    for (const cJSON *k = bias->child; k; k = k->next)
        if (text_of(k, &value))
            return true;
    return false;
}

int llama_bias(struct call *c, struct body *b, struct err *e)
{
    const cJSON *bias = json_get(b->root, "logit_bias"), *value;
    if (!(cJSON_IsArray(bias) || cJSON_IsObject(bias)) || !has_texts(bias))
        return 0;
    cJSON *ids = cJSON_CreateArray();
    int rc = ids ? 0 : err_nomem(e);
    for (const cJSON *k = bias->child; k && rc == 0; k = k->next) {
        const char *text = text_of(k, &value);
        if (text)
            rc = add_text(c, text, value, ids, e);
        else
            cJSON_AddItemToArray(ids, cJSON_IsArray(k) ? cJSON_Duplicate(k, true)
                                                       : pair_of(strtod(k->string, NULL), k));
    }
    if (rc == 0)
        cJSON_ReplaceItemInObjectCaseSensitive(b->root, "logit_bias", ids);
    else
        cJSON_Delete(ids);
    return rc;
}
