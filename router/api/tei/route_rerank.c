/* TEI's and Cohere's clients use the same path; the body shows which of them it is. */
#include "common/json/json.h"
#include "router/api/cohere/rerank.h"
#include "router/api/tei/tei.h"
#include <string.h>

struct reranking {
    const struct text_input *texts;
    bool raw, give_text;
};

static int render(struct call *c, struct err *e)
{
    const struct call_texts *t = c->texts;
    const struct reranking *q = t->state;
    const uint32_t *order = texts_ranking(c, t->job.values, t->job.n);
    if (!order)
        return err_nomem(e);
    buf_ch(&c->out, '[');
    for (uint32_t i = 0; i < t->job.n; i++) {
        const uint32_t at = order[i];
        const float logit = t->job.values[at];
        buf_fmt(&c->out, "%s{\"index\":%u,", i ? "," : "", at);
        if (q->give_text) {
            buf_str(&c->out, "\"text\":");
            buf_json_str(&c->out, q->texts[at].text, q->texts[at].n);
            buf_ch(&c->out, ',');
        }
        buf_str(&c->out, "\"score\":");
        buf_json_f32(&c->out, q->raw ? logit : texts_sigmoid(logit));
        buf_ch(&c->out, '}');
    }
    buf_ch(&c->out, ']');
    return c->out.oom ? err_nomem(e) : 0;
}

static int rerank(struct call *c, struct body *b, struct err *e)
{
    struct texts_ask ask = {0};
    const struct object root = body_root(b);
    struct reranking *q = ARENA_NEW(&c->arena, struct reranking, 1);
    if (!q)
        return err_nomem(e);
    const char *query = body_str(b, root, "query", true);
    q->texts = body_documents(b, root, "texts", &ask.n);
    q->raw = body_opt_bool(b, root, "raw_scores", false);
    q->give_text = body_opt_bool(b, root, "return_text", false);
    tei_options(b, root, &ask);
    if (b->failed || texts_count(c, ask.n, texts_most(c), e))
        return -1;
    if (!*query)
        return err_set(e, ERR_EMPTY, "`query` cannot be empty");
    struct text_input *in = ARENA_NEW(&c->arena, struct text_input, ask.n);
    if (!in)
        return err_nomem(e);
    for (uint32_t i = 0; i < ask.n; i++)
        in[i] = (struct text_input){.text = query,
                                    .n = strlen(query),
                                    .second = q->texts[i].text,
                                    .n_second = q->texts[i].n};
    ask.in = in;
    ask.prompt_name = NULL;
    return call_texts(c, &ask, 1u << TASK_RERANK, render, q, e);
}

int tei_rerank(struct call *c, struct err *e)
{
    struct body b;
    if (texts_open(c, &b, COHERE_RERANKS, e))
        return -1;
    return json_get(b.root, "documents") ? cohere_rerank(c, &b, e) : rerank(c, &b, e);
}

const struct route route_rerank = {
    .method = "POST",
    .paths = {"/rerank"},
    .errors = ERRORS_TEI,
    .summary = "TEI's rerank: texts by how well they answer a query, best first, of a reranker; a "
               "body with `documents` is answered as `/v1/rerank`.",
    .body = "`query`, `texts`, `raw_scores`, `return_text`, `truncate`, `truncation_direction`",
    .takes = "Rerank",
    .gives = "RerankAnswer",
    .task = TASK_RERANK,
    .example = "{\"query\": \"What is it?\", \"texts\": [\"A ball.\", \"A cat.\"]}",
    .work = tei_rerank,
};
