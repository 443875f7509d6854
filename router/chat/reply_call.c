/* reply_call.c - parses calls: {"name": .., "arguments": {..}}, lists of such, or name{..}. Tags,
 * Python syntax and quotes of the format have files of their own. Once the name is known, arguments
 * are passed on as they arrive. */
#include "common/json/json.h"
#include "router/chat/reply_impl.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { V_NAME, V_ARGUMENTS, V_BEHIND_NAME, V_OTHER };
enum { MAX_NAME = 256, MAX_LEVEL = 4 };

static struct reply_call *last(struct reply *r) { return &r->calls[r->n_calls - 1]; }

struct buf *call_arguments(struct reply *r) { return &last(r)->arguments; }

const char *call_name(const struct reply *r) { return r->calls[r->n_calls - 1].name; }

void call_open(struct reply *r, const char *text, size_t n)
{
    buf_reset(&r->raw);
    buf_add(&r->raw, text, n);
    buf_reset(&r->early);
    r->in_list = r->announced = r->unmarked = false;
    r->level = 0;
    r->state = CALL_START;
}

void call_reject(struct reply *r)
{
    r->state = CONTENT;
    buf_reset(&r->held);
    if (!r->announced)
        reply_content(r, r->raw.p, r->raw.len);
    buf_reset(&r->raw);
}

static void random_id(struct reply_call *call)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    uint8_t random[9] = {0};
    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        memset(random, 0, sizeof(random));
    for (int i = 0; i < 9; i++)
        call->id[i] = letters[random[i] % 62];
}

/* "functions.f:0" is the id and contains the name. */
static void given_id(struct reply *r, struct reply_call *call)
{
    const char *prefix = r->config.format->prefix;
    size_t skip = strncmp(call->name, prefix, strlen(prefix)) ? 0 : strlen(prefix);
    char *colon = strrchr(call->name, ':');
    if (!skip || !colon)
        snprintf(call->id, sizeof(call->id), "%s%.60s:%u", prefix, call->name, r->n_calls - 1);
    else
        snprintf(call->id, sizeof(call->id), "%s", call->name);
    if (colon)
        *colon = '\0';
    memmove(call->name, call->name + skip, strlen(call->name + skip) + 1);
}

static bool known(const struct reply *r, const char *name)
{
    for (uint32_t i = 0; i < r->config.n_names; i++)
        if (!strcmp(r->config.names[i], name))
            return true;
    return false;
}

void call_announce(struct reply *r, char *name)
{
    struct reply_call *more = NULL;
    r->oom |= !name;
    if (name && *name && r->n_calls < (r->config.single ? 1 : REPLY_MAX_CALLS) && !r->announced &&
        (!(r->config.format->bare || r->unmarked) || known(r, name)))
        r->oom |= !(more = realloc(r->calls, (r->n_calls + 1) * sizeof(*more)));
    if (!more) {
        free(name);
        call_reject(r);
        return;
    }
    r->calls = more;
    r->calls[r->n_calls++] = (struct reply_call){.name = name};
    reply_piece(r, REPLY_CALL);
    if (r->config.format->prefix)
        given_id(r, last(r));
    else
        random_id(last(r));
    buf_add(&last(r)->arguments, r->early.p, r->early.len);
    buf_reset(&r->early);
    buf_reset(&r->raw);
    r->announced = true;
}

void call_complete(struct reply *r)
{
    struct reply_call *c = last(r);
    if (!c->arguments.len)
        buf_str(&c->arguments, "{}");
    c->whole = true;
    r->oom |= c->arguments.oom;
    r->state = r->config.single ? ENOUGH : r->in_list ? LIST_NEXT : BEHIND_CALL;
    r->fresh = true;
}

/* ---------------------------------------------------------------- values */

/* The value of a JSON string; NULL: it is none, or out of memory. */
static char *decoded(struct reply *r, const struct buf *text)
{
    struct err e = ERR_INIT;
    cJSON *j = json_parse(text->p, text->len, &e);
    const char *s = cJSON_GetStringValue(j);
    char *copy = s ? strdup(s) : NULL;
    r->oom |= e.kind == ERR_SYSTEM || (s && !copy);
    cJSON_Delete(j);
    return copy;
}

/* Arguments that preceded the name, or came as a string. */
static void late_arguments(struct reply *r)
{
    struct buf *to = r->announced ? &last(r)->arguments : &r->early;
    char *inside = *r->text.p == '"' ? decoded(r, &r->text) : NULL;
    struct err e;
    cJSON *j = inside ? json_parse(inside, strlen(inside), &e) : NULL;
    if (cJSON_IsObject(j))
        buf_str(to, inside);
    else if (strcmp(r->text.p, "null") != 0)
        buf_add(to, r->text.p, r->text.len);
    cJSON_Delete(j);
    free(inside);
}

static void value_end(struct reply *r)
{
    r->state = MEMBER;
    if (r->value == V_NAME) {
        char *name = decoded(r, &r->text);
        if (name)
            call_announce(r, name);
        else
            call_reject(r);
    } else if (r->value == V_BEHIND_NAME)
        call_complete(r);
    else if (r->value == V_ARGUMENTS && !r->streams)
        late_arguments(r);
}

static void take(struct reply *r, char c)
{
    buf_ch(r->streams ? &last(r)->arguments : &r->text, c);
}

/* `c` is no JSON. A call that was passed on ends here, unfinished: its marker may follow. */
static void value_broken(struct reply *r, char c)
{
    const bool passed_on = r->announced;
    call_reject(r);
    if (!passed_on)
        return;
    r->state = BEHIND_CALL;
    reply_byte(r, c);
}

static void value_byte(struct reply *r, char c)
{
    if (r->in_string) {
        take(r, c);
        if (r->escaped || c == '\\')
            r->escaped = !r->escaped;
        else if (c == '"')
            r->in_string = false;
    } else if (r->depth == 0 && (c == '}' || c == ']' || c == ',' || is_blank(c))) {
        if (!r->announced)
            r->raw.len--; /* parse it again */
        value_end(r);     /* a number or a word ends at the next other byte */
        reply_byte(r, c);
        return;
    } else if (!is_blank(c) && !strchr("{}[]\",:+-.", c) && !(c >= '0' && c <= '9') &&
               !((c | 0x20) >= 'a' && (c | 0x20) <= 'z')) {
        value_broken(r, c);
        return;
    } else {
        take(r, c);
        r->in_string = c == '"';
        r->depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    }
    if (r->depth == 0 && !r->in_string && (c == '"' || c == '}' || c == ']'))
        value_end(r);
}

static void value_start(struct reply *r, char c)
{
    if (c == '}' || c == ']' || c == ',' || c == ':') {
        call_reject(r);
        return;
    }
    const char *key = r->key.p ? r->key.p : "";
    bool function = !strcmp(key, "function"), object = c == '{';
    if (r->config.format->keyed && !r->announced && object && !r->config.forced) {
        call_announce(r, strdup(key));
        key = "arguments";
        if (!r->announced)
            return;
    }
    if (function && object && r->level < MAX_LEVEL) { /* OpenAI's own format */
        r->level++;
        r->state = MEMBER;
        return;
    }
    bool arguments = !strcmp(key, "arguments") || !strcmp(key, "parameters");
    bool had = r->announced && last(r)->arguments.len;
    r->value = !r->announced &&
                       (!strcmp(key, "name") || !strcmp(key, "tool_name") || (function && c == '"'))
                   ? V_NAME
               : arguments && !had ? V_ARGUMENTS
                                   : V_OTHER;
    r->streams = r->value == V_ARGUMENTS && r->announced && object;
    r->in_string = r->escaped = false;
    r->depth = 0;
    buf_reset(&r->text);
    r->state = VALUE;
    value_byte(r, c);
}

void call_object(struct reply *r, char c)
{
    r->value = V_BEHIND_NAME;
    r->streams = true;
    r->in_string = r->escaped = false;
    r->depth = 0;
    r->state = VALUE;
    value_byte(r, c);
}

/* ---------------------------------------------------------------- names before arguments */

/* "NAME", "NAME[ARGS]", "NAME[CALL_ID]x[ARGS]", "function<sep>NAME ..", "NAME<sep>",
 * "id<sep>NAME<close>" */
static char *name_in_front(const struct buf *text, const struct call_format *f)
{
    const char *separator = f->separator, *close = f->name_close;
    const char *s = text->p, *sep = separator ? strstr(s, separator) : NULL;
    const char *behind = sep ? sep + strlen(separator) : "";
    const char *end = close ? strstr(behind, close) : NULL;
    size_t n = end ? (size_t)(end - behind) : strcspn(behind, "\n`");
    if (sep && n)
        s = behind;
    else
        n = sep ? (size_t)(sep - s) : strcspn(s, "[");
    while (n && is_blank(s[n - 1]))
        n--;
    return strndup(s, n);
}

static void name_byte(struct reply *r, char c)
{
    if (c != '{') {
        buf_ch(&r->text, c);
        if (r->text.len > MAX_NAME)
            call_reject(r);
        return;
    }
    call_announce(r, name_in_front(&r->text, r->config.format));
    if (r->announced)
        call_object(r, c);
}

/* ---------------------------------------------------------------- objects */

static void start_of_call(struct reply *r, char c)
{
    if (c == '{') {
        r->level = 1;
        r->announced = false;
        r->state = MEMBER;
    } else if (c == '[' && !r->in_list) {
        r->in_list = true;
    } else if (c == ']' && r->in_list) {
        r->state = BEHIND_CALL;
    } else if (r->in_list && r->config.format->python && python_begins(c)) {
        buf_reset(&r->text);
        r->announced = false;
        r->state = PY_NAME;
        python_byte(r, c);
    } else if (r->config.format->named && !r->in_list) {
        buf_reset(&r->text);
        r->state = IN_NAME;
        name_byte(r, c);
    } else {
        call_reject(r);
    }
}

static void member(struct reply *r, char c)
{
    if (c == '"') {
        buf_reset(&r->key);
        r->escaped = false;
        r->state = KEY;
    } else if (c == '}') {
        if (--r->level > 0)
            return;
        if (r->announced)
            call_complete(r);
        else
            call_reject(r);
    } else if (c != ',') {
        call_reject(r);
    }
}

static void key_byte(struct reply *r, char c)
{
    if (c == '"' && !r->escaped) {
        r->state = COLON;
        return;
    }
    r->escaped = c == '\\' && !r->escaped;
    buf_ch(&r->key, c);
}

static void next_in_list(struct reply *r, char c)
{
    if (c == ',') {
        r->announced = false;
        r->state = CALL_START;
        return;
    }
    r->state = BEHIND_CALL;
    if (c != ']')
        reply_byte(r, c);
}

/* The format decides what a call begins with. */
static void first_byte(struct reply *r, char c)
{
    const struct call_format *f = r->config.format;
    if (f->tags && !r->config.forced) {
        r->state = TAG_NAME_OPEN;
        tags_byte(r, c);
    } else if (f->quote && !r->config.forced) {
        quoted_begins(r);
        quoted_byte(r, c);
    } else {
        start_of_call(r, c);
    }
}

static void colon(struct reply *r, char c)
{
    if (c == ':')
        r->state = VALUE_START;
    else
        call_reject(r);
}

void call_byte(struct reply *r, char c)
{
    static const struct {
        void (*byte)(struct reply *r, char c);
        bool blanks; /* white space is allowed here, and has no meaning */
    } states[] = {
        [CALL_START] = {first_byte, .blanks = true},
        [IN_NAME] = {name_byte},
        [MEMBER] = {member, .blanks = true},
        [KEY] = {key_byte},
        [COLON] = {colon, .blanks = true},
        [VALUE_START] = {value_start, .blanks = true},
        [VALUE] = {value_byte},
        [LIST_NEXT] = {next_in_list, .blanks = true},
        [TAG_NAME_OPEN... TAG_VALUE] = {tags_byte},
        [PY_NAME... PY_VALUE] = {python_byte},
        [QUOTED_HEAD... QUOTED_NEXT] = {quoted_byte},
    };
    assert(r->state <= QUOTED_NEXT && states[r->state].byte);
    if (!r->announced)
        buf_ch(&r->raw, c);
    if (!states[r->state].blanks || !is_blank(c))
        states[r->state].byte(r, c);
}

void call_end_of_text(struct reply *r)
{
    if (!r->announced)
        reply_content(r, r->raw.p, r->raw.len);
    else if (r->state == VALUE && r->value == V_ARGUMENTS && !r->streams)
        buf_add(&last(r)->arguments, r->text.p, r->text.len);
    else if (r->state == TAG_VALUE)
        tags_end_of_text(r);
    else if (r->state == QUOTED_TEXT)
        quoted_end_of_text(r);
}
