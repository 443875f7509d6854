#include "router/chat/message.h"
#include "common/json/exact.h"
#include "common/template/chat.h"
#include "router/chat/custom.h"
#include "router/chat/parts.h"
#include "router/chat/pictures.h"
#include "router/chat/roles.h"
#include <string.h>

cJSON *message_add(cJSON *list, const char *role, const char *text)
{
    cJSON *m = cJSON_CreateObject();
    if (cJSON_AddStringToObject(m, "role", role) && cJSON_AddStringToObject(m, "content", text) &&
        cJSON_AddItemToArray(list, m))
        return m;
    cJSON_Delete(m);
    return NULL;
}

const char *message_check(cJSON *m, bool takes_images)
{
    cJSON *content = cJSON_GetObjectItemCaseSensitive(m, "content");
    if (!cJSON_IsObject(m))
        return "a message must be an object";
    if (!json_str(m, "role", NULL))
        return json_get(m, "role") ? "`role` must be a string" : "missing field `role`";
    if (cJSON_IsArray(content))
        return parts_check(content, json_str(m, "role", ""), takes_images);
    if (content && !cJSON_IsString(content) && !cJSON_IsNull(content))
        return "`content` must be a string or a list of parts";
    return NULL; /* null or absent: empty text, as in other servers */
}

/* Clients send arguments as a JSON string, of a call without any often an empty one; templates
 * expect an object. Escapes in the string may have hidden a control token. */
static int open_arguments(const struct guard *g, cJSON *tool_calls)
{
    int rc = 0;
    for (cJSON *call = tool_calls ? tool_calls->child : NULL; call && rc == 0; call = call->next) {
        cJSON *f = cJSON_GetObjectItemCaseSensitive(call, "function");
        const cJSON *given = json_get(f, "arguments");
        const char *s = cJSON_IsString(given) ? given->valuestring : given ? NULL : "";
        struct err ignored;
        cJSON *j = s && *s ? json_parse_exact(s, strlen(s), &ignored) : NULL;
        if (j)
            template_keep_numbers(j, s, strlen(s));
        rc = guard_strings(g, j);
        if (rc == 0 && cJSON_IsObject(f) && s && !*s)
            rc = json_put(f, "arguments", cJSON_CreateObject()) ? 0 : -1;
        else if (rc == 0 && cJSON_IsObject(j))
            rc = json_put(f, "arguments", j) ? 0 : -1;
        else
            cJSON_Delete(j);
    }
    return rc;
}

/* Does a message have calls and no content? */
static bool calls_without_text(const cJSON *m)
{
    return json_get(m, "tool_calls") && !json_get(m, "content");
}

/* Text templates expect `content` to be a string: joins the parts and drops nulls. Absent content
 * becomes an empty text, or f->beside if there are calls. Reasoning stays in a list of parts. */
static int settle_content(cJSON *m, const struct message_form *f)
{
    const cJSON *content = cJSON_GetObjectItemCaseSensitive(m, "content");
    if (cJSON_IsNull(content)) {
        cJSON_DeleteItemFromObjectCaseSensitive(m, "content");
        content = NULL;
    }
    if (!content && f->beside == BESIDE_NULL && calls_without_text(m))
        return cJSON_AddNullToObject(m, "content") ? 0 : -1;
    if (!content && (f->beside == BESIDE_EMPTY || !calls_without_text(m)))
        return cJSON_AddStringToObject(m, "content", "") ? 0 : -1;
    if (f->list || parts_is_thought(json_first(content)))
        return pictures_as_parts(m) ? 0 : -1;
    return !cJSON_IsArray(content) || pictures_as_text(m, f->around, f->around_video) ? 0 : -1;
}

/* A template without calls gets them as text, as in TGI, and after the text beside them. */
static int calls_as_text(cJSON *m)
{
    const cJSON *calls = json_get(m, "tool_calls");
    const char *content = json_str(m, "content", NULL);
    if (!calls || (json_get(m, "content") && !content))
        return 0;
    struct buf text = BUF_INIT;
    if (content && *content)
        buf_fmt(&text, "%s\n", content);
    json_print_exact(&text, calls);
    cJSON *joined = text.oom ? NULL : cJSON_CreateString(text.p);
    buf_free(&text);
    return json_put(m, "content", joined) ? 0 : -1;
}

/* Servers name the reasoning of an answer differently, and so do templates. As in transformers the
 * first of these names counts, and templates read it under the first two. */
static int name_thoughts(cJSON *m)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const char *thought = "";
    if (strcmp(json_str(m, "role", ""), "assistant") != 0)
        return 0;
    for (int i = 0; i < 3 && !*thought; i++)
        thought = json_str(m, names[i], "");
    for (int i = 0; i < 2 && *thought; i++) {
        if (json_get(m, names[i]))
            continue;
        cJSON_DeleteItemFromObjectCaseSensitive(m, names[i]); /* null */
        if (!cJSON_AddStringToObject(m, names[i], thought))
            return -1;
    }
    return 0;
}

/* Channel templates refuse a call with reasoning and text beside it. Of the two the reasoning is
 * kept. */
static int thoughts_for_channels(cJSON *m)
{
    if (strcmp(json_str(m, "role", ""), "assistant") != 0)
        return 0;
    if (*json_str(m, "thinking", "") && json_get(m, "tool_calls"))
        cJSON_DeleteItemFromObjectCaseSensitive(m, "content");
    return json_get(m, "content") || cJSON_AddStringToObject(m, "content", "") ? 0 : -1;
}

/* OpenAI's models take the role `developer` for the system's. */
int message_settle(cJSON *m, const struct guard *g, const struct message_form *f)
{
    int rc = f->developer ? 0 : roles_rename_developer(m);
    if (rc == 0)
        rc = parts_settle(m, f->thoughts, f->last);
    if (rc == 0)
        rc = custom_settle_calls(m);
    if (rc == 0 && guard_message(g, m) != 0)
        rc = -1;
    if (rc == 0)
        rc = settle_content(m, f);
    if (rc == 0 && !f->calls)
        rc = calls_as_text(m);
    if (rc == 0)
        rc = name_thoughts(m);
    if (rc == 0 && f->channels)
        rc = thoughts_for_channels(m);
    if (rc == 0 && !f->arguments_as_text)
        rc = open_arguments(g, cJSON_GetObjectItemCaseSensitive(m, "tool_calls"));
    return rc;
}
