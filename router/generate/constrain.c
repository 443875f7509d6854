#include "router/generate/constrain.h"
#include "common/buf.h"
#include "common/constraint/grammar.h"
#include "common/json/exact.h"
#include <stdio.h>
#include <string.h>

/* `name` is kept, not copied. Clients of several servers send one constraint under the names of
 * each. */
static void constrain(struct body *b, const char *name, struct ask *q, enum constraint_kind kind,
                      const char *text)
{
    if (q->constraint && q->constraint_kind == kind && !strcmp(q->constraint, text))
        return;
    if (q->constraint)
        body_fail(b, body_root(b), name ? name : "",
                  "more than one constraint of the answer: `%s` is another",
                  q->constraint_name ? q->constraint_name : "tools");
    q->constraint = arena_strdup(b->arena, text, strlen(text));
    q->constraint_kind = kind;
    q->constraint_name = name;
    if (!q->constraint)
        body_nomem(b, body_root(b), "");
}

static void constrain_text(struct body *b, const char *name, struct ask *q,
                           enum constraint_kind kind, const struct buf *text)
{
    if (text->oom)
        body_nomem(b, body_root(b), "");
    else
        constrain(b, name, q, kind, text->p ? text->p : "");
}

/* `closed`: keywords imply their type, and objects allow only listed properties. */
static void constrain_as(struct body *b, const char *name, const cJSON *schema, bool closed,
                         struct ask *q)
{
    struct buf text = BUF_INIT;
    json_print_exact(&text, schema);
    if (closed && text.len > 2 && cJSON_IsObject(schema)) {
        struct buf marked = BUF_INIT;
        buf_str(&marked, "{\"x-closed\":true,");
        buf_add(&marked, text.p + 1, text.len - 1);
        marked.oom |= text.oom;
        buf_free(&text);
        text = marked;
    }
    constrain_text(b, name, q, CONSTRAINT_JSON_SCHEMA, &text);
    buf_free(&text);
}

void constrain_schema(struct body *b, const char *name, const cJSON *schema, struct ask *q)
{
    constrain_as(b, name, schema, false, q);
}

void constrain_named(struct body *b, const char *name, const cJSON *named, struct ask *q)
{
    constrain_as(b, name, json_get(named, "schema"), json_bool(named, "strict", false), q);
}

void constrain_calls(struct body *b, const cJSON *spec, struct ask *q)
{
    struct buf text = BUF_INIT;
    json_print_exact(&text, spec);
    constrain_text(b, "tools", q, CONSTRAINT_CALLS, &text);
    buf_free(&text);
}

void constrain_or_calls(struct body *b, cJSON *spec, struct ask *q)
{
    cJSON *answer = cJSON_AddObjectToObject(spec, "answer");
    cJSON_AddStringToObject(answer, "kind", constraint_kind_name(q->constraint_kind));
    cJSON_AddStringToObject(answer, "text", q->constraint);
    struct buf text = BUF_INIT;
    json_print_exact(&text, spec);
    q->constraint = NULL;
    constrain_text(b, NULL, q, CONSTRAINT_CALLS_OR, &text);
    buf_free(&text);
}

void constrain_compact(struct ask *q)
{
    if (q->constraint && q->constraint_kind == CONSTRAINT_JSON_SCHEMA)
        q->constraint_kind = CONSTRAINT_JSON_COMPACT;
}

/* The top-level field of `key` in `o`. */
static const char *field(struct object o, const char *key) { return *o.path ? o.path : key; }

/* A schema, as an object or as text. */
static void json_value(struct body *b, struct object o, const char *key, const cJSON *v,
                       struct ask *q)
{
    if (cJSON_IsString(v))
        constrain(b, field(o, key), q, CONSTRAINT_JSON_SCHEMA, v->valuestring);
    else if (cJSON_IsObject(v) || cJSON_IsBool(v))
        constrain_schema(b, field(o, key), v, q);
    else
        body_mistyped(b, o, key, v, "a JSON schema");
}

static void regex_value(struct body *b, struct object o, const char *key, const cJSON *v,
                        struct ask *q)
{
    if (cJSON_IsString(v))
        constrain(b, field(o, key), q, CONSTRAINT_REGEX, v->valuestring);
    else
        body_mistyped(b, o, key, v, "a regular expression");
}

/* A grammar as text; the notation is detected. */
static void grammar_value(struct body *b, struct object o, const char *key, const cJSON *v,
                          struct ask *q)
{
    if (!cJSON_IsString(v))
        body_mistyped(b, o, key, v, "a grammar");
    else
        constrain(b, field(o, key), q,
                  grammar_guess(v->valuestring, strlen(v->valuestring)) == GRAMMAR_GBNF
                      ? CONSTRAINT_GBNF
                      : CONSTRAINT_LARK,
                  v->valuestring);
}

enum constraint_kind constrain_syntax_kind(const char *syntax)
{
    return !strcmp(syntax, "lark") ? CONSTRAINT_LARK : CONSTRAINT_REGEX;
}

void constrain_syntax(struct body *b, struct object o, const char *key, const char *syntax,
                      const char *definition, struct ask *q)
{
    if (strcmp(syntax, "lark") != 0 && strcmp(syntax, "regex") != 0)
        body_fail(b, o, key, "a grammar's `syntax` must be `lark` or `regex`");
    else if (!definition)
        body_fail(b, o, key, "a grammar has a `definition`");
    else
        constrain(b, field(o, key), q, constrain_syntax_kind(syntax), definition);
}

/* One of a list of texts, as a pattern that matches exactly these. */
static void choice_value(struct body *b, struct object o, const char *key, const cJSON *v,
                         struct ask *q)
{
    struct buf p = BUF_INIT;
    const cJSON *kid;
    if (!cJSON_IsArray(v) || !v->child) {
        body_mistyped(b, o, key, v, "a list of texts");
        return;
    }
    cJSON_ArrayForEach(kid, v)
    {
        if (!cJSON_IsString(kid)) {
            body_mistyped(b, o, key, kid, "a string");
            break;
        }
        buf_str(&p, kid->prev->next ? "|" : "");
        for (const char *s = kid->valuestring; *s; s++)
            if ((unsigned char)*s < 0x80)
                buf_fmt(&p, "\\x%02x", (unsigned)*s);
            else
                buf_ch(&p, *s);
    }
    if (!b->failed)
        constrain_text(b, field(o, key), q, CONSTRAINT_REGEX, &p);
    buf_free(&p);
}

static const char any_object[] = "{\"type\":\"object\"}";

/* {"name", "schema", "strict"} */
static void named_schema(struct body *b, struct object o, const char *key, const cJSON *v,
                         struct ask *q)
{
    const cJSON *schema = json_get(v, "schema");
    if (!cJSON_IsObject(v))
        body_mistyped(b, o, key, v, "an object with a `schema`");
    else if (!schema)
        body_fail(b, o, key, "missing field `schema`");
    else if (cJSON_IsObject(schema))
        constrain_named(b, field(o, key), v, q);
    else
        json_value(b, o, key, schema, q);
    if (cJSON_IsTrue(json_get(v, "strict")))
        constrain_compact(q);
}

void constrain_grammar(struct body *b, struct object o, const char *key, struct ask *q)
{
    const cJSON *g = body_get(b, o, key, false), *value = json_get(g, "value");
    const char *type = json_str(g, "type", NULL);
    if (!g)
        return;
    q->constraint_alone = true;
    if (!cJSON_IsObject(g))
        body_mistyped(b, o, key, g, "adjacently tagged enum GrammarType");
    else if (!type)
        body_fail(b, o, key, "missing field `type`");
    else if (!value)
        body_fail(b, o, key, "missing field `value`");
    else if (!strcmp(type, "json") || !strcmp(type, "json_object"))
        json_value(b, o, key, value, q);
    else if (!strcmp(type, "json_schema"))
        named_schema(b, o, key, value, q);
    else if (!strcmp(type, "regex"))
        regex_value(b, o, key, value, q);
    else if (!strcmp(type, "grammar"))
        grammar_value(b, o, key, value, q);
    else
        body_fail(b, o, key,
                  "unknown variant `%.40s`, expected one of `json`, `json_schema`, `regex`, "
                  "`grammar`",
                  type);
}

static void response_format(struct body *b, struct object root, struct ask *q)
{
    static const char key[] = "response_format";
    const cJSON *f = body_get(b, root, key, false);
    const cJSON *named = json_get(f, "json_schema"), *schema = json_get(f, "schema");
    const char *type = json_str(f, "type", "");
    if (!f || !strcmp(type, "text"))
        return;
    if (!strcmp(type, "json_schema") && !json_get(f, "value")) {
        if (named)
            named_schema(b, root, key, named, q);
        else
            body_fail(b, root, key, "missing field `json_schema`");
    } else if (!strcmp(type, "json_object") && !json_get(f, "value")) {
        if (schema) /* the form of some servers */
            json_value(b, root, key, schema, q);
        else
            constrain(b, key, q, CONSTRAINT_JSON_SCHEMA, any_object);
    } else if (*type && !json_get(f, "value")) {
        body_fail(b, root, key, "the `type` must be `text`, `json_object` or `json_schema`");
    } else { /* TGI's */
        constrain_grammar(b, root, key, q);
    }
}

/* vLLM's fields, at the top level or inside `structured_outputs`. Other fields there are refused by
 * name. */
static void structured_outputs(struct body *b, struct object root, struct ask *q)
{
    const cJSON *s = body_get(b, root, "structured_outputs", false), *kid;
    if (s && !cJSON_IsObject(s)) { /* items of a list have no names */
        body_mistyped(b, root, "structured_outputs", s, "a map");
        return;
    }
    struct object o = {s, "structured_outputs"};
    bool compact = false;
    cJSON_ArrayForEach(kid, s)
    {
        const char *key = kid->string;
        if (cJSON_IsNull(kid) || cJSON_IsFalse(kid) || !strncmp(key, "_", 1))
            continue;
        if (!strcmp(key, "json"))
            json_value(b, o, key, kid, q);
        else if (!strcmp(key, "regex"))
            regex_value(b, o, key, kid, q);
        else if (!strcmp(key, "choice"))
            choice_value(b, o, key, kid, q);
        else if (!strcmp(key, "grammar"))
            grammar_value(b, o, key, kid, q);
        else if (!strcmp(key, "disable_any_whitespace"))
            compact = true;
        else if (!strcmp(key, "json_object"))
            constrain(b, o.path, q, CONSTRAINT_JSON_SCHEMA, any_object);
        else if (strcmp(key, "disable_fallback") != 0)
            body_fail(b, o, key, "%.60s is not supported", key);
    }
    if (compact)
        constrain_compact(q);
}

void constrain_openai(struct body *b, struct object root, struct ask *q)
{
    static const struct {
        const char *key;
        void (*read)(struct body *, struct object, const char *, const cJSON *, struct ask *);
    } guided[] = {{"guided_json", json_value},     {"guided_regex", regex_value},
                  {"guided_choice", choice_value}, {"guided_grammar", grammar_value},
                  {"json_schema", json_value}, /* llama.cpp's and SGLang's */
                  {"regex", regex_value},      /* SGLang's */
                  {"ebnf", grammar_value}};
    response_format(b, root, q);
    for (size_t i = 0; i < sizeof(guided) / sizeof(guided[0]); i++) {
        const cJSON *v = body_get(b, root, guided[i].key, false);
        if (v)
            guided[i].read(b, root, guided[i].key, v, q);
    }
    structured_outputs(b, root, q);
    /* llama.cpp sends a string, TGI a map */
    const cJSON *grammar = body_get(b, root, "grammar", false);
    if (cJSON_IsObject(grammar))
        constrain_grammar(b, root, "grammar", q);
    else if (grammar && !(cJSON_IsString(grammar) && !*grammar->valuestring))
        grammar_value(b, root, "grammar", grammar, q);
}

int constrain_check(const struct ask *q, struct err *e)
{
    struct constraint *c =
        constraint_new(q->constraint_kind, q->constraint, strlen(q->constraint), e);
    constraint_unref(c);
    if (c)
        return 0;
    if (q->style == ASK_TGI || !q->constraint_name)
        return err_wrap(e, "Input validation error: grammar is not valid");
    return err_wrap(e, "Input validation error: `%s`: grammar is not valid", q->constraint_name);
}
