/* functions.c - OpenAI's deprecated function calling: `functions` and `function_call` become
 * `tools` and `tool_choice`. In messages, `function_call` becomes `tool_calls`, and the role
 * `function` becomes `tool`. answer_parts.c converts the answer back. */
#include "common/json/json.h"
#include "router/api/openai/chat_completion.h"
#include "router/chat/convert.h"
#include <stdio.h>
#include <string.h>

static cJSON *nested(const cJSON *f) /* {"type": "function", "function": f} */
{
    cJSON *tool = cJSON_CreateObject();
    cJSON_AddStringToObject(tool, "type", "function");
    cJSON_AddItemToObject(tool, "function", cJSON_Duplicate(f, true));
    return tool;
}

/* Deprecated calls and results have no id: each call gets one, and the next result uses it. */
static void convert_messages(cJSON *list)
{
    char id[16] = "";
    unsigned n = 0;
    for (cJSON *m = list ? list->child : NULL; m; m = m->next) {
        const cJSON *call = json_get(m, "function_call");
        if (cJSON_IsObject(call)) {
            cJSON *tool = nested(call);
            snprintf(id, sizeof(id), "call%05u", n++ % 100000);
            cJSON_AddStringToObject(tool, "id", id);
            cJSON_AddItemToArray(cJSON_AddArrayToObject(m, "tool_calls"), tool);
            cJSON_DeleteItemFromObjectCaseSensitive(m, "function_call");
        }
        if (!strcmp(json_str(m, "role", ""), "function")) {
            cJSON_ReplaceItemInObjectCaseSensitive(m, "role", cJSON_CreateString("tool"));
            cJSON_AddStringToObject(m, "tool_call_id", id);
        }
    }
}

static void convert_choice(struct body *b, struct object root, cJSON *chat)
{
    const cJSON *choice = body_get(b, root, "function_call", false);
    const char *name = json_str(choice, "name", NULL);
    if (name)
        convert_named_choice(chat, name);
    else if (cJSON_IsString(choice) &&
             (!strcmp(choice->valuestring, "auto") || !strcmp(choice->valuestring, "none")))
        cJSON_AddStringToObject(chat, "tool_choice", choice->valuestring);
    else if (choice)
        body_fail(b, root, "function_call", "one of `auto`, `none`, or an object with a `name`");
}

bool chat_is_old(struct object root)
{
    const cJSON *functions = json_get(root.json, "functions"), *m = json_get(root.json, "messages");
    if (json_get(root.json, "function_call") || (functions && functions->child))
        return true;
    for (m = cJSON_IsArray(m) ? m->child : NULL; m; m = m->next)
        if (json_get(m, "function_call") || !strcmp(json_str(m, "role", ""), "function"))
            return true;
    return false;
}

cJSON *chat_from_old(struct body *b, struct object root)
{
    static const char *const same[] = {
        "messages",      "tool_prompt", "chat_template_kwargs", "reasoning_effort",
        "chat_template", "tools",       "tool_choice",          "parallel_tool_calls",
        "thinking",      "reasoning",   "enable_thinking",      "documents"};
    const cJSON *functions = body_get(b, root, "functions", false);
    cJSON *chat = cJSON_CreateObject();
    const bool mixed = json_get(root.json, "tools") != NULL; /* of these only messages are old */
    if (mixed && (functions || json_get(root.json, "function_call")))
        body_fail(b, root, "functions", "`functions` and `tools` exclude each other");
    if (functions && !cJSON_IsArray(functions))
        body_mistyped(b, root, "functions", functions, "a sequence");
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        if (json_get(root.json, same[i]))
            cJSON_AddItemToObject(chat, same[i],
                                  cJSON_Duplicate(json_get(root.json, same[i]), true));
    convert_messages(cJSON_GetObjectItemCaseSensitive(chat, "messages"));
    cJSON *tools = functions ? cJSON_AddArrayToObject(chat, "tools") : NULL;
    for (const cJSON *f = cJSON_IsArray(functions) ? functions->child : NULL; f; f = f->next)
        cJSON_AddItemToArray(tools, nested(f));
    convert_choice(b, root, chat);
    if (!mixed)
        cJSON_AddFalseToObject(chat, "parallel_tool_calls");
    return chat;
}
