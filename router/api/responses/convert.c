/* Converts the items of a Responses request to messages for chat templates. */
#include "router/chat/convert.h"
#include "common/json/exact.h"
#include "common/json/json.h"
#include "common/text.h"
#include "router/api/responses/compact.h"
#include "router/chat/message.h"
#include "router/chat/parts.h"
#include "router/chat/pictures.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct talk { /* the conversation being built */
    struct body *b;
    struct object root;
    cJSON *list;
    cJSON *assistant;  /* the message that receives the assistant's next call or text */
    bool takes_images; /* the model takes images */
    const char *key;   /* of the items in the body */
    /* a member that grows by many items: its text, which the message does not have yet */
    cJSON *grows; /* the message; NULL: none */
    const char *grows_key;
    struct buf grown;
};

/* Gives the message the text that has grown. */
static void settle(struct talk *t)
{
    if (!t->grows)
        return;
    cJSON *text = t->grown.oom ? NULL : cJSON_CreateString(t->grown.p);
    if (!text || !cJSON_ReplaceItemInObjectCaseSensitive(t->grows, t->grows_key, text)) {
        cJSON_Delete(text);
        body_nomem(t->b, t->root, t->key);
    }
    t->grows = NULL;
    buf_reset(&t->grown);
}

static cJSON *add_message(struct talk *t, const char *role, const char *text)
{
    cJSON *m = message_add(t->list, role, text);
    if (!m)
        body_nomem(t->b, t->root, t->key);
    t->assistant = NULL;
    return m;
}

/* Appends `text` to the member, separated by `between`. */
static void append(struct talk *t, cJSON *m, const char *key, const char *between, const char *text)
{
    if (!t->grows || t->grows != m || strcmp(t->grows_key, key) != 0) {
        settle(t);
        if (!json_get(m, key) && !cJSON_AddStringToObject(m, key, ""))
            body_nomem(t->b, t->root, t->key);
        t->grows = m;
        t->grows_key = key;
        buf_reserve(&t->grown, 0);
        buf_str(&t->grown, json_str(m, key, ""));
    }
    buf_str(&t->grown, t->grown.len ? between : "");
    buf_str(&t->grown, text);
}

/* Empties `content`. */
static cJSON *add_content(struct talk *t, const char *role, struct convert_content *content)
{
    t->assistant = NULL;
    return convert_add(t->b, t->key, t->list, role, content);
}

/* `image_url` is a string here; the chat API's object is accepted too. */
static void read_image(struct talk *t, const cJSON *part, struct convert_content *out)
{
    const cJSON *v = json_get(part, "image_url");
    const char *url = cJSON_IsString(v) ? v->valuestring : json_str(v, "url", NULL);
    if (!url && json_str(part, "file_id", NULL))
        body_fail(t->b, t->root, t->key, "`file_id` is not supported: there are no files here");
    else if (!url)
        body_fail(t->b, t->root, t->key, "an `input_image` has an `image_url`");
    else
        convert_picture(out, picture_part(url, NULL));
}

static bool has_images(const cJSON *content)
{
    for (const cJSON *k = json_first(content); k; k = k->next)
        if (!strcmp(json_str(k, "type", ""), "input_image"))
            return true;
    return false;
}

static void read_file(struct talk *t, const cJSON *part, struct buf *out)
{
    if (!parts_file_text(part, out))
        body_fail(t->b, t->root, t->key, PARTS_NO_FILE);
}

/* Joins text parts, or reads a plain string. Anything else fails the body. */
static char *text_of(struct talk *t, const cJSON *content)
{
    static const char *const types[] = {"input_text", "output_text", "text", "reasoning_text",
                                        "summary_text"};
    struct buf text = BUF_INIT;
    buf_reserve(&text, 0);
    if (cJSON_IsString(content))
        buf_str(&text, content->valuestring);
    else if (content && !cJSON_IsArray(content))
        body_mistyped(t->b, t->root, t->key, content, "a string or a list of content parts");
    for (const cJSON *k = json_first(content); k; k = k->next) {
        const char *type = json_str(k, "type", "(none)");
        if (!strcmp(type, "input_file")) {
            read_file(t, k, &text);
            continue;
        }
        bool known = false, refusal = !strcmp(type, "refusal");
        for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
            known |= !strcmp(type, types[i]);
        if (!known && !refusal)
            body_fail(t->b, t->root, t->key, "content of type `%.40s` is not supported", type);
        const char *words = json_str(k, refusal ? "refusal" : "text", NULL);
        if (!words)
            body_fail(t->b, t->root, t->key, "content of type `%.40s` has no text", type);
        buf_str(&text, words ? words : "");
    }
    if (text.oom)
        body_nomem(t->b, t->root, t->key);
    return buf_take(&text);
}

/* ---------------------------------------------------------------- items */

/* The assistant's current message, or a new one. */
static cJSON *assistant(struct talk *t)
{
    if (!t->assistant)
        t->assistant = add_message(t, "assistant", "");
    return t->assistant;
}

/* A user's message with images. */
static void seen_message(struct talk *t, const cJSON *item)
{
    struct convert_content content = {0};
    for (const cJSON *k = json_first(json_get(item, "content")); k; k = k->next) {
        const char *type = json_str(k, "type", "(none)");
        if (!strcmp(type, "input_image"))
            read_image(t, k, &content);
        else if (!strcmp(type, "input_text") || !strcmp(type, "text"))
            buf_str(&content.text, json_str(k, "text", ""));
        else if (!strcmp(type, "input_file"))
            read_file(t, k, &content.text);
        else
            body_fail(t->b, t->root, t->key, "content of type `%.40s` is not supported", type);
    }
    add_content(t, "user", &content);
}

static void message(struct talk *t, const cJSON *item)
{
    if (t->takes_images && has_images(json_get(item, "content")) &&
        !strcmp(json_str(item, "role", ""), "user")) {
        seen_message(t, item);
        return;
    }
    const char *role = json_str(item, "role", "");
    char *text = text_of(t, json_get(item, "content"));
    const cJSON *last = t->list->child ? t->list->child->prev : NULL;
    bool system = !strcmp(role, "system") || !strcmp(role, "developer");
    if (!text)
        return;
    if (!json_get(item, "content"))
        body_fail(t->b, t->root, t->key, "missing field `content`");
    if (!strcmp(role, "assistant")) {
        cJSON *m = t->assistant && !json_get(t->assistant, "tool_calls") ? assistant(t) : NULL;
        m = m ? m : add_message(t, role, "");
        append(t, m, "content", "\n", text);
        t->assistant = m;
    } else if (system && last && last == t->list->child &&
               !strcmp(json_str(last, "role", ""), "system")) {
        /* templates accept one system message, at the front */
        append(t, t->list->child, "content", "\n\n", text);
    } else if (system || !strcmp(role, "user")) {
        add_message(t, system ? "system" : role, text);
    } else {
        body_fail(t->b, t->root, t->key, "unknown role `%.40s`", role);
    }
    free(text);
}

/* A call by the assistant; `arguments` are JSON as text, or a tree whose ownership is taken. */
static void add_call(struct talk *t, const char *id, const char *name, cJSON *arguments)
{
    cJSON *m = assistant(t), *calls = cJSON_GetObjectItemCaseSensitive(m, "tool_calls");
    cJSON *call = cJSON_CreateObject(), *f = cJSON_AddObjectToObject(call, "function");
    cJSON_AddStringToObject(call, "id", id);
    cJSON_AddStringToObject(call, "type", "function");
    cJSON_AddStringToObject(f, "name", name);
    cJSON_AddItemToObject(f, "arguments", arguments);
    cJSON_AddItemToArray(calls ? calls : cJSON_AddArrayToObject(m, "tool_calls"), call);
}

static void function_call(struct talk *t, const cJSON *item)
{
    if (!json_str(item, "name", NULL) || !json_str(item, "arguments", NULL) ||
        !json_str(item, "call_id", NULL))
        body_fail(t->b, t->root, t->key,
                  "a `function_call` has a `name`, `arguments` and a `call_id`, which are texts");
    struct buf name = BUF_INIT;
    responses_tool_name(json_str(item, "namespace", NULL), json_str(item, "name", ""), &name);
    if (!name.oom)
        add_call(t, json_str(item, "call_id", ""), name.p,
                 cJSON_CreateString(json_str(item, "arguments", "{}")));
    buf_free(&name);
}

/* A custom tool's text becomes the single argument of the function that represents it. */
static void custom_tool_call(struct talk *t, const cJSON *item)
{
    cJSON *arguments = cJSON_CreateObject();
    if (!json_str(item, "name", NULL))
        body_fail(t->b, t->root, t->key, "a `custom_tool_call` has a `name` and an `input`");
    cJSON_AddStringToObject(arguments, "input", json_str(item, "input", ""));
    add_call(t, json_str(item, "call_id", ""), json_str(item, "name", ""), arguments);
}

/* The result of a tool: a text, parts, or anything else as JSON. An agent resends it with each
 * later request, so no content may fail the conversation. */
static void read_output(struct talk *t, const cJSON *output, struct convert_content *out)
{
    const cJSON *part = json_first(output);
    struct buf *text = &out->text;
    if (cJSON_IsString(output))
        buf_str(text, output->valuestring);
    else if (output && !json_str(part, "type", NULL))
        json_print_exact(text, output);
    for (; json_str(part, "type", NULL); part = part->next) {
        const char *type = json_str(part, "type", ""), *words = json_str(part, "text", NULL);
        if (words) {
            buf_str(text, words);
            continue;
        }
        if (t->takes_images && !strcmp(type, "input_image")) {
            read_image(t, part, out);
            continue;
        }
        if (!strcmp(type, "input_file") && parts_file_text(part, text))
            continue;
        body_warn(t->b, "input: content of type %.40s in the output of a call is left out", type);
        buf_fmt(text, "[%.40s left out: this model reads %s only]", type,
                t->takes_images ? "text and images" : "text");
    }
}

static void call_output(struct talk *t, const cJSON *item)
{
    struct convert_content content = {0};
    const char *id = json_str(item, "call_id", json_str(item, "id", NULL));
    if (!id || (json_get(item, "call_id") && !json_str(item, "call_id", NULL)))
        body_fail(t->b, t->root, t->key, "the output of a call has a `call_id`");
    const cJSON *output = json_get(item, "output"); /* of a program: its result */
    read_output(t, output ? output : json_get(item, "result"), &content);
    if (json_get(item, "tools")) /* the tools found by a tool search */
        json_print_exact(&content.text, json_get(item, "tools"));
    cJSON_AddStringToObject(add_content(t, "tool", &content), "tool_call_id", id ? id : "");
}

/* A call of a tool that is not a function: web_search_call, local_shell_call, mcp_call ... Calls
 * with a `call_id` are answered by the client. The others ran on another server and become text. */
static void foreign_call(struct talk *t, const cJSON *item, const char *type)
{
    static const char *const members[] = {"action",  "operation", "arguments", "input",
                                          "queries", "code",      "query"};
    const char *id = json_str(item, "call_id", NULL);
    const cJSON *asked = NULL;
    char name[64];
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]) && !asked; i++)
        asked = json_get(item, members[i]);
    snprintf(name, sizeof(name), "%.*s", (int)(strlen(type) - strlen("_call")), type);
    if (id) {
        add_call(t, id, json_str(item, "name", name),
                 asked ? cJSON_Duplicate(asked, true) : cJSON_CreateObject());
        return;
    }
    struct buf text = BUF_INIT;
    convert_foreign(json_str(item, "name", name), asked, &text);
    if (json_get(item, "output"))
        convert_foreign("output", json_get(item, "output"), &text);
    if (!text.oom)
        append(t, assistant(t), "content", "\n", text.p);
    buf_free(&text);
}

/* Only meaningful to the server that wrote it. */
static bool is_of_a_server(const char *type)
{
    static const char *const types[] = {
        "item_reference", "mcp_list_tools",     "mcp_approval_request", "mcp_approval_response",
        "compaction",     "compaction_summary", "context_compaction",   "compaction_trigger"};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (!strcmp(type, types[i]))
            return true;
    return false;
}

static const cJSON *last_update(const cJSON *items, const char *member, const cJSON *found)
{
    for (const cJSON *k = cJSON_IsArray(items) ? items->child : NULL; k; k = k->next)
        if (!strcmp(json_str(k, "type", ""), "configuration_update") &&
            cJSON_IsObject(json_get(k, member)))
            found = json_get(k, member);
    return found;
}

const cJSON *responses_update(const struct responses *p, struct object root, const char *member)
{
    const cJSON *found = NULL;
    for (uint32_t i = 0; i < p->n_history; i++)
        found = last_update(p->history[i], member, found);
    return last_update(json_get(root.json, "input"), member, found);
}

static void reasoning(struct talk *t, const cJSON *item)
{
    const cJSON *content = json_get(item, "content");
    bool empty = !content || (cJSON_IsArray(content) && !content->child);
    char *text = text_of(t, empty ? json_get(item, "summary") : content);
    if (text && *text) {
        t->assistant = NULL; /* later text belongs to another message */
        append(t, assistant(t), "reasoning_content", "\n", text);
    }
    free(text);
}

static void read_item(struct talk *t, const cJSON *item)
{
    const char *type = json_str(item, "type", json_get(item, "role") ? "message" : "(none)");
    if (json_get(item, "type") && !json_str(item, "type", NULL))
        type = "(none)";
    char *summary = NULL;
    if (!cJSON_IsObject(item))
        body_mistyped(t->b, t->root, t->key, item, "an object");
    else if (!strcmp(type, "message"))
        message(t, item);
    else if (!strcmp(type, "function_call"))
        function_call(t, item);
    else if (!strcmp(type, "custom_tool_call"))
        custom_tool_call(t, item);
    else if (ends_with(type, "_output"))
        call_output(t, item);
    else if (ends_with(type, "_call"))
        foreign_call(t, item, type);
    else if (!strcmp(type, "program"))
        foreign_call(t, item, "program_call");
    else if (!strcmp(type, "additional_tools") || !strcmp(type, "configuration_update"))
        ; /* tools.c; responses_update() */
    else if ((summary = compact_read(item)))
        add_message(t, "user", summary);
    else if (is_of_a_server(type))
        body_warn(t->b, "input: items of type %s are left out", type);
    else if (!strcmp(type, "reasoning"))
        reasoning(t, item);
    else
        body_fail(t->b, t->root, t->key, "items of type `%.40s` are not supported", type);
    free(summary);
}

static cJSON *messages(struct body *b, struct object root, const struct responses *p)
{
    const bool alone = p->n_history == 0 && !p->warm; /* else the input may be empty */
    const cJSON *input = body_get(b, root, "input", alone);
    const char *instructions = body_str(b, root, "instructions", false);
    struct talk t = {.b = b,
                     .root = root,
                     .list = cJSON_CreateArray(),
                     .takes_images = p->takes_images,
                     .key = "input"};
    if (instructions && *instructions)
        add_message(&t, "system", instructions);
    for (uint32_t i = 0; i < p->n_history; i++)
        for (const cJSON *k = json_first(p->history[i]); k && !b->failed; k = k->next)
            read_item(&t, k);
    if (cJSON_IsString(input))
        add_message(&t, "user", input->valuestring);
    else if (input && (!cJSON_IsArray(input) || (alone && !input->child)))
        body_fail(b, root, "input", "a string or a list of items is required");
    uint32_t n = 0;
    for (const cJSON *k = json_first(input); k && !b->failed; k = k->next) {
        body_item(b, "input", n++);
        read_item(&t, k);
    }
    body_item(b, NULL, 0);
    settle(&t);
    if (p->compact)
        add_message(&t, "user", compact_question);
    buf_free(&t.grown);
    return t.list;
}

void responses_check_items(struct body *b, struct object root, const char *key, const cJSON *items,
                           bool takes_images)
{
    struct talk t = {.b = b,
                     .root = root,
                     .list = cJSON_CreateArray(),
                     .takes_images = takes_images,
                     .key = key};
    uint32_t n = 0;
    for (const cJSON *k = json_first(items); k && !b->failed; k = k->next) {
        body_item(b, key, n++);
        read_item(&t, k);
    }
    body_item(b, NULL, 0);
    settle(&t);
    buf_free(&t.grown);
    cJSON_Delete(t.list);
}

cJSON *responses_convert(struct body *b, struct object root, struct responses *p)
{
    cJSON *chat = cJSON_CreateObject();
    const cJSON *variables = body_get(b, root, "chat_template_kwargs", false);
    bool given;
    const struct object reasoning = body_object(b, root, "reasoning", &given);
    const struct object update = {responses_update(p, root, "reasoning"), "input.reasoning"};
    const char *effort = body_str(b, update.json ? update : reasoning, "effort", false);
    p->summary = body_str(b, reasoning, "summary", false) != NULL;
    cJSON_AddItemToObject(chat, "messages", messages(b, root, p));
    responses_tools(b, root, chat, p);
    if (variables)
        cJSON_AddItemToObject(chat, "chat_template_kwargs", cJSON_Duplicate(variables, true));
    if (effort)
        cJSON_AddStringToObject(chat, "reasoning_effort", effort);
    return chat;
}
