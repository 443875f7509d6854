/* reply_quoted.c - parses calls whose texts stand between quotes of the format:
 * call:NAME{key:<|"|>text<|"|>,n:3,list:[true,{k:<|"|>v<|"|>}]} (Gemma 4, FunctionGemma).
 *
 * Converts them to JSON while they arrive. The JSON is well-formed whatever the model writes:
 * commas and blanks are our own, and what is neither quoted nor a JSON value becomes a string. */
#include "common/json/json.h"
#include "router/chat/reply_impl.h"
#include <assert.h>
#include <string.h>

enum { MAX_NAME = 256, MAX_NESTING = 64 }; /* the bits of reply.objects */

static const char *quote(const struct reply *r) { return r->config.format->quote; }

/* ---------------------------------------------------------------- brackets */

static bool in_object(const struct reply *r) { return r->objects >> (r->depth - 1) & 1; }

static void open_bracket(struct reply *r, char c)
{
    if (r->depth == MAX_NESTING) {
        call_reject(r);
        return;
    }
    const uint64_t bit = UINT64_C(1) << r->depth++;
    r->objects = c == '{' ? r->objects | bit : r->objects & ~bit;
    r->state = c == '{' ? QUOTED_KEY_START : QUOTED_VALUE_START;
    buf_ch(call_arguments(r), c);
}

static void close_bracket(struct reply *r)
{
    buf_ch(call_arguments(r), in_object(r) ? '}' : ']');
    r->state = QUOTED_NEXT;
    if (--r->depth == 0)
        call_complete(r);
}

static void behind_value(struct reply *r, char c)
{
    if (c == ',')
        r->state = in_object(r) ? QUOTED_KEY_START : QUOTED_VALUE_START;
    else if (c == (in_object(r) ? '}' : ']'))
        close_bracket(r);
    else
        call_reject(r);
}

/* A key, or a list's value: a comma precedes it unless it is the first. */
static void part(struct reply *r)
{
    struct buf *out = call_arguments(r);
    if (out->len && !strchr("{[", out->p[out->len - 1]))
        buf_str(out, ", ");
}

/* ---------------------------------------------------------------- keys and values */

static void start_text(struct reply *r, enum reply_state state)
{
    buf_reset(&r->text);
    buf_reset(&r->held);
    r->in_string = r->escaped = false;
    r->state = (int)state;
}

/* A byte of a key or value without quotes so far. The format's quote, when complete, changes to
 * `quoted`. A string in JSON's own quotes may contain any byte. */
static void bare_text(struct reply *r, char c, enum reply_state quoted)
{
    const char *q = quote(r);
    const bool json = r->text.len && r->text.p[0] == '"';
    buf_ch(&r->text, c);
    if (json || c == '"') {
        if (r->in_string && (r->escaped || c == '\\'))
            r->escaped = !r->escaped;
        else if (c == '"' && (r->text.len == 1 || r->in_string))
            r->in_string = !r->in_string;
    }
    if (r->in_string || r->text.oom)
        return;
    if (!strcmp(r->text.p, q))
        start_text(r, quoted);
    else if (c == '{' || c == '[' || (r->text.p[0] == '<' && strncmp(r->text.p, q, r->text.len)) ||
             (c == '<' && r->text.len > 1)) /* another marker */
        call_reject(r);
}

/* The text without blanks at its end, as JSON: NULL unless it is a JSON value. */
static cJSON *scalar(struct reply *r)
{
    struct err ignored;
    struct buf *t = &r->text;
    while (t->len && is_blank(t->p[t->len - 1]))
        t->p[--t->len] = '\0';
    return t->len ? json_parse(t->p, t->len, &ignored) : NULL;
}

static void bare_value_end(struct reply *r, char c)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    struct buf *out = call_arguments(r);
    cJSON *j = scalar(r);
    const char *s = r->text.p;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (!strcmp(words[i][0], s))
            s = words[i][1];
    if (j || s != r->text.p)
        buf_str(out, s);
    else
        buf_json_str(out, s, r->text.len);
    cJSON_Delete(j);
    behind_value(r, c);
}

static void bare_value(struct reply *r, char c)
{
    if (!r->in_string && strchr(",}]", c)) {
        bare_value_end(r, c);
        return;
    }
    bare_text(r, c, QUOTED_TEXT);
    if (r->state == QUOTED_TEXT)
        buf_ch(call_arguments(r), '"');
}

static void value_start(struct reply *r, char c)
{
    const bool list = !in_object(r);
    if (list && c == ']') {
        close_bracket(r);
        return;
    }
    if (strchr("}],:", c)) {
        call_reject(r);
        return;
    }
    if (list)
        part(r);
    if (c == '{' || c == '[') {
        open_bracket(r, c);
        return;
    }
    start_text(r, QUOTED_BARE);
    bare_value(r, c);
}

static void key_end(struct reply *r, const char *key, size_t n)
{
    struct buf *out = call_arguments(r);
    part(r);
    buf_json_str(out, key, n);
    buf_str(out, ": ");
}

static void bare_key(struct reply *r, char c)
{
    if (c != ':' || r->in_string) {
        bare_text(r, c, QUOTED_KEY_TEXT);
        if (r->state == QUOTED_KEY &&
            ((!r->in_string && strchr("}],", c)) || r->text.len > MAX_NAME))
            call_reject(r);
        return;
    }
    cJSON *j = scalar(r);
    const char *string = cJSON_GetStringValue(j);
    key_end(r, string ? string : r->text.p, string ? strlen(string) : r->text.len);
    cJSON_Delete(j);
    r->state = QUOTED_VALUE_START;
}

static void key_start(struct reply *r, char c)
{
    if (c == '}') {
        close_bracket(r);
    } else if (c == ':') {
        call_reject(r);
    } else {
        start_text(r, QUOTED_KEY);
        bare_key(r, c);
    }
}

/* Between the format's quotes. */
static void quoted_text(struct reply *r, char c)
{
    const char *const ends[MAX_ENDS] = {quote(r)};
    const char *end = tags_scan(r, ends, c, &r->text);
    if (r->state == QUOTED_KEY_TEXT) {
        if (!end)
            return;
        key_end(r, r->text.p ? r->text.p : "", r->text.len);
        r->state = QUOTED_COLON;
        return;
    }
    for (size_t i = 0; i < r->text.len; i++)
        tags_escape(call_arguments(r), r->text.p[i]);
    buf_reset(&r->text);
    if (end) {
        buf_ch(call_arguments(r), '"');
        r->state = QUOTED_NEXT;
    }
}

/* ---------------------------------------------------------------- the whole */

static void head_byte(struct reply *r, char c)
{
    const char *lead = r->config.format->lead;
    const size_t n = strlen(lead);
    if (c != '{') {
        buf_ch(&r->text, c);
        if (strncmp(lead, r->text.p ? r->text.p : "", r->text.len < n ? r->text.len : n) != 0 ||
            r->text.len > n + MAX_NAME || c == '<' || c == '\n')
            call_reject(r);
        return;
    }
    const char *name = r->text.len > n ? r->text.p + n : "";
    size_t len = strlen(name);
    while (len && is_blank(name[len - 1]))
        len--;
    call_announce(r, strndup(name, len));
    if (r->state != QUOTED_HEAD)
        return; /* not a name */
    r->depth = 0;
    open_bracket(r, c);
}

void quoted_begins(struct reply *r) { start_text(r, QUOTED_HEAD); }

static void colon(struct reply *r, char c)
{
    if (c == ':')
        r->state = QUOTED_VALUE_START;
    else
        call_reject(r);
}

void quoted_byte(struct reply *r, char c)
{
    static const struct {
        void (*byte)(struct reply *r, char c);
        bool blanks; /* white space is allowed here, and has no meaning */
    } states[] = {
        [QUOTED_HEAD] = {head_byte},
        [QUOTED_KEY_START] = {key_start, .blanks = true},
        [QUOTED_KEY] = {bare_key},
        [QUOTED_KEY_TEXT] = {quoted_text},
        [QUOTED_COLON] = {colon, .blanks = true},
        [QUOTED_VALUE_START] = {value_start, .blanks = true},
        [QUOTED_BARE] = {bare_value},
        [QUOTED_TEXT] = {quoted_text},
        [QUOTED_NEXT] = {behind_value, .blanks = true},
    };
    assert(r->state <= QUOTED_NEXT && states[r->state].byte);
    if (!states[r->state].blanks || !is_blank(c))
        states[r->state].byte(r, c);
}

void quoted_end_of_text(struct reply *r)
{
    for (size_t i = 0; i < r->held.len; i++)
        tags_escape(call_arguments(r), r->held.p[i]);
}
