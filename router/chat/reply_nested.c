/* reply_nested.c - values of tags that nest, each tag after the format's mark:
 * MARK<list>MARK<item>1MARK</item>MARK</list>. Items are a list, other names an object. */
#include "common/json/json.h"
#include "router/chat/reply_impl.h"
#include <string.h>

enum { MAX_NESTED = 32 };

struct text { /* the rest of a value, or a part of it */
    const char *p, *end;
};

static void value(const char *mark, struct text t, int depth, struct buf *out);

static bool skip(struct text *t, const char *what)
{
    const size_t n = strlen(what);
    if ((size_t)(t->end - t->p) < n || memcmp(t->p, what, n) != 0)
        return false;
    t->p += n;
    return true;
}

static void trim(struct text *t)
{
    while (t->p < t->end && is_blank(*t->p))
        t->p++;
    while (t->p < t->end && is_blank(t->end[-1]))
        t->end--;
}

/* The tag at the beginning: its name, and whether it closes. False: there is none. */
static bool read_tag(const char *mark, struct text *t, struct text *name, bool *closes)
{
    struct text at = *t;
    if (!skip(&at, mark) || !skip(&at, "<"))
        return false;
    *closes = skip(&at, "/");
    const char *end = memchr(at.p, '>', (size_t)(at.end - at.p));
    if (!end || end == at.p)
        return false;
    *name = (struct text){at.p, end};
    t->p = end + 1;
    return true;
}

static bool same(struct text a, struct text b)
{
    return a.end - a.p == b.end - b.p && !memcmp(a.p, b.p, (size_t)(a.end - a.p));
}

/* Moves behind the tag that closes `name`; *inner is what precedes it. */
static bool read_element(const char *mark, struct text *t, struct text name, struct text *inner)
{
    const char *from = t->p, *at;
    int open = 1;
    while ((at = memmem(t->p, (size_t)(t->end - t->p), mark, strlen(mark)))) {
        struct text other;
        bool closes;
        t->p = at;
        if (!read_tag(mark, t, &other, &closes)) {
            t->p = at + strlen(mark);
            continue;
        }
        open += !same(name, other) ? 0 : closes ? -1 : 1;
        if (!open) {
            *inner = (struct text){from, at};
            return true;
        }
    }
    return false;
}

/* Appends the elements that follow each other, without brackets. *list: all are items. */
static bool elements(const char *mark, struct text t, int depth, bool *list, struct buf *out)
{
    struct text name, inner;
    bool closes, first = true;
    for (trim(&t); t.p < t.end; trim(&t)) {
        if (!read_tag(mark, &t, &name, &closes) || closes || !read_element(mark, &t, name, &inner))
            return false;
        const bool item = same(name, (struct text){"item", "item" + strlen("item")});
        if (!first && item != *list)
            return false;
        *list = item;
        buf_str(out, first ? "" : ", ");
        if (!item) {
            buf_json_str(out, name.p, (size_t)(name.end - name.p));
            buf_str(out, ": ");
        }
        value(mark, inner, depth, out);
        first = false;
    }
    return !first;
}

/* JSON, or otherwise a text. */
static void leaf(struct text t, struct buf *out)
{
    const size_t n = (size_t)(t.end - t.p);
    struct err ignored;
    cJSON *j = n ? json_parse(t.p, n, &ignored) : NULL;
    if (j)
        buf_add(out, t.p, n);
    else
        buf_json_str(out, t.p, n);
    cJSON_Delete(j);
}

static void value(const char *mark, struct text t, int depth, struct buf *out)
{
    struct buf inside = BUF_INIT;
    bool list = false;
    if (depth < MAX_NESTED && elements(mark, t, depth + 1, &list, &inside)) {
        buf_ch(out, list ? '[' : '{');
        buf_add(out, inside.p ? inside.p : "", inside.len);
        buf_ch(out, list ? ']' : '}');
    } else {
        leaf(t, out);
    }
    out->oom |= inside.oom;
    buf_free(&inside);
}

bool nested_to_json(const char *mark, const char *s, size_t n, struct buf *out)
{
    struct text t = {s, s + n}, name;
    bool closes;
    trim(&t);
    struct text first = t;
    if (!read_tag(mark, &first, &name, &closes) || closes)
        return false;
    value(mark, t, 0, out);
    return true;
}
