/* From the items of a Responses request to the messages that chat templates know. */
#include "router/chat/convert.h"
#include "common/json.h"
#include "router/responses/responses.h"
#include <stdlib.h>
#include <string.h>

struct talk { /* a conversation on its way */
    struct body *b;
    struct object root;
    cJSON *list;
    cJSON *assistant; /* the message that the next call or text of the assistant belongs to */
};

static cJSON *add_message(struct talk *t, const char *role, const char *text)
{
    cJSON *m = cJSON_CreateObject();
    cJSON_AddStringToObject(m, "role", role);
    cJSON_AddStringToObject(m, "content", text);
    cJSON_AddItemToArray(t->list, m);
    t->assistant = NULL;
    return m;
}

/* Put `text` behind what the member has; joined by `between`. */
static void append(cJSON *m, const char *key, const char *between, const char *text)
{
    struct buf b = BUF_INIT;
    const char *old = json_str(m, key, "");
    buf_str(&b, old);
    buf_str(&b, *old ? between : "");
    buf_str(&b, text);
    cJSON_DeleteItemFromObjectCaseSensitive(m, key);
    if (!b.oom)
        cJSON_AddStringToObject(m, key, b.p);
    buf_free(&b);
}

/* Parts of text joined, or a plain string. Anything else fails the body. */
static char *text_of(struct talk *t, const cJSON *content)
{
    static const char *const types[] = {"input_text", "output_text", "text", "reasoning_text",
                                        "summary_text"};
    struct buf text = BUF_INIT;
    buf_reserve(&text, 0);
    if (cJSON_IsString(content))
        buf_str(&text, content->valuestring);
    else if (content && !cJSON_IsArray(content))
        body_mistyped(t->b, t->root, "input", content, "a string or a list of content parts");
    for (const cJSON *k = json_first(content); k; k = k->next) {
        const char *type = json_str(k, "type", "(none)");
        bool known = false, refusal = !strcmp(type, "refusal");
        for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
            known |= !strcmp(type, types[i]);
        if (!known && !refusal)
            body_fail(t->b, t->root, "input", "content of type `%.40s` is not supported", type);
        buf_str(&text, json_str(k, refusal ? "refusal" : "text", ""));
    }
    if (text.oom)
        body_fail(t->b, t->root, "input", "out of memory");
    return buf_take(&text);
}

/* ---------------------------------------------------------------- items */

/* The assistant's message under way, or a new one. */
static cJSON *assistant(struct talk *t)
{
    if (!t->assistant)
        t->assistant = add_message(t, "assistant", "");
    return t->assistant;
}

static void message(struct talk *t, const cJSON *item)
{
    const char *role = json_str(item, "role", "");
    char *text = text_of(t, json_get(item, "content"));
    const cJSON *last = t->list->child ? t->list->child->prev : NULL;
    bool system = !strcmp(role, "system") || !strcmp(role, "developer");
    if (!text)
        return;
    if (!json_get(item, "content"))
        body_fail(t->b, t->root, "input", "missing field `content`");
    if (!strcmp(role, "assistant")) {
        cJSON *m = t->assistant && !json_get(t->assistant, "tool_calls") ? assistant(t) : NULL;
        m = m ? m : add_message(t, role, "");
        append(m, "content", "\n", text);
        t->assistant = m;
    } else if (system && last && last == t->list->child &&
               !strcmp(json_str(last, "role", ""), "system")) {
        append(t->list->child, "content", "\n\n", text); /* templates take one, in front */
    } else if (system || !strcmp(role, "user")) {
        add_message(t, system ? "system" : role, text);
    } else {
        body_fail(t->b, t->root, "input", "unknown role `%.40s`", role);
    }
    free(text);
}

static void function_call(struct talk *t, const cJSON *item)
{
    cJSON *m = assistant(t), *calls = cJSON_GetObjectItemCaseSensitive(m, "tool_calls");
    cJSON *call = cJSON_CreateObject(), *f = cJSON_AddObjectToObject(call, "function");
    if (!json_str(item, "name", NULL))
        body_fail(t->b, t->root, "input", "a `function_call` has a `name` and `arguments`");
    cJSON_AddStringToObject(call, "id", json_str(item, "call_id", ""));
    cJSON_AddStringToObject(call, "type", "function");
    cJSON_AddStringToObject(f, "name", json_str(item, "name", ""));
    cJSON_AddStringToObject(f, "arguments", json_str(item, "arguments", "{}"));
    cJSON_AddItemToArray(calls ? calls : cJSON_AddArrayToObject(m, "tool_calls"), call);
}

static void function_call_output(struct talk *t, const cJSON *item)
{
    char *text = text_of(t, json_get(item, "output"));
    if (text)
        cJSON_AddStringToObject(add_message(t, "tool", text), "tool_call_id",
                                json_str(item, "call_id", ""));
    free(text);
}

static void reasoning(struct talk *t, const cJSON *item)
{
    const cJSON *content = json_get(item, "content");
    bool empty = !content || (cJSON_IsArray(content) && !content->child);
    char *text = text_of(t, empty ? json_get(item, "summary") : content);
    if (text && *text) {
        t->assistant = NULL; /* what was said before it is another message */
        append(assistant(t), "reasoning_content", "\n", text);
    }
    free(text);
}

static void read_item(struct talk *t, const cJSON *item)
{
    const char *type = json_str(item, "type", json_get(item, "role") ? "message" : "(none)");
    if (!strcmp(type, "message"))
        message(t, item);
    else if (!strcmp(type, "function_call"))
        function_call(t, item);
    else if (!strcmp(type, "function_call_output"))
        function_call_output(t, item);
    else if (!strcmp(type, "reasoning"))
        reasoning(t, item);
    else
        body_fail(t->b, t->root, "input", "items of type `%.40s` are not supported", type);
}

static cJSON *messages(struct body *b, struct object root)
{
    const cJSON *input = body_get(b, root, "input", true);
    const char *instructions = body_str(b, root, "instructions", false);
    struct talk t = {.b = b, .root = root, .list = cJSON_CreateArray()};
    if (instructions && *instructions)
        add_message(&t, "system", instructions);
    if (cJSON_IsString(input))
        add_message(&t, "user", input->valuestring);
    else if (input && (!cJSON_IsArray(input) || !input->child))
        body_fail(b, root, "input", "a string or a list of items is required");
    for (const cJSON *k = json_first(input); k && !b->failed; k = k->next)
        read_item(&t, k);
    return t.list;
}

/* ---------------------------------------------------------------- tools */

static cJSON *tool(struct body *b, struct object root, const cJSON *given)
{
    cJSON *tool = cJSON_CreateObject(), *f = cJSON_AddObjectToObject(tool, "function");
    const char *type = json_str(given, "type", "(none)");
    const cJSON *schema = json_get(given, "parameters");
    if (strcmp(type, "function") != 0)
        body_fail(b, root, "tools", "tools of type `%.40s` are not supported", type);
    if (!json_str(given, "name", NULL))
        body_fail(b, root, "tools", "missing field `name`");
    cJSON_AddStringToObject(tool, "type", "function");
    cJSON_AddStringToObject(f, "name", json_str(given, "name", ""));
    if (json_str(given, "description", NULL))
        cJSON_AddStringToObject(f, "description", json_str(given, "description", ""));
    if (schema)
        cJSON_AddItemToObject(f, "parameters", cJSON_Duplicate(schema, true));
    return tool;
}

static void tool_choice(struct body *b, struct object root, cJSON *chat)
{
    const cJSON *choice = body_get(b, root, "tool_choice", false);
    const char *name = json_str(choice, "name", NULL);
    if (cJSON_IsString(choice) &&
        (!strcmp(choice->valuestring, "auto") || !strcmp(choice->valuestring, "none") ||
         !strcmp(choice->valuestring, "required")))
        cJSON_AddStringToObject(chat, "tool_choice", choice->valuestring);
    else if (name && !strcmp(json_str(choice, "type", ""), "function"))
        convert_named_choice(chat, name);
    else if (choice)
        body_fail(b, root, "tool_choice",
                  "one of `auto`, `none`, `required`, or a `function` with a `name`");
}

static void tools(struct body *b, struct object root, cJSON *chat)
{
    if (!convert_tools(b, root, chat, tool))
        return;
    tool_choice(b, root, chat);
    if (json_get(root.json, "parallel_tool_calls"))
        cJSON_AddBoolToObject(chat, "parallel_tool_calls",
                              body_opt_bool(b, root, "parallel_tool_calls", true));
}

cJSON *responses_convert(struct body *b, struct object root)
{
    cJSON *chat = cJSON_CreateObject();
    const cJSON *variables = body_get(b, root, "chat_template_kwargs", false);
    const char *effort = json_str(body_get(b, root, "reasoning", false), "effort", NULL);
    cJSON_AddItemToObject(chat, "messages", messages(b, root));
    tools(b, root, chat);
    if (variables)
        cJSON_AddItemToObject(chat, "chat_template_kwargs", cJSON_Duplicate(variables, true));
    if (effort)
        cJSON_AddStringToObject(chat, "reasoning_effort", effort);
    return chat;
}
