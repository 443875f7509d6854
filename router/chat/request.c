/* The body of a chat request. */
#include "common/json.h"
#include "common/template/template.h"
#include "common/utf8.h"
#include "router/chat/chat.h"
#include "router/chat/completion.h"
#include <string.h>

static const cJSON *read_messages(struct body *b, struct object root)
{
    const cJSON *m = body_get(b, root, "messages", true);
    int index;
    if (!m)
        return NULL;
    if (!cJSON_IsArray(m)) {
        body_mistyped(b, root, "messages", m, "a sequence");
        return NULL;
    }
    const char *what = chat_check(m, &index);
    if (what)
        body_fail(b, root, "messages", "messages[%d]: %s", index, what);
    return m;
}

static void read_tools(struct body *b, struct object root)
{
    const cJSON *tools = body_get(b, root, "tools", false);
    const cJSON *choice = body_get(b, root, "tool_choice", false);
    int i = 0;
    if (tools && !cJSON_IsArray(tools))
        body_mistyped(b, root, "tools", tools, "a sequence");
    for (const cJSON *t = tools ? tools->child : NULL; t; t = t->next, i++) {
        const cJSON *function = json_get(t, "function"), *bare = t;
        if (!json_str(function ? function : bare, "name", NULL))
            body_fail(b, root, "tools", "tools[%d]: missing field `%s`", i,
                      cJSON_IsObject(function) ? "name" : "function");
    }
    if (choice && !cJSON_IsString(choice) && !json_str(json_get(choice, "function"), "name", NULL))
        body_mistyped(b, root, "tool_choice", choice, "a string or a function with a name");
}

/* Nothing that changes the meaning of a request is ignored. */
static int check_format(const cJSON *root, struct err *e)
{
    const cJSON *format = json_get(root, "response_format"), *tools = json_get(root, "tools");
    const cJSON *choice = json_get(root, "tool_choice");
    const char *word = cJSON_IsString(choice) ? choice->valuestring : choice ? "function" : "auto";
    bool text = !strcmp(json_str(format, "type", ""), "text");
    if (format && !text && tools)
        return err_set(e, ERR_TOOL, "Tool error: Grammar and tools are mutually exclusive");
    bool forced = tools && strcmp(word, "auto") != 0 && strcmp(word, "none") != 0;
    if (forced)
        return err_set(e, ERR_VALIDATION, "Input validation error: grammar is not supported");
    return 0;
}

static const cJSON *tools_for_template(const cJSON *root)
{
    const cJSON *tools = json_get(root, "tools");
    const char *choice = json_str(root, "tool_choice", "auto");
    return cJSON_IsArray(tools) && tools->child && strcmp(choice, "none") != 0 ? tools : NULL;
}

static const cJSON *read_variables(struct body *b, struct object root)
{
    const cJSON *v = body_get(b, root, "chat_template_kwargs", false);
    if (v && !cJSON_IsObject(v))
        body_mistyped(b, root, "chat_template_kwargs", v, "a map");
    return v;
}

static int render(struct call *c, const cJSON *root, const cJSON *messages, const cJSON *variables,
                  struct ask *q, struct err *e)
{
    struct buf prompt = BUF_INIT;
    buf_reserve(&prompt, 0);
    int rc = chat_prompt(c->edge->chat, messages, tools_for_template(root), variables, &prompt, e);
    if (rc == 0) {
        q->inputs = arena_strdup(&c->arena, prompt.p, prompt.len);
        q->n_inputs = prompt.len;
        q->n_chars = utf8_count(prompt.p, prompt.len);
        if (!q->inputs)
            rc = err_nomem(e);
    }
    buf_free(&prompt);
    return rc;
}

int chat_request_parse(struct call *c, struct chat_request *r, struct err *e)
{
    struct body b;
    if (body_open(&b, c->body.p, c->body.len, &c->arena, e) != 0)
        return -1;
    struct object root = body_root(&b);
    template_keep_numbers(b.root, b.text, b.n);
    const cJSON *messages = read_messages(&b, root), *variables = read_variables(&b, root);
    struct openai *o = openai_parse(c, &b, "chatcmpl", e);
    struct ask *q = ARENA_NEW(&c->arena, struct ask, 1);
    if (!o || !q)
        return err_nomem(e);
    openai_sampling(&b, root, q);
    o->logprobs = body_opt_bool(&b, root, "logprobs", false);
    q->top_n_tokens = body_u32(&b, root, "top_logprobs");
    read_tools(&b, root);
    o->asks = q;
    o->n_asks = 1;
    r->openai = o;
    if (b.failed)
        return -1;
    return check_format(b.root, e) != 0 ? -1 : render(c, b.root, messages, variables, q, e);
}
