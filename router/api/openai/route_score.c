/* vLLM's scores of text pairs. */
#include "common/json/json.h"
#include "router/call/embed_body.h"
#include <math.h>
#include <string.h>

struct scored {
    bool embeds; /* scores are cosine similarities of embeddings, each text alone */
    bool late;   /* the same, of vectors of their tokens */
    bool raw;    /* logits in place of their sigmoids */
    uint32_t n, n_first;
};

static double cosine(const float *a, const float *b, uint32_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (uint32_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    const double norm = sqrt(aa) * sqrt(bb);
    return norm > 0 ? ab / norm : 0;
}

static float score_of(const struct call_texts *t, const struct scored *q, uint32_t i)
{
    if (!q->embeds)
        return q->raw ? *call_text_row(t, i) : texts_sigmoid(*call_text_row(t, i));
    return (float)cosine(call_text_row(t, q->n_first == 1 ? 0 : i),
                         call_text_row(t, q->n_first + i), t->job.width);
}

static int render(struct call *c, struct err *e)
{
    const struct call_texts *t = c->texts;
    const struct scored *q = t->state;
    struct buf *out = &c->out;
    const float *late = q->late ? texts_late_scores(c, q->n_first, q->n) : NULL;
    if (q->late && !late)
        return err_nomem(e);
    texts_list_begin(c, "score");
    for (uint32_t i = 0; i < q->n; i++) {
        buf_fmt(out, "%s{\"index\":%u,\"object\":\"score\",\"score\":", i ? "," : "", i);
        buf_json_f32(out, late ? late[i] : score_of(t, q, i));
        buf_ch(out, '}');
    }
    buf_ch(out, ']');
    texts_usage(c, false);
    return out->oom ? err_nomem(e) : 0;
}

/* A single text_1 is paired with every text_2; otherwise texts are paired by index. An embedding
 * model gets all of them. */
static struct text_input *pair_up(struct call *c, const struct text_input *a, uint32_t n_a,
                                  const struct text_input *b, struct scored *q)
{
    const uint32_t all = q->embeds ? n_a + q->n : q->n;
    struct text_input *v = ARENA_NEW(&c->arena, struct text_input, all);
    for (uint32_t i = 0; v && !q->embeds && i < q->n; i++) {
        v[i] = a[n_a == 1 ? 0 : i];
        v[i].second = b[i].text;
        v[i].n_second = b[i].n;
    }
    if (v && q->embeds) {
        memcpy(v, a, n_a * sizeof(*v));
        memcpy(v + n_a, b, q->n * sizeof(*v));
    }
    for (uint32_t i = 0; v && q->late && i < all; i++)
        texts_late_prompt(c, &v[i], i < n_a ? "query" : "document");
    return v;
}

/* The first of these names that the body has; else the first of all. */
static const char *named(const struct body *b, const char *const names[3])
{
    for (int i = 0; i < 3; i++)
        if (json_get(b->root, names[i]))
            return names[i];
    return names[0];
}

static int work(struct call *c, struct err *e)
{
    static const char *const firsts[] = {"text_1", "queries", "data_1"}, *const seconds[] = {
                                                                             "text_2", "documents",
                                                                             "data_2"};
    static const unsigned tasks = 1u << TASK_RERANK | 1u << TASK_EMBED | 1u << TASK_TOKEN_EMBED;
    struct body b;
    struct texts_ask ask = {0};
    struct scored *q = ARENA_NEW(&c->arena, struct scored, 1);
    bool batch;
    if (!q)
        return err_nomem(e);
    if (texts_open(c, &b, tasks, e))
        return -1;
    const struct object root = body_root(&b);
    const enum model_task task = edge_limits(c->edge)->task;
    ask.all = task == TASK_TOKEN_EMBED;
    *q = (struct scored){.embeds = task == TASK_EMBED || ask.all, .late = ask.all};
    const struct text_input *first = body_texts(&b, root, named(&b, firsts), &q->n_first, &batch);
    const char *other = json_get(b.root, "items") ? "items" : named(&b, seconds);
    const struct text_input *second = body_texts(&b, root, other, &q->n, &batch);
    for (uint32_t i = 0; !b.failed && i < q->n; i++)
        if (!second[i].text || !first[i < q->n_first ? i : 0].text)
            body_fail(&b, root, "text_2", "texts are expected, not ids");
    if (!b.failed && q->n_first != 1 && q->n_first != q->n)
        body_fail(&b, root, "text_1", "one text, or as many as in `text_2`, are expected");
    q->raw = !body_opt_bool(&b, root, "use_activation", true);
    body_truncate(&b, root, &ask);
    if (b.failed || (q->late && texts_count(c, q->n_first + q->n, TEXTS_MOST_LATE, e)))
        return -1;
    ask.plain = true;
    if (!(ask.in = pair_up(c, first, q->n_first, second, q)))
        return err_nomem(e);
    ask.n = q->embeds ? q->n_first + q->n : q->n;
    return call_texts(c, &ask, tasks, render, q, e);
}

const struct route route_score = {
    .method = "POST",
    .paths = {"/score", "/v1/score"},
    .errors = ERRORS_OPENAI,
    .summary =
        "vLLM's scores: how well each of `text_2` fits `text_1`, of a reranker; the cosine of "
        "their vectors, of a model that embeds; the sum of the best cosines of their tokens, of "
        "one that embeds tokens; others answer 400.",
    .body = "`text_1`, `text_2` (a text or a list; also by vLLM's other names: `queries` with "
            "`documents` or `items`, `data_1` with `data_2`), `use_activation` "
            "(true), `truncate_prompt_tokens`",
    .takes = "Score",
    .gives = "ScoreAnswer",
    .task = TASK_RERANK,
    .example = "{\"text_1\": \"What is it?\", \"text_2\": [\"A ball.\", \"A cat.\"]}",
    .work = work,
};
