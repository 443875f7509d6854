/* The body of a Messages request. */
#include "common/json/json.h"
#include "common/template/template.h"
#include "router/api/anthropic/messages.h"
#include "router/generate/constrain.h"
#include <stdio.h>
#include <string.h>

/* Edits of the conversation on the server. One that keeps everything asks for nothing. */
static void read_edits(struct body *b, struct object root)
{
    const cJSON *edits = json_get(json_get(root.json, "context_management"), "edits");
    for (const cJSON *k = json_first(edits); k; k = k->next)
        if (strcmp(json_str(k, "keep", ""), "all") != 0)
            body_warn(b, "context_management: %.60s has no effect", json_str(k, "type", "an edit"));
}

/* What the answer would lack without state of the server, or would be another kind of answer. */
static void refuse(struct body *b, struct object root)
{
    static const struct {
        const char *name;
        enum err_kind kind;
    } rows[] = {{"thread", ERR_NO_THREADS}, {"compaction", ERR_SHAPE}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (json_get(root.json, rows[i].name))
            body_unsupported(b, rows[i].kind, rows[i].name);
}

static void read_sampling(struct body *b, struct object root, bool counting, struct ask *q)
{
    bool given;
    body_temperature(b, root, q);
    body_cuts(b, root, "top_p", "top_k", q);
    q->stop = body_strings(b, root, "stop_sequences", false, true, &q->n_stop);
    q->length_name = "max_tokens";
    q->style = ASK_ANTHROPIC;
    q->input_name = "messages";
    q->max_new_tokens = body_length(b, root, q->length_name);
    if (!counting && !json_get(root.json, q->length_name))
        body_fail(b, root, "max_tokens", "missing field `max_tokens`");
    struct object meta = json_get(root.json, "metadata") ? body_object(b, root, "metadata", &given)
                                                         : (struct object){NULL, "metadata"};
    q->user = body_str(b, meta, "user_id", false);
    q->priority = body_i32(b, root, "priority");
    body_ending(b, root, "min_tokens", q);
    body_bias(b, root, "logit_bias", q);
    q->seed = body_seed(b, root, "seed");
    const char *name = "output_config";
    const cJSON *format = json_get(json_get(root.json, name), "format");
    if (!format) {
        name = "output_format"; /* during the beta */
        format = json_get(root.json, name);
    }
    if (format && !strcmp(json_str(format, "type", ""), "json_schema") &&
        json_get(format, "schema"))
        constrain_schema(b, name, json_get(format, "schema"), q);
    else if (format)
        body_fail(b, root, name, "the format must be a `json_schema` with a `schema`");
    const cJSON *servers = json_get(root.json, "mcp_servers");
    if (servers && servers->child)
        body_warn(b, "mcp_servers: their tools are left out");
    read_edits(b, root);
    refuse(b, root);
    if (json_get(json_get(root.json, "output_config"), "task_budget"))
        body_warn(b, "output_config: task_budget has no effect");
    if (cJSON_IsObject(json_get(root.json, "container")))
        body_warn(b, "container: there is none here, and its skills are left out");
}

int messages_parse(struct call *c, bool counting, struct chat_request *r, struct err *e)
{
    struct body b;
    *r = (struct chat_request){0};
    if (body_open_prompt(&b, c->body.p, c->body.len, &c->arena, e) != 0)
        return -1;
    struct object root = body_root(&b);
    struct openai *o = ARENA_NEW(&c->arena, struct openai, 1);
    struct ask *q = ARENA_NEW(&c->arena, struct ask, 1);
    if (!o || !q)
        return err_nomem(e);
    b.plain = true;
    template_keep_numbers(b.root, b.text, b.n);
    const char *model = body_str(&b, root, "model", false);
    o->model = model && *model ? model : c->edge->model_id;
    snprintf(o->id, sizeof(o->id), "msg_%016llx%08x", (unsigned long long)seed_draw(),
             (unsigned)c->created_unix);
    o->stream = body_bool(&b, root, "stream", false);
    o->each = o->shown = o->n_asks = 1;
    o->asks = q;
    r->openai = o;
    r->split = true;
    read_sampling(&b, root, counting, q);
    bool can_think = chat_style(c->edge->chat, json_get(b.root, "tools") != NULL).reasoning;
    bool takes_images = edge_media(c->edge).vision != NULL;
    return chat_prepare_tree(c, &b, messages_convert(&b, root, can_think, takes_images), r, e);
}
