/* The body of a chat request. */
#include "common/json/exact.h"
#include "common/json/json.h"
#include "common/template/template.h"
#include "router/api/cohere/cohere.h"
#include "router/chat/convert.h"
#include "router/chat/pictures.h"
#include "router/generate/constrain.h"
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- sampling */

static void read_cuts(struct body *b, struct object root, struct ask *q)
{
    body_temperature(b, root, q);
    body_cuts(b, root, "p", "k", q);
    if (q->top_p.set && !(q->top_p.v >= 0 && q->top_p.v <= 1))
        body_fail(b, root, "p", "`p` must be >= 0 and <= 1");
    if (q->top_k.set && q->top_k.v < 0)
        body_fail(b, root, "k", "`k` must be >= 0, or -1 for all");
    q->openai_frequency_penalty = body_f32(b, root, "frequency_penalty");
    q->openai_presence_penalty = body_f32(b, root, "presence_penalty");
}

/* {"type": "json_object"} with or without a schema. */
static void read_format(struct body *b, struct object root, struct ask *q)
{
    const cJSON *format = body_get(b, root, "response_format", false);
    const char *type = json_str(format, "type", "");
    const cJSON *schema = json_get(format, "json_schema");
    if (!format || !strcmp(type, "text"))
        return;
    if (strcmp(type, "json_object") != 0 || (schema && !cJSON_IsObject(schema))) {
        body_fail(b, root, "response_format",
                  "`response_format`: `type` must be `text` or `json_object`, and `json_schema` an "
                  "object");
        return;
    }
    cJSON *any = cJSON_CreateObject();
    cJSON_AddStringToObject(any, "type", "object");
    constrain_schema(b, "response_format", schema ? schema : any, q);
    cJSON_Delete(any);
}

static void read_sampling(struct body *b, struct object root, struct openai *o, struct ask *q)
{
    const cJSON *documents = body_get(b, root, "documents", false);
    const char *safety = body_str(b, root, "safety_mode", false);
    q->style = ASK_OPENAI;
    q->input_name = "messages";
    q->length_name = "max_tokens";
    q->max_new_tokens = body_length(b, root, q->length_name);
    read_cuts(b, root, q);
    q->stop = body_strings(b, root, "stop_sequences", false, true, &q->n_stop);
    q->seed = body_seed(b, root, "seed");
    q->priority = body_i32(b, root, "priority");
    o->logprobs = body_opt_bool(b, root, "logprobs", false);
    read_format(b, root, q);
    if (documents && (!cJSON_IsArray(documents) || documents->child))
        body_fail(b, root, "documents",
                  "`documents` is not supported: put their text into a message");
    if (safety && !strcmp(safety, "STRICT"))
        body_warn(b, "safety_mode: no instruction is added to the prompt");
}

/* ---------------------------------------------------------------- messages */

/* {"type": "document", "document": {"id", "data"}} of a tool's result becomes its data as text. */
static cJSON *document_part(const cJSON *part)
{
    const cJSON *data = json_get(json_get(part, "document"), "data");
    struct buf text = BUF_INIT;
    if (data)
        json_print_exact(&text, data);
    cJSON *to = text.p && !text.oom ? picture_text_part(text.p) : NULL;
    buf_free(&text);
    return to;
}

/* Replaces the parts that OpenAI's messages lack; the text of `thinking` goes to `thoughts`. */
static cJSON *convert_parts(struct body *b, const cJSON *parts, struct buf *thoughts)
{
    cJSON *list = cJSON_CreateArray();
    for (const cJSON *k = json_first(parts); k; k = k->next) {
        const char *type = json_str(k, "type", "");
        if (!strcmp(type, "thinking")) {
            const char *text = body_str(b, (struct object){k, "messages"}, "thinking", true);
            buf_str(thoughts, text ? text : "");
            continue;
        }
        const bool document = !strcmp(type, "document");
        if (document && !cJSON_IsObject(json_get(json_get(k, "document"), "data")))
            body_fail(b, body_root(b), "messages", "a `document` has an object as `data`");
        if (!document && strcmp(type, "text") != 0 && strcmp(type, "image_url") != 0)
            body_fail(b, body_root(b), "messages",
                      "a content part must have the type `text`, `image_url`, `thinking` or "
                      "`document`");
        cJSON *part = document ? document_part(k) : cJSON_Duplicate(k, true);
        if (!cJSON_AddItemToArray(list, part)) {
            cJSON_Delete(part);
            body_nomem(b, body_root(b), "messages");
        }
    }
    return list;
}

static void check_role(struct body *b, const cJSON *m)
{
    static const char *const roles[] = {"user", "assistant", "system", "tool"};
    const char *role = body_str(b, (struct object){m, "messages"}, "role", true);
    bool known = false;
    for (size_t i = 0; role && i < sizeof(roles) / sizeof(roles[0]); i++)
        known |= !strcmp(role, roles[i]);
    if (role && !known)
        body_fail(b, body_root(b), "messages", "unknown role `%.40s`", role);
}

/* A plan precedes the calls of its message. Cohere's templates read `tool_plan`, others the
 * content.
 */
static cJSON *convert_message(struct body *b, const cJSON *m)
{
    cJSON *to = cJSON_Duplicate(m, true);
    const cJSON *content = json_get(m, "content");
    const char *plan = body_str(b, (struct object){m, "messages"}, "tool_plan", false);
    struct buf thoughts = BUF_INIT;
    check_role(b, m);
    if (cJSON_IsArray(content))
        cJSON_ReplaceItemInObject(to, "content", convert_parts(b, content, &thoughts));
    if (thoughts.len)
        cJSON_AddStringToObject(to, "reasoning_content", thoughts.p);
    if (plan && (!content || cJSON_IsNull(content))) {
        cJSON_DeleteItemFromObject(to, "content");
        cJSON_AddStringToObject(to, "content", plan);
    }
    cJSON_DeleteItemFromObject(to, "citations");
    if (thoughts.oom)
        body_nomem(b, body_root(b), "messages");
    buf_free(&thoughts);
    return to;
}

static cJSON *messages(struct body *b, struct object root)
{
    const cJSON *list = body_get(b, root, "messages", true);
    cJSON *to = cJSON_CreateArray();
    uint32_t i = 0;
    if (list && !cJSON_IsArray(list))
        body_mistyped(b, root, "messages", list, "a sequence");
    else if (list && !list->child)
        body_fail(b, root, "messages", "at least one message is required");
    for (const cJSON *m = json_first(list); m && !b->failed; m = m->next) {
        body_item(b, "messages", i++);
        cJSON_AddItemToArray(to, convert_message(b, m));
    }
    body_item(b, NULL, 0);
    return to;
}

/* ---------------------------------------------------------------- tools */

static cJSON *tool(struct body *b, struct object root, const cJSON *given)
{
    cJSON *to = cJSON_Duplicate(given, true), *f = cJSON_GetObjectItem(to, "function");
    if (!json_str(f, "name", NULL))
        body_fail(b, root, "tools", "a tool has a `function` with a `name`");
    else if (body_opt_bool(b, root, "strict_tools", false) && !json_get(f, "strict"))
        cJSON_AddTrueToObject(f, "strict");
    return to;
}

static void tool_choice(struct body *b, struct object root, cJSON *chat)
{
    const char *choice = body_str(b, root, "tool_choice", false);
    if (choice && !strcmp(choice, "REQUIRED"))
        cJSON_AddStringToObject(chat, "tool_choice", "required");
    else if (choice && !strcmp(choice, "NONE"))
        cJSON_AddStringToObject(chat, "tool_choice", "none");
    else if (choice)
        body_fail(b, root, "tool_choice", "`tool_choice` must be `REQUIRED` or `NONE`");
}

static void thinking(struct body *b, struct object root, bool can, cJSON *chat)
{
    const cJSON *given = body_get(b, root, "thinking", false);
    const char *type = json_str(given, "type", "");
    const bool on = !strcmp(type, "enabled"), off = !strcmp(type, "disabled");
    if (given && !on && !off)
        body_fail(b, root, "thinking", "`thinking`: `type` must be `enabled` or `disabled`");
    else if (on && !can)
        body_warn(b, "thinking: this model has none");
    if (cJSON_IsObject(given) &&
        body_u32(b, (struct object){given, "thinking"}, "token_budget").set)
        body_warn(b, "thinking: token_budget has no effect");
    if ((on || off) && can)
        convert_thinking(chat, on);
}

/* ---------------------------------------------------------------- the whole */

static struct openai *new_state(struct call *c, struct body *b)
{
    struct openai *o = ARENA_NEW(&c->arena, struct openai, 1);
    if (!o || !(o->asks = ARENA_NEW(&c->arena, struct ask, 1)))
        return NULL;
    const char *model = body_str(b, body_root(b), "model", false);
    o->model = model && *model ? model : c->edge->model_id;
    snprintf(o->id, sizeof(o->id), "%016llx%08x", (unsigned long long)seed_draw(),
             (unsigned)c->created_unix);
    o->stream = body_bool(b, body_root(b), "stream", false);
    o->each = o->shown = o->n_asks = 1;
    return o;
}

int cohere_chat_parse(struct call *c, struct chat_request *r, struct err *e)
{
    struct body b;
    *r = (struct chat_request){.split = true};
    if (body_open_prompt(&b, c->body.p, c->body.len, &c->arena, e) != 0)
        return -1;
    const struct object root = body_root(&b);
    b.plain = true;
    template_keep_numbers(b.root, b.text, b.n);
    r->openai = new_state(c, &b);
    if (!r->openai)
        return err_nomem(e);
    read_sampling(&b, root, r->openai, r->openai->asks);
    cJSON *chat = cJSON_CreateObject();
    cJSON_AddItemToObject(chat, "messages", messages(&b, root));
    body_opt_bool(&b, root, "strict_tools", false); /* checked where there are no tools, too */
    const bool tools = convert_tools(&b, root, chat, tool);
    if (json_get(root.json, "tool_choice") && !tools)
        body_fail(&b, root, "tool_choice", "`tool_choice` needs `tools`");
    tool_choice(&b, root, chat);
    thinking(&b, root, chat_style(c->edge->chat, tools).reasoning, chat);
    return chat_prepare_tree(c, &b, chat, r, e);
}
