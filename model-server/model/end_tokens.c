#include "model-server/model/end_tokens.h"
#include "common/json/json.h"
#include "common/model/model_file.h"
#include <limits.h>
#include <stdio.h>

enum { SMALL_JSON = 16 * 1024 * 1024 };

/* An integer or a list of them. */
static int read_ids(const char *path, const cJSON *root, uint32_t vocab,
                    uint32_t out[MAX_END_TOKENS], uint32_t *n, struct err *e)
{
    const cJSON *j = json_get(root, "eos_token_id");
    for (j = cJSON_IsArray(j) ? j->child : j; j && *n < MAX_END_TOKENS; j = j->next) {
        if (!cJSON_IsNumber(j))
            return err_set(e, ERR_VALIDATION,
                           "%s: `eos_token_id` must be an integer or a list of integers", path);
        if (j->valuedouble >= 0 && j->valuedouble < vocab)
            out[(*n)++] = (uint32_t)j->valuedouble;
        if (j->string) /* the value itself, not an element */
            break;
    }
    return 0;
}

int end_tokens_read(const char *dir, uint32_t vocab, uint32_t out[MAX_END_TOKENS], uint32_t *n,
                    struct err *e)
{
    static const char *const files[] = {"generation_config.json", "config.json"};
    *n = 0;
    for (int i = 0; i < 2 && *n == 0 && dir; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
        if (!model_file_exists(path))
            continue;
        cJSON *root = model_file_json(path, SMALL_JSON, e);
        if (!root)
            return -1;
        int rc = read_ids(path, root, vocab, out, n, e);
        if (rc == 0 && *n == 0)
            rc = read_ids(path, model_file_text_config(root), vocab, out, n, e);
        if (rc == 0 && *n == 0) /* of an encoder and a decoder, each with an object of its own */
            rc = read_ids(path, json_get(root, "decoder"), vocab, out, n, e);
        cJSON_Delete(root);
        if (rc != 0)
            return -1;
    }
    return 0;
}
