#include "router/api/cohere/rerank.h"
#include "common/json/json.h"
#include "router/call/embed_images.h"
#include <string.h>

enum { MOST_DOCUMENTS = 10000 };

struct reranking {
    const struct text_input *documents;
    uint32_t n, top;
    bool texts;   /* return documents */
    bool raw;     /* logits in place of their sigmoids */
    bool cosines; /* of vectors; else scores of pairs */
    bool voyage;  /* the results are `data`, whose documents are texts */
};

/* An image is an object in either form. */
static void document(struct buf *out, const struct reranking *q, const struct text_input *d)
{
    const bool bare = q->voyage && !d->shown;
    buf_fmt(out, ",\"document\":%s", bare ? "" : d->shown ? "{\"image\":" : "{\"text\":");
    if (d->shown)
        buf_json_str(out, d->shown->images[0].url, d->shown->images[0].n_url);
    else
        buf_json_str(out, d->text, d->n);
    buf_str(out, bare ? "" : "}");
}

static void result(struct buf *out, const struct reranking *q, uint32_t i, float score)
{
    buf_fmt(out, "{\"index\":%u,\"relevance_score\":", i);
    buf_json_f32(out, score);
    if (q->texts)
        document(out, q, &q->documents[i]);
    buf_ch(out, '}');
}

static int render(struct call *c, struct err *e)
{
    const struct call_texts *t = c->texts;
    const struct reranking *q = t->state;
    const float *scores = q->cosines ? texts_cosines(c, 1, q->n) : t->job.values;
    const uint32_t *order = scores ? texts_ranking(c, scores, q->n) : NULL;
    struct buf *out = &c->out;
    if (!order)
        return err_nomem(e);
    buf_fmt(out, "{\"id\":\"%s\",%s\"model\":", c->id, q->voyage ? "\"object\":\"list\"," : "");
    buf_json_str(out, c->edge->model_id, strlen(c->edge->model_id));
    buf_fmt(out, ",\"usage\":{\"total_tokens\":%llu},\"%s\":[", (unsigned long long)t->tokens,
            q->voyage ? "data" : "results");
    for (uint32_t i = 0; i < q->top; i++) {
        buf_str(out, i ? "," : "");
        const float score = scores[order[i]];
        result(out, q, order[i], q->cosines ? score : texts_score(c, score, q->raw));
    }
    buf_fmt(
        out,
        "],\"meta\":{\"api_version\":{\"version\":\"2\"},\"billed_units\":{\"search_units\":1}}}");
    return out->oom ? err_nomem(e) : 0;
}

/* The pairs; or the query, and then the documents. */
static int inputs(struct call *c, const struct reranking *q, const char *query,
                  struct texts_ask *ask, struct err *e)
{
    const struct text_input one = {.text = query, .n = strlen(query)};
    ask->n = q->n + (q->cosines ? 1 : 0);
    struct text_input *in = ARENA_NEW(&c->arena, struct text_input, ask->n);
    if (!in)
        return err_nomem(e);
    for (uint32_t i = 0; q->cosines && i < ask->n; i++)
        in[i] = i ? q->documents[i - 1] : one;
    for (uint32_t i = 0; !q->cosines && i < q->n; i++)
        in[i] = text_pair(&one, &q->documents[i]);
    ask->in = in;
    return q->cosines ? texts_ask_vectors(c, ask, in, 1, e) : 0;
}

static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    struct reranking *q = state;
    const struct object root = body_root(b);
    const char *query = body_str(b, root, "query", true);
    q->documents = body_documents_or_images(c, b, root, "documents", &q->n);
    q->voyage = json_get(b->root, "top_k") || json_get(b->root, "truncation");
    const char *most_key = json_get(b->root, "top_k") ? "top_k" : "top_n";
    const struct opt_u64 top = body_u32(b, root, most_key);
    q->texts = body_opt_bool(b, root, "return_documents", false);
    ask->truncate = body_opt_bool(b, root, "truncation", true); /* as Cohere's API */
    q->raw = !body_opt_bool(b, root, "use_activation", true)    /* vLLM's, and Infinity's */
             || body_opt_bool(b, root, "raw_scores", false);
    const struct opt_u64 most = body_u32(b, root, "max_tokens_per_doc");
    if (most.set && most.v == 0)
        body_fail(b, root, "max_tokens_per_doc", "`max_tokens_per_doc` must be positive");
    ask->instruction = body_str(b, root, "instruction", false);
    ask->user = body_str(b, root, "user", false);
    const enum model_task task = edge_limits(c->edge)->task;
    const uint32_t most_texts = task == TASK_TOKEN_EMBED ? TEXTS_MOST_LATE : MOST_DOCUMENTS;
    q->cosines = task != TASK_RERANK;
    if (b->failed || texts_count(c, q->n, most_texts, b->e))
        return texts_failed(b);
    q->top = top.set && top.v < q->n ? (uint32_t)top.v : q->n;
    ask->most = most.set ? (uint32_t)most.v : 0;
    if (!*query)
        body_empty(b, "query");
    else if ((top.set && top.v == 0 &&
              err_set(b->e, ERR_VALIDATION, "`%s` must be positive", most_key)) ||
             inputs(c, q, query, ask, b->e))
        texts_failed(b);
    return ask->n;
}

const struct texts_row row_cohere_rerank = {.tasks = 1u << TASK_RERANK | 1u << TASK_EMBED |
                                                     1u << TASK_TOKEN_EMBED,
                                            .state = sizeof(struct reranking),
                                            .read = read_options,
                                            .render = render};
