/* Parses the body of a chat request. */
#include "common/json/json.h"
#include "common/template/template.h"
#include "router/api/openai/chat_completion.h"
#include "router/api/openai/fit.h"
#include "router/call/prompt.h"
#include "router/chat/chat.h"
#include "router/chat/pictures.h"
#include "router/generate/constrain.h"
#include <string.h>

static const cJSON *read_messages(struct body *b, struct object root, const struct vision *v)
{
    int index;
    if (!body_get(b, root, "messages", true))
        return NULL;
    cJSON *m = cJSON_GetObjectItemCaseSensitive(root.json, "messages");
    if (!cJSON_IsArray(m)) {
        body_mistyped(b, root, "messages", m, "a sequence");
        return NULL;
    }
    const char *what = chat_check(m, v != NULL, &index);
    if (what)
        body_fail(b, root, "messages", "messages[%d]: %s", index, what);
    else if (v && !vision_takes_videos(v) && pictures_have_videos(m))
        body_fail(b, root, "messages", "video inputs are not supported by this model");
    return m;
}

static void free_tree(void *tree) { cJSON_Delete(tree); }

/* Reads how to split the answer. `separate_reasoning` (SGLang), `reasoning_format` (llama.cpp) and
 * `include_reasoning` (vLLM) disable the split, or omit the reasoning. */
static void read_split(struct body *b, struct object root, struct chat_request *r)
{
    const char *format = body_str(b, root, "reasoning_format", false);
    r->split =
        body_opt_bool(b, root, "separate_reasoning", true) && !(format && !strcmp(format, "none"));
    r->hide_reasoning = !body_opt_bool(b, root, "include_reasoning", true);
}

/* Reads vLLM's fields for the end of the prompt. `echo` returns the continued text, too. */
static void read_ending(struct body *b, struct object root, const cJSON *messages,
                        struct chat_request *r)
{
    bool go_on = body_opt_bool(b, root, "continue_final_message", false);
    bool prompt = body_opt_bool(b, root, "add_generation_prompt", !go_on);
    bool given = json_get(root.json, "continue_final_message") ||
                 json_get(root.json, "add_generation_prompt");
    const cJSON *last = cJSON_IsArray(messages) && messages->child ? messages->child->prev : NULL;
    const char *text = json_str(last, "content", "");
    if (go_on && prompt)
        body_fail(b, root, "continue_final_message",
                  "`continue_final_message` and `add_generation_prompt` exclude each other");
    if (go_on && !*text)
        body_fail(b, root, "continue_final_message",
                  "`continue_final_message`: the last message has no text");
    r->ending = !given ? CHAT_DEFAULT : go_on ? CHAT_CONTINUE : prompt ? CHAT_ANSWER : CHAT_NOTHING;
    bool assistant = !strcmp(json_str(last, "role", ""), "assistant");
    if (body_opt_bool(b, root, "echo", false) &&
        (go_on || (assistant && r->ending == CHAT_DEFAULT)))
        r->openai->echo_text = text;
}

static bool ends_with(const struct buf *b, const char *s)
{
    size_t n = b->len, len = strlen(s);
    while (n && strchr(" \t\r\n", b->p[n - 1]))
        n--;
    return n >= len && !memcmp(b->p + n - len, s, len);
}

/* Some templates open the reasoning themselves. A constraint then applies after it. For shards
 * without this feature the reasoning is closed in the prompt. */
static void settle_reasoning(struct chat_request *r, struct ask *q, bool behind, struct buf *prompt)
{
    const char *close = thought_close(r->style.thoughts);
    bool opened = r->style.reasoning && ends_with(prompt, thought_open(r->style.thoughts));
    bool can = r->style.reasoning && (behind || !q->constraint);
    if (opened && !can)
        buf_fmt(prompt, "\n%s\n\n", close);
    r->reply.thoughts = r->style.thoughts;
    r->reply.thinking = opened && can && r->split;
    r->reply.may_think = can && r->split;
    if (q->constraint && can && !ends_with(prompt, close))
        q->constraint_front = (struct constraint_front){
            opened ? CONSTRAINT_REASONS : CONSTRAINT_MAY_REASON, r->style.thoughts};
}

/* Does the message after this header have text but no end marker? */
static bool goes_on(const char *message)
{
    static const char *const ends[] = {"<|end|>", "<|return|>", "<|call|>"};
    const char *text = message ? strstr(message, "<|message|>") : NULL;
    for (int i = 0; text && i < 3; i++)
        if (strstr(text, ends[i]))
            return false;
    return text != NULL;
}

/* The prompt's text after its last start-of-message marker. */
static const char *opened_message(const char *prompt)
{
    static const char start[] = "<|start|>";
    const char *last = NULL;
    for (const char *s = prompt; (s = strstr(s, start)); s += strlen(start))
        last = s + strlen(start);
    return last;
}

/* A constraint applies to the message of the channel final, or to the arguments of a call. For
 * shards without channels the prompt opens that message. */
static int settle_channels(struct chat_request *r, struct ask *q, bool behind, struct buf *prompt,
                           struct err *e)
{
    const bool inside = prompt->p && goes_on(opened_message(prompt->p));
    r->reply.channels = true;
    r->reply.joined = !r->split;
    if (!q->constraint)
        return 0;
    const bool free = behind && !inside; /* the model chooses the channel */
    if (r->format) {
        q->constraint_kind = free ? CONSTRAINT_CALLS_OR : r->format_kind;
        q->constraint = free ? r->format_or_calls : r->format;
    }
    if (r->tools.forced && !free)
        return err_set(e, ERR_TOOL, "Tool error: `tool_choice`: %s",
                       inside ? "a message that goes on is no call"
                              : "this model's calls cannot be forced on a shard that has no "
                                "channels");
    if (free)
        q->constraint_front.reasoning =
            r->tools.list ? CONSTRAINT_CHANNEL_CALLS : CONSTRAINT_CHANNELS;
    else if (!inside)
        buf_str(prompt, "<|channel|>final<|message|>");
    return 0;
}

static int render(struct call *c, const cJSON *messages, const cJSON *variables,
                  struct chat_request *r, struct ask *q, struct err *e)
{
    const struct tools *t = &r->tools;
    struct buf prompt = BUF_INIT, more = BUF_INIT;
    if (pictures_collect(messages, &c->arena, q, e) != 0)
        return -1;
    buf_reserve(&prompt, 0);
    if (t->list)
        tools_text(t, r->style.tools, &more);
    int rc = more.oom ? err_nomem(e)
                      : chat_prompt(r->chat, messages, r->style.tools ? t->list : NULL, variables,
                                    more.len ? more.p : NULL, r->ending, &prompt, e);
    if (rc == 0) {
        const bool behind = edge_limits(c->edge)->takes_reasoning;
        if (!r->style.channels)
            settle_reasoning(r, q, behind, &prompt);
        else if (settle_channels(r, q, behind, &prompt, e) != 0)
            rc = -1;
    }
    if (rc == 0) {
        size_t n;
        const char *text = prompt.oom ? NULL : body_bytes(&c->arena, prompt.p, &n);
        rc = text ? prompt_set(&c->arena, text, n, q, e) : err_nomem(e);
        if (rc == 0 && r->reply.channels) /* a guarded text opens no message */
            r->reply.opened = opened_message(q->guarded ? q->guarded : q->inputs);
    }
    buf_free(&prompt);
    buf_free(&more);
    return rc;
}

static bool all_strict(const struct tools *t)
{
    const cJSON *tool;
    cJSON_ArrayForEach(tool, t->list)
    {
        if (!tools_strict(tool))
            return false;
    }
    return true;
}

/* Calls of this format are JSON between markers, to which a schema can be applied. */
static bool is_json_between_markers(const struct call_format *f)
{
    return f->open && f->close && !f->named && !f->tags && !f->bare && !f->python && !f->keyed &&
           !f->quote && !strcmp(f->arguments, "arguments");
}

static cJSON *marked_call(const struct call_format *f, const struct tools *t)
{
    cJSON *way = cJSON_CreateObject();
    cJSON_AddStringToObject(way, "open", f->open);
    cJSON_AddStringToObject(way, "close", f->close);
    cJSON_AddItemToObject(way, "schema", tools_schema_of_call(t, f->arguments));
    return way;
}

/* Calls are optional, and tools are `strict` or have a grammar: from a call's opening marker on,
 * arguments are constrained to their schemas. Not supported for other call formats. */
static void keep_strict(struct body *b, struct chat_request *r, struct ask *q)
{
    if (!is_json_between_markers(r->style.calls) || !tools_any_bound(&r->tools))
        return;
    cJSON *spec = marked_call(r->style.calls, &r->tools);
    constrain_calls(b, spec, q);
    cJSON_Delete(spec);
}

static void add_way(cJSON *ways, const char *open)
{
    cJSON *way = cJSON_CreateObject();
    cJSON_AddStringToObject(way, "open", open);
    cJSON_AddItemToArray(ways, way);
}

/* The ways in which this model can begin an answer of calls: calls_or(). */
static cJSON *ways_to_call(const struct call_format *f, const struct tools *t)
{
    cJSON *ways = cJSON_CreateArray();
    if (is_json_between_markers(f) && tools_any_bound(t)) {
        cJSON_AddItemToArray(ways, marked_call(f, t));
    } else {
        if (f->around[0])
            add_way(ways, f->around[0]);
        if (f->open || f->tags)
            add_way(ways, f->open ? f->open : f->tags->name_open);
    }
    if (f->python)
        add_way(ways, "[");
    if (f->bare) {
        cJSON *way = cJSON_CreateObject();
        cJSON_AddItemToObject(way, "schema", tools_schema_of_call(t, f->arguments));
        cJSON_AddItemToArray(ways, way);
    }
    return ways;
}

/* An output format, and tools that the model may call instead. */
static void keep_format_or_calls(struct body *b, struct chat_request *r, struct ask *q)
{
    cJSON *spec = cJSON_CreateObject();
    r->format = q->constraint;
    r->format_kind = q->constraint_kind;
    if (r->style.channels)
        cJSON_AddItemToObject(spec, "schema", tools_schema_of_call(&r->tools, "arguments"));
    else
        cJSON_AddItemToObject(spec, "ways", ways_to_call(r->style.calls, &r->tools));
    constrain_or_calls(b, spec, q);
    r->format_or_calls = q->constraint;
    cJSON_Delete(spec);
}

static bool can_keep_calls(const struct call *c)
{
    return edge_limits(c->edge)->takes_grammars && !c->edge->config->disable_grammar_support;
}

/* Decides which calls are parsed, and the schema if one is required. `can`: the shards can
 * constrain calls. */
static int plan_calls(struct body *b, struct chat_request *r, bool can, struct ask *q,
                      struct err *e)
{
    struct tools *t = &r->tools;
    if ((t->list || t->answer) && q->constraint && q->constraint_alone)
        return err_set(e, ERR_TOOL, "Tool error: Grammar and tools are mutually exclusive");
    if (!t->list)
        return 0;
    r->reply.format = r->style.calls;
    r->reply.forced = t->forced;
    r->reply.single = t->single;
    r->reply.names = t->names;
    r->reply.n_names = t->n;
    r->reply.types = tools_types;
    r->reply.types_of = t->list;
    if (!t->forced) {
        if (q->constraint)
            keep_format_or_calls(b, r, q);
        else if (can)
            keep_strict(b, r, q);
        if (!can || !(is_json_between_markers(r->style.calls) || (r->format && r->style.channels)))
            tools_warn_unbound(b, t);
        return b->failed ? -1 : 0;
    }
    t->several = t->several && !r->style.channels; /* a call ends the answer */
    cJSON *schema = tools_schema(t, r->style.calls->arguments);
    if (!schema)
        return err_nomem(e);
    q->constraint = NULL; /* the format of an answer without calls */
    constrain_schema(b, "tools", schema, q);
    if (all_strict(t))
        constrain_compact(q);
    cJSON_Delete(schema);
    return b->failed ? -1 : 0;
}

/* The answer is the input of a custom tool, under its grammar. */
static int plan_input(struct body *b, struct object chat, const cJSON *tool, struct ask *q,
                      struct err *e)
{
    const cJSON *g = custom_grammar(tool);
    q->constraint = NULL; /* the format of an answer without calls */
    constrain_syntax(b, chat, "tools", json_str(g, "syntax", ""), json_str(g, "definition", NULL),
                     q);
    if (b->failed)
        return -1;
    cJSON *messages = cJSON_GetObjectItemCaseSensitive(chat.json, "messages");
    return custom_ask(messages, tool) == 0 ? 0 : err_nomem(e);
}

struct rendering {
    struct call *c;
    struct body *b;
    cJSON *variables;
    struct chat_request *r;
    struct ask *q;
};

/* Agents send an effort to every model, and some templates raise an error for levels that they do
 * not know: tries the nearest usual level, then none. False: nothing is left to try. */
static bool lower_effort(const struct rendering *x)
{
    const char *given = json_str(x->variables, "reasoning_effort", NULL);
    if (!x->r->effort || !given)
        return false;
    const char *nearest = chat_nearest_effort(given);
    body_warn(x->b, "reasoning_effort: this model's template does not take %.20s", given);
    if (nearest != given)
        return json_put(x->variables, "reasoning_effort", cJSON_CreateString(nearest));
    cJSON_DeleteItemFromObjectCaseSensitive(x->variables, "reasoning_effort");
    return true;
}

static int render_some(void *of, const cJSON *messages, struct err *e)
{
    const struct rendering *x = of;
    int rc = render(x->c, messages, x->variables, x->r, x->q, e);
    while (rc != 0 && e->kind == ERR_TEMPLATE && lower_effort(x))
        rc = render(x->c, messages, x->variables, x->r, x->q, e);
    x->c->warnings = x->b->warnings;
    return rc;
}

static void free_chat(void *chat) { chat_free(chat); }

/* The request's template, which openai_parse() allowed, or the model's. */
static int choose_template(struct call *c, struct body *b, struct object chat,
                           struct chat_request *r, struct err *e)
{
    const char *source = json_str(chat.json, "chat_template", NULL);
    r->chat = c->edge->chat;
    if (!source || b->failed)
        return 0;
    struct chat *own = chat_with_template(c->edge->chat, source, e);
    if (own && arena_defer(&c->arena, free_chat, own) != 0) {
        chat_free(own);
        return err_nomem(e);
    }
    r->chat = own;
    return own ? 0 : -1;
}

static int prepare(struct call *c, struct body *b, struct object chat, struct chat_request *r,
                   struct err *e)
{
    if (choose_template(c, b, chat, r, e) != 0)
        return -1;
    const cJSON *messages = read_messages(b, chat, edge_media(c->edge).vision);
    struct ask *q = r->openai->asks;
    if (tools_read(b, chat, &r->tools, e) != 0 || b->failed)
        return -1;
    r->style = chat_style(r->chat, r->tools.list != NULL);
    cJSON *variables = chat_variables(b, chat, r);
    call_unread(c, b);
    if (b->failed)
        return -1;
    if (plan_calls(b, r, can_keep_calls(c), q, e) != 0 ||
        (r->tools.answer && plan_input(b, chat, r->tools.answer, q, e) != 0))
        return -1;
    if (!(q->read = ARENA_NEW(&c->arena, struct medium *, 1)))
        return err_nomem(e);
    struct rendering x = {c, b, variables, r, q};
    return r->fit ? fit_prompt(c, messages, q, r->fit, render_some, &x, e)
                  : render_some(&x, messages, e);
}

int chat_prepare(struct call *c, struct body *b, struct object chat, struct chat_request *r,
                 struct err *e)
{
    const cJSON *messages = json_get(chat.json, "messages");
    if (cJSON_IsArray(messages) && !messages->child)
        body_fail(b, chat, "messages", "at least one message is required");
    return prepare(c, b, chat, r, e);
}

int chat_prepare_tree(struct call *c, struct body *b, cJSON *chat, struct chat_request *r,
                      struct err *e)
{
    c->warnings = b->warnings;
    if (b->failed || !chat || arena_defer(&c->arena, free_tree, chat) != 0) {
        cJSON_Delete(chat);
        return b->failed ? -1 : err_nomem(e);
    }
    return prepare(c, b, (struct object){chat, ""}, r, e); /* a conversion may leave no message */
}

int chat_request_parse(struct call *c, struct chat_request *r, struct err *e)
{
    struct body b;
    *r = (struct chat_request){0};
    if (body_open_prompt(&b, c->body.p, c->body.len, &c->arena, e) != 0)
        return -1;
    b.warnings = c->warnings; /* of the body that this one was made from */
    struct object root = body_root(&b);
    template_keep_numbers(b.root, b.text, b.n);
    struct openai *o = openai_parse(c, &b, "chatcmpl-", e);
    struct ask *q = ARENA_NEW(&c->arena, struct ask, 1);
    if (!o || !q)
        return err_nomem(e);
    openai_sampling(&b, root, q);
    q->input_name = "messages";
    o->logprobs = body_opt_bool(&b, root, "logprobs", false);
    q->top_name = "top_logprobs";
    q->top_n_tokens = body_u32(&b, root, q->top_name);
    read_split(&b, root, r);
    body_tokens(&b, root, edge_limits(c->edge)->max_input_tokens, q);
    o->logprobs |= q->n_logprob_ids > 0;
    if (q->top_n_tokens.v > 0 && !o->logprobs)
        body_fail(&b, root, q->top_name, "`top_logprobs` needs `logprobs` to be true");
    q->add_special_tokens = body_opt_bool(&b, root, "add_special_tokens", false);
    o->asks = q;
    o->n_asks = 1;
    openai_prompt_logprobs_read(&b, o);
    r->openai = o;
    read_ending(&b, root, json_get(root.json, "messages"), r);
    const bool old = chat_is_old(root);
    r->old = old && !json_get(root.json, "tools"); /* how calls are answered */
    return old ? chat_prepare_tree(c, &b, chat_from_old(&b, root), r, e)
               : chat_prepare(c, &b, root, r, e);
}

const struct ask *chat_prompt_alone(struct call *c, struct body *b, struct object root)
{
    struct chat_request r = {0};
    struct ask *q = ARENA_NEW(&c->arena, struct ask, 1);
    r.openai = ARENA_NEW(&c->arena, struct openai, 1);
    if (!q || !r.openai) {
        body_nomem(b, root, "messages");
        return NULL;
    }
    *q = (struct ask){.style = ASK_OPENAI, .input_name = "messages"};
    *r.openai = (struct openai){.asks = q, .n_asks = 1};
    q->add_special_tokens = body_opt_bool(b, root, "add_special_tokens", false);
    read_ending(b, root, json_get(root.json, "messages"), &r);
    if (r.ending == CHAT_DEFAULT)
        r.ending = CHAT_NOTHING;
    if (b->failed || chat_prepare(c, b, root, &r, b->e) == 0)
        return b->failed ? NULL : q;
    b->failed = true;
    return NULL;
}
