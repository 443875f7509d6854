/* The body of a chat request. */
#include "common/json.h"
#include "common/template/template.h"
#include "common/utf8.h"
#include "router/chat/chat.h"
#include "router/chat/completion.h"
#include "router/constrain.h"
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

static const cJSON *read_variables(struct body *b, struct object root)
{
    const cJSON *v = body_get(b, root, "chat_template_kwargs", false);
    if (v && !cJSON_IsObject(v))
        body_mistyped(b, root, "chat_template_kwargs", v, "a map");
    return v;
}

/* How the answer is taken apart. `separate_reasoning` (SGLang), `reasoning_format` (llama.cpp) and
 * `include_reasoning` (vLLM) turn the split off, or leave the reasoning out. */
static void read_split(struct body *b, struct object root, struct chat_request *r)
{
    const char *format = body_str(b, root, "reasoning_format", false);
    r->split =
        body_opt_bool(b, root, "separate_reasoning", true) && !(format && !strcmp(format, "none"));
    r->hide_reasoning = !body_opt_bool(b, root, "include_reasoning", true);
}

static bool ends_with(const struct buf *b, const char *s)
{
    size_t n = b->len, len = strlen(s);
    while (n && strchr(" \t\r\n", b->p[n - 1]))
        n--;
    return n >= len && !memcmp(b->p + n - len, s, len);
}

/* Some templates open the reasoning themselves. A constrained answer has no room for any: there it
 * is closed again. */
static void settle_reasoning(struct chat_request *r, const struct ask *q, struct buf *prompt)
{
    bool opened = r->style.reasoning && ends_with(prompt, "<think>");
    if (opened && q->constraint)
        buf_str(prompt, "\n</think>\n\n");
    r->reply.thinking = opened && !q->constraint && r->split;
    r->reply.may_think = r->style.reasoning && !q->constraint && r->split;
}

static int render(struct call *c, const cJSON *messages, const cJSON *variables,
                  struct chat_request *r, struct ask *q, struct err *e)
{
    const struct tools *t = &r->tools;
    struct buf prompt = BUF_INIT, more = BUF_INIT;
    buf_reserve(&prompt, 0);
    if (t->list)
        tools_text(t, r->style.tools, &more);
    int rc = more.oom ? err_nomem(e)
                      : chat_prompt(c->edge->chat, messages, r->style.tools ? t->list : NULL,
                                    variables, more.len ? more.p : NULL, &prompt, e);
    if (rc == 0) {
        settle_reasoning(r, q, &prompt);
        q->inputs = prompt.oom ? NULL : arena_strdup(&c->arena, prompt.p, prompt.len);
        q->n_inputs = prompt.len;
        if (q->inputs)
            q->n_chars = utf8_count(prompt.p, prompt.len);
        else
            rc = err_nomem(e);
    }
    buf_free(&prompt);
    buf_free(&more);
    return rc;
}

/* Which calls are looked for, and a schema where there must be one. */
static int plan_calls(struct body *b, struct chat_request *r, struct ask *q, struct err *e)
{
    const struct tools *t = &r->tools;
    if (t->list && q->constraint)
        return err_set(e, ERR_TOOL, "Tool error: Grammar and tools are mutually exclusive");
    if (!t->list)
        return 0;
    r->reply.format = r->style.calls;
    r->reply.forced = t->forced;
    r->reply.names = t->names;
    r->reply.n_names = t->n;
    if (!t->forced)
        return 0;
    cJSON *schema = tools_schema(t, r->style.calls->arguments);
    if (!schema)
        return err_nomem(e);
    constrain_schema(b, schema, q);
    cJSON_Delete(schema);
    return b->failed ? -1 : 0;
}

int chat_request_parse(struct call *c, struct chat_request *r, struct err *e)
{
    struct body b;
    *r = (struct chat_request){0};
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
    read_split(&b, root, r);
    o->asks = q;
    o->n_asks = 1;
    r->openai = o;
    if (tools_read(&b, root, &r->tools, e) != 0 || b.failed)
        return -1;
    r->style = chat_style(c->edge->chat, r->tools.list != NULL);
    return plan_calls(&b, r, q, e) != 0 ? -1 : render(c, messages, variables, r, q, e);
}
