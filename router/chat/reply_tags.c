/* reply_tags.c - parses calls in tags:
 * <function=NAME><parameter=KEY>VALUE</parameter>..</function>.
 *
 * Text between two tags ends where the next tag allowed there begins. A byte is accepted when it
 * can no longer belong to that tag. Values are converted to JSON: text as it arrives, other types
 * when complete. */
#include "common/json/json.h"
#include "router/chat/reply_impl.h"
#include <string.h>

enum { MAX_NAME = 256 };

const char *tags_scan(struct reply *r, const char *const ends[MAX_ENDS], char c, struct buf *to)
{
    buf_ch(&r->held, c);
    while (r->held.len) {
        bool may = false;
        for (int i = 0; i < MAX_ENDS; i++) {
            size_t len = ends[i] ? strlen(ends[i]) : 0;
            if (len < r->held.len || memcmp(ends[i], r->held.p, r->held.len) != 0)
                continue;
            may = true;
            if (len == r->held.len) {
                buf_reset(&r->held);
                return ends[i];
            }
        }
        if (may)
            return NULL;
        if (to)
            buf_ch(to, r->held.p[0]);
        memmove(r->held.p, r->held.p + 1, --r->held.len);
    }
    return NULL;
}

/* ---------------------------------------------------------------- values */

void tags_escape(struct buf *out, char c)
{
    if (c == '"' || c == '\\')
        buf_fmt(out, "\\%c", c);
    else if (c == '\n')
        buf_str(out, "\\n");
    else if ((unsigned char)c < 0x20)
        buf_fmt(out, "\\u%04x", (unsigned)(unsigned char)c);
    else
        buf_ch(out, c);
}

static void value_text(struct reply *r, const struct buf *from)
{
    for (size_t i = 0; i < from->len; i++)
        if (r->fresh && from->p[i] == '\n')
            r->fresh = false; /* the line break after the tag */
        else
            r->fresh = false, tags_escape(call_arguments(r), from->p[i]);
}

static bool is_cdata(const char **s, size_t *n)
{
    static const char open[] = "<![CDATA[", close[] = "]]>";
    const size_t around = sizeof(open) - 1 + sizeof(close) - 1;
    if (*n < around || memcmp(*s, open, sizeof(open) - 1) != 0 ||
        memcmp(*s + *n - (sizeof(close) - 1), close, sizeof(close) - 1) != 0)
        return false;
    *s += sizeof(open) - 1;
    *n -= around;
    return true;
}

/* Appends s[0..n) if it is a JSON value that the argument may have. */
static bool put_json(struct reply *r, const char *s, size_t n)
{
    struct err ignored;
    cJSON *j = n ? json_parse(s, n, &ignored) : NULL;
    bool json = j && (r->types & REPLY_OTHER || (cJSON_IsNull(j) && r->types & REPLY_NULL));
    cJSON_Delete(j);
    if (json)
        buf_add(call_arguments(r), s, n);
    return json;
}

/* The same for a Python literal. A text may look like one, so that strings must be excluded. */
static bool put_literal(struct reply *r, const char *s, size_t n)
{
    struct buf json = BUF_INIT;
    const char *word = python_word(s, n);
    bool ok = word ? put_json(r, word, strlen(word))
                   : !(r->types & REPLY_STRING) && python_to_json(s, n, &json) && !json.oom &&
                         put_json(r, json.p, json.len);
    buf_free(&json);
    return ok;
}

/* A value that need not be a string: JSON, a Python literal, or otherwise text. */
static void value_any(struct reply *r)
{
    struct buf *out = call_arguments(r);
    const char *s = r->text.p ? r->text.p : "";
    size_t n = r->text.len;
    while (n && is_blank(s[n - 1]))
        n--;
    while (n && is_blank(*s))
        s++, n--;
    const struct call_tags *t = r->config.format->tags;
    const bool cdata = t->cdata && is_cdata(&s, &n);
    if (t->mark && nested_to_json(t->mark, s, n, out))
        return;
    if (put_json(r, s, n) || put_literal(r, s, n))
        return;
    buf_ch(out, '"');
    r->fresh = !cdata;
    for (size_t i = 0; cdata && i < n; i++)
        tags_escape(out, s[i]);
    if (!cdata)
        value_text(r, &r->text);
    buf_ch(out, '"');
}

/* Is the value a text that is passed on as it arrives? */
static bool streams_text(const struct reply *r)
{
    return r->types == REPLY_STRING && !r->config.format->tags->cdata;
}

/* The tag of the name may say whether the value is a string. */
static void read_attribute(struct reply *r)
{
    const char *attribute = r->config.format->tags->string_attribute;
    char *at = attribute && r->key.len ? strstr(r->key.p, attribute) : NULL;
    if (!at)
        return;
    const bool string = !strcmp(at + strlen(attribute), "true");
    r->types = string ? REPLY_STRING : REPLY_OTHER | REPLY_NULL;
    r->key.len = (size_t)(at - r->key.p);
    *at = '\0';
}

static void value_begins(struct reply *r)
{
    struct buf *out = call_arguments(r), *key = &r->key;
    while (key->len && is_blank(key->p[key->len - 1]))
        key->p[--key->len] = '\0';
    r->types = r->config.types ? r->config.types(r->config.types_of, call_name(r), key->p) : 0;
    r->types = r->types ? r->types : REPLY_STRING | REPLY_OTHER;
    read_attribute(r);
    buf_str(out, out->len ? ", " : "{");
    buf_json_str(out, key->p ? key->p : "", key->len);
    buf_str(out, ": ");
    if (streams_text(r))
        buf_ch(out, '"');
    buf_reset(&r->text);
    buf_reset(&r->closing);
    if (r->config.format->tags->mark)
        buf_fmt(&r->closing, "%s</%s>", r->config.format->tags->mark, key->p ? key->p : "");
    r->fresh = r->config.format->tags->value_end; /* a line break after the tag is not the text's */
    r->state = TAG_VALUE;
}

static void value_byte(struct reply *r, const struct call_tags *t, char c)
{
    const char *own = r->closing.p;
    const char *const ends[MAX_ENDS] = {t->value_end, t->value_close, NULL};
    const char *const named[MAX_ENDS] = {own, own ? own + strlen(t->mark) : NULL, NULL};
    const char *end = tags_scan(r, t->mark ? named : ends, c, &r->text);
    if (streams_text(r)) {
        value_text(r, &r->text);
        buf_reset(&r->text);
    }
    if (!end)
        return;
    if (streams_text(r))
        buf_ch(call_arguments(r), '"');
    else
        value_any(r);
    r->state = TAG_BETWEEN;
}

/* ---------------------------------------------------------------- around them */

static void call_ends(struct reply *r, bool closed)
{
    if (call_arguments(r)->len)
        buf_ch(call_arguments(r), '}');
    call_complete(r);
    if (closed && r->state == BEHIND_CALL)
        r->state = CONTENT;
}

static void between(struct reply *r, const struct call_format *f, char c)
{
    const struct call_tags *t = f->tags;
    const char *const ends[MAX_ENDS] = {t->key_open, t->end ? t->end : f->close, f->close};
    if (c == '{' && !r->held.len && !call_arguments(r)->len) {
        call_object(r, c); /* <function=NAME>{..}</function> */
        return;
    }
    const char *end = tags_scan(r, ends, c, NULL);
    if (!end)
        return;
    buf_reset(&r->key);
    if (end == t->key_open)
        r->state = TAG_KEY;
    else
        call_ends(r, end == f->close);
}

static void name_byte(struct reply *r, const struct call_format *f, char c)
{
    const struct call_tags *t = f->tags;
    const char *const named[MAX_ENDS] = {t->name_close, f->close, NULL};
    const char *const bare[MAX_ENDS] = {t->name_close ? t->name_close : "\n", t->key_open,
                                        f->close};
    const char *end = tags_scan(r, t->name_open ? named : bare, c, &r->text);
    size_t n = r->text.len;
    if (n > MAX_NAME || (end && end == f->close && t->name_open)) {
        call_reject(r);
        return;
    }
    if (!end || (!n && end[0] == '\n'))
        return;
    while (n && is_blank(r->text.p[n - 1]))
        n--;
    call_announce(r, strndup(r->text.p ? r->text.p : "", n));
    if (r->state != TAG_NAME)
        return; /* not a name */
    buf_reset(&r->key);
    r->state = end == t->key_open ? TAG_KEY : TAG_BETWEEN;
    if (end == f->close)
        call_ends(r, true);
}

/* Is `tag` the one that begins as an argument's and goes on with the key? */
static bool is_tag(const struct call_tags *t, const char *tag, const struct buf *key)
{
    const size_t n = strlen(t->key_open), close = strlen(t->key_close);
    return strlen(tag) == n + key->len + close && !strncmp(tag, t->key_open, n) &&
           !memcmp(tag + n, key->p ? key->p : "", key->len);
}

/* The name in a tag is complete. Where all tags begin alike it may be another one. */
static void key_ends(struct reply *r, const struct call_format *f)
{
    const struct call_tags *t = f->tags;
    if (t->mark && (is_tag(t, t->end, &r->key) || is_tag(t, f->close, &r->key))) {
        call_ends(r, is_tag(t, f->close, &r->key));
        return;
    }
    if (t->mark && (!r->key.len || r->key.p[0] == '/')) {
        r->state = TAG_BETWEEN;
        return;
    }
    r->state = TAG_VALUE_OPEN;
    if (!t->value_open)
        value_begins(r);
}

/* Skips blanks, then expects this tag. */
static void expect(struct reply *r, const char *tag, char c)
{
    if (!r->held.len && is_blank(c))
        return;
    buf_ch(&r->held, c);
    if (strncmp(tag, r->held.p, r->held.len) != 0) {
        buf_reset(&r->held);
        call_reject(r);
    } else if (tag[r->held.len] == '\0') {
        buf_reset(&r->held);
        if (r->state == TAG_VALUE_OPEN)
            value_begins(r);
        else
            tags_name(r);
    }
}

void tags_name(struct reply *r)
{
    buf_reset(&r->text);
    r->state = TAG_NAME;
}

void tags_byte(struct reply *r, char c)
{
    const struct call_format *f = r->config.format;
    const struct call_tags *t = f->tags;
    if (r->state == TAG_NAME_OPEN && t->name_open) {
        expect(r, t->name_open, c);
    } else if (r->state == TAG_NAME_OPEN || r->state == TAG_NAME) {
        if (r->state == TAG_NAME_OPEN)
            tags_name(r);
        name_byte(r, f, c);
    } else if (r->state == TAG_BETWEEN) {
        between(r, f, c);
    } else if (r->state == TAG_KEY) {
        const char *const ends[MAX_ENDS] = {t->key_close, NULL, NULL};
        if (tags_scan(r, ends, c, &r->key))
            key_ends(r, f);
    } else if (r->state == TAG_VALUE_OPEN) {
        expect(r, t->value_open, c);
    } else {
        value_byte(r, t, c);
    }
}

void tags_end_of_text(struct reply *r)
{
    if (r->state == TAG_VALUE && streams_text(r))
        value_text(r, &r->held);
}
