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

static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    const struct object root = body_root(b);
    struct reranking *q = state;
    const char *query = body_str(b, root, "query", true);
    q->texts = body_documents(b, root, "texts", &ask->n);
    q->raw = body_opt_bool(b, root, "raw_scores", false);
    q->give_text = body_opt_bool(b, root, "return_text", false);
    tei_options(b, root, ask);
    ask->prompt_name = NULL;
    if (b->failed || texts_count(c, ask->n, texts_most(c), b->e))
        return texts_failed(b);
    if (!*query)
        body_empty(b, "query");
    struct text_input *in = ARENA_NEW(&c->arena, struct text_input, ask->n);
    if (!in)
        body_nomem(b, root, "texts");
    for (uint32_t i = 0; in && i < ask->n; i++)
        in[i] = (struct text_input){.text = query,
                                    .n = strlen(query),
                                    .second = q->texts[i].text,
                                    .n_second = q->texts[i].n};
    ask->in = in;
    return ask->n;
}

static const struct texts_row row = {.tasks = 1u << TASK_RERANK,
                                     .state = sizeof(struct reranking),
                                     .read = read_options,
                                     .render = render};

const struct texts_row *tei_rerank_form(const struct call *c, const struct body *b)
{
    (void)c;
    return json_get(b->root, "documents") ? &row_cohere_rerank : &row;
}

static int work(struct call *c, struct err *e)
{
    return texts_work_form(c, row_cohere_rerank.tasks, tei_rerank_form, e);
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
    .work = work,
};
