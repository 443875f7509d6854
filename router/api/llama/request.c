/* The body of llama.cpp's /completion and /infill. */
#include "common/json/json.h"
#include "common/utf8.h"
#include "router/api/llama/llama.h"
#include "router/api/openai/completions.h"
#include <string.h>

/* null, false, 0 and [] request nothing. */
static bool asks(const cJSON *v)
{
    return v && !cJSON_IsNull(v) && !cJSON_IsFalse(v) &&
           !(cJSON_IsNumber(v) && v->valuedouble == 0) && !(cJSON_IsArray(v) && !v->child);
}

/* Refuses options that would change the answer. Options that only assign slots have no effect. */
static void refuse(struct body *b, struct object root)
{
    static const char *const names[] = {"n_indent", "dynatemp_range", "lora", "multimodal_data"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (asks(json_get(root.json, names[i])))
            body_fail(b, root, names[i], "`%s` is not supported", names[i]);
    if (asks(json_get(root.json, "n_probs")) && asks(json_get(root.json, "post_sampling_probs")))
        body_fail(
            b, root, "post_sampling_probs",
            "`post_sampling_probs` is not supported: `n_probs` returns those before sampling");
    if (json_get(root.json, "samplers"))
        body_warn(b, "samplers: the order is fixed");
    if (asks(json_get(root.json, "min_keep")))
        body_warn(b, "min_keep: one token is kept");
}

/* llama-server's default, unless the server has one for this model. */
static void use(struct opt_f32 *v, const struct opt_f32 *server, float def)
{
    if (!v->set && !server->set)
        *v = (struct opt_f32){true, def};
}

/* Applies llama-server's names and defaults to what openai_sampling() has read. */
static void sampling(const struct sampling_defaults *d, struct body *b, struct object root,
                     struct ask *q)
{
    openai_sampling(b, root, q);
    if (!q->greedy) {
        use(&q->temperature, &d->temperature, LLAMA_TEMPERATURE);
        use(&q->top_p, &d->top_p, LLAMA_TOP_P);
        use(&q->min_p, &d->min_p, LLAMA_MIN_P);
        if (!q->top_k.set && !d->top_k.set)
            q->top_k = (struct opt_i64){true, LLAMA_TOP_K};
    }
    q->length_name = json_get(root.json, "n_predict") ? "n_predict" : "max_tokens";
    q->max_new_tokens = body_length(b, root, q->length_name);
    q->input_name = "prompt";
    q->top_name = "n_probs";
    q->top_n_tokens = body_u32(b, root, "n_probs");
    if (q->top_n_tokens.v == 0)
        q->top_n_tokens.set = false;
}

/* ---------------------------------------------------------------- prompts */

static bool is_mixed(const cJSON *list)
{
    const cJSON *kid;
    bool number = false;
    cJSON_ArrayForEach(kid, list)
    {
        number |= cJSON_IsNumber(kid);
        if (!cJSON_IsNumber(kid) && !cJSON_IsString(kid))
            return false;
    }
    return number;
}

static void add_ids(struct buf *out, const uint32_t *ids, uint32_t n)
{
    buf_add(out, (const char *)ids, n * sizeof(*ids));
}

static void add_id(struct body *b, const cJSON *k, uint32_t vocab_size, struct buf *ids)
{
    const bool inside = k->valuedouble >= 0 && k->valuedouble < vocab_size;
    const uint32_t id = inside ? (uint32_t)k->valuedouble : 0;
    if (!inside)
        body_fail(b, body_root(b), "prompt", "a token id is outside the vocabulary of %u",
                  vocab_size);
    else if (k->valuedouble != id)
        body_mistyped(b, body_root(b), "prompt", k, "a token id");
    else
        add_ids(ids, &id, 1);
}

/* A list that mixes ids and texts. Leading text gets the tokenizer's leading special tokens. */
static void read_mixed(struct call *c, struct body *b, const cJSON *list, struct ask *q)
{
    const struct validator v = edge_validator(c->edge);
    const struct object root = body_root(b);
    struct buf ids = BUF_INIT, text = BUF_INIT;
    for (const cJSON *k = list->child; k && !b->failed; k = k->next) {
        const uint32_t *part;
        uint32_t n;
        size_t len;
        const char *piece = cJSON_IsString(k) ? body_bytes(&c->arena, k->valuestring, &len) : NULL;
        if (cJSON_IsNumber(k))
            add_id(b, k, v.vocab_size, &ids);
        else if (!piece)
            body_nomem(b, root, "prompt");
        else if (encode(&v, piece, len, k == list->child ? TOK_ADD_SPECIAL : 0, 0, c->scratch,
                        &c->arena, &part, &n, b->e) != 0)
            b->failed = true;
        else
            add_ids(&ids, part, n);
    }
    q->n_ids = (uint32_t)(ids.len / sizeof(*q->ids));
    uint32_t *copy = ARENA_NEW(&c->arena, uint32_t, q->n_ids + (size_t)1);
    buf_reserve(&text, 0);
    if (copy && ids.len)
        memcpy(copy, ids.p, ids.len);
    if (copy && !b->failed)
        tokenizer_decode(c->edge->tokenizer, copy, q->n_ids, false, &text);
    q->ids = copy;
    q->inputs = text.oom || ids.oom ? NULL : arena_strdup(&c->arena, text.p, text.len);
    q->n_inputs = text.len;
    q->n_chars = q->inputs ? utf8_count(q->inputs, q->n_inputs) : 0;
    if ((!copy || !q->inputs) && !b->failed)
        body_nomem(b, root, "prompt");
    buf_free(&ids);
    buf_free(&text);
}

static void read_prompt(struct call *c, struct body *b, const cJSON *v, struct ask *q)
{
    const cJSON *text = cJSON_IsObject(v) ? json_get(v, "prompt_string") : NULL;
    if (text && asks(json_get(v, "multimodal_data")))
        body_fail(b, body_root(b), "prompt", "`multimodal_data` is not supported");
    sampling(&c->edge->defaults, b, body_root(b), q);
    if (cJSON_IsArray(v) && is_mixed(v))
        read_mixed(c, b, v, q);
    else
        completions_prompt(c, b, text ? text : v, q);
}

static void read_prompts(struct call *c, struct body *b, struct openai *o)
{
    const cJSON *p = body_get(b, body_root(b), "prompt", true);
    const bool list = cJSON_IsArray(p) && !is_mixed(p);
    if (!p)
        return;
    o->n_asks = list ? (uint32_t)cJSON_GetArraySize(p) : 1;
    o->llama->list = list;
    if (o->n_asks == 0 || o->n_asks > OPENAI_MAX_PROMPTS) {
        body_fail(b, body_root(b), "prompt", "`prompt` must have 1 to %d entries. Given: %u",
                  OPENAI_MAX_PROMPTS, o->n_asks);
        return;
    }
    if (!(o->asks = ARENA_NEW(&c->arena, struct ask, o->n_asks))) {
        body_nomem(b, body_root(b), "prompt");
        return;
    }
    uint32_t i = 0;
    for (const cJSON *v = list ? p->child : p; v && i < o->n_asks && !b->failed; v = v->next)
        read_prompt(c, b, v, &o->asks[i++]);
}

/* ---------------------------------------------------------------- the whole */

static int read_infill(struct call *c, struct body *b, struct openai *o, struct err *e)
{
    if (!(o->asks = ARENA_NEW(&c->arena, struct ask, 1)))
        return err_nomem(e);
    o->n_asks = 1;
    sampling(&c->edge->defaults, b, body_root(b), o->asks);
    return llama_infill(c, b, o->asks, e);
}

static void read_own(struct body *b, struct openai *o)
{
    struct object root = body_root(b);
    struct llama *l = o->llama;
    const struct opt_u64 probs = body_u32(b, root, "n_probs");
    const struct opt_i64 most = body_i32(b, root, "t_max_predict_ms");
    l->n_probs = (uint32_t)probs.v;
    l->list |= o->each > 1;
    l->fields = body_strings(b, root, "response_fields", false, true, &l->n_fields);
    l->with_tokens = body_opt_bool(b, root, "return_tokens", false);
    l->predict_ns = most.v > 0 ? most.v * 1000000 : 0;
    /* n_predict 0: computes and caches the prompt, and returns no tokens. */
    o->only_prompt = o->asks && o->asks[0].max_new_tokens.set && !o->asks[0].max_new_tokens.v;
    for (uint32_t i = 0; o->only_prompt && i < o->n_asks; i++)
        o->asks[i].max_new_tokens.v = 1;
}

int llama_completion(struct call *c, bool infill, struct err *e)
{
    struct body b;
    if (body_open_prompt(&b, c->body.p, c->body.len, &c->arena, e) != 0)
        return -1;
    if (llama_bias(c, &b, e) != 0)
        return -1;
    struct openai *o = openai_parse(c, &b, "cmpl-", e);
    if (!o || !(o->llama = ARENA_NEW(&c->arena, struct llama, 1)))
        return o ? err_nomem(e) : -1;
    refuse(&b, body_root(&b));
    openai_choices(c, &b, body_root(&b), "n_cmpl", o);
    if (o->transfer && o->transfer->exports)
        body_fail(&b, body_root(&b), "kv_transfer_params",
                  "`do_remote_decode` is answered on OpenAI's routes only");
    if (infill ? read_infill(c, &b, o, e) != 0 : (read_prompts(c, &b, o), false))
        return -1;
    read_own(&b, o);
    call_unread(c, &b);
    if (b.failed)
        return -1;
    return openai_generate(c, o, o->stream ? &llama_stream : &llama_object, e);
}
