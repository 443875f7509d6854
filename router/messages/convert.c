/* From Anthropic's content blocks to OpenAI's messages, which chat templates know. */
#include "common/json.h"
#include "router/messages/messages.h"
#include <string.h>

struct turn { /* one message on its way */
    struct body *b;
    struct object root;
    cJSON *list;
    struct buf text;
    cJSON *calls; /* of the assistant */
};

static void add_string(cJSON *o, const char *key, const char *s)
{
    cJSON_AddItemToObject(o, key, cJSON_CreateString(s));
}

/* Text blocks joined, or a plain string. Anything else fails the body. */
static void read_text(struct turn *t, const cJSON *content, struct buf *out)
{
    buf_reserve(out, 0);
    if (cJSON_IsString(content))
        buf_str(out, content->valuestring);
    for (const cJSON *k = cJSON_IsArray(content) ? content->child : NULL; k; k = k->next) {
        if (strcmp(json_str(k, "type", ""), "text") != 0)
            body_fail(t->b, t->root, "messages", "content blocks of type `%.40s` are not supported",
                      json_str(k, "type", "(none)"));
        buf_str(out, json_str(k, "text", ""));
    }
}

static void add_message(struct turn *t, const char *role, const char *text)
{
    cJSON *m = cJSON_CreateObject();
    add_string(m, "role", role);
    add_string(m, "content", text);
    cJSON_AddItemToArray(t->list, m);
}

/* A result goes before the words that stand beside it: templates want it behind the call. */
static void tool_result(struct turn *t, const cJSON *block)
{
    struct buf text = BUF_INIT;
    read_text(t, json_get(block, "content"), &text);
    if (!text.oom) {
        add_message(t, "tool", text.p);
        add_string(t->list->child->prev, "tool_call_id", json_str(block, "tool_use_id", ""));
    }
    buf_free(&text);
}

static void tool_use(struct turn *t, const cJSON *block)
{
    const cJSON *input = json_get(block, "input");
    char *arguments = input ? cJSON_PrintUnformatted(input) : NULL;
    cJSON *call = cJSON_CreateObject(), *f = cJSON_CreateObject();
    add_string(call, "id", json_str(block, "id", ""));
    add_string(call, "type", "function");
    add_string(f, "name", json_str(block, "name", ""));
    add_string(f, "arguments", arguments ? arguments : "{}");
    cJSON_AddItemToObject(call, "function", f);
    if (!t->calls)
        t->calls = cJSON_CreateArray();
    cJSON_AddItemToArray(t->calls, call);
    cJSON_free(arguments);
}

static void read_block(struct turn *t, const cJSON *block, bool assistant)
{
    const char *type = json_str(block, "type", "");
    if (!strcmp(type, "text"))
        buf_str(&t->text, json_str(block, "text", ""));
    else if (!strcmp(type, "tool_result") && !assistant)
        tool_result(t, block);
    else if (!strcmp(type, "tool_use") && assistant)
        tool_use(t, block);
    else if (strcmp(type, "thinking") != 0 && strcmp(type, "redacted_thinking") != 0)
        body_fail(t->b, t->root, "messages", "content blocks of type `%.40s` are not supported",
                  *type ? type : "(none)");
}

static void read_message(struct turn *t, const cJSON *m)
{
    const char *role = json_str(m, "role", "");
    const cJSON *content = json_get(m, "content");
    bool assistant = !strcmp(role, "assistant");
    if (!assistant && strcmp(role, "user") != 0 && strcmp(role, "system") != 0)
        body_fail(t->b, t->root, "messages", "unknown role `%.40s`", role);
    if (!cJSON_IsString(content) && !cJSON_IsArray(content))
        body_fail(t->b, t->root, "messages", "missing field `content`");
    buf_reset(&t->text);
    buf_reserve(&t->text, 0);
    t->calls = NULL;
    if (cJSON_IsString(content))
        buf_str(&t->text, content->valuestring);
    for (const cJSON *k = cJSON_IsArray(content) ? content->child : NULL; k; k = k->next)
        read_block(t, k, assistant);
    if (t->text.oom) {
        cJSON_Delete(t->calls);
        body_fail(t->b, t->root, "messages", "out of memory");
        return;
    }
    if (t->text.len || t->calls || cJSON_IsString(content))
        add_message(t, role, t->text.p ? t->text.p : "");
    if (t->calls)
        cJSON_AddItemToObject(t->list->child->prev, "tool_calls", t->calls);
}

cJSON *messages_convert(struct body *b, struct object root)
{
    const cJSON *messages = body_get(b, root, "messages", true);
    const cJSON *system = body_get(b, root, "system", false);
    struct turn t = {.b = b, .root = root, .list = cJSON_CreateArray(), .text = BUF_INIT};
    if (messages && (!cJSON_IsArray(messages) || !messages->child))
        body_fail(b, root, "messages", "at least one message is required");
    if (system) {
        read_text(&t, system, &t.text);
        if (!t.text.oom)
            add_message(&t, "system", t.text.p);
    }
    for (const cJSON *m = messages ? messages->child : NULL; m && !b->failed; m = m->next)
        read_message(&t, m);
    buf_free(&t.text);
    if (!b->failed)
        return t.list;
    cJSON_Delete(t.list);
    return NULL;
}

cJSON *messages_tools(struct body *b, struct object root)
{
    const cJSON *tools = body_get(b, root, "tools", false);
    const char *choice = json_str(body_get(b, root, "tool_choice", false), "type", "auto");
    if (tools && strcmp(choice, "auto") != 0 && strcmp(choice, "none") != 0)
        body_fail(b, root, "tool_choice", "`tool_choice` of type `%.40s` is not supported", choice);
    if (!tools || !cJSON_IsArray(tools) || !tools->child || !strcmp(choice, "none") || b->failed)
        return NULL;
    cJSON *list = cJSON_CreateArray();
    for (const cJSON *k = tools->child; k; k = k->next) {
        cJSON *tool = cJSON_CreateObject(), *f = cJSON_CreateObject();
        const cJSON *schema = json_get(k, "input_schema");
        if (!json_str(k, "name", NULL) || !schema)
            body_fail(b, root, "tools", "a tool has `name` and `input_schema`");
        add_string(tool, "type", "function");
        add_string(f, "name", json_str(k, "name", ""));
        add_string(f, "description", json_str(k, "description", ""));
        cJSON_AddItemToObject(f, "parameters",
                              schema ? cJSON_Duplicate(schema, true) : cJSON_CreateObject());
        cJSON_AddItemToObject(tool, "function", f);
        cJSON_AddItemToArray(list, tool);
    }
    return list;
}
