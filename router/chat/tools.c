#include "router/chat/tools.h"
#include "common/constraint/constraint.h"
#include "common/json/exact.h"
#include "router/generate/constrain.h"
#include <string.h>

enum { MAX_FORCED_CALLS = 16, MAX_ALLOWED_TOOLS = 128 };

static const char default_prompt[] =
    "\nGiven the functions available, please respond with a JSON for a function call with its "
    "proper arguments that best answers the given prompt. Respond in the format {name: function "
    "name, parameters: dictionary of argument name and its value}.Do not use variables.\n";

static const cJSON *function_of(const cJSON *tool)
{
    const cJSON *f = json_get(tool, "function");
    return f ? f : custom_members(tool);
}

static const char *name_of(const cJSON *tool) { return json_str(function_of(tool), "name", NULL); }

/* ---------------------------------------------------------------- reading */

static void check_tool(struct body *b, struct object root, const cJSON *tool, int i)
{
    const char *name = name_of(tool), *type = json_str(tool, "type", "function");
    const char *wrong = custom_is(tool) ? custom_check(tool) : NULL;
    if (!name && strcmp(type, "function") != 0 && !custom_is(tool))
        body_fail(b, root, "tools",
                  "tools[%d]: type `%.40s` is not supported: only `function` and `custom`", i,
                  type);
    else if (!name)
        body_fail(b, root, "tools", "tools[%d]: missing field `%s`", i,
                  custom_is(tool) || cJSON_IsObject(json_get(tool, "function")) ? "name"
                                                                                : "function");
    else if (wrong)
        body_fail(b, root, "tools", "tools[%d]: %s", i, wrong);
    const cJSON *parameters = json_get(function_of(tool), "parameters");
    if (parameters && !cJSON_IsObject(parameters))
        body_mistyped(b, root, "tools", parameters, "a JSON schema as `parameters`");
}

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
    const size_t most = (size_t)cJSON_GetArraySize(list) + 1;
    t->names = ARENA_NEW(b->arena, const char *, most);
    t->custom.names = ARENA_NEW(b->arena, const char *, most);
    if (!t->names || !t->custom.names) {
        body_nomem(b, root, "tools");
        return;
    }
    cJSON_ArrayForEach(tool, list)
    {
        const char *name = name_of(tool);
        check_tool(b, root, tool, i);
        t->names[i++] = name ? name : "";
        if (custom_is(tool) && name)
            t->custom.names[t->custom.n++] = name;
    }
    t->n = (uint32_t)i;
    t->list = i ? list : NULL;
}

static void free_tree(void *tree) { cJSON_Delete(tree); }

static int find_tool(const struct tools *t, const char *name, uint32_t *at, struct err *e)
{
    for (*at = 0; *at < t->n; ++*at)
        if (!strcmp(t->names[*at], name))
            return 0;
    err_set(e, ERR_TOOL, "Tool error: Tool with name %.100s not found", name);
    err_param(e, "tool_choice");
    return -1;
}

/* Starts the list of those that are kept, which the arena owns. NULL: out of memory. */
static cJSON *new_list(struct body *b)
{
    cJSON *list = cJSON_CreateArray();
    if (!list || arena_defer(b->arena, free_tree, list) == 0)
        return list;
    cJSON_Delete(list);
    return NULL;
}

/* Keeps only the functions in `names`, a list of "name" or {"function": {"name"}}; each once. */
static int keep(struct body *b, struct tools *t, const cJSON *names, struct err *e)
{
    cJSON *kept = new_list(b);
    const char **kept_names = ARENA_NEW(b->arena, const char *, t->n + (size_t)1);
    uint32_t n = 0, at;
    bool ok = kept && kept_names;
    for (const cJSON *k = names->child; ok && k; k = k->next) {
        const char *name = cJSON_IsString(k) ? k->valuestring : name_of(k);
        if (find_tool(t, name ? name : "", &at, e) != 0)
            return -1;
        for (uint32_t i = 0; i < n; i++)
            if (kept_names[i] == t->names[at])
                name = NULL;
        if (!name)
            continue;
        kept_names[n++] = t->names[at];
        ok =
            cJSON_AddItemToArray(kept, cJSON_Duplicate(cJSON_GetArrayItem(t->list, (int)at), true));
    }
    if (!ok)
        return err_nomem(e);
    t->list = n ? kept : NULL;
    t->names = kept_names;
    t->n = n;
    return 0;
}

/* Only this function, which must be called. */
static int force(struct body *b, struct tools *t, const char *name, struct err *e)
{
    cJSON *names = new_list(b);
    if (!names || !cJSON_AddItemToArray(names, cJSON_CreateString(name)))
        return err_nomem(e);
    t->forced = true;
    t->several = false;
    return keep(b, t, names, e);
}

/* OpenAI's {"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools"}}. */
static int allow(struct body *b, struct object root, const cJSON *choice, struct tools *t,
                 struct err *e)
{
    const cJSON *allowed = json_get(choice, "allowed_tools"), *list = json_get(allowed, "tools");
    const char *mode = json_str(allowed, "mode", "");
    const bool required = !strcmp(mode, "required");
    if (!cJSON_IsArray(list) || !list->child || (!required && strcmp(mode, "auto") != 0))
        body_fail(b, root, "tool_choice",
                  "allowed tools have a `mode`, `auto` or `required`, and a list of `tools`");
    if (cJSON_GetArraySize(list) > MAX_ALLOWED_TOOLS)
        body_fail(b, root, "tool_choice", "at most %d allowed tools", MAX_ALLOWED_TOOLS);
    if (b->failed)
        return -1;
    t->forced = required;
    return keep(b, t, list, e);
}

/* A copy of the grammar of a custom tool, if it compiles; *ok is cleared without memory for it. The
 * model reads the others in the tool's description, and the client a warning. */
static const cJSON *enforceable(struct body *b, const cJSON *tool, bool *ok)
{
    struct err why = ERR_INIT;
    const cJSON *g = custom_is(tool) ? custom_grammar(tool) : NULL;
    const char *definition = json_str(g, "definition", "");
    if (!g)
        return NULL;
    struct constraint *c = constraint_new(constrain_syntax_kind(json_str(g, "syntax", "")),
                                          definition, strlen(definition), &why);
    constraint_unref(c);
    if (!c) {
        body_warn(b, "tools: the grammar of %.60s is not enforced: %.150s", name_of(tool), why.msg);
        return NULL;
    }
    cJSON *keeper = new_list(b), *copy = keeper ? cJSON_Duplicate(g, true) : NULL;
    *ok &= copy && cJSON_AddItemToArray(keeper, copy);
    return copy;
}

/* Replaces the custom tools of the list by functions. */
static int show_as_functions(struct body *b, struct tools *t, struct err *e)
{
    cJSON *list = new_list(b);
    const cJSON *tool;
    size_t i = 0;
    t->grammars = ARENA_NEW(b->arena, const cJSON *, t->n + (size_t)1);
    bool ok = list && t->grammars;
    cJSON_ArrayForEach(tool, t->list)
    {
        ok = ok && cJSON_AddItemToArray(list, custom_is(tool) ? custom_as_function(tool)
                                                              : cJSON_Duplicate(tool, true));
        if (ok)
            t->grammars[i++] = enforceable(b, tool, &ok);
    }
    if (!ok)
        return err_nomem(e);
    t->list = list;
    return 0;
}

/* What the choice means for custom tools: the only one that may be called is answered with its
 * input alone. */
static int settle_custom(struct body *b, struct tools *t, struct err *e)
{
    if (!t->custom.n || !t->list)
        return 0;
    if (t->forced && t->n == 1 && custom_grammar(t->list->child)) {
        t->answer = t->list->child;
        t->custom.forced = name_of(t->answer);
        t->list = NULL;
        return 0;
    }
    return show_as_functions(b, t, e);
}

static bool declared(const struct tools *t, const char *name)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (!strcmp(t->names[i], name))
            return true;
    return false;
}

/* `any` is Mistral's and Anthropic's word for `required`. */
static bool is_required(const struct tools *t, const char *word)
{
    return !strcmp(word, "required") || (!strcmp(word, "any") && t->n && !declared(t, word));
}

/* May the model answer without a call? */
static bool is_free(const cJSON *choice, const char *word)
{
    return !strcmp(word, "auto") ? !cJSON_IsObject(choice)
                                 : !strcmp(word, "none") && cJSON_IsString(choice);
}

static int choose(struct body *b, struct object root, struct tools *t, struct err *e)
{
    const cJSON *choice = body_get(b, root, "tool_choice", false);
    const bool subset = !strcmp(json_str(choice, "type", ""), "allowed_tools");
    const char *word = cJSON_IsString(choice) ? choice->valuestring
                       : choice && !subset    ? name_of(choice)
                                              : "auto";
    read_list(b, root, t);
    if (!word && !subset)
        body_mistyped(b, root, "tool_choice", choice, "a string or a function with a name");
    t->prompt = body_str(b, root, "tool_prompt", false);
    t->several = body_opt_bool(b, root, "parallel_tool_calls", false);
    t->single = !body_opt_bool(b, root, "parallel_tool_calls", true);
    if (!t->list && (subset || !word || !is_free(choice, word)))
        body_fail(b, root, "tool_choice", "`tool_choice` needs `tools`");
    if (b->failed)
        return -1;
    if (subset || !word)
        return allow(b, root, choice, t, e);
    if (!strcmp(word, "none") && cJSON_IsString(choice))
        t->list = NULL;
    else if (cJSON_IsString(choice) && is_required(t, word))
        t->forced = true;
    else if (strcmp(word, "auto") != 0 || cJSON_IsObject(choice))
        return force(b, t, word, e);
    return 0;
}

int tools_read(struct body *b, struct object root, struct tools *t, struct err *e)
{
    return choose(b, root, t, e) != 0 ? -1 : settle_custom(b, t, e);
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

/* The input of a custom tool is a text of its grammar. */
static void add_grammar(cJSON *arguments, const cJSON *grammar)
{
    cJSON *input = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(arguments, "properties"), "input");
    cJSON *copy = cJSON_Duplicate(grammar, true);
    if (!cJSON_AddItemToObject(input, "x-grammar", copy))
        cJSON_Delete(copy);
}

/* `several`: a list of calls. `loose`: tools that are not strict accept any arguments. */
static cJSON *schema_of(const struct tools *t, const char *arguments, bool several, bool loose)
{
    cJSON *schema = cJSON_CreateObject(), *defs = cJSON_AddObjectToObject(schema, "$defs");
    cJSON *to = schema;
    const cJSON *tool, *const *grammar = t->grammars;
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
        const cJSON *g = grammar ? *grammar++ : NULL;
        pointer(&base, name_of(tool));
        if (!base.oom) {
            cJSON *taken =
                loose && !g && !tools_strict(tool) ? any_arguments() : parameters(tool, base.p);
            if (g)
                add_grammar(taken, g);
            cJSON_AddItemToObject(defs, name_of(tool), taken);
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

static bool any_grammar(const struct tools *t)
{
    bool any = false;
    for (uint32_t i = 0; t->grammars && i < t->n; i++)
        any |= t->grammars[i] != NULL;
    return any;
}

bool tools_any_bound(const struct tools *t)
{
    const cJSON *tool;
    bool any = any_grammar(t);
    cJSON_ArrayForEach(tool, t->list) { any |= tools_strict(tool); }
    return any;
}

void tools_warn_unbound(struct body *b, const struct tools *t)
{
    for (uint32_t i = 0; t->grammars && i < t->n; i++)
        if (t->grammars[i])
            body_warn(b,
                      "tools: the grammar of %.60s is told to the model, and with calls of this "
                      "model enforced only where tool_choice names the tool",
                      t->names[i]);
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
