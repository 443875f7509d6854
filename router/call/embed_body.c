#include "router/call/embed_body.h"
#include "common/json/json.h"
#include <stdlib.h>
#include <string.h>

enum { TEI_BATCH = 32 };

/* ---------------------------------------------------------------- reading */

void body_empty(struct body *b, const char *key)
{
    if (!b->failed)
        err_set(b->e, ERR_EMPTY, "`%s` cannot be empty", key);
    b->failed = true;
}

static void one_text(struct body *b, struct object o, const char *key, const cJSON *v,
                     struct text_input *out)
{
    if (cJSON_IsString(v)) {
        *out = (struct text_input){.text = v->valuestring, .n = strlen(v->valuestring)};
        if (!out->n)
            body_empty(b, key);
        return;
    }
    if (!cJSON_IsArray(v)) {
        body_mistyped(b, o, key, v, "a string or a list of token ids");
        return;
    }
    out->ids = body_ids(b, o, key, v, &out->n_ids);
    if (!b->failed && !out->n_ids)
        body_empty(b, key);
}

const struct text_input *body_texts(struct body *b, struct object o, const char *key, uint32_t *n,
                                    bool *batch)
{
    const cJSON *v = body_get(b, o, key, true), *item;
    *n = 0;
    *batch = false;
    if (b->failed)
        return NULL;
    const cJSON *first = cJSON_IsArray(v) ? v->child : NULL;
    *batch = cJSON_IsArray(v) && !cJSON_IsNumber(first);
    const int count = *batch ? cJSON_GetArraySize(v) : 1;
    if (*batch && count == 0) {
        body_empty(b, key);
        return NULL;
    }
    struct text_input *in = ARENA_NEW(b->arena, struct text_input, (size_t)count);
    if (!in) {
        b->failed = true;
        err_nomem(b->e);
        return NULL;
    }
    memset(in, 0, (size_t)count * sizeof(*in));
    if (!*batch)
        one_text(b, o, key, v, &in[(*n)++]);
    else
        cJSON_ArrayForEach(item, v) one_text(b, o, key, item, &in[(*n)++]);
    return b->failed ? NULL : in;
}

const struct text_input *body_documents(struct body *b, struct object o, const char *key,
                                        uint32_t *n)
{
    const cJSON *v = body_get(b, o, key, true), *item;
    *n = 0;
    if (b->failed)
        return NULL;
    if (!cJSON_IsArray(v)) {
        body_mistyped(b, o, key, v, "a list of texts");
        return NULL;
    }
    const size_t count = (size_t)cJSON_GetArraySize(v);
    struct text_input *in = ARENA_NEW(b->arena, struct text_input, count + 1);
    if (!count || !in) {
        if (!count)
            body_empty(b, key);
        else
            err_nomem(b->e);
        b->failed = true;
        return NULL;
    }
    cJSON_ArrayForEach(item, v)
    {
        const cJSON *text = cJSON_IsObject(item) ? json_get(item, "text") : item;
        if (!cJSON_IsString(text)) {
            body_mistyped(b, o, key, item, "a string or an object with `text`");
            return NULL;
        }
        in[(*n)++] = (struct text_input){.text = text->valuestring, .n = strlen(text->valuestring)};
    }
    return in;
}

uint32_t texts_dimensions(const struct call *c, struct body *b, struct object o, const char *key,
                          uint32_t least)
{
    const uint32_t width = edge_limits(c->edge)->embed_width;
    const struct opt_u64 n = body_u32(b, o, key);
    if (n.set && (n.v < least || n.v > width))
        body_fail(b, o, key, "`%s` must be from 1 to %u", key, width);
    const uint32_t usual = c->edge->sentence.dimensions;
    return n.set ? (uint32_t)n.v : usual < width ? usual : 0;
}

uint32_t texts_most(const struct call *c)
{
    const uint32_t most = c->edge->config->max_client_batch_size;
    return most > TEI_BATCH ? most : TEI_BATCH;
}

int texts_count(const struct call *c, uint32_t n, uint32_t most, struct err *e)
{
    (void)c;
    if (n <= most)
        return 0;
    return err_set(e, ERR_VALIDATION, "batch size %u > maximum allowed batch size %u", n, most);
}

static int texts_open(struct call *c, struct body *b, unsigned tasks, struct err *e)
{
    if (call_texts_task(c, tasks, e))
        return -1;
    if (body_open(b, c->body.p, c->body.len, &c->arena, e))
        return -1;
    b->plain = c->errors != ERRORS_TEI;
    return 0;
}

static int texts_start(struct call *c, struct body *b, const struct texts_row *row, struct err *e)
{
    struct texts_ask ask = row->ask;
    void *state = arena_alloc(&c->arena, row->state + 1, 16);
    bool batch;
    if (!state)
        return err_nomem(e);
    memset(state, 0, row->state);
    if (row->key)
        ask.in = body_texts(b, body_root(b), row->key, &ask.n, &batch);
    const uint32_t most = row->read(c, b, &ask, state);
    call_unread(c, b);
    if (b->failed || texts_count(c, ask.n, most, e))
        return -1;
    return call_texts(c, &ask, row->tasks, row->render, state, e);
}

int texts_work(struct call *c, const struct texts_row *row, struct err *e)
{
    struct body b;
    return texts_open(c, &b, row->tasks, e) ? -1 : texts_start(c, &b, row, e);
}

int texts_work_form(struct call *c, unsigned tasks,
                    const struct texts_row *(*form)(const struct call *c, const struct body *b),
                    struct err *e)
{
    struct body b;
    return texts_open(c, &b, tasks, e) ? -1 : texts_start(c, &b, form(c, &b), e);
}

/* ---------------------------------------------------------------- writing */

void texts_json(struct buf *out, const float *x, uint32_t n)
{
    buf_ch(out, '[');
    for (uint32_t i = 0; i < n; i++) {
        if (i)
            buf_ch(out, ',');
        buf_json_f32(out, x[i]);
    }
    buf_ch(out, ']');
}

void texts_list_begin(struct call *c, const char *kind)
{
    buf_fmt(&c->out, "{\"id\":\"%s-%s\",\"object\":\"list\",\"created\":%lld,\"model\":", kind,
            c->id, (long long)c->created_unix);
    buf_json_str(&c->out, c->edge->model_id, strlen(c->edge->model_id));
    buf_str(&c->out, ",\"data\":[");
}

void texts_usage(struct call *c, bool completion)
{
    const unsigned long long n = c->texts->tokens;
    buf_fmt(&c->out, ",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu%s}}", n, n,
            completion ? ",\"completion_tokens\":0" : "");
}

struct ranked {
    float score;
    uint32_t index;
};

static int better(const void *pa, const void *pb)
{
    const struct ranked *a = pa, *b = pb;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

uint32_t *texts_ranking(struct call *c, const float *score, uint32_t n)
{
    struct ranked *v = ARENA_NEW(&c->arena, struct ranked, n + (size_t)1);
    uint32_t *out = ARENA_NEW(&c->arena, uint32_t, n + (size_t)1);
    if (!v || !out)
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        v[i] = (struct ranked){score[i], i};
    qsort(v, n, sizeof(*v), better);
    for (uint32_t i = 0; i < n; i++)
        out[i] = v[i].index;
    return out;
}

bool texts_prompt(const struct call *c, const char *word, struct texts_ask *ask)
{
    const struct sentence *s = &c->edge->sentence;
    ask->prompt_name = sentence_prompt_for(s, word);
    /* a model with a prompt for queries alone has it as the default, which documents lack */
    ask->plain = !ask->prompt_name && s->default_prompt && sentence_kind_known(s->default_prompt);
    return ask->prompt_name || sentence_kind_known(word);
}

void body_prompt(const struct call *c, struct body *b, struct object root, struct texts_ask *ask)
{
    const char *type = body_str(b, root, "input_type", false), *key = type ? "input_type" : "task";
    const char *task = body_str(b, root, "task", false), *word = type ? type : task;
    ask->prompt_name = body_str(b, root, "prompt_name", false);
    if (!b->failed && ask->prompt_name && task && edge_has_adapter(c->edge, task))
        ask->adapter = task;
    if (b->failed || !word || ask->prompt_name)
        return;
    const bool known = texts_prompt(c, word, ask);
    if (task && edge_has_adapter(c->edge, task))
        ask->adapter = task;
    else if (ask->prompt_name && edge_has_adapter(c->edge, ask->prompt_name))
        ask->adapter = ask->prompt_name;
    else if (!known)
        body_fail(b, root, key, "`%s`: this model has no prompt `%.60s`", key, word);
}

enum text_late body_late(const struct call *c, struct body *b, struct object root,
                         struct texts_ask *ask, enum text_late usual)
{
    const bool has = edge_limits(c->edge)->task == TASK_TOKEN_EMBED;
    const char *word = body_str(b, root, "input_type", false);
    const enum text_late late = !word                       ? usual
                                : !strcmp(word, "query")    ? LATE_QUERY
                                : !strcmp(word, "document") ? LATE_DOCUMENT
                                                            : LATE_NONE;
    if (word && !late)
        body_fail(b, root, "input_type", "`input_type` must be query or document");
    else if (word && !has)
        body_warn(b, "input_type has no effect with this model");
    if (!late || b->failed || !has)
        return LATE_NONE;
    struct text_input *in = ARENA_NEW(b->arena, struct text_input, ask->n);
    if (!in)
        body_nomem(b, root, "input");
    for (uint32_t i = 0; in && i < ask->n; i++) {
        in[i] = ask->in[i];
        in[i].late = late;
    }
    ask->in = in;
    return late;
}

void body_truncate(struct body *b, struct object root, struct texts_ask *ask)
{
    const struct opt_i64 most = body_i32(b, root, "truncate_prompt_tokens");
    if (most.set && (most.v < -1 || most.v == 0))
        body_fail(b, root, "truncate_prompt_tokens",
                  "`truncate_prompt_tokens` must be -1 or positive");
    const char *side = body_str(b, root, "truncation_side", false);
    ask->left = side && strcmp(side, "left") == 0;
    if (side && !ask->left && strcmp(side, "right") != 0)
        body_fail(b, root, "truncation_side", "`truncation_side` must be left or right");
    ask->truncate = most.set;
    ask->most = most.v > 0 ? (uint32_t)most.v : 0;
}
