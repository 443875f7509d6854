/* The OpenAPI document, from the route table and router/api/docs/schemas.json. docs/http-api.md
 * describes further body fields. */
#include "common/params.h"
#include "router/http/http.h"
#include "router/http/route.h"
#include <float.h>
#include <stdlib.h>
#include <string.h>

static const char schemas[] = {
#include "page/schemas.inc"
};

static void string(struct buf *out, const char *s) { buf_json_str(out, s, strlen(s)); }

static void schema(struct buf *out, const char *name)
{
    buf_fmt(out, "\"schema\":{\"$ref\":\"#/components/schemas/%s\"}", name);
}

static void good_answer(struct buf *out, const struct route *r)
{
    buf_str(out, ",\"responses\":{\"200\":{\"description\":\"OK\"");
    if (!strcmp(r->method, "POST")) {
        buf_fmt(out, ",\"content\":{\"%s\":{}",
                r->errors == ERRORS_OLLAMA ? "application/x-ndjson" : "text/event-stream");
        if (r->gives) {
            buf_str(out, ",\"application/json\":{");
            schema(out, r->gives);
            buf_ch(out, '}');
        }
        buf_ch(out, '}');
    }
    buf_ch(out, '}');
}

static void errors(struct buf *out, const char *body)
{
    static const struct {
        int status;
        const char *text;
    } rows[] = {{400, "The body is not JSON; on /v1: the request cannot be served"},
                {404, "There is no such thing"},
                {413, "The body is too large"},
                {415, "The content type is not JSON"},
                {422, "Input validation error"},
                {424, "Generation error"},
                {429, "Model is overloaded"},
                {500, "Incomplete generation"},
                {503, "The server is full, starts or ends"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        buf_fmt(out,
                ",\"%d\":{\"description\":\"%s\",\"content\":{\"text/plain\":{},"
                "\"application/json\":{",
                rows[i].status, rows[i].text);
        schema(out, body);
        buf_str(out, "}}}");
    }
}

static void operation(struct buf *out, const struct route *r)
{
    bool post = !strcmp(r->method, "POST");
    buf_fmt(out, "\"%s\":{\"summary\":", post ? "post" : "get");
    string(out, r->summary);
    if (r->task)
        buf_fmt(out, ",\"x-task\":\"%s\"", model_task_name(r->task));
    if (post) {
        buf_str(out, ",\"requestBody\":{\"required\":true,\"description\":");
        string(out, r->body ? r->body : "");
        buf_str(out, ",\"content\":{\"application/json\":{");
        schema(out, r->takes ? r->takes : "Generate");
        if (r->example)
            buf_fmt(out, ",\"example\":%s", r->example);
        buf_str(out, "}}}");
    }
    good_answer(out, r);
    if (post)
        errors(out, r->errors == ERRORS_COHERE ? "CohereError" : "Error");
    if (r->access == ACCESS_KEY)
        buf_str(out, ",\"401\":{\"description\":\"The key is missing or wrong\"}");
    if (post || r->probe || !strncmp(r->paths[0], "/v2", 3))
        buf_str(out, ",\"503\":{\"description\":\"Not ready\"}");
    buf_str(out, "}}");
}

/* OpenAPI groups the operations of a path: a path is printed with its first route. */
static bool printed_before(unsigned upto, int k, const char *path)
{
    for (unsigned i = 0; i <= upto; i++)
        for (int p = 0; p < ROUTE_PATHS && routes[i]->paths[p]; p++) {
            if (i == upto && p == k)
                return false;
            if (!strcmp(routes[i]->paths[p], path))
                return true;
        }
    return false;
}

static void path_item(struct buf *out, const char *path)
{
    const char *sep = "";
    for (unsigned i = 0; i < n_routes; i++)
        for (int p = 0; p < ROUTE_PATHS && routes[i]->paths[p]; p++)
            if (!routes[i]->refuses && !strcmp(routes[i]->paths[p], path)) {
                buf_str(out, sep);
                operation(out, routes[i]);
                sep = ",";
            }
}

/* A bound of a property: `words` says "> 0.0 and < 1.0", ">= -1" or "strictly positive". */
static void bounds(struct buf *out, bool whole, const char *words)
{
    double low = 0, high = whole ? (double)INT32_MAX : (double)FLT_MAX;
    const bool open = !strncmp(words, "> ", 2) || (!whole && *words == 's');
    const char *above = strstr(words, "< "), *upto = strstr(words, "<= ");
    if (*words == '>')
        low = strtod(words + strcspn(words, " "), NULL);
    else if (whole)
        low = 1;
    if (above || upto)
        high = strtod(above ? above + 2 : upto + 3, NULL);
    buf_fmt(out, ",\"minimum\":%.17g,\"maximum\":%.17g%s%s", low, high,
            open ? ",\"exclusiveMinimum\":true" : "", above ? ",\"exclusiveMaximum\":true" : "");
}

/* A property of a schema. `words`: its constraint in words. */
static void param_schema(struct buf *out, const char *name, bool whole, const char *words)
{
    buf_fmt(out, ",\"%s\":{\"type\":\"%s\",\"nullable\":true,\"description\":\"must be %s\"", name,
            whole ? "integer" : "number", words);
    bounds(out, whole, words);
    buf_ch(out, '}');
}

#define WHOLE_F32 false
#define WHOLE_U32 true
#define WHOLE_I32 true
static void param_schemas(struct buf *out, bool tgi)
{
    buf_str(out, "\"dry_sequence_breakers\":{\"type\":\"array\",\"nullable\":true,\"minItems\":1,"
                 "\"maxItems\":64,\"items\":{\"type\":\"string\",\"minLength\":1}}");
#define PARAM(kind, type, name, member, neutral, low, high, taken, words, in_tgi, in_openai, ...)  \
    {                                                                                              \
        static const char *const names[] = {in_openai, in_tgi};                                    \
        if (names[tgi])                                                                            \
            param_schema(out, names[tgi], WHOLE_##type, words);                                    \
    }
#include "common/params.def"
}

/* router/api/docs/schemas.json, with the rows of common/params.def in place of "$params". */
static void add_schemas(struct buf *out)
{
    static const char openai[] = "\"$params\": \"openai\"", tgi[] = "\"$params\": \"tgi\"";
    const char *at = schemas, *end = schemas + sizeof(schemas);
    for (const char *mark; (mark = memmem(at, (size_t)(end - at), "\"$params\"", 9));) {
        bool of_tgi = !memcmp(mark, tgi, sizeof(tgi) - 1);
        buf_add(out, at, (size_t)(mark - at));
        param_schemas(out, of_tgi);
        at = mark + (of_tgi ? sizeof(tgi) : sizeof(openai)) - 1;
    }
    buf_add(out, at, (size_t)(end - at));
}

/* Does a server of this task answer it with 200? TASK_AUTO: any server. */
static bool described(const struct route *r, enum model_task task)
{
    const bool other = r->task && (task == TASK_GENERATE) != (r->task == TASK_GENERATE);
    return !r->refuses && (task == TASK_AUTO || !other);
}

void routes_openapi(struct buf *out, enum model_task task, const char *prefix)
{
    const char *sep = "";
    buf_fmt(out,
            "{\"openapi\":\"3.0.3\",\"info\":{\"title\":\"Text generation\",\"version\":\"%s\"},",
            VERSION);
    const size_t n = http_prefix_len(prefix);
    if (n) {
        buf_str(out, "\"servers\":[{\"url\":");
        buf_json_str(out, prefix, n);
        buf_str(out, "}],");
    }
    buf_str(out, "\"paths\":{");
    for (unsigned i = 0; i < n_routes; i++)
        for (int k = 0; k < ROUTE_PATHS && routes[i]->paths[k]; k++) {
            const char *path = routes[i]->paths[k];
            if (!described(routes[i], task) || strchr(path, '*') || printed_before(i, k, path))
                continue;
            buf_str(out, sep);
            string(out, path);
            buf_str(out, ":{");
            path_item(out, path);
            buf_ch(out, '}');
            sep = ",";
        }
    buf_str(out, "},\"components\":{\"schemas\":");
    add_schemas(out);
    buf_str(out, ",\"securitySchemes\":{\"key\":{\"type\":\"http\",\"scheme\":"
                 "\"bearer\"}}}}");
}
