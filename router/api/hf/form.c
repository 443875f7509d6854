/* Which task a body on the path `/` is for. */
#include "common/json/json.h"
#include "router/api/hf/hf.h"
#include "router/api/tei/tei.h"

/* An object where TEI's clients send something else, or nothing. */
static bool object_at(const struct body *b, const char *key)
{
    return cJSON_IsObject(json_get(b->root, key));
}

const struct texts_row *hf_form(const struct call *c, const struct body *b)
{
    const bool labels = json_get(json_get(b->root, "parameters"), "candidate_labels") != NULL;
    switch (edge_limits(c->edge)->task) { /* as in TEI */
    case TASK_RERANK:
        return tei_rerank_form(c, b);
    case TASK_CLASSIFY:
        return labels                       ? &row_hf_zero_shot
               : object_at(b, "parameters") ? &row_hf_classify
                                            : &row_tei_predict;
    case TASK_TOKEN_CLASSIFY:
        return &row_hf_tokens;
    case TASK_FILL_MASK:
        return &row_hf_fill;
    case TASK_ANSWER:
        return &row_hf_answer;
    default:
        return labels                   ? &row_hf_image
               : object_at(b, "inputs") ? &row_tei_similarity
                                        : &row_tei_embed;
    }
}
