#include "router/body/body.h"
#include "common/buf.h"
#include "common/hash.h"
#include "common/json/exact.h"
#include "common/json/reader.h"
#include "common/json/unread.h"
#include "common/utf8.h"
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- raw text cJSON keeps no
 * positions, and no integers beyond 2^53. */

/* Advances to the value of member `key` of the object that begins here. */
static bool find_member(struct json_reader *j, const char *key, size_t n_key)
{
    const char *name;
    size_t n;
    if (jr_next(j) != JR_OBJECT || !jr_open(j, '{'))
        return false;
    for (bool first = true; jr_more(j, '}', &first) && jr_name(j, &name, &n);) {
        if (n == n_key && !memcmp(name, key, n))
            return jr_next(j) != JR_NONE;
        jr_skip(j, NULL, NULL);
    }
    return false;
}

bool body_locate(const char *text, size_t n, const char *path, const char *key, size_t *at,
                 size_t *len)
{
    struct json_reader j = json_reader(text, n);
    const char *begin, *end;
    for (const char *p = path; *p;) {
        size_t k = strcspn(p, ".");
        if (!find_member(&j, p, k))
            return false;
        p += k + (p[k] == '.');
    }
    if ((*key && !find_member(&j, key, strlen(key))) || !jr_skip(&j, &begin, &end))
        return false;
    *at = (size_t)(begin - text);
    *len = (size_t)(end - begin);
    return true;
}

/* ---------------------------------------------------------------- errors */

static void place(const struct body *b, size_t at, size_t *line, size_t *column)
{
    *line = 1, *column = 0;
    for (size_t i = 0; i < at; i++)
        if (b->text[i] == '\n')
            ++*line, *column = 0;
        else
            ++*column;
}

/* "messages[3]: ", if that item is read, `path` leads there and `what` does not name it itself. */
static void name_item(const struct body *b, const char *path, const char *what, char *out, size_t n)
{
    const size_t len = b->list ? strlen(b->list) : 0;
    const bool there = len && !strncmp(path, b->list, len) && (!path[len] || path[len] == '.');
    *out = 0;
    if (there && strncmp(what, b->list, len) != 0)
        snprintf(out, n, "%s[%u]: ", b->list, b->item);
}

/* "`path`: what", except for messages that begin with a field's name. If `key` itself is missing,
 * `path` is that of its object, `o`. */
static void fail_plainly(struct body *b, const char *o, const char *key, const char *path,
                         const char *what)
{
    static const char missing[] = "missing field `";
    const size_t n = sizeof(missing) - 1, n_key = strlen(key);
    if (!strncmp(what, missing, n) && !strncmp(what + n, key, n_key) && what[n + n_key] == '`')
        path = o;
    bool named = !*path || *what == '`';
    char item[64];
    name_item(b, path, what, item, sizeof(item));
    err_set(b->e, ERR_SHAPE, "Invalid request: %s%s%s%s%s", named ? "" : "`", named ? "" : path,
            named ? "" : "`: ", item, what);
}

static void fail_as_serde(struct body *b, struct object o, const char *key, char *path,
                          const char *what)
{
    size_t at = 0, len = 0, line, column;
    bool found = body_locate(b->text, b->n, o.path, key, &at, &len);
    if (!found) /* serde reports a missing field at the end of its object */
        body_locate(b->text, b->n, o.path, "", &at, &len), path[strlen(o.path)] = 0;
    place(b, at + len, &line, &column);
    err_set(
        b->e, ERR_SHAPE,
        "Failed to deserialize the JSON body into the target type: %s%s%s at line %zu column %zu",
        path, *path ? ": " : "", what, line, column);
}

void body_fail(struct body *b, struct object o, const char *key, const char *fmt, ...)
{
    char what[256], path[sizeof(b->e->param)], param[sizeof(path)];
    va_list ap;
    if (b->failed)
        return;
    b->failed = true;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    snprintf(path, sizeof(path), "%s%s%s", o.path, *o.path && *key ? "." : "", key);
    memcpy(param, path, sizeof(param));
    if (b->plain)
        fail_plainly(b, o.path, key, path, what);
    else
        fail_as_serde(b, o, key, path, what);
    err_param(b->e, param);
}

void body_unsupported(struct body *b, enum err_kind kind, const char *key)
{
    if (b->failed)
        return;
    body_fail(b, body_root(b), key, "`%s` is not supported", key);
    b->e->kind = kind;
}

void body_nomem(struct body *b, struct object o, const char *key)
{
    if (b->arena->full)
        body_fail(b, o, key, "the request needs more than %zu bytes of memory", b->arena->limit);
    else if (!b->failed)
        err_nomem(b->e);
    b->failed = true;
}

void body_warn(struct body *b, const char *fmt, ...)
{
    char text[BODY_WARNINGS];
    const char *old = b->warnings ? b->warnings : "";
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    for (char *s = text; *s; s++)
        if (*s < ' ' || *s > '~' || *s == '"' || *s == '\\')
            *s = '?';
    struct buf all = BUF_INIT;
    buf_fmt(&all, "%s%s%s", old, *old ? "; " : "", text);
    if (n >= 0 && !strstr(old, text) && !all.oom && all.len < BODY_WARNINGS)
        b->warnings = arena_strdup(b->arena, all.p, all.len);
    buf_free(&all);
}

/* In serde's format, or as in the body. */
static void describe(const cJSON *v, char *out, size_t n, bool plain)
{
    if (plain && !cJSON_IsString(v)) {
        if (cJSON_IsNumber(v))
            snprintf(out, n, "%.15g", v->valuedouble);
        else
            snprintf(out, n, "%s",
                     cJSON_IsTrue(v)    ? "true"
                     : cJSON_IsFalse(v) ? "false"
                     : cJSON_IsArray(v) ? "a list"
                     : cJSON_IsNull(v)  ? "null"
                                        : "an object");
        return;
    }
    if (cJSON_IsString(v)) {
        size_t len = strnlen(v->valuestring, 40);
        len -= utf8_incomplete_tail(v->valuestring, len);
        snprintf(out, n, "string \"%.*s\"", (int)len, v->valuestring);
    } else if (cJSON_IsNumber(v) && v->valuedouble == floor(v->valuedouble))
        snprintf(out, n, "integer `%.15g`", v->valuedouble);
    else if (cJSON_IsNumber(v))
        snprintf(out, n, "floating point `%.15g`", v->valuedouble);
    else
        snprintf(out, n, "%s",
                 cJSON_IsTrue(v)    ? "boolean `true`"
                 : cJSON_IsFalse(v) ? "boolean `false`"
                 : cJSON_IsArray(v) ? "sequence"
                 : cJSON_IsNull(v)  ? "null"
                                    : "map");
}

/* Replaces the Rust type names of serde, which TGI's clients know, by JSON's. */
static const char *plainly(const char *expected)
{
    static const char *const rows[][2] = {
        {"f32", "a number"},
        {"u32", "a whole number from 0 to 4294967295"},
        {"u64", "a whole number of 64 bits"},
        {"i32", "a whole number of 32 bits"},
        {"a sequence", "a list"},
        {"a map", "an object"},
        {"adjacently tagged enum GrammarType", "an object with a `type`"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (!strcmp(rows[i][0], expected))
            return rows[i][1];
    return expected;
}

void body_mistyped(struct body *b, struct object o, const char *key, const cJSON *v,
                   const char *expected)
{
    char is[80];
    describe(v, is, sizeof(is), b->plain);
    if (b->plain) {
        body_fail(b, o, key, "expected %s, got %s", plainly(expected), is);
        return;
    }
    bool range = cJSON_IsNumber(v) && v->valuedouble == floor(v->valuedouble) &&
                 (expected[0] == 'u' || expected[0] == 'i');
    body_fail(b, o, key, "invalid %s: %s, expected %s", range ? "value" : "type", is, expected);
}

/* ---------------------------------------------------------------- reading */

static void free_tree(void *tree) { cJSON_Delete(tree); }

/* An escaped NUL would end a C string early. It is allowed in schemas, and under `text` [n_text]:
 * common/json/exact.h. */
static bool has_nul(const cJSON *v, const char *const *text, size_t n_text)
{
    for (; v; v = v->next) {
        const char *key = v->string ? v->string : "";
        bool is_text = false;
        for (size_t i = 0; i < n_text; i++)
            is_text |= !strcmp(key, text[i]);
        if (is_text)
            continue;
        bool schema = !strcmp(key, "schema") || !strcmp(key, "guided_json") ||
                      (!cJSON_IsString(v) && (!strcmp(key, "value") || !strcmp(key, "json")));
        if (strstr(key, "\xc0\x80") || (cJSON_IsString(v) && strstr(v->valuestring, "\xc0\x80")) ||
            (!schema && has_nul(v->child, NULL, 0)))
            return true;
    }
    return false;
}

/* A duplicate key in an object: a proxy in front may have used the other value. NULL: none, or out
 * of memory. Linear time, since bodies may have a hundred thousand keys. */
static const char *duplicate(const cJSON *object)
{
    size_t n = (size_t)cJSON_GetArraySize(object), cap = 16;
    while (cap < 2 * n)
        cap *= 2;
    const char **slot = calloc(cap, sizeof(*slot)), *found = NULL;
    for (const cJSON *v = object->child; slot && v && !found; v = v->next) {
        size_t i = hash_bytes(0, v->string, strlen(v->string)) & (cap - 1);
        for (; slot[i] && !found; i = (i + 1) & (cap - 1))
            found = !strcmp(slot[i], v->string) ? slot[i] : NULL;
        if (!found)
            slot[i] = v->string;
    }
    free(slot);
    return found;
}

static void refuse_duplicates(struct body *b, struct object o)
{
    const char *key = o.json && cJSON_IsObject(o.json) ? duplicate(o.json) : NULL;
    if (key)
        body_fail(b, o, "", "duplicate field `%.80s`", key);
}

/* `keys` [n_keys]: members whose strings may contain NULs. */
static int open_body(struct body *b, const char *text, size_t n, const char *const *keys,
                     size_t n_keys, struct arena *a, struct err *e)
{
    *b = (struct body){.text = text ? text : "", .n = n, .arena = a, .e = e};
    cJSON *tree = json_parse_exact(b->text, n, e);
    if (tree && arena_defer(a, free_tree, tree) != 0) {
        cJSON_Delete(tree);
        return err_nomem(e);
    }
    if (tree && has_nul(cJSON_IsObject(tree) ? tree->child : tree, keys, n_keys)) {
        err_set(e, ERR_SYNTAX, "NUL characters are not supported");
        tree = NULL;
    }
    if (!tree && e->kind == ERR_SYSTEM) /* no memory */
        return -1;
    if (!tree) {
        e->kind = ERR_SYNTAX;
        return err_wrap(e, "Failed to parse the request body as JSON");
    }
    b->root = tree;
    if (!cJSON_IsObject(tree))
        body_mistyped(b, body_root(b), "", tree, "a JSON object");
    refuse_duplicates(b, body_root(b));
    json_watch(tree);
    return b->failed ? -1 : 0;
}

int body_open(struct body *b, const char *text, size_t n, struct arena *a, struct err *e)
{
    return open_body(b, text, n, NULL, 0, a, e);
}

int body_open_prompt(struct body *b, const char *text, size_t n, struct arena *a, struct err *e)
{
    static const char *const prompts[] = {"messages", "system", "input",  "instructions",
                                          "prompt",   "inputs", "content"};
    return open_body(b, text, n, prompts, sizeof(prompts) / sizeof(prompts[0]), a, e);
}

const char *body_bytes(struct arena *a, const char *text, size_t *n)
{
    *n = strlen(text);
    if (!strstr(text, "\xc0\x80"))
        return text;
    struct buf b = BUF_INIT;
    json_text_exact(&b, text);
    const char *copy = b.oom ? NULL : arena_strdup(a, b.p, b.len);
    *n = b.len;
    buf_free(&b);
    return copy;
}

const cJSON *body_get(struct body *b, struct object o, const char *key, bool required)
{
    const cJSON *v = json_get(o.json, key);
    if (v || !required)
        return v;
    const cJSON *null = cJSON_GetObjectItemCaseSensitive(o.json, key);
    if (null)
        body_mistyped(b, o, key, null, "a value");
    else
        body_fail(b, o, key, "missing field `%s`", key);
    return NULL;
}

static const cJSON *any(const struct body *b, struct object o, const char *key)
{
    const cJSON *v = json_get(o.json, key);
    if (v || b->plain)
        return v;
    return cJSON_IsObject(o.json) ? cJSON_GetObjectItemCaseSensitive(o.json, key) : NULL;
}

bool body_bool(struct body *b, struct object o, const char *key, bool def)
{
    const cJSON *v = any(b, o, key);
    if (!v || cJSON_IsBool(v))
        return v ? cJSON_IsTrue(v) : def;
    body_mistyped(b, o, key, v, "a boolean");
    return def;
}

bool body_opt_bool(struct body *b, struct object o, const char *key, bool def)
{
    return json_get(o.json, key) ? body_bool(b, o, key, def) : def;
}

struct object body_object(struct body *b, struct object o, const char *key, bool *given)
{
    const cJSON *v = any(b, o, key);
    *given = v != NULL;
    if (v && !cJSON_IsObject(v))
        body_mistyped(b, o, key, v, "an object");
    struct object inner = {cJSON_IsObject(v) ? v : NULL, key};
    refuse_duplicates(b, inner);
    json_watch(inner.json);
    return inner;
}

struct opt_f32 body_f32(struct body *b, struct object o, const char *key)
{
    const cJSON *v = json_get(o.json, key);
    if (!v)
        return (struct opt_f32){0};
    if (!cJSON_IsNumber(v))
        body_mistyped(b, o, key, v, "f32");
    else if (!(fabs(v->valuedouble) <= FLT_MAX))
        body_fail(b, o, key, "number out of range");
    return (struct opt_f32){true, (float)v->valuedouble};
}

static bool whole(struct body *b, struct object o, const char *key, double min, double max,
                  const char *type, double *out)
{
    const cJSON *v = json_get(o.json, key);
    if (!v)
        return false;
    if (!cJSON_IsNumber(v) || v->valuedouble != floor(v->valuedouble) || v->valuedouble < min ||
        v->valuedouble > max)
        return body_mistyped(b, o, key, v, type), false;
    *out = v->valuedouble;
    return true;
}

struct opt_u64 body_u32(struct body *b, struct object o, const char *key)
{
    double v;
    return whole(b, o, key, 0, UINT32_MAX, "u32", &v) ? (struct opt_u64){true, (uint64_t)v}
                                                      : (struct opt_u64){0};
}

struct opt_i64 body_i32(struct body *b, struct object o, const char *key)
{
    double v;
    return whole(b, o, key, INT32_MIN, INT32_MAX, "i32", &v) ? (struct opt_i64){true, (int64_t)v}
                                                             : (struct opt_i64){0};
}

struct opt_u64 body_u64(struct body *b, struct object o, const char *key)
{
    const cJSON *v = json_get(o.json, key);
    size_t at, len;
    char digits[24];
    if (!v)
        return (struct opt_u64){0};
    const bool positive = cJSON_IsNumber(v) && v->valuedouble >= 0;
    const bool found = positive && body_locate(b->text, b->n, o.path, key, &at, &len);
    if (positive && !found && v->valuedouble < 9007199254740992.0 && /* an object in a list */
        v->valuedouble == (double)(uint64_t)v->valuedouble)
        return (struct opt_u64){true, (uint64_t)v->valuedouble};
    if (found && len < sizeof(digits)) {
        memcpy(digits, b->text + at, len);
        digits[len] = 0;
        errno = 0;
        uint64_t u = strtoull(digits, NULL, 10);
        if (strspn(digits, "0123456789") == len && !errno)
            return (struct opt_u64){true, u};
    }
    body_mistyped(b, o, key, v, "u64");
    return (struct opt_u64){0};
}

const char *body_str(struct body *b, struct object o, const char *key, bool required)
{
    const cJSON *v = required ? any(b, o, key) : json_get(o.json, key);
    if (cJSON_IsString(v))
        return v->valuestring;
    if (v)
        body_mistyped(b, o, key, v, "a string");
    else if (required)
        body_fail(b, o, key, "missing field `%s`", key);
    return NULL;
}

const char *const *body_strings(struct body *b, struct object o, const char *key, bool bare,
                                bool null_ok, uint32_t *n)
{
    const cJSON *v = null_ok ? json_get(o.json, key) : any(b, o, key), *item = v;
    uint32_t count = cJSON_IsArray(v) ? (uint32_t)cJSON_GetArraySize(v) : v != NULL;
    const char **list = ARENA_NEW(b->arena, const char *, count + 1);
    *n = 0;
    if (!v)
        return NULL;
    if (!list) {
        body_nomem(b, o, key);
        return NULL;
    }
    if (!cJSON_IsArray(v) && !(bare && cJSON_IsString(v))) {
        body_mistyped(b, o, key, v, "a sequence");
        return NULL;
    }
    if (cJSON_IsArray(v))
        item = v->child;
    for (; *n < count && item; item = cJSON_IsArray(v) ? item->next : NULL) {
        if (!cJSON_IsString(item)) {
            body_mistyped(b, o, key, item, "a string");
            return NULL;
        }
        list[(*n)++] = item->valuestring;
    }
    return list;
}

const uint32_t *body_ids(struct body *b, struct object o, const char *key, const cJSON *v,
                         uint32_t *n)
{
    uint32_t count = (uint32_t)cJSON_GetArraySize(v);
    uint32_t *ids = ARENA_NEW(b->arena, uint32_t, count + 1);
    *n = 0;
    if (!ids) {
        body_nomem(b, o, key);
        return NULL;
    }
    for (const cJSON *i = v->child; i; i = i->next) {
        if (!cJSON_IsNumber(i) || i->valuedouble < 0 || i->valuedouble > UINT32_MAX ||
            i->valuedouble != floor(i->valuedouble)) {
            body_mistyped(b, o, key, i, "u32");
            *n = 0;
            return NULL;
        }
        ids[(*n)++] = (uint32_t)i->valuedouble;
    }
    return ids;
}
