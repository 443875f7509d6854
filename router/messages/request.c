/* The body of a Messages request. */
#include "common/json.h"
#include "common/utf8.h"
#include "router/chat/chat.h"
#include "router/messages/messages.h"
#include <stdio.h>
#include <string.h>

static void read_sampling(struct body *b, struct object root, bool counting, struct ask *q)
{
    struct opt_f32 t = body_f32(b, root, "temperature");
    bool given;
    q->do_sample = !(t.set && t.v == 0);
    q->temperature = t.set && t.v != 0 ? t : (struct opt_f32){0};
    q->top_p = body_f32(b, root, "top_p");
    if (q->top_p.set && q->top_p.v == 1)
        q->top_p.set = false;
    q->top_k = body_i32(b, root, "top_k");
    if (q->top_k.v <= 0)
        q->top_k.set = false;
    q->stop = body_strings(b, root, "stop_sequences", false, true, &q->n_stop);
    q->max_new_tokens = body_u32(b, root, "max_tokens");
    if (!counting && !q->max_new_tokens.set)
        body_fail(b, root, "max_tokens", "missing field `max_tokens`");
    struct object meta = json_get(root.json, "metadata") ? body_object(b, root, "metadata", &given)
                                                         : (struct object){NULL, "metadata"};
    q->user = body_str(b, meta, "user_id", false);
    q->priority = body_i32(b, root, "priority");
    body_ending(b, root, "min_tokens", q);
    body_bias(b, root, "logit_bias", q);
    q->seed = body_u64(b, root, "seed");
    /* Asked for in words that mean: answer differently. */
    const cJSON *thinking = json_get(root.json, "thinking");
    if (!strcmp(json_str(thinking, "type", "disabled"), "enabled"))
        body_fail(b, root, "thinking", "`thinking` is not supported");
    if (json_get(root.json, "mcp_servers") && json_get(root.json, "mcp_servers")->child)
        body_fail(b, root, "mcp_servers", "`mcp_servers` is not supported");
}

static int render(struct call *c, struct body *b, struct ask *q, struct err *e)
{
    struct object root = body_root(b);
    struct buf prompt = BUF_INIT;
    int index, rc = -1;
    buf_reserve(&prompt, 0);
    cJSON *messages = messages_convert(b, root);
    cJSON *tools = messages ? messages_tools(b, root) : NULL;
    const char *what = messages && !b->failed ? chat_check(messages, &index) : NULL;
    if (what)
        body_fail(b, root, "messages", "messages[%d]: %s", index, what);
    if (messages && !b->failed)
        rc = chat_prompt(c->edge->chat, messages, tools, NULL, NULL, &prompt, e);
    if (rc == 0) {
        q->inputs = arena_strdup(&c->arena, prompt.p, prompt.len);
        q->n_inputs = prompt.len;
        q->n_chars = utf8_count(prompt.p, prompt.len);
        if (!q->inputs)
            rc = err_nomem(e);
    }
    cJSON_Delete(messages);
    cJSON_Delete(tools);
    buf_free(&prompt);
    return rc;
}

struct openai *messages_parse(struct call *c, bool counting, struct err *e)
{
    struct body b;
    if (body_open(&b, c->body.p, c->body.len, &c->arena, e) != 0)
        return NULL;
    struct object root = body_root(&b);
    struct openai *o = ARENA_NEW(&c->arena, struct openai, 1);
    struct ask *q = ARENA_NEW(&c->arena, struct ask, 1);
    if (!o || !q) {
        err_nomem(e);
        return NULL;
    }
    const char *model = body_str(&b, root, "model", false);
    o->model = model && *model ? model : c->edge->model_id;
    snprintf(o->id, sizeof(o->id), "msg_%016llx%08x", (unsigned long long)seed_draw(),
             (unsigned)c->created_unix);
    o->stream = body_bool(&b, root, "stream", false);
    o->each = o->shown = o->n_asks = 1;
    o->asks = q;
    read_sampling(&b, root, counting, q);
    if (b.failed || render(c, &b, q, e) != 0)
        return NULL;
    return o;
}
