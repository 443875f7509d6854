/* Reads one member of a body without parsing the rest: the model is needed first. */
#include "common/json/reader.h"
#include "router/body/body.h"
#include <string.h>

const char *body_model(const char *p, size_t n, struct arena *a)
{
    struct json_reader j = json_reader(p ? p : "", p ? n : 0);
    const char *key = NULL, *out = NULL;
    size_t n_key = 0, n_out = 0;
    if (!jr_open(&j, '{'))
        return NULL;
    for (bool first = true; jr_more(&j, '}', &first) && jr_name(&j, &key, &n_key);) {
        if (n_key == 5 && !memcmp(key, "model", 5))
            return jr_next(&j) == JR_STRING && jr_arena_string(&j, a, &out, &n_out) ? out : NULL;
        jr_skip(&j, NULL, NULL);
    }
    return NULL;
}
