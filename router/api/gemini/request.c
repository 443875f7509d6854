/* The body of a request for an answer, or for the number of its tokens. */
#include "common/json/unread.h"
#include "common/template/template.h"
#include "router/api/gemini/gemini.h"
#include "router/chat/convert.h"
#include "router/generate/constrain.h"
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- sampling */

static struct object member(struct body *b, struct object o, const char *key)
{
    const cJSON *v = body_get(b, o, key, false);
    if (v && !cJSON_IsObject(v))
        body_mistyped(b, o, key, v, "an object");
    json_watch(v);
    return (struct object){cJSON_IsObject(v) ? v : NULL, key};
}

/* One of the texts, written bare. */
static void constrain_choice(struct body *b, struct object o, const cJSON *schema, struct ask *q)
{
    const cJSON *values = json_get(schema, "enum");
    cJSON *as = cJSON_CreateObject();
    if (!cJSON_IsArray(values)) {
        body_fail(b, o, "responseSchema", "text/x.enum needs a `responseSchema` with `enum`");
    } else {
        cJSON_AddItemToObject(cJSON_AddObjectToObject(as, "structured_outputs"), "choice",
                              cJSON_Duplicate(values, true));
        constrain_openai(b, (struct object){as, ""}, q);
    }
    cJSON_Delete(as);
}

static void read_format(struct body *b, struct object o, struct ask *q)
{
    static const char *const any[] = {"object", "array"};
    const char *mime = body_str(b, o, "responseMimeType", false);
    const cJSON *given = body_get(b, o, "responseJsonSchema", false);
    cJSON *schema = given ? cJSON_Duplicate(given, true)
                          : gemini_schema(body_get(b, o, "responseSchema", false));
    mime = mime ? mime : "text/plain";
    if (!strcmp(mime, "text/x.enum")) {
        constrain_choice(b, o, schema, q);
    } else if (!strcmp(mime, "application/json")) {
        if (!schema) {
            schema = cJSON_CreateObject();
            cJSON_AddItemToObject(schema, "type", cJSON_CreateStringArray(any, 2));
        }
        cJSON *named = cJSON_CreateObject();
        cJSON_AddItemReferenceToObject(named, "schema", schema);
        cJSON_AddTrueToObject(named, "strict"); /* Google's objects are closed */
        constrain_named(b, "responseSchema", named, q);
        cJSON_Delete(named);
    } else if (strcmp(mime, "text/plain") != 0) {
        body_fail(b, o, "responseMimeType",
                  "`responseMimeType` must be `text/plain`, `application/json` or `text/x.enum`");
    } else if (schema) {
        body_fail(b, o, "responseMimeType", "a schema needs `responseMimeType` application/json");
    }
    q->constraint_name = q->constraint ? "responseSchema" : q->constraint_name;
    cJSON_Delete(schema);
}

static void read_modalities(struct body *b, struct object o)
{
    for (const cJSON *k = json_first(body_get(b, o, "responseModalities", false)); k; k = k->next)
        if (!cJSON_IsString(k) || strcmp(k->valuestring, "TEXT") != 0)
            body_fail(b, o, "responseModalities", "`responseModalities`: only TEXT is supported");
}

static void read_logprobs(struct body *b, struct object o, struct openai *s, struct ask *q)
{
    s->logprobs = body_opt_bool(b, o, "responseLogprobs", false);
    q->top_name = "logprobs";
    q->top_n_tokens = body_u32(b, o, "logprobs");
    if (q->top_n_tokens.set && !s->logprobs)
        body_fail(b, o, "logprobs", "`logprobs` needs `responseLogprobs`");
}

static void read_sampling(struct call *c, struct body *b, struct object root, struct openai *s)
{
    const struct object o = member(b, root, "generationConfig");
    struct ask *q = s->asks;
    q->style = ASK_OPENAI;
    q->input_name = "contents";
    q->length_name = "maxOutputTokens";
    q->max_new_tokens = body_length(b, o, q->length_name);
    body_temperature(b, o, q);
    body_cuts(b, o, "topP", "topK", q);
    q->openai_frequency_penalty = body_f32(b, o, "frequencyPenalty");
    q->openai_presence_penalty = body_f32(b, o, "presencePenalty");
    q->stop = body_strings(b, o, "stopSequences", false, true, &q->n_stop);
    q->seed = body_seed(b, o, "seed");
    openai_choices(c, b, o, "candidateCount", s);
    read_logprobs(b, o, s, q);
    read_format(b, o, q);
    read_modalities(b, o);
    if (body_str(b, root, "cachedContent", false))
        body_fail(b, root, "cachedContent", "`cachedContent` is not supported");
}

/* ---------------------------------------------------------------- reasoning */

/* A budget of 0 turns it off, another positive one on; -1 leaves it to the model. */
static void read_thinking(struct body *b, struct object root, bool can, struct gemini *g,
                          cJSON *chat)
{
    const struct object o = member(b, member(b, root, "generationConfig"), "thinkingConfig");
    const struct opt_i64 budget = body_i32(b, o, "thinkingBudget");
    const char *level = body_str(b, o, "thinkingLevel", false);
    char word[GEMINI_WORD];
    g->thoughts = body_opt_bool(b, o, "includeThoughts", false);
    const bool named = gemini_word(level, word);
    if (level && strlen(level) >= GEMINI_WORD)
        body_fail(b, o, "thinkingLevel",
                  "`thinkingLevel` must be `MINIMAL`, `LOW`, `MEDIUM` or `HIGH`");
    if (named)
        cJSON_AddStringToObject(chat, "reasoning_effort", word);
    if (!can || !budget.set || budget.v < 0)
        return;
    convert_thinking(chat, budget.v > 0);
    if (budget.v > 0)
        body_warn(b, "thinkingConfig: thinkingBudget only turns reasoning on");
    else if (!named)
        cJSON_AddStringToObject(chat, "reasoning_effort", "none");
}

/* ---------------------------------------------------------------- tools */

static cJSON *declared(const cJSON *d, bool strict)
{
    cJSON *tool = cJSON_CreateObject(), *f = cJSON_AddObjectToObject(tool, "function");
    const cJSON *schema = json_get(d, "parametersJsonSchema");
    cJSON *parameters =
        schema ? cJSON_Duplicate(schema, true) : gemini_schema(json_get(d, "parameters"));
    cJSON_AddStringToObject(tool, "type", "function");
    cJSON_AddStringToObject(f, "name", json_str(d, "name", ""));
    cJSON_AddStringToObject(f, "description", json_str(d, "description", ""));
    if (!parameters) {
        parameters = cJSON_CreateObject();
        cJSON_AddStringToObject(parameters, "type", "object");
        cJSON_AddObjectToObject(parameters, "properties");
    }
    cJSON_AddItemToObject(f, "parameters", parameters);
    if (strict)
        cJSON_AddTrueToObject(f, "strict");
    return tool;
}

static const char *calling_mode(struct body *b, struct object root, struct object *config)
{
    *config = member(b, member(b, root, "toolConfig"), "functionCallingConfig");
    const char *mode = body_str(b, *config, "mode", false);
    return mode && strcmp(mode, "MODE_UNSPECIFIED") != 0 ? mode : "AUTO";
}

/* {"functionDeclarations"}; Google's own tools are left out. */
static cJSON *tools_of(struct body *b, struct object root, const cJSON *given)
{
    struct object config;
    const char *mode = calling_mode(b, root, &config);
    const bool strict = !strcmp(mode, "VALIDATED") || !strcmp(mode, "ANY");
    cJSON *list = cJSON_CreateArray();
    for (const cJSON *k = given->child; k && cJSON_IsObject(given); k = k->next) {
        if (strcmp(k->string, "functionDeclarations") != 0) {
            body_warn(b, "tools: %.40s is left out", k->string);
            continue;
        }
        for (const cJSON *d = json_first(k); d; d = d->next) {
            if (!json_str(d, "name", NULL))
                body_fail(b, root, "tools", "a function declaration has a `name`");
            cJSON_AddItemToArray(list, declared(d, strict));
        }
    }
    return list;
}

static void tool_choice(struct body *b, struct object root, bool tools, cJSON *chat)
{
    struct object config;
    const char *mode = calling_mode(b, root, &config);
    const bool any = !strcmp(mode, "ANY"), none = !strcmp(mode, "NONE");
    const cJSON *allowed = json_first(json_get(config.json, "allowedFunctionNames"));
    if (!any && !none && strcmp(mode, "AUTO") != 0 && strcmp(mode, "VALIDATED") != 0)
        body_fail(b, config, "mode", "`mode` must be `AUTO`, `ANY`, `NONE` or `VALIDATED`");
    if (any && !tools)
        body_fail(b, config, "mode", "mode ANY needs `functionDeclarations`");
    if (!tools || b->failed)
        return;
    if (none || !allowed) {
        cJSON_AddStringToObject(chat, "tool_choice", none ? "none" : any ? "required" : "auto");
        return;
    }
    cJSON *choice = cJSON_AddObjectToObject(chat, "tool_choice");
    cJSON *of = cJSON_AddObjectToObject(choice, "allowed_tools");
    cJSON_AddStringToObject(choice, "type", "allowed_tools");
    cJSON_AddStringToObject(of, "mode", any ? "required" : "auto");
    cJSON_AddItemToObject(of, "tools",
                          cJSON_Duplicate(json_get(config.json, "allowedFunctionNames"), true));
}

/* ---------------------------------------------------------------- the whole */

const char *gemini_model(struct call *c, const char **action)
{
    const char *at = strstr(c->path, "/models/");
    const char *name = at ? at + strlen("/models/") : "", *colon = strrchr(name, ':');
    *action = colon ? colon + 1 : "";
    return arena_strdup(&c->arena, name, colon ? (size_t)(colon - name) : strlen(name));
}

static struct openai *new_state(struct call *c, bool stream)
{
    const char *action, *model = gemini_model(c, &action);
    struct openai *o = ARENA_NEW(&c->arena, struct openai, 1);
    if (!model || !o || !(o->asks = ARENA_NEW(&c->arena, struct ask, 1)) ||
        !(o->gemini = ARENA_NEW(&c->arena, struct gemini, 1)))
        return NULL;
    o->model = *model ? model : c->edge->model_id;
    snprintf(o->id, sizeof(o->id), "%016llx%08x", (unsigned long long)seed_draw(),
             (unsigned)c->created_unix);
    o->stream = stream;
    o->gemini->list = !c->arguments[0] || strcmp(c->arguments[0], "sse") != 0;
    o->each = o->shown = o->n_asks = 1;
    return o;
}

int gemini_parse(struct call *c, bool stream, struct chat_request *r, struct err *e)
{
    struct body b;
    *r = (struct chat_request){.split = true};
    if (body_open_prompt(&b, c->body.p, c->body.len, &c->arena, e) != 0)
        return -1;
    b.plain = true;
    template_keep_numbers(b.root, b.text, b.n);
    gemini_rename_all(b.root);
    struct object root = body_root(&b);
    if (json_get(b.root, "generateContentRequest")) /* of countTokens */
        root = member(&b, root, "generateContentRequest");
    if (!(r->openai = new_state(c, stream)))
        return err_nomem(e);
    read_sampling(c, &b, root, r->openai);
    cJSON *chat = cJSON_CreateObject();
    cJSON_AddItemToObject(chat, "messages",
                          gemini_messages(&b, root, edge_media(c->edge).vision != NULL));
    const bool tools = convert_tools(&b, root, chat, tools_of);
    tool_choice(&b, root, tools, chat);
    read_thinking(&b, root, chat_style(c->edge->chat, tools).reasoning, r->openai->gemini, chat);
    body_unread(&b, member(&b, root, "generationConfig"));
    return chat_prepare_tree(c, &b, chat, r, e);
}
