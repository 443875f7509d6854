#include "common/json_exact.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DOUBLE_DIGITS = 15 }; /* what any double keeps */

/* ---------------------------------------------------------------- numbers */

static bool in_number(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* The next number of the text behind *at, which is moved past it. */
static const char *next_number(const char *s, size_t n, size_t *at, size_t *len)
{
    size_t i = *at;
    while (i < n && s[i] != '-' && !(s[i] >= '0' && s[i] <= '9')) {
        if (s[i] == '"')
            for (i++; i < n && s[i] != '"'; i += s[i] == '\\' ? 2 : 1) {
            }
        i += i < n;
    }
    const size_t from = i;
    while (i < n && in_number(s[i]))
        i++;
    *at = i;
    *len = i - from;
    return s + from;
}

/* A double may have lost something of it, or would be printed in another way. */
static bool changes(const char *text, size_t n)
{
    size_t digits = 0, i = 0;
    for (; i < n && text[i] != 'e' && text[i] != 'E'; i++)
        digits += text[i] >= '0' && text[i] <= '9';
    return digits > DOUBLE_DIGITS || n - i > 3 || (memchr(text, '.', i) && text[i - 1] == '0');
}

static int keep(cJSON *v, const char *s, size_t n, size_t *at)
{
    for (; v; v = v->next) {
        size_t len;
        if (v->child && keep(v->child, s, n, at) != 0)
            return -1;
        if (!cJSON_IsNumber(v))
            continue;
        const char *text = next_number(s, n, at, &len);
        if (!changes(text, len))
            continue;
        char *own = cJSON_malloc(len + 1);
        if (!own)
            return -1;
        memcpy(own, text, len);
        own[len] = '\0';
        v->valuestring = own;
    }
    return 0;
}

int json_keep_numbers(cJSON *tree, const char *s, size_t n)
{
    size_t at = 0;
    return keep(tree, s, n, &at);
}

const char *json_number_text(const cJSON *number, char room[32])
{
    if (number->valuestring)
        return number->valuestring;
    snprintf(room, 32, "%.15g", number->valuedouble); /* as it was written: no longer than that */
    if (strtod(room, NULL) != number->valuedouble)
        snprintf(room, 32, "%.17g", number->valuedouble);
    return room;
}

/* ---------------------------------------------------------------- U+0000 */

/* A copy with each \u0000 as C0 80; NULL: there is none, or no memory (*failed). */
static char *without_nul(const char *s, size_t *n, bool *failed)
{
    char *out = NULL;
    size_t len = 0;
    *failed = false;
    for (size_t i = 0; i < *n;) {
        size_t step = s[i] == '\\' && i + 1 < *n ? 2 : 1;
        bool nul = step == 2 && *n - i >= 6 && !memcmp(s + i, "\\u0000", 6);
        if (nul && !out) {
            out = malloc(*n);
            if (!out) {
                *failed = true;
                return NULL;
            }
            memcpy(out, s, i);
            len = i;
        }
        if (nul) {
            memcpy(out + len, "\xc0\x80", 2);
            len += 2;
            i += 6;
            continue;
        }
        if (out)
            memcpy(out + len, s + i, step);
        len += step;
        i += step;
    }
    if (out)
        *n = len;
    return out;
}

cJSON *json_parse_exact(const char *s, size_t n, struct err *e)
{
    bool failed;
    cJSON *tree = json_parse(s, n, e); /* what is wrong is said of the text as it is */
    char *copy = tree ? without_nul(s, &n, &failed) : NULL;
    if (!tree)
        return NULL;
    if (copy) {
        const char *end;
        cJSON_Delete(tree);
        tree = cJSON_ParseWithLengthOpts(copy, n, &end, 0);
    }
    if (failed || !tree || json_keep_numbers(tree, copy ? copy : s, n) != 0) {
        cJSON_Delete(tree);
        tree = NULL;
        err_nomem(e);
    }
    free(copy);
    return tree;
}

/* ---------------------------------------------------------------- printing */

void json_text_exact(struct buf *b, const char *text)
{
    for (const char *nul; (nul = strstr(text, "\xc0\x80")); text = nul + 2) {
        buf_add(b, text, (size_t)(nul - text));
        buf_ch(b, '\0');
    }
    buf_str(b, text);
}

static void print_string(struct buf *b, const char *text)
{
    buf_ch(b, '"');
    for (const char *c = text; *c; c++) {
        if ((uint8_t)c[0] == 0xc0 && (uint8_t)c[1] == 0x80) {
            buf_str(b, "\\u0000");
            c++;
        } else if (*c == '"' || *c == '\\') {
            buf_ch(b, '\\');
            buf_ch(b, *c);
        } else if ((uint8_t)*c >= 0x20) {
            buf_ch(b, *c);
        } else {
            static const char named[] = "\b\f\n\r\t", letter[] = "bfnrt";
            const char *at = strchr(named, *c);
            if (at)
                buf_fmt(b, "\\%c", letter[at - named]);
            else
                buf_fmt(b, "\\u%04x", (unsigned)*c);
        }
    }
    buf_ch(b, '"');
}

void json_print_exact(struct buf *b, const cJSON *v)
{
    char room[32];
    const cJSON *kid;
    if (cJSON_IsArray(v) || cJSON_IsObject(v)) {
        buf_ch(b, cJSON_IsArray(v) ? '[' : '{');
        cJSON_ArrayForEach(kid, v)
        {
            if (kid != v->child)
                buf_ch(b, ',');
            if (cJSON_IsObject(v)) {
                print_string(b, kid->string);
                buf_ch(b, ':');
            }
            json_print_exact(b, kid);
        }
        buf_ch(b, cJSON_IsArray(v) ? ']' : '}');
    } else if (cJSON_IsString(v)) {
        print_string(b, v->valuestring);
    } else {
        buf_str(b, cJSON_IsNumber(v)  ? json_number_text(v, room)
                   : cJSON_IsTrue(v)  ? "true"
                   : cJSON_IsFalse(v) ? "false"
                                      : "null");
    }
}
