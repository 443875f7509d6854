#include "common/json.h"
#include "common/utf8.h"
#include <errno.h>
#include <fcntl.h>
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

cJSON *json_parse(const char *s, size_t n, struct err *e)
{
    const char *nul = memchr(s, 0, n), *end = NULL;
    if (nul)
        return fail_at(s, (size_t)(nul - s), e, "control character (\\u0000-\\u001F) found"), NULL;
    for (size_t i = 0, len; i < n; i += len)
        if (!(len = utf8_valid_len(s + i, n - i)))
            return fail_at(s, i, e, "invalid unicode code point"), NULL;
    cJSON *j = cJSON_ParseWithLengthOpts(s, n, &end, 0);
    size_t at = end ? (size_t)(end - s) : 0;
    if (!j) { /* cJSON reports the last byte when it ran out of text */
        bool ended = n == 0 || at >= n || (at == n - 1 && strchr(",:[{ \t\r\n", s[at]));
        return fail_at(s, ended ? n : at, e,
                       ended ? "EOF while parsing a value" : "expected value"),
               NULL;
    }
    while (at < n && strchr(" \t\r\n", s[at]))
        at++;
    if (at < n) {
        cJSON_Delete(j);
        return fail_at(s, at, e, "trailing characters"), NULL;
    }
    return j;
}

char *file_read(const char *path, size_t max, size_t *n, struct err *e)
{
    struct stat st;
    char *p = NULL;
    size_t got = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused, not waited for */
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
            break; /* shrank under us: what is there is what it is */
        got += (size_t)r;
    }
    p[got] = 0;
    *n = got;
out:
    if (fd >= 0)
        close(fd);
    return p;
}

/* Python writes the word Infinity for it, which is no JSON: outside strings it becomes a number too
 * large for a double, of the same length. */
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

cJSON *json_load(const char *path, size_t max, struct err *e)
{
    size_t n;
    char *s = file_read(path, max, &n, e);
    if (!s)
        return NULL;
    spell_infinity(s);
    cJSON *j = json_parse(s, n, e);
    free(s);
    if (!j)
        err_wrap(e, "%s", path);
    return j;
}

const cJSON *json_get(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, key) : NULL;
    return v && !cJSON_IsNull(v) ? v : NULL;
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

const cJSON *json_first(const cJSON *list)
{
    return list && cJSON_IsArray(list) ? list->child : NULL;
}
