#include "common/tokenizer/text.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

void text_free(struct text *t)
{
    buf_free(&t->own);
    free(t->from);
    *t = (struct text){0};
}

static bool inside_char(const struct text *t, uint32_t i)
{
    return i > 0 && i < t->n && ((unsigned char)t->p[i] & 0xC0) == 0x80;
}

struct tok_offset text_origin(const struct text *t, uint32_t start, uint32_t end)
{
    if (start > t->n)
        start = t->n;
    if (end > t->n)
        end = t->n;
    if (t->mapped) {
        if (start < end)
            return (struct tok_offset){t->from[start].start, t->from[end - 1].end};
        uint32_t o = start < t->n ? t->from[start].start : t->n ? t->from[t->n - 1].end : 0;
        return (struct tok_offset){o, o};
    }
    while (inside_char(t, start))
        start--;
    while (inside_char(t, end))
        end++;
    return (struct tok_offset){start, end > start ? end : start};
}

int spans_add(struct spans *s, uint32_t start, uint32_t end, uint32_t id)
{
    if (start >= end) /* a caller may split at the edge */
        return 0;
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? s->cap * 2 : 256;
        struct span *v = realloc(s->v, cap * sizeof *v);
        if (!v)
            return -1;
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = (struct span){start, end, id};
    return 0;
}

/* ---------------------------------------------------------------- rewriting */
static void append(struct text *out, const char *s, size_t n, struct tok_offset from)
{
    size_t at = out->own.len;
    buf_add(&out->own, s, n);
    if (out->own.oom || !out->mapped)
        return;
    if (at + n > out->from_cap) {
        size_t cap = out->from_cap ? out->from_cap : 256;
        while (cap < at + n)
            cap *= 2;
        struct tok_offset *f = realloc(out->from, cap * sizeof *f);
        if (!f) {
            out->own.oom = true;
            return;
        }
        out->from = f;
        out->from_cap = cap;
    }
    for (size_t i = 0; i < n; i++)
        out->from[at + i] = from;
}

static uint32_t char_len(const struct text *t, uint32_t i, uint32_t end)
{
    if (i >= end)
        return 0;
    unsigned char c = (unsigned char)t->p[i];
    uint32_t n = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    return n <= end - i ? n : end - i;
}

static struct tok_offset place(const struct rewrite *w, uint32_t i)
{
    return w->out->mapped ? text_origin(w->in, i, i + 1) : (struct tok_offset){0, 0};
}

void rewrite_put(struct rewrite *w, uint32_t cp, int change)
{
    struct tok_offset from;
    char u[4];
    if (change > 0 && w->at == w->begin) {
        from = place(w, w->begin);
        from.end = from.start;
    } else {
        from = place(w, change > 0 ? w->at - 1 : w->at);
    }
    for (int i = change > 0 ? 1 : change; i <= 0; i++)
        w->at += char_len(w->in, w->at, w->end);
    append(w->out, u, utf8_encode(cp, u), from);
}

void rewrite_copy(struct rewrite *w, uint32_t n)
{
    if (!w->out->mapped) {
        buf_add(&w->out->own, w->in->p + w->at, n);
        w->at += n;
        return;
    }
    for (uint32_t i = 0, len; i < n; i += len) {
        len = char_len(w->in, w->at, w->end);
        append(w->out, w->in->p + w->at, len, place(w, w->at));
        w->at += len;
    }
}

void rewrite_skip(struct rewrite *w, uint32_t n) { w->at += n; }

void rewrite_insert(struct rewrite *w, const char *s, size_t n, uint32_t like)
{
    append(w->out, s, n, place(w, like));
}

void rewrite_mend(struct rewrite *w)
{
    for (uint32_t len; w->at < w->end; w->at += len) {
        size_t valid = utf8_valid_len(w->in->p + w->at, w->end - w->at);
        len = valid ? (uint32_t)valid : 1;
        struct tok_offset from = {w->at, w->at + len};
        append(w->out, valid ? w->in->p + w->at : "\xEF\xBF\xBD", valid ? valid : 3, from);
    }
}
