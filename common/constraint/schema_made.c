/* schema_made.c - derived schemas: expresses `if`, `not` and others in keywords that the compiler
 * supports. */
#include "common/constraint/schema_impl.h"
#include "common/json/json.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_MADE = 20000, MADE = 0x6d616465 };

struct made {
    enum made_kind kind;
    const cJSON *of;
    cJSON *schema;
};

/* ---------------------------------------------------------------- parts */

static cJSON *or_fail(struct schema *s, cJSON *item)
{
    if (!item)
        schema_nomem(s);
    return item;
}

cJSON *made_new(struct schema *s)
{
    cJSON *object = or_fail(s, cJSON_CreateObject());
    if (object)
        object->valueint = MADE;
    return object;
}

bool is_made(const cJSON *node) { return cJSON_IsObject(node) && node->valueint == MADE; }

cJSON *made_list(struct schema *s) { return or_fail(s, cJSON_CreateArray()); }

void made_add(struct schema *s, cJSON *list, cJSON *item)
{
    if (!list || !item || !cJSON_AddItemToArray(list, item)) {
        cJSON_Delete(item);
        schema_nomem(s);
    }
}

void made_put(struct schema *s, cJSON *object, const char *key, cJSON *item)
{
    if (!object || !item || !cJSON_AddItemToObject(object, key, item)) {
        cJSON_Delete(item);
        schema_nomem(s);
    }
}

/* A reference keeps the object's address, so that its identity is known. */
cJSON *made_ref(struct schema *s, const cJSON *node)
{
    cJSON *ref = or_fail(s, cJSON_CreateNull());
    node = made_origin(node);
    if (!ref)
        return NULL;
    ref->type = (node->type & 0xff) | cJSON_IsReference;
    ref->child = node->child;
    ref->valuestring = cJSON_IsObject(node) ? (char *)(uintptr_t)node : node->valuestring;
    ref->valuedouble = node->valuedouble;
    return ref;
}

const cJSON *made_origin(const cJSON *node)
{
    return node && cJSON_IsObject(node) && (node->type & cJSON_IsReference)
               ? (const cJSON *)node->valuestring
               : node;
}

cJSON *made_not(struct schema *s, const cJSON *node)
{
    cJSON *no = made_new(s);
    made_put(s, no, "not", made_ref(s, node));
    return no;
}

const cJSON *made_get(const cJSON *node, const char *key)
{
    return is_made(node) ? json_get(node, key) : NULL;
}

/* ---------------------------------------------------------------- the kinds */

cJSON *made_of(struct schema *s, const char *key, cJSON *a, cJSON *b)
{
    cJSON *list = made_list(s), *made = made_new(s);
    made_add(s, list, a);
    if (b)
        made_add(s, list, b);
    made_put(s, made, key, list);
    return made;
}

static cJSON *both(struct schema *s, cJSON *a, cJSON *b) { return made_of(s, "allOf", a, b); }
static cJSON *either(struct schema *s, cJSON *a, cJSON *b) { return made_of(s, "anyOf", a, b); }

static cJSON *make_if(struct schema *s, const cJSON *of)
{
    const cJSON *cond = cJSON_GetObjectItemCaseSensitive(of, "if");
    const cJSON *then = cJSON_GetObjectItemCaseSensitive(of, "then");
    const cJSON *other = cJSON_GetObjectItemCaseSensitive(of, "else");
    return either(s, both(s, made_ref(s, cond), then ? made_ref(s, then) : NULL),
                  both(s, made_not(s, cond), other ? made_ref(s, other) : NULL));
}

static cJSON *make_nullable(struct schema *s, const cJSON *of)
{
    cJSON *null = made_new(s), *rest = or_fail(s, cJSON_CreateObject());
    const cJSON *kid;
    made_put(s, null, "type", cJSON_CreateString("null"));
    cJSON_ArrayForEach(kid, of) if (strcmp(kid->string, "nullable") != 0)
        made_put(s, rest, kid->string, made_ref(s, kid));
    return either(s, null, rest);
}

/* `name` is missing, or `then` holds. */
static cJSON *unless_missing(struct schema *s, const char *name, cJSON *then)
{
    cJSON *missing = made_new(s), *names = made_new(s), *has = made_new(s), *required;
    made_put(s, names, name, cJSON_CreateFalse());
    made_put(s, missing, "properties", names);
    required = made_list(s);
    made_add(s, required, cJSON_CreateString(name));
    made_put(s, has, "required", required);
    return either(s, missing, both(s, has, then));
}

static cJSON *make_depend(struct schema *s, const cJSON *of)
{
    static const char *const keys[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    cJSON *all = made_list(s), *made = made_new(s);
    for (int k = 0; k < 3; k++) {
        const cJSON *list = json_get(of, keys[k]), *kid;
        if (list && !cJSON_IsObject(list))
            schema_fail(s, list, "`%s` is not an object", keys[k]);
        cJSON_ArrayForEach(kid, list)
        {
            cJSON *then = cJSON_IsArray(kid) ? made_new(s) : made_ref(s, kid);
            if (cJSON_IsArray(kid))
                made_put(s, then, "required", made_ref(s, kid));
            made_add(s, all, unless_missing(s, kid->string, then));
        }
    }
    made_put(s, made, "allOf", all);
    return made;
}

/* ---------------------------------------------------------------- cache */

static bool room(struct schema *s)
{
    if (s->n_made < s->cap_made)
        return true;
    size_t cap = s->cap_made ? s->cap_made * 2 : 32;
    struct made *more = s->n_made < MAX_MADE ? realloc(s->made, cap * sizeof(*more)) : NULL;
    if (!more && s->n_made < MAX_MADE)
        return schema_nomem(s), false;
    if (!more)
        return schema_fail(s, NULL, "too complex"), false;
    s->made = more;
    s->cap_made = cap;
    return true;
}

const cJSON *schema_made(struct schema *s, enum made_kind kind, const cJSON *of)
{
    of = made_origin(of);
    term_work(s->p, 8 + s->n_made / 8);
    for (size_t i = 0; i < s->n_made; i++)
        if (s->made[i].kind == kind && s->made[i].of == of)
            return s->made[i].schema;
    if (s->failed || !room(s))
        return NULL;
    cJSON *schema = NULL;
    switch (kind) {
    case MADE_STRING:
    case MADE_OBJECT:
        schema = made_new(s);
        made_put(s, schema, "type", cJSON_CreateString(kind == MADE_STRING ? "string" : "object"));
        break;
    case MADE_NOT:
        schema = schema_negation(s, of);
        break;
    case MADE_IF:
        schema = make_if(s, of);
        break;
    case MADE_DEPEND:
        schema = make_depend(s, of);
        break;
    case MADE_NULLABLE:
        schema = make_nullable(s, of);
        break;
    case MADE_REF:
        schema = made_new(s);
        made_put(s, schema, "$ref", made_ref(s, json_get(of, "$ref")));
        break;
    }
    if (s->failed) {
        cJSON_Delete(schema);
        return NULL;
    }
    s->made[s->n_made++] = (struct made){kind, of, schema};
    return schema;
}

/* Does anything besides annotations stand beside a `$ref`? */
static bool has_siblings(const cJSON *node)
{
    static const char *const without_effect[] = {"$ref",     "description", "title",   "$comment",
                                                 "examples", "default",     "$schema", NULL};
    const cJSON *kid;
    cJSON_ArrayForEach(kid, node)
    {
        int i = 0;
        while (without_effect[i] && strcmp(without_effect[i], kid->string) != 0)
            i++;
        if (!without_effect[i])
            return true;
    }
    return false;
}

const cJSON *schema_heeded(struct schema *s, const cJSON *node)
{
    if (s->draft <= 7 && !is_made(node) && cJSON_IsString(json_get(node, "$ref")) &&
        has_siblings(node))
        return schema_made(s, MADE_REF, node);
    return cJSON_IsTrue(json_get(node, "nullable")) ? schema_made(s, MADE_NULLABLE, node) : node;
}

void schema_made_free(struct schema *s)
{
    for (size_t i = 0; i < s->n_made; i++)
        cJSON_Delete(s->made[i].schema);
    free(s->made);
}
