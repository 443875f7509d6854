#include "router/chat/tools.h"
#include "common/json_exact.h"
#include <string.h>

enum { MAX_FORCED_CALLS = 16 };

static const char default_prompt[] =
    "\nGiven the functions available, please respond with a JSON for a function call with its "
    "proper arguments that best answers the given prompt. Respond in the format {name: function "
    "name, parameters: dictionary of argument name and its value}.Do not use variables.\n";

static const cJSON *function_of(const cJSON *tool)
{
    const cJSON *f = json_get(tool, "function");
    return f ? f : tool;
}

static const char *name_of(const cJSON *tool) { return json_str(function_of(tool), "name", NULL); }

/* ---------------------------------------------------------------- reading */

static void read_list(struct body *b, struct object root, struct tools *t)
{
    const cJSON *list = body_get(b, root, "tools", false), *tool;
    int i = 0;
    if (!list)
        return;
    if (!cJSON_IsArray(list)) {
        body_mistyped(b, root, "tools", list, "a sequence");
        return;
    }
    t->names = ARENA_NEW(b->arena, const char *, (size_t)cJSON_GetArraySize(list) + 1);
    if (!t->names) {
        body_fail(b, root, "tools", "out of memory");
        return;
    }
    cJSON_ArrayForEach(tool, list)
    {
        const char *name = name_of(tool);
        if (!name)
            body_fail(b, root, "tools", "tools[%d]: missing field `%s`", i,
                      cJSON_IsObject(json_get(tool, "function")) ? "name" : "function");
        const cJSON *parameters = json_get(function_of(tool), "parameters");
        if (parameters && !cJSON_IsObject(parameters))
            body_mistyped(b, root, "tools", parameters, "a JSON schema as `parameters`");
        t->names[i++] = name ? name : "";
    }
    t->n = (uint32_t)i;
    t->list = i ? list : NULL;
}

static void free_tree(void *tree) { cJSON_Delete(tree); }

/* Keeps only the function `name`. */
static int choose(struct body *b, struct tools *t, const char *name, struct err *e)
{
    uint32_t i = 0;
    while (i < t->n && strcmp(t->names[i], name) != 0)
        i++;
    if (i == t->n)
        return err_set(e, ERR_TOOL, "Tool error: Tool with name %.100s not found", name);
    cJSON *one = cJSON_CreateArray();
    cJSON *copy = one ? cJSON_Duplicate(cJSON_GetArrayItem(t->list, (int)i), true) : NULL;
    if (!copy || arena_defer(b->arena, free_tree, one) != 0) {
        cJSON_Delete(copy);
        cJSON_Delete(one);
        return err_nomem(e);
    }
    cJSON_AddItemToArray(one, copy);
    t->list = one;
    t->names[0] = t->names[i];
    t->n = 1;
    t->forced = true;
    t->several = false;
    return 0;
}

int tools_read(struct body *b, struct object root, struct tools *t, struct err *e)
{
    const cJSON *choice = body_get(b, root, "tool_choice", false);
    const char *word = cJSON_IsString(choice) ? choice->valuestring
                       : choice               ? json_str(json_get(choice, "function"), "name", NULL)
                                              : "auto";
    read_list(b, root, t);
    if (!word)
        body_mistyped(b, root, "tool_choice", choice, "a string or a function with a name");
    t->prompt = body_str(b, root, "tool_prompt", false);
    t->several = body_opt_bool(b, root, "parallel_tool_calls", false);
    t->single = !body_opt_bool(b, root, "parallel_tool_calls", true);
    if (b->failed || !word)
        return -1;
    if (!strcmp(word, "none") && cJSON_IsString(choice))
        t->list = NULL;
    else if (!strcmp(word, "required") && cJSON_IsString(choice))
        t->forced = t->list != NULL;
    else if (strcmp(word, "auto") != 0 || cJSON_IsObject(choice))
        return choose(b, t, word, e);
    return 0;
}

/* ---------------------------------------------------------------- forced calls */

static void pointer(struct buf *out, const char *name)
{
    buf_str(out, "#/$defs/");
    for (const char *s = name; *s; s++)
        if (*s == '~' || *s == '/' || *s == '%')
            buf_str(out, *s == '~' ? "~0" : *s == '/' ? "~1" : "%25");
        else
            buf_ch(out, *s);
}

/* Rewrites references inside a function's parameters, which are nested in the combined schema.
 * `names`: the members of `at` are property names, not keywords. */
static bool move_references(cJSON *at, const char *base, bool names)
{
    static const char *const data[] = {"enum", "const", "default", "examples"};
    static const char *const named[] = {"properties", "patternProperties", "$defs", "definitions"};
    for (cJSON *kid = at->child, *next; kid; kid = next) {
        bool is_data = false, is_named = false;
        const char *key = !names && kid->string ? kid->string : "";
        next = kid->next;
        for (int i = 0; i < 4; i++) {
            is_data |= !strcmp(key, data[i]);
            is_named |= !strcmp(key, named[i]);
        }
        if (!strcmp(key, "$ref") && cJSON_IsString(kid) && kid->valuestring[0] == '#' &&
            (!kid->valuestring[1] || kid->valuestring[1] == '/')) {
            struct buf b = BUF_INIT;
            buf_fmt(&b, "%s%s", base, kid->valuestring + 1);
            bool ok = !b.oom && cJSON_SetValuestring(kid, b.p);
            buf_free(&b);
            if (!ok)
                return false;
        } else if (!is_data && !move_references(kid, base, is_named)) {
            return false;
        }
    }
    return true;
}

static cJSON *parameters(const cJSON *tool, const char *base)
{
    const cJSON *f = function_of(tool), *given = json_get(f, "parameters");
    given = given ? given : json_get(f, "arguments");
    if (given && !cJSON_IsObject(given)) /* `false`, or not a schema: the compiler reports it */
        return cJSON_Duplicate(given, true);
    cJSON *p = given ? cJSON_Duplicate(given, true) : cJSON_CreateObject();
    if (!p || !move_references(p, base, false))
        return p;
    if (!given)
        cJSON_AddFalseToObject(p, "additionalProperties");
    if (!json_get(p, "type"))
        cJSON_AddStringToObject(p, "type", "object");
    return p;
}

/* {"name": const, ARGUMENTS: {"$ref": base}} */
static cJSON *one_call(const char *name, const char *base, const char *arguments)
{
    cJSON *call = cJSON_CreateObject(), *properties = cJSON_AddObjectToObject(call, "properties");
    cJSON *required = cJSON_AddArrayToObject(call, "required");
    cJSON_AddStringToObject(call, "type", "object");
    cJSON_AddFalseToObject(call, "additionalProperties");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(properties, "name"), "const", name);
    cJSON_AddStringToObject(cJSON_AddObjectToObject(properties, arguments), "$ref", base);
    cJSON_AddItemToArray(required, cJSON_CreateString("name"));
    cJSON_AddItemToArray(required, cJSON_CreateString(arguments));
    return call;
}

bool tools_strict(const cJSON *tool) { return cJSON_IsTrue(json_get(function_of(tool), "strict")); }

static cJSON *any_arguments(void)
{
    cJSON *p = cJSON_CreateObject();
    cJSON_AddStringToObject(p, "type", "object");
    cJSON_AddTrueToObject(p, "additionalProperties");
    return p;
}

/* `several`: a list of calls. `loose`: tools that are not strict accept any arguments. */
static cJSON *schema_of(const struct tools *t, const char *arguments, bool several, bool loose)
{
    cJSON *schema = cJSON_CreateObject(), *defs = cJSON_AddObjectToObject(schema, "$defs");
    cJSON *to = schema;
    const cJSON *tool;
    if (several) {
        cJSON_AddStringToObject(schema, "type", "array");
        cJSON_AddNumberToObject(schema, "minItems", 1);
        cJSON_AddNumberToObject(schema, "maxItems", MAX_FORCED_CALLS);
        to = cJSON_AddObjectToObject(schema, "items");
    }
    cJSON_AddTrueToObject(schema, "x-closed"); /* only declared arguments are allowed */
    cJSON *any = cJSON_AddArrayToObject(to, "anyOf");
    cJSON_ArrayForEach(tool, t->list)
    {
        struct buf base = BUF_INIT;
        pointer(&base, name_of(tool));
        if (!base.oom) {
            cJSON_AddItemToObject(defs, name_of(tool),
                                  loose && !tools_strict(tool) ? any_arguments()
                                                               : parameters(tool, base.p));
            cJSON_AddItemToArray(any, one_call(name_of(tool), base.p, arguments));
        }
        buf_free(&base);
    }
    return schema;
}

cJSON *tools_schema(const struct tools *t, const char *arguments)
{
    return schema_of(t, arguments, t->several, false);
}

bool tools_any_strict(const struct tools *t)
{
    const cJSON *tool;
    bool any = false;
    cJSON_ArrayForEach(tool, t->list) { any |= tools_strict(tool); }
    return any;
}

cJSON *tools_schema_of_call(const struct tools *t, const char *arguments)
{
    return schema_of(t, arguments, false, true);
}

/* ---------------------------------------------------------------- types */

static unsigned type_bit(const cJSON *word)
{
    if (!cJSON_IsString(word))
        return 0;
    return !strcmp(word->valuestring, "string") ? REPLY_STRING
           : !strcmp(word->valuestring, "null") ? REPLY_NULL
                                                : REPLY_OTHER;
}

static unsigned value_bit(const cJSON *v)
{
    return cJSON_IsString(v) ? REPLY_STRING : cJSON_IsNull(v) ? REPLY_NULL : REPLY_OTHER;
}

static unsigned types_of(const cJSON *schema, int depth)
{
    const cJSON *type = json_get(schema, "type"), *any = json_get(schema, "anyOf");
    const cJSON *values = json_get(schema, "enum"), *v;
    unsigned types = type_bit(type);
    any = any ? any : json_get(schema, "oneOf");
    for (v = cJSON_IsArray(type) ? type->child : NULL; v; v = v->next)
        types |= type_bit(v);
    for (v = cJSON_IsArray(values) && !type ? values->child : NULL; v; v = v->next)
        types |= value_bit(v);
    if (!type && json_get(schema, "const"))
        types |= value_bit(json_get(schema, "const"));
    for (v = cJSON_IsArray(any) && depth < 4 ? any->child : NULL; v; v = v->next)
        types |= types_of(v, depth + 1);
    return types;
}

unsigned tools_types(const void *list, const char *function, const char *parameter)
{
    const cJSON *tool;
    cJSON_ArrayForEach(tool, (const cJSON *)list)
    {
        const cJSON *f = function_of(tool), *given = json_get(f, "parameters");
        if (!strcmp(json_str(f, "name", ""), function))
            return types_of(json_get(json_get(given, "properties"), parameter), 0);
    }
    return 0;
}

/* ---------------------------------------------------------------- as text */

void tools_text(const struct tools *t, bool template_shows_them, struct buf *out)
{
    bool own = t->prompt && *t->prompt;
    if (template_shows_them && !own)
        return;
    buf_str(out, "\n---\n");
    if (!template_shows_them) {
        json_print_exact(out, t->list);
        buf_ch(out, '\n');
    }
    buf_str(out, own ? t->prompt : default_prompt);
}
