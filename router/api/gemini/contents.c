/* Contents, lists of parts, as OpenAI's messages, which chat templates read. */
#include "common/json/exact.h"
#include "common/json/json.h"
#include "router/api/gemini/gemini.h"
#include "router/chat/call_ids.h"
#include "router/chat/convert.h"
#include "router/chat/pictures.h"
#include <stdio.h>
#include <string.h>

struct turn { /* the message being built */
    struct body *b;
    cJSON *list;
    struct call_ids ids;
    struct convert_content content;
    struct buf thoughts;
    cJSON *calls;
    uint32_t message, part;   /* position */
    bool takes_images, model; /* the role is the model's */
};

static void refuse(struct turn *t, const char *why)
{
    body_fail(t->b, body_root(t->b), "contents", "contents[%u].parts[%u]: %s", t->message, t->part,
              why);
}

/* ---------------------------------------------------------------- files */

static bool begins(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

/* A file of text. */
static cJSON *text_file(const char *base64, const char *name)
{
    cJSON *part = cJSON_CreateObject(), *file = cJSON_AddObjectToObject(part, "file");
    cJSON_AddStringToObject(part, "type", "file");
    cJSON_AddStringToObject(file, "filename", name);
    cJSON_AddStringToObject(file, "file_data", base64);
    return part;
}

/* {"mimeType", "data"}, or {"mimeType", "fileUri"}. */
static void read_file(struct turn *t, const cJSON *file, struct convert_content *out)
{
    const char *mime = json_str(file, "mimeType", ""), *data = json_str(file, "data", NULL);
    const char *uri = json_str(file, "fileUri", NULL);
    char where[64];
    snprintf(where, sizeof(where), "contents[%u].parts[%u]", t->message, t->part);
    if (!data && !uri)
        refuse(t, "`inlineData` has `mimeType` and `data`, `fileData` has `fileUri`");
    else if (begins(mime, "image/") && !t->takes_images)
        refuse(t, "this model does not take images");
    else if (begins(mime, "image/"))
        convert_picture(out,
                        data ? picture_part_base64(mime, data, where) : picture_part(uri, where));
    else if (data && (begins(mime, "text/") || !strcmp(mime, "application/json")))
        convert_picture(out, text_file(data, json_str(file, "displayName", "")));
    else
        refuse(t,
               t->takes_images ? "only text and images are supported" : "only text is supported");
}

/* ---------------------------------------------------------------- calls and results */

static void read_call(struct turn *t, const cJSON *call)
{
    const char *name = json_str(call, "name", NULL);
    const cJSON *args = json_get(call, "args");
    cJSON *to = cJSON_CreateObject(), *f = cJSON_AddObjectToObject(to, "function");
    if (!name || (args && !cJSON_IsObject(args)))
        refuse(t, "a `functionCall` has a `name`, and an object as `args`");
    cJSON_AddStringToObject(to, "id",
                            call_ids_open(&t->ids, json_str(call, "id", NULL), name ? name : ""));
    cJSON_AddStringToObject(to, "type", "function");
    cJSON_AddStringToObject(f, "name", name ? name : "");
    cJSON_AddItemToObject(f, "arguments",
                          args ? cJSON_Duplicate(args, true) : cJSON_CreateObject());
    if (!t->calls)
        t->calls = cJSON_CreateArray();
    cJSON_AddItemToArray(t->calls, to);
}

/* The function's output: the text of a lone `output` or `result`, an `error`, or the whole. */
static void add_output(const cJSON *response, struct buf *out)
{
    const cJSON *only = response ? response->child : NULL;
    const bool lone = only && !only->next && cJSON_IsString(only);
    const bool error = lone && !strcmp(only->string, "error");
    if (error || (lone && (!strcmp(only->string, "output") || !strcmp(only->string, "result"))))
        buf_fmt(out, "%s%s", error ? "Error: " : "", only->valuestring);
    else if (response)
        json_print_exact(out, response);
}

/* A message of its own. What a result has besides its output is kept where the model can read it:
 * an agent resends it with each later request. */
static void read_result(struct turn *t, const cJSON *result)
{
    const char *name = json_str(result, "name", NULL);
    const cJSON *response = json_get(result, "response");
    struct convert_content content = {0};
    if (!name || (response && !cJSON_IsObject(response)))
        refuse(t, "a `functionResponse` has a `name`, and an object as `response`");
    add_output(response, &content.text);
    for (const cJSON *p = json_first(json_get(result, "parts")); p; p = p->next) {
        const cJSON *file = json_get(p, "inlineData");
        if (t->takes_images && begins(json_str(file, "mimeType", ""), "image/"))
            read_file(t, file, &content);
        else
            buf_str(&content.text, "[a file is left out]");
    }
    cJSON *m = convert_add(t->b, "contents", t->list, "tool", &content);
    cJSON_AddStringToObject(m, "name", name ? name : "");
    cJSON_AddStringToObject(m, "tool_call_id",
                            call_ids_answer(&t->ids, json_str(result, "id", NULL), name));
}

/* ---------------------------------------------------------------- parts */

static void read_part(struct turn *t, const cJSON *part)
{
    const cJSON *text = json_get(part, "text"), *call = json_get(part, "functionCall");
    const cJSON *result = json_get(part, "functionResponse");
    const cJSON *code = json_get(part, "executableCode");
    const cJSON *ran = json_get(part, "codeExecutionResult");
    const cJSON *file = json_get(part, "inlineData");
    file = file ? file : json_get(part, "fileData");
    if (cJSON_IsString(text))
        buf_str(json_bool(part, "thought", false) ? &t->thoughts : &t->content.text,
                text->valuestring);
    else if (text)
        refuse(t, "`text` is a string");
    else if (call && t->model)
        read_call(t, call);
    else if (result && !t->model)
        read_result(t, result);
    else if (file)
        read_file(t, file, &t->content);
    else if (code || ran)
        convert_foreign(code ? "executableCode" : "codeExecutionResult", code ? code : ran,
                        &t->content.text);
    else if (!json_get(part, "thoughtSignature"))
        refuse(t, "a part has `text`, `inlineData` or `fileData`; or `functionCall`, of the model, "
                  "or `functionResponse`, of the user");
}

/* The message of what was read; nothing if there is nothing but results. */
static void end_message(struct turn *t, const char *role)
{
    const bool thought = t->model && t->thoughts.len;
    const bool any = !convert_empty(&t->content) || t->calls || thought || t->content.text.oom;
    cJSON *m = any ? convert_add(t->b, "contents", t->list, role, &t->content) : NULL;
    if (t->thoughts.oom)
        body_nomem(t->b, body_root(t->b), "contents");
    if (m && thought)
        cJSON_AddStringToObject(m, "reasoning_content", t->thoughts.p);
    if (m && t->calls)
        cJSON_AddItemToObject(m, "tool_calls", t->calls);
    else
        cJSON_Delete(t->calls);
    t->calls = NULL;
    buf_free(&t->thoughts);
}

static void read_content(struct turn *t, const cJSON *content)
{
    static const struct {
        const char *name;
        bool model;
    } roles[] = {{"user", false},
                 {"model", true},
                 {"function", false},
                 {"tool", false},
                 {"assistant", true}};
    const char *role = json_str(content, "role", "user");
    const cJSON *parts = json_get(content, "parts");
    size_t i = 0, n = sizeof(roles) / sizeof(roles[0]);
    while (i < n && strcmp(roles[i].name, role) != 0)
        i++;
    t->part = 0;
    if (i == n || !cJSON_IsObject(content) || (parts && !cJSON_IsArray(parts))) {
        refuse(t, "a content has the `role` `user` or `model`, and a list of `parts`");
        return;
    }
    t->model = roles[i].model;
    for (const cJSON *p = json_first(parts); p; p = p->next, t->part++)
        read_part(t, p);
    end_message(t, t->model ? "assistant" : "user");
}

/* A content without a role, or a text. */
static void read_system(struct turn *t, const cJSON *system)
{
    if (cJSON_IsString(system))
        buf_str(&t->content.text, system->valuestring);
    for (const cJSON *p = json_first(json_get(system, "parts")); p; p = p->next)
        if (json_str(p, "text", NULL))
            buf_str(&t->content.text, json_str(p, "text", ""));
        else
            body_fail(t->b, body_root(t->b), "systemInstruction",
                      "`systemInstruction` has parts with `text`");
    if (!convert_empty(&t->content))
        end_message(t, "system");
}

cJSON *gemini_messages(struct body *b, struct object root, bool takes_images)
{
    const cJSON *contents = body_get(b, root, "contents", true);
    struct turn t = {.b = b, .list = cJSON_CreateArray(), .takes_images = takes_images};
    read_system(&t, json_get(root.json, "systemInstruction"));
    if (cJSON_IsObject(contents))
        read_content(&t, contents);
    else if (contents && (!cJSON_IsArray(contents) || !contents->child))
        body_fail(b, root, "contents", "`contents` is a list of at least one content");
    for (const cJSON *k = json_first(contents); k && !b->failed; k = k->next, t.message++)
        read_content(&t, k);
    call_ids_free(&t.ids);
    convert_clear(&t.content);
    buf_free(&t.thoughts);
    cJSON_Delete(t.calls);
    return t.list;
}
