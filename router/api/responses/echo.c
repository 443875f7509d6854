/* The request's members that a response repeats. */
#include "common/json/exact.h"
#include "router/api/responses/responses.h"
#include <stdio.h>
#include <string.h>

static void json_or(struct buf *out, const cJSON *v, const char *def)
{
    if (v)
        json_print_exact(out, v);
    else
        buf_str(out, def);
}

static void json(struct buf *out, const char *name, const cJSON *v, const char *def)
{
    buf_fmt(out, ",\"%s\":", name);
    json_or(out, v, def);
}

/* A number as sent, or its default: cJSON would print integers without a point. */
static void number(struct buf *out, const char *name, const cJSON *v, const char *def)
{
    json(out, name, cJSON_IsNumber(v) ? v : NULL, def);
}

/* A tool with the members that OpenAI's answers always have. */
static void tool(struct buf *out, const cJSON *k)
{
    const char *type = json_str(k, "type", "");
    buf_fmt(out, "{\"type\":\"%s\"", type);
    json(out, "name", json_get(k, "name"), "\"\"");
    json(out, "description", json_get(k, "description"), "null");
    if (!strcmp(type, "namespace")) {
        json(out, "tools", json_get(k, "tools"), "[]");
    } else if (!strcmp(type, "custom")) {
        json(out, "format", json_get(k, "format"), "{\"type\":\"text\"}");
    } else {
        json(out, "parameters", json_get(k, "parameters"), "null");
        json(out, "strict", json_get(k, "strict"), "true");
    }
    buf_ch(out, '}');
}

/* The supported ones. */
static void tools(struct buf *out, const cJSON *given)
{
    const char *between = "";
    buf_str(out, ",\"tools\":[");
    for (const cJSON *k = cJSON_IsArray(given) ? given->child : NULL; k; k = k->next) {
        if (!responses_tool_taken(k) && strcmp(json_str(k, "type", ""), "namespace") != 0)
            continue;
        buf_str(out, between);
        between = ",";
        tool(out, k);
    }
    buf_ch(out, ']');
}

static void text_format(struct buf *out, const cJSON *text)
{
    const cJSON *f = json_get(text, "format");
    buf_str(out, ",\"text\":{\"format\":");
    if (!strcmp(json_str(f, "type", "text"), "json_schema")) {
        buf_str(out, "{\"type\":\"json_schema\"");
        json(out, "name", json_get(f, "name"), "\"\"");
        json(out, "description", json_get(f, "description"), "null");
        json(out, "schema", json_get(f, "schema"), "{}");
        json(out, "strict", json_get(f, "strict"), "true");
        buf_str(out, "}}");
    } else {
        buf_fmt(out, "{\"type\":\"%s\"}}",
                strcmp(json_str(f, "type", ""), "json_object") ? "text" : "json_object");
    }
}

/* What the request says, else what the server does. */
static void sampled(struct buf *out, const char *key, const cJSON *v, const struct opt_f32 *server)
{
    char text[32];
    snprintf(text, sizeof(text), "%.6g", (double)server->v);
    number(out, key, v, server->set ? text : "1.0");
}

void responses_echo(struct object root, const struct responses *p,
                    const struct sampling_defaults *d, struct buf *out)
{
    const cJSON *r = root.json, *reasoning = json_get(r, "reasoning");
    json(out, "instructions", json_get(r, "instructions"), "null");
    json(out, "metadata", json_get(r, "metadata"), "{}");
    json(out, "max_output_tokens", json_get(r, "max_output_tokens"), "null");
    json(out, "parallel_tool_calls", json_get(r, "parallel_tool_calls"), "true");
    sampled(out, "temperature", json_get(r, "temperature"), &d->temperature);
    sampled(out, "top_p", json_get(r, "top_p"), &d->top_p);
    number(out, "top_logprobs", json_get(r, "top_logprobs"), "0");
    json(out, "tool_choice", json_get(r, "tool_choice"), "\"auto\"");
    tools(out, json_get(r, "tools"));
    text_format(out, json_get(r, "text"));
    buf_str(out, ",\"reasoning\":{\"effort\":");
    json_or(out, json_get(reasoning, "effort"), "null");
    json(out, "summary", json_get(reasoning, "summary"), "null");
    buf_ch(out, '}');
    json(out, "user", json_get(r, "user"), "null");
    json(out, "truncation", json_get(r, "truncation"), "\"disabled\"");
    buf_fmt(out, ",\"background\":%s,\"store\":%s,\"previous_response_id\":",
            p->background ? "true" : "false", p->store ? "true" : "false");
    if (p->previous)
        buf_json_str(out, p->previous, strlen(p->previous));
    else
        buf_str(out, "null");
    if (p->conversation) {
        buf_str(out, ",\"conversation\":{\"id\":");
        buf_json_str(out, p->conversation, strlen(p->conversation));
        buf_ch(out, '}');
    }
}
