#include "router/media/mark.h"
#include <string.h>

bool mark_placeholder(const char *text, size_t n, size_t from, const char *marker, struct mark *out)
{
    const size_t len = strlen(marker);
    const char *at = from < n ? memmem(text + from, n - from, marker, len) : NULL;
    if (!at)
        return false;
    *out = (struct mark){.at = (size_t)(at - text), .n = len};
    return true;
}

bool mark_inline(const char *text, size_t n, size_t from, struct mark *out)
{
    struct mark open;
    if (!mark_placeholder(text, n, from, "![](", &open))
        return false;
    const char *url = text + open.at + open.n;
    const char *end = memchr(url, ')', n - (size_t)(url - text));
    if (!end)
        return false;
    *out = (struct mark){.at = open.at,
                         .n = open.n + (size_t)(end - url) + 1,
                         .url = url,
                         .n_url = (size_t)(end - url)};
    return true;
}
