/* Reads one member of a body without parsing the rest: some are needed first. */
#include "common/json/reader.h"
#include "router/body/body.h"
#include <string.h>

const char *body_text(const char *p, size_t n, const char *name, struct arena *a)
{
    const size_t n_name = strlen(name);
    struct json_reader j = json_reader(p ? p : "", p ? n : 0);
    const char *key = NULL, *out = NULL;
    size_t n_key = 0, n_out = 0;
    if (!jr_open(&j, '{'))
        return NULL;
    for (bool first = true; jr_more(&j, '}', &first) && jr_name(&j, &key, &n_key);) {
        if (n_key == n_name && !memcmp(key, name, n_name))
            return jr_next(&j) == JR_STRING && jr_arena_string(&j, a, &out, &n_out) ? out : NULL;
        jr_skip(&j, NULL, NULL);
    }
    return NULL;
}

const char *body_model(const char *p, size_t n, struct arena *a)
{
    return body_text(p, n, "model", a);
}
