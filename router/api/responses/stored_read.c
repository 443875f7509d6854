/* Storage options of a request, and its own items in the listed format. */
#include "common/json/exact.h"
#include "common/json/json.h"
#include "router/api/responses/stored.h"
#include <stdio.h>
#include <string.h>

const char *stored_conversation(const cJSON *v)
{
    return cJSON_IsString(v) ? v->valuestring : json_str(v, "id", NULL);
}

/* An input item in the listed format: with an id that no output item has, and content as parts. */
static void add_item(struct buf *out, const cJSON *given, const char *id, unsigned number)
{
    cJSON *item = cJSON_Duplicate(given, true);
    const cJSON *content = json_get(item, "content");
    const bool message = !strcmp(json_str(item, "type", "message"), "message");
    char name[80];
    snprintf(name, sizeof(name), "%s_%s_in%u", message ? "msg" : "item", strchr(id, '_') + 1,
             number);
    if (!json_str(item, "type", NULL))
        cJSON_AddStringToObject(item, "type", "message");
    if (!json_str(item, "id", NULL)) {
        cJSON_DeleteItemFromObjectCaseSensitive(item, "id");
        cJSON_AddStringToObject(item, "id", name);
    }
    if (message && cJSON_IsString(content)) {
        const bool by_assistant = !strcmp(json_str(item, "role", ""), "assistant");
        cJSON *parts = cJSON_CreateArray(), *part = cJSON_CreateObject();
        cJSON_AddStringToObject(part, "type", by_assistant ? "output_text" : "input_text");
        cJSON_AddStringToObject(part, "text", content->valuestring);
        if (by_assistant)
            cJSON_AddArrayToObject(part, "annotations");
        cJSON_AddItemToArray(parts, part);
        cJSON_ReplaceItemInObjectCaseSensitive(item, "content", parts);
    }
    json_print_exact(out, item);
    out->oom |= item == NULL;
    cJSON_Delete(item);
}

const char *stored_items(struct call *c, const cJSON *input, const char *id)
{
    struct buf out = BUF_INIT;
    unsigned n = 0;
    buf_ch(&out, '[');
    if (cJSON_IsString(input)) {
        cJSON *message = cJSON_CreateObject();
        cJSON_AddStringToObject(message, "role", "user");
        cJSON_AddStringToObject(message, "content", input->valuestring);
        add_item(&out, message, id, n);
        cJSON_Delete(message);
    }
    for (const cJSON *k = cJSON_IsArray(input) ? input->child : NULL; k; k = k->next) {
        buf_str(&out, n ? "," : "");
        add_item(&out, k, id, n++);
    }
    buf_ch(&out, ']');
    const char *text = out.oom ? NULL : arena_strdup(&c->arena, out.p, out.len);
    buf_free(&out);
    return text;
}

static void read_conversation(struct call *c, struct body *b, struct object root,
                              struct responses *p)
{
    const cJSON *v = body_get(b, root, "conversation", false);
    p->conversation = stored_conversation(v);
    if (v && !c->owner)
        body_fail(b, root, "conversation", "`conversation` is not supported: nothing is stored");
    else if (v && !p->conversation)
        body_mistyped(b, root, "conversation", v, "an id, or an object with an `id`");
    else if (v && p->previous)
        body_fail(b, root, "conversation",
                  "`conversation` and `previous_response_id` exclude each other");
}

void response_stored_read(struct call *c, struct body *b, struct object root, struct responses *p)
{
    p->store = body_opt_bool(b, root, "store", c->owner != NULL) && c->owner;
    p->background = body_opt_bool(b, root, "background", false);
    if (!c->owner && !p->remembered && json_get(root.json, "previous_response_id"))
        body_fail(b, root, "previous_response_id",
                  "`previous_response_id` is not supported: nothing is stored");
    if (p->background && !c->owner)
        body_fail(b, root, "background", "`background` is not supported: nothing is stored");
    else if (p->background && !p->store)
        body_fail(b, root, "background", "`background` needs `store`");
    p->previous = body_str(b, root, "previous_response_id", false);
    if (p->previous && store_is_conversation(p->previous))
        body_fail(b, root, "previous_response_id",
                  "`previous_response_id` names a conversation: see `conversation`");
    read_conversation(c, b, root, p);
    if ((p->store || p->conversation || c->shared) && !b->failed &&
        !(p->input = stored_items(c, json_get(root.json, "input"), p->id)))
        body_nomem(b, root, "input");
}
