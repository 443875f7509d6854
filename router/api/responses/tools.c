/* tools.c - the tools of a Responses request.
 *
 * Functions and `custom` tools are passed on. A `namespace` groups functions:
 * the model sees each as NAMESPACE__NAME. Tools of other types run on OpenAI's servers, or its
 * models know them without a schema: they are omitted. */
#include "common/json/json.h"
#include "router/api/responses/responses.h"
#include "router/chat/convert.h"
#include <string.h>

static bool has_type(const cJSON *tool, const char *type)
{
    return !strcmp(json_str(tool, "type", ""), type);
}

bool responses_tool_taken(const cJSON *tool)
{
    return has_type(tool, "function") || has_type(tool, "custom");
}

void responses_tool_name(const char *space, const char *name, struct buf *out)
{
    buf_reserve(out, 0);
    if (space)
        buf_fmt(out, "%s__", space);
    buf_str(out, name);
}

/* Is `called` the function `name` in `space`? */
static bool is_called(const char *called, const char *space, const char *name)
{
    const size_t n = strlen(space);
    return !strncmp(called, space, n) && !strncmp(called + n, "__", 2) &&
           !strcmp(called + n + 2, name);
}

const char *responses_namespace(const struct responses *p, const char *called, const char **name)
{
    for (const cJSON *k = json_first(p->tools); k; k = k->next)
        for (const cJSON *f = has_type(k, "namespace") ? json_first(json_get(k, "tools")) : NULL; f;
             f = f->next)
            if (is_called(called, json_str(k, "name", ""), *name = json_str(f, "name", "")))
                return json_str(k, "name", "");
    *name = called;
    return NULL;
}

static const cJSON *find(const cJSON *tools, const char *type, const char *name)
{
    for (const cJSON *k = json_first(tools); k; k = k->next)
        if (has_type(k, type) && !strcmp(json_str(k, "name", ""), name))
            return k;
    return NULL;
}

bool responses_is_custom(const struct responses *p, const char *name)
{
    return find(p->tools, "custom", name) != NULL;
}

/* A custom tool as the chat API nests it: router/chat/custom.h does the rest. */
static cJSON *custom(const cJSON *given)
{
    cJSON *tool = cJSON_CreateObject();
    cJSON_AddStringToObject(tool, "type", "custom");
    cJSON_AddItemToObject(tool, "custom", cJSON_Duplicate(given, true));
    return tool;
}

/* `tool_choice` of type `allowed_tools`: does it list the tool or its namespace? */
static bool allowed(struct object root, const char *space, const cJSON *tool)
{
    const cJSON *choice = json_get(root.json, "tool_choice"), *tools = json_get(choice, "tools");
    const char *type = json_str(tool, "type", ""), *name = json_str(tool, "name", "");
    if (!has_type(choice, "allowed_tools") || (space && find(tools, "namespace", space)))
        return true;
    for (const cJSON *k = json_first(tools); k; k = k->next)
        if (has_type(k, type) && !strcmp(json_str(k, "name", ""), name) &&
            !strcmp(json_str(k, "namespace", ""), space ? space : ""))
            return true;
    return false;
}

static void add_name(cJSON *f, const char *space, const char *name)
{
    struct buf full = BUF_INIT;
    responses_tool_name(space, name, &full);
    if (!full.oom)
        cJSON_AddStringToObject(f, "name", full.p);
    buf_free(&full);
}

/* A function or custom tool, in a namespace unless `space` is NULL. */
static cJSON *member_tool(struct body *b, struct object root, const char *space, const cJSON *given)
{
    const char *name = json_str(given, "name", NULL);
    const cJSON *schema = json_get(given, "parameters");
    if (!json_str(given, "type", NULL))
        body_fail(b, root, "tools", "missing field `type`");
    else if (!responses_tool_taken(given))
        body_warn(b, "tools: %.60s is not supported and left out", json_str(given, "type", ""));
    else if (!name)
        body_fail(b, root, "tools", "missing field `name`");
    if (!name || !responses_tool_taken(given) || !allowed(root, space, given))
        return NULL;
    if (has_type(given, "custom"))
        return custom(given);
    cJSON *tool = cJSON_CreateObject(), *f = cJSON_AddObjectToObject(tool, "function");
    cJSON_AddStringToObject(tool, "type", "function");
    add_name(f, space, name);
    if (json_str(given, "description", NULL))
        cJSON_AddStringToObject(f, "description", json_str(given, "description", ""));
    if (cJSON_IsTrue(json_get(given, "strict")))
        cJSON_AddTrueToObject(f, "strict");
    if (schema)
        cJSON_AddItemToObject(f, "parameters", cJSON_Duplicate(schema, true));
    return tool;
}

static cJSON *one_tool(struct body *b, struct object root, const cJSON *given)
{
    const char *space = json_str(given, "name", NULL);
    if (!has_type(given, "namespace"))
        return member_tool(b, root, NULL, given);
    if (!space)
        body_fail(b, root, "tools", "missing field `name`");
    cJSON *members = cJSON_CreateArray();
    for (const cJSON *k = json_first(json_get(given, "tools")); k && !b->failed; k = k->next)
        if (has_type(k, "function"))
            cJSON_AddItemToArray(members, member_tool(b, root, space, k));
        else
            body_warn(b, "tools: %.60s in the namespace %.60s is not supported and left out",
                      json_str(k, "type", "(none)"), space);
    return members;
}

/* ---------------------------------------------------------------- the choice */

static bool is_word(const char *word, bool none)
{
    return word &&
           (!strcmp(word, "auto") || !strcmp(word, "required") || (none && !strcmp(word, "none")));
}

static void named_choice(cJSON *chat, const char *space, const char *name)
{
    struct buf full = BUF_INIT;
    responses_tool_name(space, name, &full);
    if (!full.oom)
        convert_named_choice(chat, full.p);
    buf_free(&full);
}

static void tool_choice(struct body *b, struct object root, cJSON *chat)
{
    const cJSON *choice = body_get(b, root, "tool_choice", false);
    const char *name = json_str(choice, "name", NULL), *type = json_str(choice, "type", NULL);
    const char *word = cJSON_IsString(choice) ? choice->valuestring : NULL;
    if (is_word(word, true))
        cJSON_AddStringToObject(chat, "tool_choice", word);
    else if (type && !strcmp(type, "allowed_tools") && is_word(json_str(choice, "mode", ""), false))
        cJSON_AddStringToObject(chat, "tool_choice", json_str(choice, "mode", ""));
    else if (type && name && responses_tool_taken(choice))
        named_choice(chat, json_str(choice, "namespace", NULL), name);
    else if (type && strcmp(type, "allowed_tools") != 0 && !responses_tool_taken(choice))
        body_warn(b, "tool_choice: %.60s is left out", type);
    else if (choice)
        body_fail(b, root, "tool_choice",
                  "one of `auto`, `none`, `required`, a `function` or `custom` tool with a `name`, "
                  "or `allowed_tools` with a `mode` of `auto` or `required` and `tools`");
}

/* Checks the choice of a body without tools. */
static void choose_nothing(struct body *b, struct object root)
{
    cJSON *none = cJSON_CreateObject();
    tool_choice(b, root, none);
    const cJSON *choice = json_get(none, "tool_choice");
    const char *word = cJSON_IsString(choice) ? choice->valuestring : "";
    if (choice && strcmp(word, "auto") != 0 && strcmp(word, "none") != 0)
        body_fail(b, root, "tool_choice", "`tool_choice` needs `tools`");
    cJSON_Delete(none);
}

/* Items `additional_tools` add to the tools of the body. */
static void add_tools(struct body *b, const cJSON *items)
{
    for (const cJSON *k = json_first(items), *t; k; k = k->next) {
        if (!has_type(k, "additional_tools"))
            continue;
        if (!json_get(b->root, "tools"))
            json_put(b->root, "tools", cJSON_CreateArray());
        cJSON *list = cJSON_GetObjectItemCaseSensitive(b->root, "tools");
        for (t = json_first(json_get(k, "tools")); t && cJSON_IsArray(list); t = t->next)
            cJSON_AddItemToArray(list, cJSON_Duplicate(t, true));
    }
}

void responses_tools(struct body *b, struct object root, cJSON *chat, struct responses *p)
{
    for (uint32_t i = 0; i < p->n_history; i++)
        add_tools(b, p->history[i]);
    add_tools(b, json_get(root.json, "input"));
    p->tools = json_get(root.json, "tools");
    const bool any = convert_tools(b, root, chat, one_tool);
    if (!json_first(p->tools)) {
        choose_nothing(b, root);
        return;
    }
    tool_choice(b, root, chat);
    if (!any) { /* all were omitted: nothing to choose from */
        cJSON_DeleteItemFromObjectCaseSensitive(chat, "tool_choice");
        return;
    }
    if (json_get(root.json, "parallel_tool_calls"))
        cJSON_AddBoolToObject(chat, "parallel_tool_calls",
                              body_opt_bool(b, root, "parallel_tool_calls", true));
}
