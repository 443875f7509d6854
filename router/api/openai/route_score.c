/* vLLM's scores of text pairs. */
#include "common/json/json.h"
#include "router/call/embed_images.h"
#include <string.h>

struct scored {
    bool cosines; /* of vectors, each text alone; else of pairs */
    bool raw;     /* logits in place of their sigmoids */
    uint32_t n, n_first;
};

static int render(struct call *c, struct err *e)
{
    const struct call_texts *t = c->texts;
    const struct scored *q = t->state;
    struct buf *out = &c->out;
    const float *scores = q->cosines ? texts_cosines(c, q->n_first, q->n) : t->job.values;
    if (!scores)
        return err_nomem(e);
    texts_list_begin(c, "score");
    for (uint32_t i = 0; i < q->n; i++) {
        buf_fmt(out, "%s{\"index\":%u,\"object\":\"score\",\"score\":", i ? "," : "", i);
        buf_json_f32(out, q->cosines ? scores[i] : texts_score(c, scores[i], q->raw));
        buf_ch(out, '}');
    }
    buf_ch(out, ']');
    texts_usage(c, false);
    return out->oom ? err_nomem(e) : 0;
}

/* A single text_1 is paired with every text_2; otherwise texts are paired by index. An embedding
 * model gets all of them. */
static int pair_up(struct call *c, const struct text_input *a, const struct text_input *b,
                   const struct scored *q, struct texts_ask *ask, struct err *e)
{
    ask->n = q->cosines ? q->n_first + q->n : q->n;
    struct text_input *v = ARENA_NEW(&c->arena, struct text_input, ask->n);
    if (!v)
        return err_nomem(e);
    for (uint32_t i = 0; !q->cosines && i < q->n; i++)
        v[i] = text_pair(&a[q->n_first == 1 ? 0 : i], &b[i]);
    ask->in = v;
    if (q->cosines) {
        memcpy(v, a, q->n_first * sizeof(*v));
        memcpy(v + q->n_first, b, q->n * sizeof(*v));
        return texts_ask_vectors(c, ask, v, q->n_first, e);
    }
    return 0;
}

/* The first of these names that the body has; else the first of all. */
static const char *named(const struct body *b, const char *const names[3])
{
    for (int i = 0; i < 3; i++)
        if (json_get(b->root, names[i]))
            return names[i];
    return names[0];
}

static bool is_ids(const struct text_input *in) { return !in->text && !in->shown; }

static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    static const char *const firsts[] = {"text_1", "queries", "data_1"}, *const seconds[] = {
                                                                             "text_2", "documents",
                                                                             "data_2"};
    struct scored *q = state;
    const struct object root = body_root(b);
    const enum model_task task = edge_limits(c->edge)->task;
    *q = (struct scored){.cosines = task != TASK_RERANK};
    const struct text_input *first =
        body_texts_or_images(c, b, root, named(b, firsts), &q->n_first);
    const char *other = json_get(b->root, "items") ? "items" : named(b, seconds);
    const struct text_input *second = cJSON_IsObject(json_get(b->root, other))
                                          ? body_documents_or_images(c, b, root, other, &q->n)
                                          : body_texts_or_images(c, b, root, other, &q->n);
    for (uint32_t i = 0; !b->failed && i < q->n; i++)
        if (is_ids(&first[i < q->n_first ? i : 0]) || is_ids(&second[i]))
            body_fail(b, root, "text_2", "texts are expected, not ids");
    if (!b->failed && q->n_first != 1 && q->n_first != q->n)
        body_fail(b, root, "text_1", "one text, or as many as in `text_2`, are expected");
    q->raw = !body_opt_bool(b, root, "use_activation", true);
    body_truncate(b, root, ask);
    if (!b->failed && pair_up(c, first, second, q, ask, b->e))
        return texts_failed(b);
    return task == TASK_TOKEN_EMBED ? TEXTS_MOST_LATE : UINT32_MAX;
}

static int work(struct call *c, struct err *e)
{
    static const struct texts_row row = {.tasks = 1u << TASK_RERANK | 1u << TASK_EMBED |
                                                  1u << TASK_TOKEN_EMBED,
                                         .state = sizeof(struct scored),
                                         .ask = {.plain = true},
                                         .read = read_options,
                                         .render = render};
    return texts_work(c, &row, e);
}

const struct route route_score = {
    .method = "POST",
    .paths = {"/score", "/v1/score"},
    .errors = ERRORS_OPENAI,
    .summary =
        "vLLM's scores: how well each of `text_2` fits `text_1`, of a reranker; the cosine of "
        "their vectors, of a model that embeds; the sum of the best cosines of their tokens, of "
        "one that embeds tokens; others answer 400.",
    .body = "`text_1`, `text_2` (a text or a list; of a model that takes images also objects with "
            "`image` or `content`; also by vLLM's other names: `queries` with "
            "`documents` or `items`, `data_1` with `data_2`), `use_activation` "
            "(true), `truncate_prompt_tokens`",
    .takes = "Score",
    .gives = "ScoreAnswer",
    .task = TASK_RERANK,
    .example = "{\"text_1\": \"What is it?\", \"text_2\": [\"A ball.\", \"A cat.\"]}",
    .work = work,
};
