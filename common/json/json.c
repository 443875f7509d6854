#include "common/file/lfs.h"
#include "common/json/exact.h"
#include "common/json/reader.h"
#include "common/json/unread.h"
#include "common/utf8.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail_at(const char *s, size_t at, struct err *e, const char *what)
{
    size_t line = 1, col = 1;
    for (size_t i = 0; i < at; i++, col++)
        if (s[i] == '\n')
            line++, col = 0;
    return err_set(e, ERR_VALIDATION, "%s at line %zu column %zu", what, line, col);
}

/* ---------------------------------------------------------------- trees */

/* State of the tree builder. */
struct builder {
    struct json_reader j;
    bool exact; /* for json_parse_exact() */
};

static cJSON *node(struct builder *b, int type)
{
    cJSON *v = cJSON_malloc(sizeof(*v));
    if (!v) {
        jr_fail(&b->j, jr_no_memory);
        return NULL;
    }
    memset(v, 0, sizeof(*v));
    v->type = type;
    return v;
}

/* Decodes a raw string, NUL-terminated; NULL: see b->j.fault. */
static char *characters(struct builder *b, const char *raw, size_t n)
{
    char *text = cJSON_malloc(n + 1);
    size_t len = text ? jr_unescape(raw, n, text, false, b->exact) : 0;
    if (text && len != SIZE_MAX) {
        text[len] = 0;
        return text;
    }
    if (text)
        b->j.p = raw;
    jr_fail(&b->j, text ? jr_surrogate : jr_no_memory);
    cJSON_free(text);
    return NULL;
}

static void put_number(struct builder *b, cJSON *v)
{
    struct jr_number x;
    if (!jr_number(&b->j, &x))
        return;
    v->valuedouble = x.v;
    v->valueint = x.v >= INT_MAX ? INT_MAX : x.v <= INT_MIN ? INT_MIN : (int)x.v;
    if (!b->exact || !json_number_changes(x.text, x.n))
        return;
    if (!(v->valuestring = cJSON_malloc(x.n + 1))) {
        jr_fail(&b->j, jr_no_memory);
        return;
    }
    memcpy(v->valuestring, x.text, x.n);
    v->valuestring[x.n] = 0;
}

static void put_scalar(struct builder *b, cJSON *v, enum jr_kind kind)
{
    const char *raw;
    size_t n;
    bool is;
    if (kind == JR_NUMBER)
        put_number(b, v);
    else if (kind == JR_STRING && jr_raw_string(&b->j, &raw, &n))
        v->valuestring = characters(b, raw + 1, n - 2);
    else if (kind == JR_BOOL && jr_bool(&b->j, &is))
        v->type = is ? cJSON_True : cJSON_False;
    else if (kind != JR_STRING && kind != JR_BOOL) /* null, or an error */
        jr_skip(&b->j, NULL, NULL);
}

static cJSON *build(struct builder *b, int depth);

/* Links the members of a list; as in cJSON, the first one's `prev` is the last one. */
static void put_members(struct builder *b, cJSON *v, enum jr_kind kind, int depth)
{
    const char close = kind == JR_OBJECT ? '}' : ']', *name;
    size_t n;
    if (depth == JR_MAX_DEPTH)
        jr_fail(&b->j, "less nesting");
    jr_open(&b->j, kind == JR_OBJECT ? '{' : '[');
    for (bool first = true; jr_more(&b->j, close, &first);) {
        char *key = NULL;
        if (kind == JR_OBJECT && (!jr_name(&b->j, &name, &n) || !(key = characters(b, name, n))))
            return;
        cJSON *kid = build(b, depth + 1);
        if (!kid) {
            cJSON_free(key);
            return;
        }
        kid->string = key;
        if (v->child) {
            kid->prev = v->child->prev;
            kid->prev->next = kid;
        } else {
            v->child = kid;
        }
        v->child->prev = kid;
    }
}

/* NULL: see b->j.fault. */
static cJSON *build(struct builder *b, int depth)
{
    static const int types[] = {
        [JR_NONE] = cJSON_NULL,     [JR_OBJECT] = cJSON_Object, [JR_ARRAY] = cJSON_Array,
        [JR_STRING] = cJSON_String, [JR_NUMBER] = cJSON_Number, [JR_BOOL] = cJSON_False,
        [JR_NULL] = cJSON_NULL};
    const enum jr_kind kind = jr_next(&b->j);
    cJSON *v = node(b, types[kind]);
    if (!v)
        return NULL;
    if (kind == JR_OBJECT || kind == JR_ARRAY)
        put_members(b, v, kind, depth);
    else
        put_scalar(b, v, kind);
    if (!b->j.fault)
        return v;
    cJSON_Delete(v);
    return NULL;
}

/* Messages as serde_json's, which TGI's clients know. */
static int fault_message(const struct json_reader *j, struct err *e)
{
    const char *what = "expected value";
    if (j->fault == jr_no_memory)
        return err_nomem(e);
    if (j->p == j->end)
        what = "EOF while parsing a value";
    else if (j->fault == jr_control)
        what = "control character (\\u0000-\\u001F) found while parsing a string";
    else if (j->fault == jr_surrogate)
        what = "lone surrogate in a string";
    else if (j->fault == jr_bad_number)
        what = "invalid number";
    else if ((unsigned char)*j->p < ' ')
        what = "control character found between values";
    return fail_at(j->s, (size_t)(j->p - j->s), e, what);
}

static cJSON *parse(const char *s, size_t n, bool exact, struct err *e)
{
    const char *nul = memchr(s, 0, n);
    if (nul)
        return fail_at(s, (size_t)(nul - s), e, "control character (\\u0000-\\u001F) found"), NULL;
    for (size_t i = 0, len; i < n; i += len)
        if (!(len = utf8_valid_len(s + i, n - i)))
            return fail_at(s, i, e, "invalid unicode code point"), NULL;
    struct builder b = {json_reader(s, n), exact};
    if (n >= 3 && !memcmp(s, "\xef\xbb\xbf", 3)) /* skips a byte order mark */
        b.j.p += 3;
    cJSON *tree = build(&b, 0);
    if (!tree)
        return fault_message(&b.j, e), NULL;
    if (!jr_ended(&b.j)) {
        cJSON_Delete(tree);
        return fail_at(s, (size_t)(b.j.p - s), e, "trailing characters"), NULL;
    }
    return tree;
}

cJSON *json_parse(const char *s, size_t n, struct err *e) { return parse(s, n, false, e); }

cJSON *json_parse_exact(const char *s, size_t n, struct err *e) { return parse(s, n, true, e); }

/* ---------------------------------------------------------------- files */

bool json_put(cJSON *o, const char *key, cJSON *v)
{
    if (v &&
        (cJSON_ReplaceItemInObjectCaseSensitive(o, key, v) || cJSON_AddItemToObject(o, key, v)))
        return true;
    cJSON_Delete(v);
    return false;
}

char *file_read(const char *path, size_t max, size_t *n, struct err *e)
{
    struct stat st;
    char *p = NULL;
    size_t got = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe must not block */
    if (fd < 0 || fstat(fd, &st) != 0) {
        err_sys(e, "open %s", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > max) {
        err_set(e, ERR_SYSTEM, "%s: not a regular file of at most %zu bytes", path, max);
        goto out;
    }
    if (!(p = calloc(1, (size_t)st.st_size + 1))) {
        err_nomem(e);
        goto out;
    }
    while (got < (size_t)st.st_size) {
        ssize_t r = read(fd, p + got, (size_t)st.st_size - got);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0) {
            err_sys(e, "read %s", path);
            free(p);
            p = NULL;
            goto out;
        }
        if (r == 0)
            break; /* the file was truncated meanwhile */
        got += (size_t)r;
    }
    p[got] = 0;
    *n = got;
    if (lfs_check(path, p, got, e)) {
        free(p);
        p = NULL;
    }
out:
    if (fd >= 0)
        close(fd);
    return p;
}

/* Python writes Infinity, which is not JSON: outside strings it is replaced by a number of the same
 * length that overflows a double. */
static void spell_infinity(char *s)
{
    static const char word[] = "Infinity", number[] = "1e999   ";
    for (bool in_string = false; *s; s++) {
        if (*s == '"')
            in_string = !in_string;
        else if (*s == '\\' && in_string && s[1])
            s++;
        else if (!in_string && strncmp(s, word, sizeof(word) - 1) == 0)
            memcpy(s, number, sizeof(number) - 1);
    }
}

cJSON *json_parse_python(const char *s, size_t n, struct err *e)
{
    char *own = malloc(n + 1);
    if (!own) {
        err_nomem(e);
        return NULL;
    }
    memcpy(own, s, n);
    own[n] = 0;
    spell_infinity(own);
    cJSON *j = json_parse(own, n, e);
    free(own);
    return j;
}

cJSON *json_load(const char *path, size_t max, struct err *e)
{
    size_t n;
    char *s = file_read(path, max, &n, e);
    if (!s)
        return NULL;
    spell_infinity(s); /* in place: files may be large */
    cJSON *j = json_parse(s, n, e);
    free(s);
    if (!j)
        err_wrap(e, "%s", path);
    return j;
}

/* ---------------------------------------------------------------- access */

/* In cJSON.type, above the bits that cJSON uses. */
enum { WATCHED = 1 << 16, READ = 1 << 17 };

const cJSON *json_get(const cJSON *o, const char *key)
{
    cJSON *v = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, key) : NULL;
    if (v && (o->type & WATCHED))
        v->type |= READ;
    return v && !cJSON_IsNull(v) ? v : NULL;
}

void json_watch(const cJSON *o)
{
    if (cJSON_IsObject(o))
        ((cJSON *)o)->type |= WATCHED;
}

const cJSON *json_unread(const cJSON *o, const cJSON *after)
{
    const cJSON *v = !o || !(o->type & WATCHED) ? NULL : after ? after->next : o->child;
    while (v && ((v->type & READ) || cJSON_IsNull(v)))
        v = v->next;
    return v;
}

const char *json_str(const cJSON *o, const char *key, const char *def)
{
    const cJSON *v = json_get(o, key);
    return cJSON_IsString(v) ? v->valuestring : def;
}

double json_num(const cJSON *o, const char *key, double def)
{
    const cJSON *v = json_get(o, key);
    return cJSON_IsNumber(v) ? v->valuedouble : def;
}

int64_t json_int(const cJSON *o, const char *key, int64_t def)
{
    const cJSON *v = json_get(o, key);
    if (!cJSON_IsNumber(v) || v->valuedouble < -9223372036854775808.0 ||
        v->valuedouble >= 9223372036854775808.0 ||
        v->valuedouble != (double)(int64_t)v->valuedouble)
        return def;
    return (int64_t)v->valuedouble;
}

bool json_bool(const cJSON *o, const char *key, bool def)
{
    const cJSON *v = json_get(o, key);
    return cJSON_IsBool(v) ? cJSON_IsTrue(v) : def;
}

bool json_is_empty(const cJSON *v)
{
    return cJSON_IsNull(v) || cJSON_IsFalse(v) ||
           ((cJSON_IsArray(v) || cJSON_IsObject(v)) && !v->child);
}

const cJSON *json_first(const cJSON *list)
{
    return list && cJSON_IsArray(list) ? list->child : NULL;
}
