/* The body of /v1/completions: prompts as texts or ids, suffix, echo, log-probabilities. */
#include "common/json/json.h"
#include "common/utf8.h"
#include "router/api/openai/completions.h"
#include "router/call/prompt.h"
#include "router/chat/chat.h"
#include "router/chat/fim.h"
#include <string.h>

void completions_prompt(struct call *c, struct body *b, const cJSON *v, struct ask *q)
{
    struct object root = body_root(b);
    if (cJSON_IsString(v)) {
        q->inputs = body_bytes(&c->arena, v->valuestring, &q->n_inputs);
        q->add_special_tokens = body_opt_bool(b, root, "add_special_tokens", true);
    } else if (cJSON_IsArray(v)) {
        struct buf text = BUF_INIT;
        q->ids = body_ids(b, root, "prompt", v, &q->n_ids);
        buf_reserve(&text, 0);
        if (q->ids)
            tokenizer_decode(c->edge->tokenizer, q->ids, q->n_ids, false, &text);
        q->inputs = text.oom ? NULL : arena_strdup(&c->arena, text.p, text.len);
        q->n_inputs = text.len;
        buf_free(&text);
    } else {
        body_mistyped(b, root, "prompt", v, "a string or a list of token ids");
    }
    if (!q->inputs)
        body_nomem(b, root, "prompt");
    q->n_chars = q->inputs ? utf8_count(q->inputs, q->n_inputs) : 0;
}

/* `suffix`: the answer fills the middle between it and the prompt. */
static void read_suffix(struct call *c, struct body *b, const char *suffix, struct ask *q)
{
    const char *const *style = fim_style(c->edge->tokenizer);
    struct buf text = BUF_INIT;
    size_t n;
    const char *bytes = body_bytes(&c->arena, suffix, &n);
    if (b->failed || !style)
        return; /* the caller refuses it */
    const struct guard *g = chat_guard(c->edge->chat);
    buf_str(&text, style[FIM_PREFIX]);
    guard_text(g, q->inputs, q->n_inputs, &text);
    buf_str(&text, style[FIM_SUFFIX]);
    guard_text(g, bytes ? bytes : "", bytes ? n : 0, &text);
    buf_str(&text, style[FIM_MIDDLE]);
    struct err ignored;
    if (text.oom || !bytes || prompt_set(&c->arena, text.p, text.len, q, &ignored) != 0 ||
        (edge_limits(c->edge)->takes_bias &&
         prompt_ends_middle(&c->arena, c->edge->tokenizer, q, &ignored) != 0))
        body_nomem(b, body_root(b), "suffix");
    if (q->ids)
        body_fail(b, body_root(b), "suffix", "`suffix` needs a `prompt` that is text");
    buf_free(&text);
}

static uint32_t most_prompts(const struct call *c)
{
    uint32_t max = c->edge->config->max_client_batch_size;
    return max > OPENAI_MAX_PROMPTS ? max : OPENAI_MAX_PROMPTS;
}

static void read_prompts(struct call *c, struct body *b, struct openai *o)
{
    struct object root = body_root(b);
    const cJSON *p = body_get(b, root, "prompt", true);
    const char *suffix = body_str(b, root, "suffix", false);
    bool list = cJSON_IsArray(p) && p->child && !cJSON_IsNumber(p->child);
    uint32_t i = 0;
    if (cJSON_IsArray(p) && !p->child)
        body_fail(b, root, "prompt",
                  "Empty array detected. Do not use an empty array for the prompt.");
    if (b->failed)
        return;
    o->n_asks = list ? (uint32_t)cJSON_GetArraySize(p) : 1;
    if (o->n_asks > most_prompts(c))
        return; /* the caller refuses it with its own message */
    if (!(o->asks = ARENA_NEW(&c->arena, struct ask, o->n_asks))) {
        body_nomem(b, root, "prompt");
        return;
    }
    struct ask common = {.input_name = "prompt"}; /* shared by all, and large with many biases */
    openai_sampling(b, root, &common);
    body_tokens(b, root, edge_limits(c->edge)->max_input_tokens, &common);
    for (const cJSON *v = list ? p->child : p; v && i < o->n_asks; v = v->next) {
        o->asks[i] = common;
        completions_prompt(c, b, v, &o->asks[i]);
        if (suffix && *suffix)
            read_suffix(c, b, suffix, &o->asks[i]);
        i++;
    }
}

/* "logprobs": number of alternatives; 0 still requests those of the chosen tokens. */
static void read_logprobs(struct body *b, struct openai *o)
{
    struct object root = body_root(b);
    const cJSON *v = json_get(b->root, "logprobs");
    struct opt_u64 n = {0};
    if (cJSON_IsBool(v))
        n = (struct opt_u64){cJSON_IsTrue(v), 1};
    else
        n = body_u32(b, root, "logprobs");
    o->logprobs = n.set || (o->asks && o->n_asks && o->asks[0].n_logprob_ids);
    o->echo = body_opt_bool(b, root, "echo", false);
    o->only_prompt = o->echo && o->asks && o->n_asks && o->asks[0].max_new_tokens.set &&
                     o->asks[0].max_new_tokens.v == 0;
    for (uint32_t i = 0; o->asks && i < o->n_asks; i++) {
        o->asks[i].top_n_tokens = n;
        o->asks[i].top_name = "logprobs";
        o->asks[i].decoder_input_details = o->logprobs && o->echo;
        if (o->only_prompt)
            o->asks[i].max_new_tokens.v = 1;
    }
}

struct openai *completions_parse(struct call *c, struct err *e)
{
    struct body b;
    uint32_t max = most_prompts(c);
    if (body_open_prompt(&b, c->body.p, c->body.len, &c->arena, e) != 0)
        return NULL;
    b.warnings = c->warnings; /* of the body that this one was made from */
    struct openai *o = openai_parse(c, &b, "cmpl-", e);
    if (!o)
        return NULL;
    read_prompts(c, &b, o);
    read_logprobs(&b, o);
    openai_prompt_logprobs_read(&b, o);
    openai_best_of(c, &b, o);
    if (b.failed)
        return NULL;
    const char *suffix = body_str(&b, body_root(&b), "suffix", false);
    if (suffix && *suffix && o->echo)
        return body_fail(&b, body_root(&b), "echo", "`echo` cannot be used with `suffix`"), NULL;
    if (suffix && *suffix && !fim_style(c->edge->tokenizer)) {
        err_set(e, ERR_SUFFIX,
                "Suffix is not supported and can be achieved by preprocessing the prompt.");
        return NULL;
    }
    if (o->n_asks > max) {
        err_set(e, ERR_BATCH_SIZE, "Number of prompts exceeds the maximum allowed batch size of %u",
                max);
        return NULL;
    }
    call_unread(c, &b);
    return o;
}
