/* schema_conj.c - which schemas hold together: keywords, references, allOf. */
#include "common/buf.h"
#include "common/constraint/schema_impl.h"
#include "common/json.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- errors */

/* The JSON pointer of `node` (RFC 6901), appended to b. */
static bool find_path(const cJSON *at, const cJSON *node, struct buf *b)
{
    size_t len = b->len;
    int i = 0;
    if (at == node)
        return true;
    const cJSON *kid;
    cJSON_ArrayForEach(kid, at)
    {
        if (kid->string) {
            buf_ch(b, '/');
            for (const char *c = kid->string; *c; c++)
                if (*c == '~' || *c == '/')
                    buf_str(b, *c == '~' ? "~0" : "~1");
                else
                    buf_ch(b, *c);
        } else {
            buf_fmt(b, "/%d", i);
        }
        if (find_path(kid, node, b))
            return true;
        b->len = len;
        i++;
    }
    return false;
}

term schema_fail(struct schema *s, const cJSON *at, const char *fmt, ...)
{
    if (s->failed)
        return TERM_NONE;
    char what[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    struct buf b = BUF_INIT;
    if (at && find_path(s->root, at, &b))
        err_set(s->e, ERR_VALIDATION, "JSON schema: %s at `#%.*s`", what, (int)b.len,
                b.p ? b.p : "");
    else
        err_set(s->e, ERR_VALIDATION, "JSON schema: %s", what);
    buf_free(&b);
    s->failed = true;
    return TERM_NONE;
}

/* ---------------------------------------------------------------- keywords */

static const char *const known[] = {
    "type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "properties", "required",
    "additionalProperties", "patternProperties", "minProperties", "maxProperties", "items",
    "prefixItems", "additionalItems", "minItems", "maxItems", "minLength", "maxLength", "pattern",
    "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    /* what says nothing about which instances are valid */
    "title", "description", "default", "examples", "example", "$schema", "$id", "id", "$comment",
    "$defs", "definitions", "$anchor", "deprecated", "readOnly", "writeOnly", "discriminator",
    "contentMediaType", "contentEncoding", "$vocabulary", "strict", NULL};

static void check_keywords(struct schema *s, const cJSON *node)
{
    const cJSON *kid;
    cJSON_ArrayForEach(kid, node)
    {
        int i = 0;
        while (known[i] && strcmp(known[i], kid->string) != 0)
            i++;
        bool off = cJSON_IsFalse(kid) && !strcmp(kid->string, "uniqueItems");
        if (!known[i] && !off && strncmp(kid->string, "x-", 2) != 0) {
            schema_fail(s, kid, "`%.60s` is not supported", kid->string);
            return;
        }
    }
}

/* ---------------------------------------------------------------- references */

static size_t unescape(char *to, const char *s, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned v;
        if (s[i] == '~' && i + 1 < n && (s[i + 1] == '0' || s[i + 1] == '1'))
            to[len++] = s[++i] == '0' ? '~' : '/';
        else if (s[i] == '%' && i + 2 < n && sscanf(s + i + 1, "%2x", &v) == 1)
            to[len++] = (char)v, i += 2;
        else
            to[len++] = s[i];
    }
    to[len] = '\0';
    return len;
}

static const cJSON *find_anchor(struct schema *s, const cJSON *at, const char *name)
{
    term_work(s->p, 1);
    const char *own = json_str(at, "$anchor", NULL);
    if (own && !strcmp(own, name))
        return at;
    const cJSON *kid, *found;
    cJSON_ArrayForEach(kid, at) if ((found = find_anchor(s, kid, name))) return found;
    return NULL;
}

const cJSON *schema_resolve(struct schema *s, const cJSON *ref)
{
    const char *to = cJSON_GetStringValue(ref);
    const cJSON *at = s->root;
    const char *id = json_str(s->root, "$id", "");
    char key[1024];
    if (to && *id && !strncmp(to, id, strlen(id)))
        to += strlen(id);
    if (to && !*to)
        return at;
    if (!to || *to != '#')
        return schema_fail(s, ref, "only references inside the schema are supported"), NULL;
    if (to[1] && to[1] != '/') {
        at = find_anchor(s, s->root, to + 1);
        return at ? at : (schema_fail(s, ref, "a reference to nothing"), NULL);
    }
    for (to++; *to == '/' && at;) {
        size_t n = strcspn(++to, "/");
        if (n >= sizeof(key))
            break;
        unescape(key, to, n);
        to += n;
        term_work(s->p, (uint64_t)cJSON_GetArraySize(at) / 8);
        at = cJSON_IsArray(at) ? cJSON_GetArrayItem(at, atoi(key))
                               : cJSON_GetObjectItemCaseSensitive(at, key);
    }
    return at && !*to ? at : (schema_fail(s, ref, "a reference to nothing"), NULL);
}

/* ---------------------------------------------------------------- conjunctions */

static bool holds(const struct conj *c, const cJSON *node)
{
    for (int i = 0; i < c->n; i++)
        if (c->at[i] == node)
            return true;
    return false;
}

void conj_add(struct schema *s, struct conj *c, const cJSON *node)
{
    term_work(s->p, 4 + (uint64_t)c->n / 8);
    if (node && term_spent(s->p))
        schema_fail(s, node, "too complex");
    if (!node || cJSON_IsTrue(node) || holds(c, node) || s->failed)
        return;
    if (cJSON_IsFalse(node)) {
        c->never = true;
        return;
    }
    if (!cJSON_IsObject(node)) {
        schema_fail(s, node, "neither an object nor a boolean");
        return;
    }
    if (c->n == MAX_CONJ) {
        schema_fail(s, node, "too many schemas that must hold together");
        return;
    }
    check_keywords(s, node);
    c->at[c->n++] = node;
    const cJSON *all = json_get(node, "allOf"), *ref = json_get(node, "$ref"), *kid;
    if (ref)
        conj_add(s, c, schema_resolve(s, ref));
    if (all && !cJSON_IsArray(all))
        schema_fail(s, all, "`allOf` is no array");
    cJSON_ArrayForEach(kid, all) conj_add(s, c, kid);
}

uint32_t conj_bound(struct schema *s, const struct conj *c, const char *key, bool greatest,
                    uint32_t def)
{
    uint32_t v = def;
    for (int i = 0; i < c->n; i++) {
        const cJSON *k = json_get(c->at[i], key);
        if (!k)
            continue;
        double d = k->valuedouble;
        if (!cJSON_IsNumber(k) || !(d >= 0) || d != floor(d)) {
            schema_fail(s, k, "`%s` is no count", key);
            return def;
        }
        uint32_t n = d > PATTERN_MAX_COUNT ? PATTERN_MAX_COUNT : (uint32_t)d;
        if (d > PATTERN_MAX_COUNT && greatest)
            schema_fail(s, k, "`%s` above %d is not supported", key, PATTERN_MAX_COUNT);
        v = greatest == (n > v) ? n : v;
    }
    return v;
}
