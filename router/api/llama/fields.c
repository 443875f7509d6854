/* response_fields: of an answer only these members, each under the path that it was asked by. */
#include "router/api/llama/llama.h"
#include <string.h>

/* Where the value at "a/b/c" stands in the object `text`. */
static bool find(const char *text, size_t n, const char *path, size_t *at, size_t *len)
{
    char dotted[LLAMA_FIELD_MAX + 1];
    const char *last = strrchr(path, '/');
    const size_t n_path = last ? (size_t)(last - path) : 0;
    for (size_t i = 0; i < n_path; i++)
        dotted[i] = path[i] == '/' ? '.' : path[i];
    dotted[n_path] = 0;
    return body_locate(text, n, dotted, last ? last + 1 : path, at, len);
}

void llama_select(struct buf *out, size_t from, const struct llama *l)
{
    struct buf all = BUF_INIT;
    size_t at, len;
    if (!l->n_fields || out->oom)
        return;
    buf_add(&all, out->p + from, out->len - from);
    out->len = from;
    buf_ch(out, '{');
    for (uint32_t i = 0; i < l->n_fields && all.p; i++) {
        const char *path = l->fields[i];
        if (strlen(path) > LLAMA_FIELD_MAX || !find(all.p, all.len, path, &at, &len))
            continue;
        buf_str(out, out->len > from + 1 ? "," : "");
        buf_json_str(out, path, strlen(path));
        buf_ch(out, ':');
        buf_add(out, all.p + at, len);
    }
    buf_ch(out, '}');
    out->oom |= all.oom;
    buf_free(&all);
}
