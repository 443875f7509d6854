#include "router/api/openai/stop_trim.h"
#include <string.h>

/* Does the held text from byte `at` on begin with a stop sequence, or may it still become one? */
static bool may_begin(struct stop_trim *t, size_t at, bool *whole)
{
    const char *s = t->held.p + at;
    size_t n = t->held.len - at;
    bool may = false;
    for (uint32_t i = 0; i < t->n; i++) {
        size_t len = strlen(t->stop[i]);
        if (memcmp(t->stop[i], s, len < n ? len : n) != 0 || (len <= n && at + len <= t->early))
            continue;
        may = true;
        if (len <= n) {
            *whole = true;
            t->found = t->stop[i];
        }
    }
    return may;
}

/* The end of the sequence in the held text that is complete first; the end of the text if there is
 * none. The last allowed token may complete several, and text may follow them. */
static size_t first_end(const struct stop_trim *t)
{
    size_t end = t->held.len;
    for (uint32_t i = 0; i < t->n; i++) {
        const size_t len = strlen(t->stop[i]);
        for (size_t to = len > t->early ? len : t->early + 1; to <= end; to++)
            if (!memcmp(t->held.p + to - len, t->stop[i], len))
                end = to;
    }
    return end;
}

void stop_trim_push(struct stop_trim *t, const char *s, size_t n, bool early, struct buf *out)
{
    size_t from = 0;
    if (t->n == 0) {
        buf_add(out, s, n);
        return;
    }
    buf_add(&t->held, s, n);
    if (t->matched || !t->held.p)
        return;
    if (early)
        t->early = t->held.len;
    t->held.len = first_end(t);
    while (from < t->held.len && !may_begin(t, from, &t->matched))
        from++;
    buf_add(out, t->held.p, from);
    if (t->matched && t->keep)
        buf_str(out, t->found);
    t->held.len -= from;
    t->early -= from < t->early ? from : t->early;
    if (from && t->held.len)
        memmove(t->held.p, t->held.p + from, t->held.len);
}

/* A shorter sequence may have ended inside the possible beginning of a longer one. */
static size_t before_match(struct stop_trim *t)
{
    bool whole = false;
    for (size_t i = 0; i < t->held.len; i++) {
        may_begin(t, i, &whole);
        if (whole)
            return i;
    }
    return t->held.len;
}

void stop_trim_end(struct stop_trim *t, struct buf *out)
{
    bool matched_before = t->matched;
    size_t n = matched_before ? 0 : before_match(t);
    t->matched |= n < t->held.len;
    if (n)
        buf_add(out, t->held.p, n);
    if (!matched_before && t->matched && t->keep)
        buf_str(out, t->found);
    out->oom |= t->held.oom;
    buf_reset(&t->held);
    t->early = 0;
}

void stop_trim_free(struct stop_trim *t) { buf_free(&t->held); }
