/* One member of a body, without the rest: which model is meant is asked before anything else. */
#include "common/json_scan.h"
#include "router/body/body.h"
#include <string.h>

const char *body_model(const char *p, size_t n, struct arena *a)
{
    struct scan s = {.p = p, .end = p + n};
    const char *key = NULL, *out = NULL;
    size_t n_key = 0, n_out = 0;
    if (!p || scan_next(&s) != SCAN_OBJECT)
        return NULL;
    scan_open(&s);
    for (bool first = true; scan_more(&s, '}', &first) && scan_key(&s, &key, &n_key);) {
        if (n_key == 5 && !memcmp(key, "model", 5))
            return scan_next(&s) == SCAN_STRING && scan_string(&s, a, &out, &n_out) ? out : NULL;
        scan_skip(&s);
    }
    return NULL;
}
