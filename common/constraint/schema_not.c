/* schema_not.c - the negation of a schema as alternatives: an instance violates at least one
 * keyword. The negation of a keyword is a schema with its type. Nested schemas are negated lazily,
 * so that recursion terminates. */
#include "common/constraint/schema_impl.h"
#include "common/json/json.h"
#include <string.h>

/* State of a negation: `node` has the keyword's value `v`; parts are added to `any`. */
struct negation {
    struct schema *s;
    const cJSON *node, *v;
    cJSON *any;
    const cJSON *left_out; /* a keyword whose negation is not supported */
};

/* ---------------------------------------------------------------- parts */

static cJSON *typed(struct negation *g, const char *type)
{
    cJSON *part = made_new(g->s);
    made_put(g->s, part, "type", cJSON_CreateString(type));
    return part;
}

static void add(struct negation *g, cJSON *part) { made_add(g->s, g->any, part); }

static cJSON *one_item(struct schema *s, cJSON *item)
{
    cJSON *list = made_list(s);
    made_add(s, list, item);
    return list;
}

/* The schemas in `of`, each negated if `no`, as {"allOf": ..}. */
static cJSON *all_of(struct schema *s, const cJSON *of, bool no)
{
    cJSON *all = made_list(s), *made = made_new(s);
    const cJSON *kid;
    cJSON_ArrayForEach(kid, of) made_add(s, all, no ? made_not(s, kid) : made_ref(s, kid));
    made_put(s, made, "allOf", all);
    return made;
}

static cJSON *requires(struct negation *g, const char *name)
{
    cJSON *part = typed(g, "object");
    made_put(g->s, part, "required", one_item(g->s, cJSON_CreateString(name)));
    return part;
}

/* {"type": "object", "properties": {name: schema}} */
static void with_property(struct negation *g, cJSON *part, const char *name, cJSON *schema)
{
    cJSON *names = made_new(g->s);
    made_put(g->s, names, name, schema);
    made_put(g->s, part, "properties", names);
}

/* ---------------------------------------------------------------- values and types */

static void not_type(struct negation *g)
{
    static const char *const names[] = {"null", "boolean", "number", "string", "array", "object"};
    static const unsigned bits[] = {T_NULL, T_BOOL, T_NUMBER, T_STRING, T_ARRAY, T_OBJECT};
    unsigned own = schema_types(g->s, g->v);
    cJSON *list = made_list(g->s), *part = made_new(g->s);
    for (int i = 0; i < 6; i++)
        if (!(own & bits[i]) && !(bits[i] == T_NUMBER && own & T_INTEGER))
            made_add(g->s, list, cJSON_CreateString(names[i]));
    made_put(g->s, part, "type", list);
    add(g, part);
    if (own & T_INTEGER && !(own & T_NUMBER)) {
        part = typed(g, "number");
        made_put(g->s, part, MADE_FRACTION, cJSON_CreateTrue());
        add(g, part);
    }
}

/* An array or object as a schema that allows nothing else. */
static cJSON *value_schema(struct schema *s, const cJSON *v)
{
    cJSON *made = made_new(s), *list = made_list(s), *of = made_new(s);
    const cJSON *kid;
    bool array = cJSON_IsArray(v);
    made_put(s, made, "type", cJSON_CreateString(array ? "array" : "object"));
    cJSON_ArrayForEach(kid, v)
    {
        cJSON *one = made_new(s);
        made_put(s, one, "const", made_ref(s, kid));
        if (array) {
            made_add(s, list, one);
            continue;
        }
        made_put(s, of, kid->string, one);
        made_add(s, list, cJSON_CreateString(kid->string));
    }
    made_put(s, made, array ? "prefixItems" : "required", list);
    made_put(s, made, array ? "items" : "additionalProperties", cJSON_CreateFalse());
    if (array)
        made_put(s, made, "minItems", cJSON_CreateNumber(cJSON_GetArraySize(v)));
    if (array)
        cJSON_Delete(of);
    else
        made_put(s, made, "properties", of);
    return made;
}

static void not_values(struct negation *g, const cJSON *first, bool list)
{
    cJSON *all = made_list(g->s), *scalars = made_list(g->s), *except = made_new(g->s);
    for (const cJSON *v = first; v; v = list ? v->next : NULL) {
        if (!cJSON_IsArray(v) && !cJSON_IsObject(v)) {
            made_add(g->s, scalars, made_ref(g->s, v));
            continue;
        }
        cJSON *no = made_new(g->s);
        made_put(g->s, no, "not", value_schema(g->s, v));
        made_add(g->s, all, no);
    }
    made_put(g->s, except, MADE_EXCEPT, scalars);
    made_add(g->s, all, except);
    cJSON *part = made_new(g->s);
    made_put(g->s, part, "allOf", all);
    add(g, part);
}

static void not_const(struct negation *g) { not_values(g, g->v, false); }
static void not_enum(struct negation *g) { not_values(g, g->v->child, true); }

/* ---------------------------------------------------------------- scalars */

/* A count one less or more: {"type": .., key: count + by}. */
static void count(struct negation *g, const char *type, const char *key, int by)
{
    double n = cJSON_IsNumber(g->v) ? g->v->valuedouble : -1;
    if (!(n >= 0) || n > PATTERN_MAX_COUNT) {
        schema_fail(g->s, g->v, "`not` of this `%s` is not supported", g->v->string);
        return;
    }
    if (n + by < 0)
        return; /* never violated */
    cJSON *part = typed(g, type);
    made_put(g->s, part, key, cJSON_CreateNumber(n + by));
    add(g, part);
}

static void not_min_length(struct negation *g) { count(g, "string", "maxLength", -1); }
static void not_max_length(struct negation *g) { count(g, "string", "minLength", 1); }
static void not_min_items(struct negation *g) { count(g, "array", "maxItems", -1); }
static void not_max_items(struct negation *g) { count(g, "array", "minItems", 1); }
static void not_min_properties(struct negation *g) { count(g, "object", "maxProperties", -1); }
static void not_max_properties(struct negation *g) { count(g, "object", "minProperties", 1); }

static void not_pattern(struct negation *g)
{
    cJSON *part = typed(g, "string");
    made_put(g->s, part, MADE_NOT_PATTERN, made_ref(g->s, g->v));
    add(g, part);
}

static void unsupported(struct negation *g);

static void not_format(struct negation *g)
{
    cJSON *part;
    switch (schema_format_not(g->v)) {
    case FORMAT_NEVER_VIOLATED:
        break;
    case FORMAT_NOT_DENIABLE:
        unsupported(g);
        break;
    case FORMAT_DENIABLE:
        part = typed(g, "string");
        made_put(g->s, part, MADE_NOT_FORMAT, made_ref(g->s, g->v));
        add(g, part);
    }
}

/* `then`: what a number beyond the bound satisfies; with draft 4's boolean, including the bound. */
static void not_bound(struct negation *g, const char *then, const char *strict, const char *at)
{
    if (cJSON_IsBool(g->v))
        return;
    cJSON *part = typed(g, "number");
    bool open = strict && cJSON_IsTrue(json_get(g->node, strict));
    made_put(g->s, part, open ? at : then, made_ref(g->s, g->v));
    add(g, part);
}

static void not_minimum(struct negation *g)
{
    not_bound(g, "exclusiveMaximum", "exclusiveMinimum", "maximum");
}
static void not_maximum(struct negation *g)
{
    not_bound(g, "exclusiveMinimum", "exclusiveMaximum", "minimum");
}
static void not_above(struct negation *g) { not_bound(g, "maximum", NULL, NULL); }
static void not_below(struct negation *g) { not_bound(g, "minimum", NULL, NULL); }

static void not_multiple(struct negation *g)
{
    cJSON *part = typed(g, "number");
    made_put(g->s, part, MADE_NOT_MULTIPLE, made_ref(g->s, g->v));
    add(g, part);
}

/* ---------------------------------------------------------------- objects */

static void not_required(struct negation *g)
{
    const cJSON *kid;
    cJSON_ArrayForEach(kid, g->v)
    {
        cJSON *part = typed(g, "object");
        with_property(g, part, cJSON_IsString(kid) ? kid->valuestring : "", cJSON_CreateFalse());
        add(g, part);
    }
}

static void not_properties(struct negation *g)
{
    const cJSON *kid;
    cJSON_ArrayForEach(kid, g->v)
    {
        if (cJSON_IsTrue(kid))
            continue;
        cJSON *part = requires(g, kid->string);
        with_property(g, part, kid->string, made_not(g->s, kid));
        add(g, part);
    }
}

/* A property that no keyword names, with this name and value. */
static void must(struct negation *g, cJSON *key, cJSON *value)
{
    cJSON *both = made_new(g->s), *part = typed(g, "object");
    made_put(g->s, both, "key", key);
    made_put(g->s, both, "value", value);
    made_put(g->s, part, MADE_MUST, both);
    add(g, part);
}

static void not_additional(struct negation *g)
{
    cJSON *all = made_list(g->s), *key = made_new(g->s), *names = made_list(g->s), *kid_key;
    const cJSON *kid;
    cJSON_ArrayForEach(kid, json_get(g->node, "properties"))
        made_add(g->s, names, cJSON_CreateString(kid->string));
    cJSON *except = made_new(g->s);
    made_put(g->s, except, MADE_EXCEPT, names);
    made_add(g->s, all, except);
    cJSON_ArrayForEach(kid, json_get(g->node, "patternProperties"))
    {
        kid_key = made_new(g->s);
        made_put(g->s, kid_key, MADE_NOT_PATTERN, cJSON_CreateString(kid->string));
        made_add(g->s, all, kid_key);
    }
    made_put(g->s, key, "allOf", all);
    must(g, key, made_not(g->s, g->v));
}

static void not_pattern_properties(struct negation *g)
{
    const cJSON *kid;
    cJSON_ArrayForEach(kid, g->v)
    {
        cJSON *key = made_new(g->s);
        made_put(g->s, key, "pattern", cJSON_CreateString(kid->string));
        must(g, key, made_not(g->s, kid));
    }
}

static void not_names(struct negation *g) { must(g, made_not(g->s, g->v), made_new(g->s)); }

static void not_dependent(struct negation *g)
{
    const cJSON *kid, *name;
    cJSON_ArrayForEach(kid, g->v)
    {
        if (!cJSON_IsArray(kid)) {
            cJSON *part = requires(g, kid->string);
            made_put(g->s, part, "allOf", one_item(g->s, made_not(g->s, kid)));
            add(g, part);
            continue;
        }
        cJSON_ArrayForEach(name, kid)
        {
            cJSON *part = requires(g, kid->string);
            with_property(g, part, cJSON_IsString(name) ? name->valuestring : "",
                          cJSON_CreateFalse());
            add(g, part);
        }
    }
}

/* ---------------------------------------------------------------- arrays */

static void not_prefix(struct negation *g)
{
    const cJSON *kid;
    int i = 0;
    cJSON_ArrayForEach(kid, g->v)
    {
        cJSON *part = typed(g, "array"), *list = made_list(g->s);
        for (int k = 0; k < i; k++)
            made_add(g->s, list, cJSON_CreateTrue());
        made_add(g->s, list, made_not(g->s, kid));
        made_put(g->s, part, "prefixItems", list);
        made_put(g->s, part, "minItems", cJSON_CreateNumber(++i));
        term_work(g->s->p, (uint64_t)i * 16);
        if (term_spent(g->s->p))
            return;
        add(g, part);
    }
}

/* One of the items after the first `n` does not satisfy `v`. */
static void not_further(struct negation *g, int n)
{
    cJSON *part = typed(g, "array");
    made_put(g->s, part, "contains", made_not(g->s, g->v));
    made_put(g->s, part, MADE_FROM, cJSON_CreateNumber(n));
    made_put(g->s, part, "minItems", cJSON_CreateNumber(n + 1));
    add(g, part);
}

static void not_items(struct negation *g)
{
    if (cJSON_IsArray(g->v))
        not_prefix(g);
    else
        not_further(g, cJSON_GetArraySize(json_get(g->node, "prefixItems")));
}

static void not_more_items(struct negation *g)
{
    const cJSON *items = json_get(g->node, "items");
    if (cJSON_IsArray(items))
        not_further(g, cJSON_GetArraySize(items));
}

static void not_contains(struct negation *g)
{
    const cJSON *most = json_get(g->node, "maxContains");
    double least = cJSON_IsNumber(json_get(g->node, "minContains"))
                       ? json_get(g->node, "minContains")->valuedouble
                       : 1;
    if (least > 0) {
        cJSON *part = typed(g, "array");
        made_put(g->s, part, "contains", made_ref(g->s, g->v));
        made_put(g->s, part, "minContains", cJSON_CreateNumber(0));
        made_put(g->s, part, "maxContains", cJSON_CreateNumber(least - 1));
        add(g, part);
    }
    if (cJSON_IsNumber(most)) {
        cJSON *part = typed(g, "array");
        made_put(g->s, part, "contains", made_ref(g->s, g->v));
        made_put(g->s, part, "minContains", cJSON_CreateNumber(most->valuedouble + 1));
        add(g, part);
    }
}

/* ---------------------------------------------------------------- schemas of schemas */

static void not_all(struct negation *g)
{
    const cJSON *kid;
    cJSON_ArrayForEach(kid, g->v) add(g, made_not(g->s, kid));
}

static void not_any(struct negation *g) { add(g, all_of(g->s, g->v, true)); }

/* None of them, or two. */
static void not_one(struct negation *g)
{
    const cJSON *a, *b;
    not_any(g);
    if (cJSON_GetArraySize(g->v) > 32) {
        schema_fail(g->s, g->v, "`not` of so long a `oneOf` is not supported");
        return;
    }
    cJSON_ArrayForEach(a, g->v) for (b = a->next; b; b = b->next)
        add(g, made_of(g->s, "allOf", made_ref(g->s, a), made_ref(g->s, b)));
}

static void not_not(struct negation *g) { add(g, made_ref(g->s, g->v)); }

static void not_ref(struct negation *g)
{
    const cJSON *to = schema_resolve(g->s, g->v);
    if (to)
        add(g, made_not(g->s, to));
}

static void not_if(struct negation *g)
{
    const cJSON *then = cJSON_GetObjectItemCaseSensitive(g->node, "then");
    const cJSON *other = cJSON_GetObjectItemCaseSensitive(g->node, "else");
    if (then)
        add(g, made_of(g->s, "allOf", made_ref(g->s, g->v), made_not(g->s, then)));
    if (other)
        add(g, made_of(g->s, "allOf", made_not(g->s, g->v), made_not(g->s, other)));
}

/* ---------------------------------------------------------------- all */

/* Instances that only this keyword rejects are omitted from the language. */
static void unsupported(struct negation *g) { g->left_out = g->v; }

static void not_unique(struct negation *g)
{
    if (cJSON_IsTrue(g->v))
        unsupported(g);
}

static const struct {
    const char *key;
    void (*add)(struct negation *g);
} rows[] = {
    {"type", not_type},
    {"const", not_const},
    {"enum", not_enum},
    {"minLength", not_min_length},
    {"maxLength", not_max_length},
    {"pattern", not_pattern},
    {"format", not_format},
    {"minimum", not_minimum},
    {"maximum", not_maximum},
    {"exclusiveMinimum", not_above},
    {"exclusiveMaximum", not_below},
    {"multipleOf", not_multiple},
    {"required", not_required},
    {"properties", not_properties},
    {"additionalProperties", not_additional},
    {"patternProperties", not_pattern_properties},
    {"propertyNames", not_names},
    {"minProperties", not_min_properties},
    {"maxProperties", not_max_properties},
    {"dependentRequired", not_dependent},
    {"dependentSchemas", not_dependent},
    {"dependencies", not_dependent},
    {"prefixItems", not_prefix},
    {"items", not_items},
    {"additionalItems", not_more_items},
    {"minItems", not_min_items},
    {"maxItems", not_max_items},
    {"uniqueItems", not_unique},
    {"contains", not_contains},
    {"unevaluatedItems", unsupported},
    {"unevaluatedProperties", unsupported},
    {"allOf", not_all},
    {"anyOf", not_any},
    {"oneOf", not_one},
    {"not", not_not},
    {"if", not_if},
    {"$ref", not_ref},
    {"$dynamicRef", not_ref},
    {"$recursiveRef", not_ref},
    {MADE_EXCEPT, unsupported},
    {MADE_FRACTION, unsupported},
    {MADE_NOT_MULTIPLE, unsupported},
    {MADE_NOT_PATTERN, unsupported},
    {MADE_NOT_FORMAT, unsupported},
    {MADE_MUST, unsupported},
    {MADE_FROM, unsupported},
};

cJSON *schema_negation(struct schema *s, const cJSON *of)
{
    of = schema_heeded(s, of); /* NULL after an error: no keywords */
    struct negation g = {.s = s, .node = of, .any = made_list(s)};
    const cJSON *kid;
    cJSON *made = made_new(s);
    cJSON_ArrayForEach(kid, of)
    {
        g.v = kid;
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows) && !s->failed; i++)
            if (!strcmp(rows[i].key, kid->string) && (!cJSON_IsNull(kid) || i == 1))
                rows[i].add(&g);
        term_work(s->p, 4);
    }
    if (!cJSON_GetArraySize(g.any) && g.left_out)
        schema_fail(s, g.left_out, "`not` of `%s` is not supported", g.left_out->string);
    if (cJSON_GetArraySize(g.any))
        made_put(s, made, "anyOf", g.any);
    else { /* satisfied by everything */
        cJSON_Delete(g.any);
        made_put(s, made, "allOf", one_item(s, cJSON_CreateFalse()));
    }
    return made;
}
