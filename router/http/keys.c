#include "router/http/keys.h"
#include "common/json/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* KEY_MOST: a request's head holds no longer one (HTTP_POOL). */
enum { FILE_MAX = 1 << 20, KEY_MOST = 8192 };

static char *trim(char *s)
{
    s += strspn(s, " \t\r");
    size_t n = strlen(s);
    while (n && strchr(" \t\r", s[n - 1]))
        s[--n] = 0;
    return s;
}

/* Splits `text` at every `sep`; with `comments`, lines that begin with # are skipped. */
static int cut(struct keys *k, char *text, const char *sep, bool comments, struct err *e)
{
    char *save = NULL;
    for (char *s = strtok_r(text, sep, &save); s; s = strtok_r(NULL, sep, &save)) {
        s = trim(s);
        if (!*s || (comments && *s == '#'))
            continue;
        size_t n = comments ? strcspn(s, " \t") : strlen(s);
        if (n > KEY_MOST)
            return err_set(e, ERR_VALIDATION, "an API key has %zu bytes: at most %d can be sent", n,
                           KEY_MOST);
        struct key *v = realloc(k->v, (k->n + 1) * sizeof(*v));
        if (!v)
            return err_nomem(e);
        const char *name = s[n] ? trim(s + n) : NULL;
        s[n] = 0;
        k->v = v;
        k->v[k->n++] = (struct key){s, name};
    }
    return 0;
}

static int load(struct keys *k, const char *list, const char *path, struct err *e)
{
    size_t n_list = list ? strlen(list) : 0, n_file = 0;
    char *file = path && *path ? file_read(path, FILE_MAX, &n_file, e) : NULL;
    if (path && *path && !file)
        return -1;
    if (file && strlen(file) != n_file) {
        free(file);
        return err_set(e, ERR_VALIDATION, "%s: not a text file", path);
    }
    k->text = malloc(n_list + n_file + 2);
    if (k->text) {
        memcpy(k->text, list ? list : "", n_list + 1);
        memcpy(k->text + n_list + 1, file ? file : "", n_file + 1);
    }
    free(file);
    if (!k->text)
        return err_nomem(e);
    if (cut(k, k->text, ",", false, e) != 0)
        return -1;
    if (n_list && k->n == 0) /* without keys the server would be open */
        return err_set(e, ERR_VALIDATION, "--api-key: no key in it");
    uint32_t before = k->n;
    if (cut(k, k->text + n_list + 1, "\n", true, e) != 0)
        return -1;
    if (path && *path && k->n == before)
        return err_set(e, ERR_VALIDATION, "%s: no key in it", path);
    return 0;
}

int keys_load(struct keys *k, const char *list, const char *path, struct err *e)
{
    *k = (struct keys){0};
    if (load(k, list, path, e) == 0)
        return 0;
    keys_free(k);
    return -1;
}

void keys_free(struct keys *k)
{
    free(k->text);
    free(k->v);
    *k = (struct keys){0};
}

static unsigned char differs(const char *given, size_t n, const char *key)
{
    size_t k = strlen(key);
    volatile unsigned char diff = n != k;
    for (size_t i = 0; i < n; i++)
        diff |= (unsigned char)given[i] ^ (unsigned char)key[i % k];
    return diff;
}

bool keys_have(const struct keys *k, const char *given, char name[KEY_NAME_MAX])
{
    size_t n = strlen(given);
    uint32_t found = 0; /* 1 + its index */
    for (uint32_t i = 0; i < k->n; i++)
        if (!differs(given, n, k->v[i].value))
            found = i + 1;
    name[0] = 0;
    if (found && k->v[found - 1].name)
        snprintf(name, KEY_NAME_MAX, "%s", k->v[found - 1].name);
    else if (found)
        snprintf(name, KEY_NAME_MAX, "key-%u", found);
    return found;
}
