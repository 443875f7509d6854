/* reply_python.c - parses calls in Python syntax: name(key=literal, ..). Literals are converted to
 * JSON as they arrive. */
#include "common/hex.h"
#include "router/chat/reply_impl.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 256 };

static bool in_word(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

static void put(struct reply *r, char c) { buf_ch(call_arguments(r), c); }

/* ---------------------------------------------------------------- strings */

/* After a backslash; \xNN is held back until it is complete. */
static void escaped_byte(struct reply *r, char c)
{
    r->escaped = false;
    if (r->held.len || c == 'x') {
        buf_ch(&r->held, c);
        r->escaped = r->held.len < 3;
        if (r->escaped)
            return;
        bool good = hex_digit(r->held.p[1]) >= 0 && hex_digit(r->held.p[2]) >= 0;
        buf_fmt(call_arguments(r), good ? "\\u00%.2s" : "\\\\x%.2s", r->held.p + 1);
        buf_reset(&r->held);
    } else if (strchr("\"\\/bfnrtu", c)) {
        put(r, '\\');
        put(r, c);
    } else if (c == '\'') {
        put(r, c);
    } else if (c != '\n') { /* otherwise a line continuation */
        buf_fmt(call_arguments(r), "\\\\%c", c);
    }
}

static void string_byte(struct reply *r, char c)
{
    if (r->escaped)
        escaped_byte(r, c);
    else if (c == '\\')
        r->escaped = true;
    else if (c == r->quote)
        put(r, '"'), r->in_string = false;
    else if (c == '"')
        buf_str(call_arguments(r), "\\\"");
    else if (c == '\n')
        buf_str(call_arguments(r), "\\n");
    else if ((unsigned char)c < 0x20)
        buf_fmt(call_arguments(r), "\\u%04x", (unsigned)(unsigned char)c);
    else
        put(r, c);
}

/* ---------------------------------------------------------------- values */

const char *python_word(const char *s, size_t n)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        for (int json = 0; json < 2; json++)
            if (strlen(words[i][json]) == n && !memcmp(words[i][json], s, n))
                return words[i][1];
    return NULL;
}

/* A word has ended: a number, or None, True or False, also in JSON's spelling, which LFM2 writes.
 */
static void word_end(struct reply *r)
{
    const char *s = r->text.len ? r->text.p : "";
    const char *word = python_word(s, r->text.len);
    if (word)
        s = word;
    if (s == r->text.p && python_begins(*s))
        buf_json_str(call_arguments(r), s, r->text.len); /* an identifier: its name as a string */
    else
        buf_str(call_arguments(r), s);
    buf_reset(&r->text);
}

static void call_ends(struct reply *r)
{
    if (call_arguments(r)->len)
        put(r, '}');
    call_complete(r);
}

static void value_byte(struct reply *r, char c)
{
    if (r->in_string) {
        string_byte(r, c);
        return;
    }
    if (in_word(c) || c == '.' || c == '-' || c == '+') {
        buf_ch(&r->text, c);
        return;
    }
    word_end(r);
    if (r->depth == 0 && c == ')') {
        call_ends(r);
    } else if (r->depth == 0 && c == ',') {
        buf_reset(&r->key);
        r->state = PY_KEY;
    } else if (c == '"' || c == '\'') {
        r->in_string = true;
        r->escaped = false;
        r->quote = c;
        put(r, '"');
    } else if (strchr("[{(", c)) {
        r->depth++;
        put(r, c == '(' ? '[' : c); /* a tuple becomes a list */
    } else if (r->depth && strchr("]})", c)) {
        r->depth--;
        put(r, c == ')' ? ']' : c);
    } else if (r->depth && (is_blank(c) || c == ',' || c == ':')) {
        put(r, is_blank(c) ? ' ' : c);
    } else if (!is_blank(c)) {
        call_reject(r); /* not a literal */
    }
}

/* Appends the string that begins at s[0], a quote, as JSON; returns its length, 0: no end. */
static size_t string_to_json(const char *s, size_t n, struct buf *out)
{
    struct buf text = BUF_INIT;
    size_t i = 1;
    for (; i < n && s[i] != s[0]; i++) {
        bool plain = s[i] != '\\' || i + 1 == n;
        char c = plain ? s[i] : s[++i];
        buf_ch(&text, plain || !strchr("nrt", c) ? c : c == 'n' ? '\n' : c == 'r' ? '\r' : '\t');
    }
    buf_json_str(out, text.p ? text.p : "", text.len);
    out->oom |= text.oom;
    buf_free(&text);
    return i < n ? i + 1 : 0;
}

bool python_to_json(const char *s, size_t n, struct buf *out)
{
    for (size_t i = 0, len; i < n; i += len) {
        len = 1;
        if (s[i] == '\'' || s[i] == '"') {
            if (!(len = string_to_json(s + i, n - i, out)))
                return false;
        } else if (in_word(s[i])) {
            while (i + len < n && (in_word(s[i + len]) || s[i + len] == '.'))
                len++;
            const char *word = python_word(s + i, len);
            buf_add(out, word ? word : s + i, word ? strlen(word) : len);
        } else {
            buf_ch(out, s[i] == '(' ? '[' : s[i] == ')' ? ']' : s[i]);
        }
    }
    return true;
}

/* ---------------------------------------------------------------- names and keys */

static void key_byte(struct reply *r, char c)
{
    struct buf *out = call_arguments(r);
    if (c == ')' && !r->key.len) {
        call_ends(r);
    } else if (c == '=' && r->key.len) {
        buf_str(out, out->len ? ", " : "{");
        buf_json_str(out, r->key.p, r->key.len);
        buf_str(out, ": ");
        buf_reset(&r->text);
        r->depth = 0;
        r->in_string = false;
        r->state = PY_VALUE;
    } else if (in_word(c)) {
        buf_ch(&r->key, c);
    } else if (!is_blank(c) && c != ',') {
        call_reject(r);
    }
}

void python_byte(struct reply *r, char c)
{
    if (r->state == PY_VALUE) {
        value_byte(r, c);
    } else if (r->state == PY_KEY) {
        key_byte(r, c);
    } else if (c == '(' && r->text.len) {
        call_announce(r, strndup(r->text.p, r->text.len));
        if (r->state != PY_NAME)
            return;
        buf_reset(&r->key);
        buf_reset(&r->held);
        r->state = PY_KEY;
    } else if ((in_word(c) || c == '.' || c == '-') && r->text.len < MAX_NAME) {
        buf_ch(&r->text, c);
    } else {
        call_reject(r);
    }
}

bool python_begins(char c) { return in_word(c) && !(c >= '0' && c <= '9'); }
