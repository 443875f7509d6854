/* Converts Anthropic's bodies to OpenAI's, which chat templates read. */
#include "router/chat/convert.h"
#include "common/json/exact.h"
#include "common/json/json.h"
#include "common/text.h"
#include "router/api/anthropic/messages.h"
#include "router/chat/pictures.h"
#include <stdio.h>
#include <string.h>

struct turn { /* the message being built */
    struct body *b;
    struct object root;
    const char *field; /* of the body, that is read */
    cJSON *list;
    struct convert_content content;
    struct buf thoughts;
    cJSON *calls;                  /* calls of the assistant */
    uint32_t message, block, part; /* position; part: of a block's content, from 1 */
    bool takes_images;             /* the model takes images */
};

static void refuse_block(struct turn *t, const cJSON *block)
{
    body_fail(t->b, t->root, t->field, "content blocks of type `%.40s` are not supported",
              json_str(block, "type", "(none)"));
}

/* The text of a member that a block must have. */
static const char *needed(struct turn *t, const cJSON *block, const char *member)
{
    const char *text = json_str(block, member, NULL);
    if (!text)
        body_fail(t->b, t->root, t->field, "a block of type `%.40s` has no `%s`",
                  json_str(block, "type", ""), member);
    return text ? text : "";
}

/* Joins text blocks, or reads a plain string. Anything else fails the body. */
static void read_text(struct turn *t, const cJSON *content, struct buf *out)
{
    buf_reserve(out, 0);
    if (cJSON_IsString(content))
        buf_str(out, content->valuestring);
    for (const cJSON *k = json_first(content); k; k = k->next) {
        if (strcmp(json_str(k, "type", ""), "text") != 0)
            refuse_block(t, k);
        buf_str(out, needed(t, k, "text"));
    }
}

/* Empties `content`. */
static cJSON *add_message(struct turn *t, const char *role, struct convert_content *content)
{
    return convert_add(t->b, "messages", t->list, role, content);
}

/* The path in error messages, as in Anthropic's: "messages.0.content.1.image.source". */
static void name_source(const struct turn *t, char *out, size_t n)
{
    char part[32] = "";
    if (t->part)
        snprintf(part, sizeof(part), "tool_result.content.%u.", t->part - 1);
    snprintf(out, n, "messages.%u.content.%u.%simage.source", t->message, t->block, part);
}

static void read_image(struct turn *t, const cJSON *block, struct convert_content *out)
{
    static const char *const types[] = {"image/jpeg", "image/png", "image/gif", "image/webp"};
    const cJSON *source = json_get(block, "source");
    const char *type = json_str(source, "type", "(none)"), *url = json_str(source, "url", NULL);
    const char *data = json_str(source, "data", NULL), *mime = json_str(source, "media_type", "");
    char at[96], where[128];
    bool known = false;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        known |= !strcmp(mime, types[i]);
    name_source(t, at, sizeof(at));
    if (!strcmp(type, "url") && url) {
        snprintf(where, sizeof(where), "%s.url", at);
        convert_picture(out, picture_part(url, where));
    } else if (!strcmp(type, "base64") && data && known) {
        snprintf(where, sizeof(where), "%s.base64.data", at);
        convert_picture(out, picture_part_base64(mime, data, where));
    } else if (!strcmp(type, "base64") && data) {
        body_fail(t->b, t->root, "messages",
                  "%s.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or "
                  "'image/webp'",
                  at);
    } else {
        body_fail(t->b, t->root, "messages",
                  "%s: `base64` with `media_type` and `data`, or `url` with `url`, is required",
                  at);
    }
}

/* Blocks that are converted to text: other servers' tools, search results, plain text documents.
 * False: another type. */
static bool read_foreign(struct turn *t, const cJSON *block, struct buf *out)
{
    const char *type = json_str(block, "type", "");
    const cJSON *source = json_get(block, "source");
    if (!strcmp(type, "server_tool_use") || !strcmp(type, "mcp_tool_use"))
        convert_foreign(json_str(block, "name", type), json_get(block, "input"), out);
    else if (ends_with(type, "_tool_result"))
        convert_foreign(type, json_get(block, "content"), out);
    else if (!strcmp(type, "compaction")) /* a summary; none: it failed */
        buf_str(out, json_str(block, "content", ""));
    else if (!strcmp(type, "tool_reference"))
        convert_foreign("tool", json_get(block, "tool_name"), out);
    else if (!strcmp(type, "search_result")) {
        buf_fmt(out, "%s (%s)\n", json_str(block, "title", ""), json_str(block, "source", ""));
        read_text(t, json_get(block, "content"), out);
    } else if (!strcmp(type, "document") && !strcmp(json_str(source, "type", ""), "text"))
        buf_str(out, json_str(source, "data", ""));
    else if (!strcmp(type, "document") && !strcmp(json_str(source, "type", ""), "content"))
        read_text(t, json_get(source, "content"), out);
    else
        return false;
    return true;
}

/* The result of a tool. An agent resends it with each later request, so no content may fail the
 * conversation: what cannot be read is named in the prompt. */
static void read_result(struct turn *t, const cJSON *content, struct convert_content *out)
{
    if (cJSON_IsString(content))
        buf_str(&out->text, content->valuestring);
    t->part = 0;
    for (const cJSON *k = json_first(content); k; k = k->next) {
        const char *type = json_str(k, "type", "(none)");
        t->part++;
        if (!strcmp(type, "text")) {
            buf_str(&out->text, json_str(k, "text", ""));
        } else if (!strcmp(type, "image") && t->takes_images) {
            read_image(t, k, out);
        } else if (!read_foreign(t, k, &out->text)) {
            body_warn(t->b, "messages: content of type %.40s in a tool_result is left out", type);
            buf_fmt(&out->text, "[%.40s left out: this model reads %s only]", type,
                    t->takes_images ? "text and images" : "text");
        }
    }
    t->part = 0;
}

/* A result precedes text beside it: templates expect it directly after the call. */
static void tool_result(struct turn *t, const cJSON *block)
{
    struct convert_content content = {0};
    if (json_bool(block, "is_error", false))
        buf_str(&content.text, "Error: ");
    read_result(t, json_get(block, "content"), &content);
    cJSON_AddStringToObject(add_message(t, "tool", &content), "tool_call_id",
                            needed(t, block, "tool_use_id"));
}

static void tool_use(struct turn *t, const cJSON *block)
{
    const cJSON *input = json_get(block, "input");
    cJSON *call = cJSON_CreateObject(), *f = cJSON_AddObjectToObject(call, "function");
    cJSON_AddStringToObject(call, "id", needed(t, block, "id"));
    cJSON_AddStringToObject(call, "type", "function");
    cJSON_AddStringToObject(f, "name", needed(t, block, "name"));
    if (!cJSON_IsObject(input))
        body_fail(t->b, t->root, "messages", "the `input` of a `tool_use` is an object");
    cJSON_AddItemToObject(f, "arguments",
                          cJSON_IsObject(input) ? cJSON_Duplicate(input, true)
                                                : cJSON_CreateObject());
    if (!t->calls)
        t->calls = cJSON_CreateArray();
    cJSON_AddItemToArray(t->calls, call);
}

/* Blocks that are no part of the prompt. `fallback` marks where another model went on; changes of
 * tools: change_tools(). False: another type. */
static bool is_beside_prompt(struct turn *t, const char *type)
{
    static const char *const silent[] = {"redacted_thinking", "fallback", "tool_addition",
                                         "tool_removal"};
    for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++)
        if (!strcmp(type, silent[i]))
            return true;
    if (strcmp(type, "container_upload") != 0 && strcmp(type, "mcp_tool_listing") != 0)
        return false;
    body_warn(t->b, "messages: content of type %.40s is left out", type);
    return true;
}

static void read_block(struct turn *t, const cJSON *block, bool assistant)
{
    const char *type = json_str(block, "type", "");
    if (!strcmp(type, "text"))
        buf_str(&t->content.text, needed(t, block, "text"));
    else if (!strcmp(type, "image") && !assistant)
        read_image(t, block, &t->content);
    else if (!strcmp(type, "thinking") && assistant)
        buf_str(&t->thoughts, needed(t, block, "thinking"));
    else if (!strcmp(type, "tool_result") && !assistant)
        tool_result(t, block);
    else if (!strcmp(type, "tool_use") && assistant)
        tool_use(t, block);
    else if (!read_foreign(t, block, &t->content.text) && !is_beside_prompt(t, type))
        refuse_block(t, block);
}

/* Adds the message built from the blocks; takes ownership of t->calls. */
static void end_message(struct turn *t, const char *role, bool plain)
{
    cJSON *m = NULL;
    if (t->content.text.oom || t->thoughts.oom)
        body_nomem(t->b, t->root, "messages");
    else if (!convert_empty(&t->content) || t->calls || t->thoughts.len || plain)
        m = add_message(t, role, &t->content);
    if (m && t->thoughts.len)
        cJSON_AddStringToObject(m, "reasoning_content", t->thoughts.p);
    if (m && t->calls)
        cJSON_AddItemToObject(m, "tool_calls", t->calls);
    else
        cJSON_Delete(t->calls);
    t->calls = NULL;
}

static void read_message(struct turn *t, const cJSON *m)
{
    const struct object o = {m, "messages"};
    const char *given = body_str(t->b, o, "role", true), *role = given ? given : "";
    const cJSON *content = body_get(t->b, o, "content", true);
    const char *text = json_str(m, "content", NULL);
    bool assistant = !strcmp(role, "assistant");
    if (given && !assistant && strcmp(role, "user") != 0 && strcmp(role, "system") != 0)
        body_fail(t->b, t->root, "messages", "unknown role `%.40s`", role);
    if (content && !text && !cJSON_IsArray(content))
        body_mistyped(t->b, o, "content", content, "a string or a list of blocks");
    convert_clear(&t->content);
    buf_reset(&t->thoughts);
    if (text)
        buf_str(&t->content.text, text);
    t->block = 0;
    for (const cJSON *k = json_first(content); k; k = k->next, t->block++)
        read_block(t, k, assistant);
    end_message(t, role, text != NULL);
}

static cJSON *messages(struct body *b, struct object root, bool takes_images)
{
    const cJSON *list = body_get(b, root, "messages", true);
    const cJSON *system = body_get(b, root, "system", false);
    struct turn t = {.b = b,
                     .root = root,
                     .field = "messages",
                     .list = cJSON_CreateArray(),
                     .takes_images = takes_images};
    if (list && !cJSON_IsArray(list))
        body_mistyped(b, root, "messages", list, "a sequence");
    else if (list && !list->child)
        body_fail(b, root, "messages", "at least one message is required");
    if (system && !cJSON_IsString(system) && !cJSON_IsArray(system))
        body_mistyped(b, root, "system", system, "a string or a list of text blocks");
    if (system) {
        t.field = "system";
        read_text(&t, system, &t.content.text);
        t.field = "messages";
        add_message(&t, "system", &t.content);
    }
    for (const cJSON *m = json_first(list); m && !b->failed; m = m->next, t.message++) {
        body_item(b, "messages", t.message);
        read_message(&t, m);
    }
    body_item(b, NULL, 0);
    convert_clear(&t.content);
    buf_free(&t.thoughts);
    return t.list;
}

/* ---------------------------------------------------------------- tools */

/* Anthropic's own tools have a type and no schema: they run on its servers, or its models know
 * them. */
static bool is_custom(const cJSON *tool)
{
    return !strcmp(json_str(tool, "type", "custom"), "custom");
}

/* The description, with the examples of inputs that the tool gives. */
static void describe(const cJSON *given, cJSON *f)
{
    const cJSON *examples = json_get(given, "input_examples");
    struct buf text = BUF_INIT;
    buf_reserve(&text, 0);
    buf_str(&text, json_str(given, "description", ""));
    if (json_first(examples))
        buf_str(&text, text.len ? "\nExamples of inputs:" : "Examples of inputs:");
    for (const cJSON *k = json_first(examples); k; k = k->next) {
        buf_ch(&text, '\n');
        json_print_exact(&text, k);
    }
    if (!text.oom)
        cJSON_AddStringToObject(f, "description", text.p);
    buf_free(&text);
}

static cJSON *tool(struct body *b, struct object root, const cJSON *given)
{
    if (!is_custom(given)) {
        body_warn(b, "tools: %.60s is not supported and left out",
                  json_str(given, "type", "(none)"));
        return NULL;
    }
    cJSON *tool = cJSON_CreateObject(), *f = cJSON_AddObjectToObject(tool, "function");
    const cJSON *schema = json_get(given, "input_schema");
    if (!json_str(given, "name", NULL) || !schema ||
        (json_get(given, "type") && !json_str(given, "type", NULL)))
        body_fail(b, root, "tools", "a tool has `name` and `input_schema`");
    cJSON_AddStringToObject(tool, "type", "function");
    cJSON_AddStringToObject(f, "name", json_str(given, "name", ""));
    describe(given, f);
    cJSON_AddItemToObject(f, "parameters",
                          schema ? cJSON_Duplicate(schema, true) : cJSON_CreateObject());
    if (cJSON_IsTrue(json_get(given, "strict")))
        cJSON_AddTrueToObject(f, "strict");
    return tool;
}

/* Was a tool with this name omitted? */
static bool left_out(struct object root, const char *name)
{
    for (const cJSON *k = json_first(json_get(root.json, "tools")); k; k = k->next)
        if (!is_custom(k) && !strcmp(json_str(k, "name", ""), name))
            return true;
    return false;
}

static void tool_choice(struct body *b, struct object root, cJSON *chat)
{
    const cJSON *choice = body_get(b, root, "tool_choice", false);
    const char *type = json_str(choice, "type", NULL), *name = json_str(choice, "name", NULL);
    if (!choice)
        return;
    const bool one_call = body_opt_bool(b, (struct object){choice, "tool_choice"},
                                        "disable_parallel_tool_use", false);
    if (type && !strcmp(type, "tool") && name && left_out(root, name))
        body_warn(b, "tool_choice: %.60s is left out", name);
    else if (type && !strcmp(type, "tool") && name)
        convert_named_choice(chat, name);
    else if (type && (!strcmp(type, "auto") || !strcmp(type, "none")))
        cJSON_AddStringToObject(chat, "tool_choice", type);
    else if (type && !strcmp(type, "any"))
        cJSON_AddStringToObject(chat, "tool_choice", "required");
    else
        body_fail(b, root, "tool_choice", "one of `auto`, `any`, `none`, or `tool` with a `name`");
    if (json_get(choice, "disable_parallel_tool_use"))
        cJSON_AddBoolToObject(chat, "parallel_tool_calls", !one_call);
}

static void remove_tool(cJSON *list, const char *name)
{
    for (cJSON *k = list->child, *next; k; k = next) {
        next = k->next;
        if (!strcmp(json_str(json_get(k, "function"), "name", ""), name))
            cJSON_Delete(cJSON_DetachItemViaPointer(list, k));
    }
}

static const cJSON *declared(struct object root, const char *name)
{
    const cJSON *k = json_first(json_get(root.json, "tools"));
    while (k && strcmp(json_str(k, "name", ""), name) != 0)
        k = k->next;
    return k;
}

/* A block `tool_addition` or `tool_removal`: `tool` names a tool, or defines one. */
static void change_tool(struct body *b, struct object root, cJSON *list, const cJSON *block)
{
    const cJSON *change = json_get(block, "tool"), *defined = json_get(change, "definition");
    const char *type = json_str(change, "type", "(none)");
    const char *name = json_str(defined ? defined : change, "name", NULL);
    if ((strcmp(type, "tool_reference") != 0 && !defined) || !name) {
        body_warn(b, "messages: a change of tools by %.40s has no effect", type);
        return;
    }
    remove_tool(list, name);
    if (strcmp(json_str(block, "type", ""), "tool_addition") != 0)
        return;
    const cJSON *given = defined ? defined : declared(root, name);
    cJSON *added = given ? tool(b, root, given) : NULL;
    if (!given)
        body_fail(b, root, "messages",
                  "a `tool_addition` names the tool `%.60s`, which is not "
                  "declared",
                  name);
    if (added)
        cJSON_AddItemToArray(list, added);
}

static bool is_change(const cJSON *block)
{
    const char *type = json_str(block, "type", "");
    return !strcmp(type, "tool_addition") || !strcmp(type, "tool_removal");
}

/* Blocks of the messages change which tools there are. The prompt shows the tools once, so it shows
 * those that are left in the end. */
static bool change_tools(struct body *b, struct object root, cJSON *chat)
{
    cJSON *list = cJSON_GetObjectItemCaseSensitive(chat, "tools");
    for (const cJSON *m = json_first(json_get(root.json, "messages")); m; m = m->next)
        for (const cJSON *k = json_first(json_get(m, "content")); k && !b->failed; k = k->next) {
            if (!is_change(k))
                continue;
            list = list ? list : cJSON_AddArrayToObject(chat, "tools");
            if (list)
                change_tool(b, root, list, k);
        }
    return list && list->child;
}

static void tools(struct body *b, struct object root, cJSON *chat)
{
    cJSON *none = cJSON_CreateObject(); /* a choice of tools that are left out has no effect */
    convert_tools(b, root, chat, tool);
    const bool any = change_tools(b, root, chat);
    tool_choice(b, root, any ? chat : none);
    const char *type = json_str(json_get(root.json, "tool_choice"), "type", "");
    if (!any && !json_first(json_get(root.json, "tools")) &&
        (!strcmp(type, "any") || !strcmp(type, "tool")))
        body_fail(b, root, "tool_choice", "`tool_choice` needs `tools`");
    cJSON_Delete(none);
}

/* ---------------------------------------------------------------- reasoning */

/* The amount of reasoning is up to the model; its template has a variable to turn it on or off. */
static void thinking(struct body *b, struct object root, bool can, cJSON *chat)
{
    const cJSON *given = body_get(b, root, "thinking", false);
    const char *type = json_str(given, "type", "");
    if (cJSON_IsObject(given))
        body_u32(b, (struct object){given, "thinking"}, "budget_tokens"); /* no effect */
    bool on = !strcmp(type, "enabled"), off = !strcmp(type, "disabled");
    const bool free = !strcmp(type, "adaptive") || !strcmp(type, "between_tools");
    if (given && !on && !off && !free)
        body_fail(b, root, "thinking",
                  "one of `enabled`, `adaptive`, `between_tools` and `disabled`");
    else if (on && !can) /* agents send it to every model */
        body_warn(b, "thinking: this model has none");
    if ((on || off) && can)
        convert_thinking(chat, on);
}

static void effort(struct body *b, struct object root, cJSON *chat)
{
    bool given;
    const struct object o = body_object(b, root, "output_config", &given);
    const char *word =
        json_get(root.json, "output_config") ? body_str(b, o, "effort", false) : NULL;
    if (word)
        cJSON_AddStringToObject(chat, "reasoning_effort", word);
}

cJSON *messages_convert(struct body *b, struct object root, bool can_think, bool takes_images)
{
    cJSON *chat = cJSON_CreateObject();
    cJSON_AddItemToObject(chat, "messages", messages(b, root, takes_images));
    tools(b, root, chat);
    thinking(b, root, can_think, chat);
    effort(b, root, chat);
    return chat;
}
