/* Parses the body of a Responses request. */
#include "common/json/json.h"
#include "common/template/template.h"
#include "router/api/responses/compact.h"
#include "router/api/responses/stored.h"
#include "router/generate/constrain.h"
#include <string.h>

/* Refuses features that need server-side resources, and reports those without which an answer is
 * the same as long as the conversation fits. */
static void refuse(struct body *b, struct object root)
{
    static const char *const names[] = {"prompt"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (json_get(root.json, names[i]))
            body_fail(b, root, names[i], "`%s` is not supported", names[i]);
    for (const cJSON *k = json_first(json_get(root.json, "context_management")); k; k = k->next)
        body_warn(b, "context_management: %.60s has no effect", json_str(k, "type", "an entry"));
}

enum { SPACE = 1024 }; /* tokens for an answer whose length is not asked for */

/* `truncation` of `auto`: the most prompt tokens that leave space for an answer of `asked` tokens,
 * at most 1024; 0: no truncation. */
static uint32_t read_truncation(struct call *c, struct body *b, struct object root,
                                struct opt_u64 asked)
{
    const struct infer_limits *l = edge_limits(c->edge);
    const char *how = body_str(b, root, "truncation", false);
    uint64_t answer = !asked.set ? 1 : asked.v < SPACE ? asked.v : SPACE;
    if (how && strcmp(how, "auto") != 0 && strcmp(how, "disabled") != 0)
        body_fail(b, root, "truncation", "`truncation` must be `auto` or `disabled`");
    if (!how || strcmp(how, "auto") != 0)
        return 0;
    uint64_t room = l->max_total_tokens > answer ? l->max_total_tokens - answer : 1;
    return room < l->max_input_tokens ? (uint32_t)room : l->max_input_tokens;
}

/* Other values of `include` are for unsupported tools, or encrypted. */
static bool reads_logprobs(struct body *b, struct object root, struct ask *q)
{
    const cJSON *include = json_get(root.json, "include");
    bool named = false;
    if (include && !cJSON_IsArray(include))
        body_mistyped(b, root, "include", include, "a sequence");
    for (const cJSON *k = json_first(include); k; k = k->next) {
        if (!cJSON_IsString(k))
            body_mistyped(b, root, "include", k, "a string");
        named |= cJSON_IsString(k) && !strcmp(k->valuestring, "message.output_text.logprobs");
    }
    q->top_name = "top_logprobs";
    q->top_n_tokens = body_u32(b, root, q->top_name);
    return named || q->top_n_tokens.v > 0;
}

/* Reads text.format: {"type": "text" | "json_object"}, or a schema with its name. */
static void read_text_format(struct body *b, struct object root, const struct responses *p,
                             struct ask *q)
{
    bool given;
    body_object(b, root, "metadata", &given);
    body_opt_bool(b, root, "parallel_tool_calls", true); /* read where there are tools */
    const cJSON *text = body_object(b, root, "text", &given).json;
    const cJSON *update = responses_update(p, root, "text");
    const cJSON *f = json_get(update ? update : text, "format");
    const struct object format = {f, "text.format"};
    const char *type = f ? body_str(b, format, "type", true) : "text";
    cJSON *any = NULL;
    body_str(b, format, "name", false);
    if (!type)
        return;
    if (!strcmp(type, "json_schema") && cJSON_IsObject(json_get(f, "schema")))
        constrain_named(b, "text", f, q);
    else if (!strcmp(type, "json_object") && (any = cJSON_Parse("{\"type\":\"object\"}")))
        constrain_schema(b, "text", any, q);
    else if (strcmp(type, "text") != 0)
        body_fail(b, root, "text",
                  "the `format` must be `text`, `json_object`, or `json_schema` with a `schema`");
    if (cJSON_IsTrue(json_get(f, "strict")))
        constrain_compact(q);
    cJSON_Delete(any);
}

/* A summary is one answer that is not stored; of a conversation that leaves no space for it the
 * oldest messages are dropped. */
static int settle_compaction(struct call *c, struct body *b, struct object root,
                             struct chat_request *r, struct openai *o, struct responses *p)
{
    const struct infer_limits *l = edge_limits(c->edge);
    const uint32_t half = l->max_total_tokens / 2;
    if (!r->fit)
        r->fit = l->max_total_tokens - (half < SPACE ? half : SPACE);
    if (r->fit > l->max_input_tokens)
        r->fit = l->max_input_tokens;
    o->stream = p->store = p->background = false;
    p->conversation = NULL;
    return b->failed ? 0 : compact_keep(c, root, p);
}

int responses_parse(struct call *c, struct chat_request *r, struct responses *p, struct err *e)
{
    struct body b;
    struct buf echo = BUF_INIT;
    *r = (struct chat_request){0};
    if (body_open_prompt(&b, c->body.p, c->body.len, &c->arena, e) != 0)
        return -1;
    struct object root = body_root(&b);
    template_keep_numbers(b.root, b.text, b.n);
    struct openai *o = openai_parse(c, &b, "resp_", e);
    struct ask *q = ARENA_NEW(&c->arena, struct ask, 1);
    if (!o || !q)
        return err_nomem(e);
    openai_sampling(&b, root, q);
    if (json_get(root.json, "max_output_tokens") || !q->max_new_tokens.set) {
        q->length_name = "max_output_tokens";
        q->max_new_tokens = body_length(&b, root, q->length_name);
    }
    q->input_name = "input";
    read_text_format(&b, root, p, q);
    refuse(&b, root);
    p->id = o->id;
    p->takes_images = edge_media(c->edge).vision != NULL;
    response_stored_read(c, &b, root, p);
    if (c->shared)
        socket_read(c, &b, root, o, p);
    if (p->warm) { /* the prompt's blocks stay in the cache */
        q->max_new_tokens = (struct opt_u64){true, 1};
        q->min_new_tokens = (struct opt_u64){0};
    }
    r->fit = read_truncation(c, &b, root, q->max_new_tokens);
    p->logprobs = reads_logprobs(&b, root, q) || q->n_logprob_ids > 0;
    if (o->each != 1)
        body_fail(&b, root, "n", "`n` is not supported");
    if (p->compact && settle_compaction(c, &b, root, r, o, p) != 0)
        return err_nomem(e);
    o->asks = q;
    o->n_asks = 1;
    r->openai = o;
    r->split = true;
    responses_echo(root, p, &c->edge->defaults, &echo);
    p->echo = echo.oom ? NULL : arena_strdup(&c->arena, echo.p, echo.len);
    buf_free(&echo);
    if (!p->echo)
        return err_nomem(e);
    const int rc = chat_prepare_tree(c, &b, responses_convert(&b, root, p), r, e);
    p->forced = r->tools.custom.forced;
    return rc;
}
