#include "router/chat/convert.h"
#include "common/json/exact.h"
#include "router/chat/pictures.h"
#include <string.h>

bool convert_tools(struct body *b, struct object root, cJSON *chat,
                   cJSON *(*one)(struct body *b, struct object root, const cJSON *given))
{
    const cJSON *given = body_get(b, root, "tools", false);
    if (given && !cJSON_IsArray(given))
        body_mistyped(b, root, "tools", given, "a sequence");
    if (!json_first(given))
        return false;
    cJSON *list = cJSON_AddArrayToObject(chat, "tools");
    uint32_t i = 0;
    for (const cJSON *k = json_first(given); k && !b->failed; k = k->next) {
        body_item(b, "tools", i++);
        cJSON *tool = one(b, root, k), *member;
        while (cJSON_IsArray(tool) && (member = cJSON_DetachItemFromArray(tool, 0)))
            cJSON_AddItemToArray(list, member);
        if (cJSON_IsArray(tool))
            cJSON_Delete(tool);
        else if (tool)
            cJSON_AddItemToArray(list, tool);
    }
    body_item(b, NULL, 0);
    return list && list->child;
}

static void end_text(struct convert_content *c)
{
    cJSON *part = c->text.len ? picture_text_part(c->text.p) : NULL;
    if (!cJSON_AddItemToArray(c->parts, part)) {
        cJSON_Delete(part);
        c->text.oom |= c->text.len > 0;
    }
    c->text.len = 0;
}

void convert_picture(struct convert_content *c, cJSON *part)
{
    if (!c->parts)
        c->parts = cJSON_CreateArray();
    end_text(c);
    if (!part || !cJSON_AddItemToArray(c->parts, part)) {
        cJSON_Delete(part);
        c->text.oom = true;
    }
}

bool convert_empty(const struct convert_content *c) { return !c->text.len && !c->parts; }

bool convert_put(struct convert_content *c, cJSON *m)
{
    bool ok = !c->text.oom;
    if (ok && c->parts) {
        end_text(c);
        ok = !c->text.oom && cJSON_AddItemToObject(m, "content", c->parts);
        c->parts = ok ? NULL : c->parts;
    } else if (ok) {
        ok = cJSON_AddStringToObject(m, "content", c->text.len ? c->text.p : "") != NULL;
    }
    convert_clear(c);
    return ok;
}

cJSON *convert_add(struct body *b, const char *key, cJSON *list, const char *role,
                   struct convert_content *c)
{
    cJSON *m = cJSON_CreateObject();
    const bool named = cJSON_AddStringToObject(m, "role", role) != NULL;
    if (convert_put(c, m) && named && cJSON_AddItemToArray(list, m))
        return m;
    cJSON_Delete(m);
    body_nomem(b, body_root(b), key);
    return NULL;
}

void convert_clear(struct convert_content *c)
{
    buf_free(&c->text);
    cJSON_Delete(c->parts);
    c->parts = NULL;
}

void convert_named_choice(cJSON *chat, const char *function)
{
    cJSON *choice = cJSON_AddObjectToObject(chat, "tool_choice");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(choice, "function"), "name", function);
}

void convert_switch(cJSON *variables, bool on)
{
    static const char *const names[] = {"enable_thinking", /* Qwen's */
                                        "thinking"};       /* DeepSeek's and Granite's */
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!cJSON_HasObjectItem(variables, names[i]))
            cJSON_AddBoolToObject(variables, names[i], on);
}

void convert_thinking(cJSON *chat, bool on)
{
    convert_switch(cJSON_AddObjectToObject(chat, "chat_template_kwargs"), on);
}

/* Removes members that only the API that wrote them can read. */
static void drop_encrypted(cJSON *at)
{
    for (cJSON *kid = at->child, *next; kid; kid = next) {
        next = kid->next;
        if (kid->string && !strncmp(kid->string, "encrypted_", 10))
            cJSON_Delete(cJSON_DetachItemViaPointer(at, kid));
        else
            drop_encrypted(kid);
    }
}

void convert_foreign(const char *name, const cJSON *value, struct buf *out)
{
    cJSON *copy = value ? cJSON_Duplicate(value, true) : NULL;
    if (copy)
        drop_encrypted(copy);
    if (out->len && out->p[out->len - 1] != '\n')
        buf_ch(out, '\n');
    buf_fmt(out, "[%s ", name);
    if (copy)
        json_print_exact(out, copy);
    buf_str(out, "]\n");
    cJSON_Delete(copy);
}
