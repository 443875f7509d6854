#include "router/api/tei/tei.h"
#include <string.h>

static int render(struct call *c, struct err *e)
{
    const struct call_texts *t = c->texts;
    const uint32_t n = t->job.width;
    for (uint32_t i = 0; i < t->job.n; i++)
        texts_normalize(t->job.values + (size_t)i * n, n);
    buf_ch(&c->out, '[');
    for (uint32_t i = 1; i < t->job.n; i++) {
        const float *a = call_text_row(t, 0), *b = call_text_row(t, i);
        double dot = 0;
        for (uint32_t k = 0; k < n; k++)
            dot += (double)a[k] * b[k];
        if (i > 1)
            buf_ch(&c->out, ',');
        buf_json_f32(&c->out, (float)dot);
    }
    buf_ch(&c->out, ']');
    return c->out.oom ? err_nomem(e) : 0;
}

static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    bool given;
    uint32_t n;
    (void)state;
    const struct object o = body_object(b, body_root(b), "inputs", &given);
    const struct object p = body_object(b, body_root(b), "parameters", &given);
    const char *source = body_str(b, o, "source_sentence", true);
    const struct text_input *others = body_documents(b, o, "sentences", &n);
    tei_options(b, p, ask);
    if (b->failed || texts_count(c, n, texts_most(c), b->e))
        return texts_failed(b);
    struct text_input *in = ARENA_NEW(&c->arena, struct text_input, n + (size_t)1);
    if (!in) {
        body_nomem(b, o, "sentences");
        return 0;
    }
    in[0] = (struct text_input){.text = source, .n = strlen(source)};
    memcpy(in + 1, others, n * sizeof(*in));
    ask->in = in;
    ask->n = n + 1;
    tei_not_empty(b, ask);
    return ask->n;
}

const struct texts_row row_tei_similarity = {
    .tasks = 1u << TASK_EMBED, .read = read_options, .render = render};

static int work(struct call *c, struct err *e) { return texts_work(c, &row_tei_similarity, e); }

const struct route route_similarity = {
    .method = "POST",
    .paths = {"/similarity"},
    .errors = ERRORS_TEI,
    .summary = "TEI's similarities: the cosine of one sentence's vector with those of others.",
    .body = "`inputs` (`source_sentence`, `sentences`), `parameters` (`truncate`, "
            "`truncation_direction`, `prompt_name`)",
    .takes = "Similarity",
    .gives = "SimilarityAnswer",
    .task = TASK_EMBED,
    .example =
        "{\"inputs\": {\"source_sentence\": \"Once\", \"sentences\": [\"upon\", \"a time\"]}}",
    .work = work,
};
