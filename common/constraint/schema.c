/* schema.c - from a schema to conjunctions, alternatives and types. */
#include "common/buf.h"
#include "common/constraint/schema_impl.h"
#include "common/json.h"
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

static const cJSON *resolve(struct schema *s, const cJSON *ref)
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
    if (term_spent(s->p))
        schema_fail(s, NULL, "too complex");
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
        conj_add(s, c, resolve(s, ref));
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
        if (!cJSON_IsNumber(k) || !(d >= 0) || d != (double)(uint64_t)d) {
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

/* ---------------------------------------------------------------- types */

enum {
    T_NULL = 1,
    T_BOOL = 2,
    T_INTEGER = 4,
    T_NUMBER = 8,
    T_STRING = 16,
    T_ARRAY = 32,
    T_OBJECT = 64
};
static const struct {
    const char *name;
    unsigned bits;
} types[] = {{"null", T_NULL},       {"boolean", T_BOOL},
             {"integer", T_INTEGER}, {"number", T_NUMBER | T_INTEGER},
             {"string", T_STRING},   {"array", T_ARRAY},
             {"object", T_OBJECT}};
/* keywords that speak of one type */
static const struct {
    const char *key;
    unsigned bits;
} hints[] = {{"properties", T_OBJECT},
             {"required", T_OBJECT},
             {"additionalProperties", T_OBJECT},
             {"patternProperties", T_OBJECT},
             {"minProperties", T_OBJECT},
             {"maxProperties", T_OBJECT},
             {"items", T_ARRAY},
             {"prefixItems", T_ARRAY},
             {"minItems", T_ARRAY},
             {"maxItems", T_ARRAY},
             {"minLength", T_STRING},
             {"maxLength", T_STRING},
             {"pattern", T_STRING},
             {"format", T_STRING},
             {"minimum", T_NUMBER | T_INTEGER},
             {"maximum", T_NUMBER | T_INTEGER},
             {"exclusiveMinimum", T_NUMBER | T_INTEGER},
             {"exclusiveMaximum", T_NUMBER | T_INTEGER},
             {"multipleOf", T_NUMBER | T_INTEGER}};

static unsigned type_bits(struct schema *s, const cJSON *t)
{
    const char *name = cJSON_GetStringValue(t);
    for (size_t i = 0; name && i < sizeof(types) / sizeof(*types); i++)
        if (!strcmp(types[i].name, name))
            return types[i].bits;
    schema_fail(s, t, "an unknown type");
    return 0;
}

static unsigned conj_types(struct schema *s, const struct conj *c)
{
    unsigned all = T_NULL | T_BOOL | T_INTEGER | T_NUMBER | T_STRING | T_ARRAY | T_OBJECT;
    unsigned bits = all, hinted = 0;
    bool typed = false;
    for (int i = 0; i < c->n; i++) {
        const cJSON *t = json_get(c->at[i], "type"), *one;
        unsigned own = 0;
        for (size_t h = 0; h < sizeof(hints) / sizeof(*hints); h++)
            if (json_get(c->at[i], hints[h].key))
                hinted |= hints[h].bits;
        if (!t)
            continue;
        if (cJSON_IsArray(t))
            cJSON_ArrayForEach(one, t) own |= type_bits(s, one);
        else
            own = type_bits(s, t);
        bits &= own;
        typed = true;
    }
    return !typed && hinted ? hinted : bits;
}

static term typed_value(struct schema *s, const struct conj *c, unsigned bits)
{
    term t = TERM_NONE;
    if (bits & T_OBJECT)
        t = term_alt(s->p, t, schema_object(s, c));
    if (bits & T_ARRAY)
        t = term_alt(s->p, t, schema_array(s, c));
    if (bits & T_STRING)
        t = term_alt(s->p, t, schema_string(s, c));
    if (bits & (T_NUMBER | T_INTEGER))
        t = term_alt(s->p, t, schema_number(s, c, !(bits & T_NUMBER)));
    if (bits & T_BOOL)
        t = term_alt(s->p, t, term_alt(s->p, lit(s, "true"), lit(s, "false")));
    if (bits & T_NULL)
        t = term_alt(s->p, t, lit(s, "null"));
    return t;
}

/* ---------------------------------------------------------------- enum and const */

/* `own`: the list that the value is of; it need not be searched. */
static bool allowed_by(struct schema *s, const cJSON *node, const cJSON *value, const cJSON *own)
{
    const cJSON *list = json_get(node, "enum"),
                *one = cJSON_GetObjectItemCaseSensitive(node, "const");
    if (one && !cJSON_Compare(one, value, true))
        return false;
    if (!list || own == list)
        return true;
    const cJSON *kid;
    cJSON_ArrayForEach(kid, list)
    {
        term_work(s->p, 1);
        if (kid == value || cJSON_Compare(kid, value, true))
            return true;
    }
    return false;
}

static bool has_values(const cJSON *node)
{
    return cJSON_GetObjectItemCaseSensitive(node, "const") || json_get(node, "enum");
}

/* `value` (of the list `own`) written out, if it satisfies all of c; `rest`: the language of c
 * without its values. */
static term value_text(struct schema *s, const struct conj *c, const cJSON *value, const cJSON *own,
                       term rest)
{
    for (int i = 0; i < c->n; i++)
        if (!allowed_by(s, c->at[i], value, own))
            return TERM_NONE;
    char *text = cJSON_PrintUnformatted(value);
    size_t n = text ? strlen(text) : 0;
    term t = TERM_NONE;
    if (!text || n > MAX_LITERAL)
        schema_fail(s, value, "a value too long to be written out");
    else if (term_nullable(s->p, term_after_all(s->p, rest, text, n)))
        t = term_bytes_of(s->p, text, n);
    cJSON_free(text);
    return t;
}

static term listed_values(struct schema *s, const struct conj *c, const cJSON *node, term rest)
{
    const cJSON *list = json_get(node, "enum"), *kid;
    if (!list)
        return value_text(s, c, cJSON_GetObjectItemCaseSensitive(node, "const"), NULL, rest);
    if (!cJSON_IsArray(list) || !cJSON_GetArraySize(list))
        return schema_fail(s, list, "`enum` is no list of values");
    size_t n = 0;
    term *part = malloc((size_t)cJSON_GetArraySize(list) * sizeof(*part)), t = TERM_NONE;
    if (!part)
        return schema_fail(s, list, "no memory");
    cJSON_ArrayForEach(kid, list) part[n++] = value_text(s, c, kid, list, rest);
    t = term_alt_n(s->p, part, n);
    free(part);
    return t;
}

/* c is flat: no alternatives are left to choose. */
static term flat_value(struct schema *s, const struct conj *c)
{
    unsigned bits = conj_types(s, c);
    const cJSON *values = NULL;
    bool typed = false;
    for (int i = 0; i < c->n; i++) {
        if (!values && has_values(c->at[i]))
            values = c->at[i];
        typed |= json_get(c->at[i], "type") != NULL;
    }
    if (!values)
        return typed_value(s, c, bits);
    bool plain = true; /* nothing but values and types: no need to look at their texts */
    for (size_t h = 0; h < sizeof(hints) / sizeof(*hints); h++)
        for (int i = 0; i < c->n; i++)
            plain &= !json_get(c->at[i], hints[h].key);
    if (plain && !typed)
        return listed_values(s, c, values, TERM_ALL);
    return listed_values(s, c, values, typed_value(s, c, bits));
}

/* ---------------------------------------------------------------- alternatives */

static bool disjoint(struct schema *s, const cJSON *a, const cJSON *b);

static bool refers_to(struct schema *s, const cJSON *from, const cJSON *to)
{
    for (int i = 0; from && from != to && i < 32; i++) {
        const cJSON *ref = json_get(from, "$ref");
        from = ref ? resolve(s, ref) : NULL;
    }
    return from == to;
}

/* One schema of c has alternatives that were not chosen from yet: those from number `from` on. */
static term choose(struct schema *s, const struct conj *c, int from)
{
    static const char *const keys[] = {"anyOf", "oneOf"};
    for (int i = from / 2; i < c->n; i++)
        for (int k = i == from / 2 ? from % 2 : 0; k < 2; k++) {
            const cJSON *of = json_get(c->at[i], keys[k]), *kid, *other;
            if (!of)
                continue;
            if (!cJSON_IsArray(of) || !cJSON_GetArraySize(of))
                return schema_fail(s, of, "`%s` is no list of schemas", keys[k]);
            term t = TERM_NONE;
            cJSON_ArrayForEach(kid, of)
            {
                for (other = kid->next; k == 1 && other; other = other->next)
                    if (!disjoint(s, kid, other))
                        return schema_fail(s, other,
                                           "`oneOf` with a schema that may overlap another");
                struct conj more = *c;
                if (refers_to(s, kid, c->at[i]))
                    return schema_fail(s, kid, "a schema that is an alternative to itself");
                conj_add(s, &more, kid);
                if (!more.never && !s->failed)
                    t = term_alt(s->p, t, choose(s, &more, i * 2 + k + 1));
            }
            return t;
        }
    return flat_value(s, c);
}

/* No instance satisfies both, as far as it can be seen: different types, or a property that both
 * require with values of its own, or one requires what the other does not allow. */
static bool disjoint_flat(struct schema *s, const struct conj *a, const struct conj *b, int depth);

static bool disjoint_at(struct schema *s, const cJSON *a, const cJSON *b, int depth)
{
    struct conj ca = {.n = 0}, cb = {.n = 0};
    conj_add(s, &ca, a);
    conj_add(s, &cb, b);
    return ca.never || cb.never || disjoint_flat(s, &ca, &cb, depth);
}

static bool requires(const struct conj *c, const char *name)
{
    for (int i = 0; i < c->n; i++) {
        const cJSON *kid;
        cJSON_ArrayForEach(kid, json_get(c->at[i], "required"))
        {
            const char *v = cJSON_GetStringValue(kid);
            if (v && !strcmp(v, name))
                return true;
        }
    }
    return false;
}

static bool forbids(const struct conj *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (cJSON_IsFalse(json_get(c->at[i], "additionalProperties")) &&
            !json_get(c->at[i], "patternProperties") &&
            !json_get(json_get(c->at[i], "properties"), name))
            return true;
    return false;
}

/* What a requires is not allowed by b, or has other values there. */
static bool separated(struct schema *s, const struct conj *a, const struct conj *b, int depth)
{
    for (int i = 0; i < a->n; i++) {
        const cJSON *kid;
        cJSON_ArrayForEach(kid, json_get(a->at[i], "required"))
        {
            const char *name = cJSON_GetStringValue(kid);
            if (!name)
                continue;
            if (forbids(b, name))
                return true;
            for (int x = 0; requires(b, name) && x < a->n; x++)
                for (int y = 0; y < b->n; y++) {
                    const cJSON *u = json_get(json_get(a->at[x], "properties"), name);
                    const cJSON *v = json_get(json_get(b->at[y], "properties"), name);
                    if (u && v && disjoint_at(s, u, v, depth + 1))
                        return true;
                }
        }
    }
    return false;
}

/* Both list their values, and none is in both lists. */
static bool other_values(struct schema *s, const struct conj *a, const struct conj *b)
{
    for (int x = 0; x < a->n; x++)
        for (int y = 0; y < b->n; y++) {
            const cJSON *list = json_get(a->at[x], "enum"), *kid;
            const cJSON *one = cJSON_GetObjectItemCaseSensitive(a->at[x], "const");
            bool common = one && allowed_by(s, b->at[y], one, NULL);
            if (!has_values(a->at[x]) || !has_values(b->at[y]))
                continue;
            cJSON_ArrayForEach(kid, list) common |= !one && allowed_by(s, b->at[y], kid, NULL);
            if (!common)
                return true;
        }
    return false;
}

static bool disjoint_flat(struct schema *s, const struct conj *a, const struct conj *b, int depth)
{
    unsigned x = conj_types(s, a), y = conj_types(s, b);
    if (depth > 8)
        return false;
    if (!(x & y) || other_values(s, a, b))
        return true;
    if ((x & y) == T_OBJECT)
        return separated(s, a, b, depth) || separated(s, b, a, depth);
    return false;
}

static bool disjoint(struct schema *s, const cJSON *a, const cJSON *b)
{
    return disjoint_at(s, a, b, 0);
}

/* ---------------------------------------------------------------- rules */

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (const cJSON *const *)a, y = (uintptr_t) * (const cJSON *const *)b;
    return (x > y) - (x < y);
}

static struct rule *new_rule(struct schema *s, const struct conj *sorted)
{
    if (s->n_rules == s->cap_rules) {
        size_t cap = s->cap_rules ? s->cap_rules * 2 : 64;
        struct rule *r = s->n_rules < MAX_RULES ? realloc(s->rules, cap * sizeof(*r)) : NULL;
        if (!r)
            return schema_fail(s, NULL, "too large"), NULL;
        s->rules = r, s->cap_rules = cap;
    }
    struct rule *r = &s->rules[s->n_rules++];
    *r = (struct rule){*sorted, term_rule(s->p, false)};
    return r;
}

term schema_value(struct schema *s, const struct conj *c)
{
    struct conj sorted = *c;
    if (c->never || s->failed)
        return TERM_NONE;
    qsort(sorted.at, (size_t)sorted.n, sizeof(const cJSON *), by_address);
    for (size_t i = 0; i < s->n_rules; i++)
        if (s->rules[i].c.n == c->n &&
            !memcmp(s->rules[i].c.at, sorted.at, (size_t)c->n * sizeof(const cJSON *)))
            return s->rules[i].t;
    if (s->depth > MAX_NESTING)
        return schema_fail(s, NULL, "nested too deeply");
    struct rule *r = new_rule(s, &sorted);
    if (!r)
        return TERM_NONE;
    term t = r->t;
    s->depth++;
    term_define(s->p, t, choose(s, c, 0));
    s->depth--;
    return t;
}

/* ---------------------------------------------------------------- the whole */

static void white_space(struct schema *s)
{
    struct byte_set indent = {{0}};
    byte_set_add(&indent, ' ', ' ');
    byte_set_add(&indent, '\t', '\t');
    s->colon_blank = term_opt(s->p, lit(s, " "));
    s->blank =
        term_alt(s->p, s->colon_blank,
                 term_cat(s->p, lit(s, "\n"), term_repeat(s->p, term_set(s->p, &indent), 0, 64)));
}

term schema_term(struct term_pool *p, const cJSON *root, struct err *e)
{
    struct schema s = {.p = p, .root = root, .e = e};
    struct conj c = {.n = 0};
    white_space(&s);
    conj_add(&s, &c, root);
    term t = schema_value(&s, &c);
    if (!s.failed)
        t = term_close(p, t);
    if (!s.failed && term_full(p))
        schema_fail(&s, NULL, "it needs too much memory");
    if (!s.failed && t == TERM_NONE)
        schema_fail(&s, NULL, "no instance satisfies it");
    free(s.rules);
    return s.failed ? TERM_NONE : t;
}
