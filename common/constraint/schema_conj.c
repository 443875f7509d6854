/* schema_conj.c - conjunctions of schemas: keywords, references, allOf. */
#include "common/buf.h"
#include "common/constraint/schema_impl.h"
#include "common/json/json.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- errors */

/* Appends the JSON pointer (RFC 6901) of `node` to b. */
static bool find_path(const cJSON *at, const cJSON *node, struct buf *b)
{
    size_t len = b->len;
    int i = 0;
    if (at == node || (at && (at->type & 0xff) == (node->type & 0xff) &&
                       ((at->child && at->child == node->child) ||
                        (at->valuestring && at->valuestring == node->valuestring))))
        return true; /* or its target */
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

term schema_nomem(struct schema *s)
{
    term_no_memory(s->p);
    return schema_fail(s, NULL, "no memory");
}

/* ---------------------------------------------------------------- conjunctions */

static int find(const struct conj *c, const cJSON *node)
{
    for (int i = 0; i < c->n; i++)
        if (c->at[i] == node)
            return i;
    return -1;
}

/* at[i] is also applied by `under`, and so is everything that it applies. */
static void widen(struct conj *c, int i, uint64_t under)
{
    for (int k = 0; k < c->n; k++)
        if (c->under[k] >> i & 1)
            c->under[k] |= under;
}

static void add_parts(struct schema *s, struct conj *c, const cJSON *node, uint64_t under)
{
    static const char *const refs[] = {"$ref", "$dynamicRef", "$recursiveRef"};
    const cJSON *all = json_get(node, "allOf"), *kid;
    const cJSON *no = cJSON_GetObjectItemCaseSensitive(node, "not");
    for (int i = 0; i < 3; i++)
        if (json_get(node, refs[i]))
            conj_add_under(s, c, schema_resolve(s, json_get(node, refs[i])), under);
    if (all && !cJSON_IsArray(all))
        schema_fail(s, all, "`allOf` is not an array");
    cJSON_ArrayForEach(kid, all) conj_add_under(s, c, kid, under);
    if (cJSON_IsBool(no))
        c->never |= cJSON_IsTrue(no);
    else if (cJSON_IsObject(no))
        conj_add(s, c, schema_made(s, MADE_NOT, no)); /* does not evaluate anything */
    else if (no)
        schema_fail(s, no, "neither an object nor a boolean");
    if (cJSON_GetObjectItemCaseSensitive(node, "if") &&
        (json_get(node, "then") || json_get(node, "else") || c->unevaluated))
        conj_add_under(s, c, schema_made(s, MADE_IF, node), under);
    if (json_get(node, "dependentRequired") || json_get(node, "dependentSchemas") ||
        json_get(node, "dependencies"))
        conj_add_under(s, c, schema_made(s, MADE_DEPEND, node), under);
}

void conj_add_under(struct schema *s, struct conj *c, const cJSON *node, uint64_t under)
{
    term_work(s->p, 4 + (uint64_t)c->n / 8);
    if (node && term_spent(s->p))
        schema_fail(s, node, "too complex");
    node = made_origin(node);
    if (!node || cJSON_IsTrue(node) || s->failed)
        return;
    if (cJSON_IsFalse(node)) {
        c->never = true;
        return;
    }
    if (!cJSON_IsObject(node)) {
        schema_fail(s, node, "neither an object nor a boolean");
        return;
    }
    node = schema_heeded(s, node);
    if (!node)
        return;
    int i = find(c, node);
    if (i >= 0) {
        widen(c, i, under);
        return;
    }
    if (c->n == MAX_CONJ) {
        schema_fail(s, node, "too many schemas that must hold together");
        return;
    }
    under |= UINT64_C(1) << c->n;
    c->under[c->n] = under;
    c->at[c->n++] = node;
    c->unevaluated |= json_get(node, "unevaluatedProperties") || json_get(node, "unevaluatedItems");
    add_parts(s, c, node, under);
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
            schema_fail(s, k, "`%s` is not a non-negative integer", key);
            return def;
        }
        uint32_t n = d > PATTERN_MAX_COUNT ? PATTERN_MAX_COUNT : (uint32_t)d;
        if (d > PATTERN_MAX_COUNT && greatest)
            schema_fail(s, k, "`%s` above %d is not supported", key, PATTERN_MAX_COUNT);
        v = greatest == (n > v) ? n : v;
    }
    return v;
}
