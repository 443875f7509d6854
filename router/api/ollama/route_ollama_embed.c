#include "common/clock.h"
#include "common/json/json.h"
#include "router/api/ollama/ollama.h"
#include "router/call/embed_body.h"
#include "router/http/route.h"
#include <string.h>

enum { MOST_INPUTS = 2048 };
struct embedded {
    const char *model;
    uint32_t dimensions; /* 0: all */
    bool old;            /* /api/embeddings: one vector */
};

static int render(struct call *c, struct err *e)
{
    const struct call_texts *t = c->texts;
    const struct embedded *q = t->state;
    const uint32_t width = t->job.width, n = q->dimensions ? q->dimensions : width;
    struct buf *out = &c->out;
    if (q->old) {
        buf_str(out, "{\"embedding\":");
    } else {
        buf_str(out, "{\"model\":");
        buf_json_str(out, q->model, strlen(q->model));
        buf_str(out, ",\"embeddings\":[");
    }
    for (uint32_t i = 0; i < t->job.n; i++) {
        float *x = t->job.values + (size_t)i * width;
        texts_normalize(x, n);
        buf_str(out, i ? "," : "");
        texts_json(out, x, n);
    }
    if (q->old)
        buf_ch(out, '}');
    else
        buf_fmt(out, "],\"total_duration\":%llu,\"load_duration\":0,\"prompt_eval_count\":%llu}",
                (unsigned long long)(clock_ns() - c->received_ns), (unsigned long long)t->tokens);
    return out->oom ? err_nomem(e) : 0;
}

static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    const struct object root = body_root(b);
    struct embedded *q = state;
    bool batch;
    q->old = !strcmp(c->path, "/api/embeddings");
    q->model = body_str(b, root, "model", false);
    q->model = q->model ? q->model : c->edge->model_id;
    ask->in =
        body_texts(b, root, json_get(b->root, "prompt") ? "prompt" : "input", &ask->n, &batch);
    ask->truncate = body_opt_bool(b, root, "truncate", true);
    q->dimensions = texts_dimensions(c, b, root, "dimensions", 0);
    return q->old ? 1 : MOST_INPUTS;
}

static int work(struct call *c, struct err *e)
{
    static const struct texts_row row = {.tasks = 1u << TASK_EMBED,
                                         .state = sizeof(struct embedded),
                                         .read = read_options,
                                         .render = render};
    return texts_work(c, &row, e);
}

const struct route route_ollama_embed = {
    .method = "POST",
    .paths = {"/api/embed", "/api/embeddings"},
    .errors = ERRORS_OLLAMA,
    .any_type = true,
    .summary = "Ollama's vectors, of a model that embeds; others answer 400. `/api/embeddings` is "
               "the old form: of one `prompt`.",
    .body = "`input` (a text or a list; of the old form `prompt`), `truncate` (true), `dimensions`",
    .takes = "OllamaEmbed",
    .gives = "OllamaVectors",
    .task = TASK_EMBED,
    .example = "{\"model\": \"demo\", \"input\": [\"Once upon a time\"]}",
    .work = work,
};
