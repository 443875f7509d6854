#include "router/call/embed.h"
#include "router/body/body.h"
#include "router/call/embed_impl.h"
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- tokens */

int embed_ids(const struct encoding *x, const char *text, size_t n, unsigned flags,
              struct tok_part *out)
{
    struct tok_ids ids = {0};
    int rc = tokenizer_encode(x->c->edge->tokenizer, text, n, flags, x->c->scratch, &ids, x->e);
    uint32_t *copy = rc == 0 ? ARENA_NEW(&x->c->arena, uint32_t, ids.n + (size_t)1) : NULL;
    if (copy && ids.n)
        memcpy(copy, ids.id, ids.n * sizeof(*copy));
    *out = (struct tok_part){copy, ids.n};
    tok_ids_free(&ids);
    return rc     ? err_wrap(x->e, "Input validation error: tokenizer error")
           : copy ? 0
                  : err_nomem(x->e);
}

static int too_long(const struct encoding *x, uint64_t n)
{
    if (x->c->errors == ERRORS_TEI)
        return err_set(x->e, ERR_TOO_LONG, "`inputs` must have less than %u tokens. Given: %llu",
                       x->most, (unsigned long long)n);
    return err_set(x->e, ERR_TOO_LONG,
                   "This model's maximum context length is %u tokens, however you requested %llu "
                   "tokens (input %u). Please reduce your input.",
                   x->most, (unsigned long long)n, x->index);
}

int embed_fit(const struct encoding *x, struct tok_part *a, struct tok_part *b, uint32_t around)
{
    uint64_t n = (uint64_t)a->n + (b ? b->n : 0) + around;
    if (x->most && n > x->most && !x->q->truncate)
        return too_long(x, n);
    if (x->q->truncate && (x->most || x->q->most)) {
        uint32_t most = x->q->most && (!x->most || x->q->most < x->most) ? x->q->most : x->most;
        if (most < around)
            return err_set(x->e, ERR_VALIDATION, "texts cannot be cut to %u tokens: %u are special",
                           most, around);
        tok_frame_cut(a, b, most - around, x->q->left);
    }
    return 0;
}

int embed_frame(const struct encoding *x, struct tok_part *a, struct tok_part *b,
                struct embed_text *out)
{
    const struct tokenizer *t = x->c->edge->tokenizer;
    const uint32_t around = tok_frame_special(t, b != NULL);
    if (embed_fit(x, a, b, around))
        return -1;
    const uint32_t n = a->n + (b ? b->n : 0) + around;
    uint32_t *ids = ARENA_NEW(&x->c->arena, uint32_t, n + (size_t)1);
    uint8_t *types = ARENA_NEW(&x->c->arena, uint8_t, n + (size_t)1);
    if (!ids || !types)
        return err_nomem(x->e);
    tok_frame(t, a, b, ids, types);
    *out = (struct embed_text){.ids = ids, .types = tok_frame_types(types, n), .n = n};
    return 0;
}

/* Tokens of the prompt are excluded from mean pooling: those of the prompt alone, without its last
 * special tokens (sentence-transformers). */
int embed_skipped(const struct encoding *x, const char *prompt, uint32_t *out)
{
    struct tok_part p;
    *out = 0;
    if (!prompt || !*prompt || x->c->edge->sentence.include_prompt)
        return 0;
    if (embed_ids(x, prompt, strlen(prompt), 0, &p))
        return -1;
    const uint32_t around = tok_frame_special(x->c->edge->tokenizer, false);
    *out = p.n + (around > 0 ? around - 1 : 0);
    return 0;
}

/* The ids of a text behind a prompt, which may be NULL. */
static int behind(const struct encoding *x, const char *prompt, const char *text, size_t n,
                  struct tok_part *out)
{
    const size_t front = prompt ? strlen(prompt) : 0;
    if (!front)
        return embed_ids(x, text, n, 0, out);
    char *both = arena_alloc(&x->c->arena, front + n + 1, 1);
    if (!both)
        return err_nomem(x->e);
    memcpy(both, prompt, front + 1);
    memcpy(both + front, text, n);
    return embed_ids(x, both, front + n, 0, out);
}

static int encode_text(const struct encoding *x, const struct text_input *in, const char *prompt,
                       struct embed_text *out)
{
    struct tok_part a;
    if (behind(x, prompt, in->text, in->n, &a))
        return -1;
    if (x->c->edge->sentence.bare) {
        if (embed_fit(x, &a, NULL, 0))
            return -1;
        *out = (struct embed_text){.ids = a.id, .n = a.n};
        return 0;
    }
    if (embed_frame(x, &a, NULL, out))
        return -1;
    return embed_skipped(x, prompt, &out->skip);
}

/* A pair with an empty second text is a single text, as in transformers. The default prompt of a
 * CrossEncoder precedes its first text, as in sentence-transformers. */
int embed_segments(const struct encoding *x, const struct text_input *in, struct embed_text *out)
{
    struct tok_part a, b;
    const char *prompt = sentence_prompt(&x->c->edge->sentence, NULL);
    if (behind(x, prompt, in->text, in->n, &a) || embed_ids(x, in->second, in->n_second, 0, &b))
        return -1;
    return embed_frame(x, &a, in->n_second ? &b : NULL, out);
}

static int take_ids(const struct encoding *x, const struct text_input *in, struct embed_text *out)
{
    struct tok_part a = {in->ids, in->n_ids};
    const uint32_t vocab = edge_limits(x->c->edge)->vocab_size;
    for (uint32_t i = 0; i < a.n; i++)
        if (a.id[i] >= vocab)
            return err_set(x->e, ERR_VALIDATION,
                           "Input validation error: token id %u is not below the vocabulary size "
                           "%u",
                           a.id[i], vocab);
    if (embed_fit(x, &a, NULL, 0))
        return -1;
    *out = (struct embed_text){.ids = a.id, .types = in->types, .n = a.n, .skip = in->skip};
    return 0;
}

int embed_fill(const struct encoding *x, struct embed_text *t, uint32_t to, const char *word,
               const char *what)
{
    const int64_t id = word ? tokenizer_id(x->c->edge->tokenizer, word) : -1;
    if (t->n >= to)
        return 0;
    if (id < 0)
        return err_set(x->e, ERR_VALIDATION, "the tokenizer has no %s", what);
    uint32_t *ids = ARENA_NEW(&x->c->arena, uint32_t, to);
    if (!ids)
        return err_nomem(x->e);
    memcpy(ids, t->ids, t->n * sizeof(*ids));
    while (t->n < to)
        ids[t->n++] = (uint32_t)id;
    t->ids = ids;
    return 0;
}

/* The name of an adapter as `model`, as on the routes that generate. */
static const char *adapter_of(struct call *c, const struct texts_ask *q)
{
    if (q->adapter || !edge_adapters(c->edge))
        return q->adapter;
    return edge_adapter(c->edge, body_model(c->body.p, c->body.len, &c->arena));
}

static bool is_pair(const struct text_input *in)
{
    return in->second || in->first_shown || in->second_shown;
}

static bool is_ids(const struct text_input *in) { return !in->text && !in->first_shown; }

static int encode_all(struct call *c, const struct texts_ask *q, struct embed_text *out,
                      struct err *e)
{
    const uint32_t padded = c->edge->sentence.padded;
    const char *pad = tokenizer_special(c->edge->tokenizer, "pad_token");
    const struct infer_limits *l = edge_limits(c->edge);
    const struct sentence *s = &c->edge->sentence;
    struct encoding x = {.c = c, .q = q, .most = l->max_input_tokens, .e = e};
    const char *prompt = q->plain ? NULL : sentence_prompt(s, q->prompt_name);
    if (q->prompt_name && !prompt)
        return err_set(e, ERR_VALIDATION, "`prompt_name`: this model has no prompt `%.60s`",
                       q->prompt_name);
    const char *adapter = adapter_of(c, q);
    if (adapter && !edge_has_adapter(c->edge, adapter))
        return err_set(e, ERR_NO_MODEL, "The model `%.200s` does not exist", adapter);
    for (; x.index < q->n; x.index++) {
        const struct text_input *in = &q->in[x.index];
        struct embed_text *to = &out[x.index];
        if (in->shown     ? embed_shown(&x, in, prompt, to)
            : in->list    ? embed_list(&x, in->list, to)
            : is_ids(in)  ? take_ids(&x, in, to)
            : in->late    ? embed_late(&x, in, to)
            : is_pair(in) ? embed_pair(&x, in, to)
                          : encode_text(&x, in, prompt, to))
            return -1;
        if (to->n == 0)
            return err_set(e, ERR_EMPTY, "`inputs` cannot be empty");
        if (!in->shown &&
            embed_fill(&x, to, padded, pad, "`pad_token`")) /* padding of models that read it */
            return -1;
        to->adapter = adapter;
    }
    return 0;
}

/* ---------------------------------------------------------------- the call */

int call_texts_task(const struct call *c, unsigned tasks, struct err *e)
{
    const enum model_task task = edge_limits(c->edge)->task;
    if (atomic_load(&c->edge->fleet) && task != TASK_AUTO && tasks & 1u << task)
        return 0;
    const char *closed = edge_closed(c->edge);
    if (closed)
        return err_set(e, ERR_UNHEALTHY, "%s", closed);
    if (tasks & 1u << TASK_EMBED)
        return err_set(e, ERR_TASK,
                       "The model does not support Embeddings API: it is served for `%s`",
                       model_task_name(task));
    return err_set(e, ERR_TASK, "The model does not support this API: it is served for `%s`",
                   model_task_name(task));
}

/* Scheduler thread. */
static void on_done(struct embed_job *j)
{
    struct call_texts *t = (struct call_texts *)((char *)j - offsetof(struct call_texts, job));
    workers_submit(edge_home(t->call->edge)->workers, &t->call->job);
}

enum { PERMIT_TEXTS = 256 };

/* One permit for several texts, which are quick to compute; at most half of all permits, as for
 * generations. */
static uint32_t permits(const struct call *c, uint32_t n)
{
    const uint32_t half = c->edge->config->max_concurrent_requests / 2;
    n = (n + PERMIT_TEXTS - 1) / PERMIT_TEXTS;
    return n < half ? n : half ? half : 1;
}

enum { MOST_NUMBERS = 256 * 1024 * 1024 }; /* of an answer: 1 GiB */

/* Vectors of tokens, and those as long as a vocabulary, are many more numbers than their texts. */
static int check_numbers(const struct call *c, const struct call_texts *t, bool all, struct err *e)
{
    const struct infer_limits *l = edge_limits(c->edge);
    uint64_t rows = all ? 0 : t->job.n;
    for (uint32_t i = 0; all && i < t->job.n; i++)
        rows += embed_text_rows(&t->job.texts[i]);
    const uint64_t width = all ? l->hidden_size : l->embed_width;
    return width && rows > MOST_NUMBERS / width
               ? err_set(e, ERR_VALIDATION,
                         "Input validation error: %llu rows of %llu numbers are too many for one "
                         "request",
                         (unsigned long long)rows, (unsigned long long)width)
               : 0;
}

int call_texts(struct call *c, const struct texts_ask *q, unsigned tasks,
               int (*render)(struct call *c, struct err *e), void *state, struct err *e)
{
    const char *closed = edge_closed(c->edge);
    if (closed)
        return err_set(e, ERR_UNHEALTHY, "%s", closed);
    if (call_texts_task(c, tasks, e))
        return -1;
    if (!(c->permits = admission_take(&c->edge->admission, c->key_id, permits(c, q->n))))
        return admission_refuse(c->key_id, e);
    struct call_texts *t = ARENA_NEW(&c->arena, struct call_texts, 1);
    struct embed_text *texts = ARENA_NEW(&c->arena, struct embed_text, q->n);
    if (!t || !texts)
        return err_nomem(e);
    memset(t, 0, sizeof(*t));
    if (encode_all(c, q, texts, e))
        return -1;
    t->call = c;
    t->render = render;
    t->state = state;
    for (uint32_t i = 0; i < q->n; i++)
        t->tokens += texts[i].n;
    t->job = (struct embed_job){.texts = texts,
                                .n = q->n,
                                .all = q->all,
                                .tenant = c->tenant,
                                .priority = q->priority,
                                .cancelled = &c->cancelled,
                                .done = on_done};
    if (check_numbers(c, t, q->all, e))
        return -1;
    c->user = q->user;
    c->texts = t;
    return 0;
}

void call_texts_send(struct call *c) { fleet_embed(atomic_load(&c->edge->fleet), &c->texts->job); }
