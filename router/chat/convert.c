#include "router/chat/convert.h"
#include "common/json.h"

bool convert_tools(struct body *b, struct object root, cJSON *chat,
                   cJSON *(*one)(struct body *b, struct object root, const cJSON *given))
{
    const cJSON *given = body_get(b, root, "tools", false);
    if (given && !cJSON_IsArray(given))
        body_mistyped(b, root, "tools", given, "a sequence");
    if (!json_first(given))
        return false;
    cJSON *list = cJSON_AddArrayToObject(chat, "tools");
    for (const cJSON *k = json_first(given); k && !b->failed; k = k->next)
        cJSON_AddItemToArray(list, one(b, root, k));
    return true;
}

void convert_named_choice(cJSON *chat, const char *function)
{
    cJSON *choice = cJSON_AddObjectToObject(chat, "tool_choice");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(choice, "function"), "name", function);
}
