#include "router/chat/custom.h"
#include "common/json/json.h"
#include "common/utf8.h"
#include "router/chat/message.h"
#include "router/chat/pictures.h"
#include <stdlib.h>
#include <string.h>

bool custom_is(const cJSON *tool) { return !strcmp(json_str(tool, "type", ""), "custom"); }

const cJSON *custom_members(const cJSON *tool)
{
    const cJSON *nested = json_get(tool, "custom");
    return nested ? nested : tool;
}

/* Clients of the chat API nest the members once more than those of Responses. */
static const cJSON *nested_grammar(const cJSON *format)
{
    const cJSON *nested = json_get(format, "grammar");
    return nested ? nested : format;
}

const cJSON *custom_grammar(const cJSON *tool)
{
    const cJSON *f = json_get(custom_members(tool), "format");
    return strcmp(json_str(f, "type", ""), "grammar") != 0 ? NULL : nested_grammar(f);
}

const char *custom_check(const cJSON *tool)
{
    const cJSON *f = json_get(custom_members(tool), "format"), *g = custom_grammar(tool);
    const char *syntax = json_str(g, "syntax", "");
    if (!f || (cJSON_IsObject(f) && !strcmp(json_str(f, "type", ""), "text")))
        return NULL;
    if (!g)
        return "the `format` of a custom tool must have the type `text` or `grammar`";
    if (strcmp(syntax, "lark") != 0 && strcmp(syntax, "regex") != 0)
        return "a grammar's `syntax` must be `lark` or `regex`";
    return json_str(g, "definition", NULL) ? NULL : "a grammar has a `definition`";
}

/* The description of a custom tool for the model. */
static void describe(const cJSON *tool, struct buf *out)
{
    const cJSON *g = custom_grammar(tool);
    buf_reserve(out, 0);
    buf_str(out, json_str(custom_members(tool), "description", ""));
    if (g)
        buf_fmt(out, "%sIts input follows this grammar (%s):\n%s", out->len ? "\n" : "",
                json_str(g, "syntax", ""), json_str(g, "definition", ""));
}

static bool add_input_schema(cJSON *function)
{
    cJSON *schema = cJSON_AddObjectToObject(function, "parameters");
    const cJSON *type = cJSON_AddStringToObject(schema, "type", "object");
    cJSON *input = cJSON_AddObjectToObject(cJSON_AddObjectToObject(schema, "properties"), "input");
    cJSON *required = cJSON_AddArrayToObject(schema, "required");
    return type && cJSON_AddStringToObject(input, "type", "string") && required &&
           cJSON_AddItemToArray(required, cJSON_CreateString("input")) &&
           cJSON_AddFalseToObject(schema, "additionalProperties");
}

cJSON *custom_as_function(const cJSON *tool)
{
    struct buf text = BUF_INIT;
    cJSON *out = cJSON_CreateObject(), *f = cJSON_AddObjectToObject(out, "function");
    describe(tool, &text);
    const bool ok =
        !text.oom && cJSON_AddStringToObject(out, "type", "function") &&
        cJSON_AddStringToObject(f, "name", json_str(custom_members(tool), "name", "")) &&
        cJSON_AddStringToObject(f, "description", text.p) && add_input_schema(f);
    buf_free(&text);
    if (ok)
        return out;
    cJSON_Delete(out);
    return NULL;
}

bool custom_named(const struct custom_tools *t, const char *name)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (!strcmp(t->names[i], name))
            return true;
    return false;
}

/* ---------------------------------------------------------------- messages */

int custom_settle_calls(cJSON *message)
{
    cJSON *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls");
    for (cJSON *call = cJSON_IsArray(calls) ? calls->child : NULL; call; call = call->next) {
        const cJSON *custom = json_get(call, "custom");
        if (!cJSON_IsObject(custom) || json_get(call, "function"))
            continue;
        cJSON *f = cJSON_CreateObject();
        if (!cJSON_AddStringToObject(f, "name", json_str(custom, "name", "")) ||
            !cJSON_AddStringToObject(cJSON_AddObjectToObject(f, "arguments"), "input",
                                     json_str(custom, "input", ""))) {
            cJSON_Delete(f);
            return -1;
        }
        cJSON_DeleteItemFromObjectCaseSensitive(call, "custom");
        if (!json_put(call, "type", cJSON_CreateString("function")) ||
            !json_put(call, "function", f))
            return -1;
    }
    return 0;
}

static bool add_text(cJSON *message, const char *text)
{
    cJSON *content = cJSON_GetObjectItemCaseSensitive(message, "content");
    if (cJSON_IsArray(content)) {
        cJSON *part = picture_text_part(text);
        if (part && cJSON_AddItemToArray(content, part))
            return true;
        cJSON_Delete(part);
        return false;
    }
    struct buf all = BUF_INIT;
    buf_fmt(&all, "%s\n\n%s", json_str(message, "content", ""), text);
    const bool ok = !all.oom && json_put(message, "content", cJSON_CreateString(all.p));
    buf_free(&all);
    return ok;
}

int custom_ask(cJSON *messages, const cJSON *tool)
{
    cJSON *last = messages->child ? messages->child->prev : NULL;
    struct buf text = BUF_INIT;
    buf_fmt(&text, "Answer with the input of the tool `%s` and nothing else. ",
            json_str(custom_members(tool), "name", ""));
    describe(tool, &text);
    const bool ok = !text.oom && (last && !strcmp(json_str(last, "role", ""), "user")
                                      ? add_text(last, text.p)
                                      : message_add(messages, "user", text.p) != NULL);
    buf_free(&text);
    return ok ? 0 : -1;
}

/* ---------------------------------------------------------------- the input of a call */

static const char head[] = "{\"input\":\"";
/* The state is the number of bytes of `head` that were read, or one of these. */
enum { TEXT = sizeof(head) - 1, ENDED, OTHER };

static int hex4(const char *s)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        const char c = s[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return -1;
        v = v * 16 + digit;
    }
    return v;
}

static void put_code(struct buf *out, uint32_t code)
{
    char bytes[4];
    const size_t n = utf8_encode(code, bytes);
    if (n)
        buf_add(out, bytes, n);
    else
        buf_str(out, "\xef\xbf\xbd");
}

/* Reads \uXXXX, with a second one if it is half of a pair. Returns its length; 0: incomplete. */
static size_t read_unicode(const char *s, size_t n, struct buf *out)
{
    if (n < 6)
        return 0;
    const int code = hex4(s + 2);
    if (code < 0xd800 || code > 0xdbff) {
        put_code(out, code < 0 ? 0xfffd : (uint32_t)code);
        return 6;
    }
    if (n < 12 && (n < 7 || s[6] == '\\') && (n < 8 || s[7] == 'u'))
        return 0;
    const int low = n >= 12 && s[6] == '\\' && s[7] == 'u' ? hex4(s + 8) : -1;
    if (low < 0xdc00 || low > 0xdfff) {
        put_code(out, 0xfffd);
        return 6;
    }
    put_code(out, 0x10000 + ((uint32_t)(code - 0xd800) << 10) + (uint32_t)(low - 0xdc00));
    return 12;
}

/* Reads the escape at s. Returns its length; 0: incomplete. */
static size_t read_escape(const char *s, size_t n, struct buf *out)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    if (n < 2)
        return 0;
    if (s[1] == 'u')
        return read_unicode(s, n, out);
    const char *known = memchr(from, s[1], sizeof(from) - 1);
    buf_ch(out, known ? to[known - from] : s[1]);
    return 2;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* White space may precede every token of the head. */
static void read_head(struct custom_reader *r, char c)
{
    const bool starts = r->state <= 1 || head[r->state] == ':' || r->state == TEXT - 1;
    if (c == head[r->state])
        r->state++;
    else if (!starts || !is_blank(c))
        r->state = OTHER;
    r->at++;
}

void custom_read(struct custom_reader *r, const char *s, size_t n, struct buf *out)
{
    while (r->at < n && r->state < TEXT)
        read_head(r, s[r->at]);
    while (r->at < n && r->state == TEXT) {
        size_t plain = r->at, len;
        while (plain < n && s[plain] != '"' && s[plain] != '\\')
            plain++;
        buf_add(out, s + r->at, plain - r->at);
        r->at = plain;
        if (plain == n)
            return;
        if (s[plain] == '"')
            r->state = ENDED;
        else if ((len = read_escape(s + plain, n - plain, out)) > 0)
            r->at += len;
        else
            return;
    }
}

void custom_read_end(struct custom_reader *r, const char *s, size_t n, struct buf *out)
{
    struct err ignored;
    custom_read(r, s, n, out);
    if (r->state == TEXT || r->state == ENDED)
        return;
    cJSON *j = json_parse(s, n, &ignored);
    const char *input = json_str(j, "input", NULL);
    buf_add(out, input ? input : s, input ? strlen(input) : n);
    cJSON_Delete(j);
    r->state = ENDED;
}
