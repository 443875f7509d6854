/* Labels of an image by zero-shot: how near its vector is to those of sentences with the labels
 * (CLIP, arXiv 2103.00020; SigLIP, 2303.15343). */
#include "common/json/json.h"
#include "router/api/hf/hf.h"
#include "router/call/embed_images.h"
#include <string.h>

struct labelled {
    const char *const *labels; /* [n] */
    uint32_t n;
};

/* The image is the query, and the sentences are what it is compared with. */
static int render(struct call *c, struct err *e)
{
    const struct labelled *q = c->texts->state;
    const struct infer_limits *l = edge_limits(c->edge);
    float *scores = texts_cosines(c, 1, q->n);
    for (uint32_t i = 0; scores && i < q->n; i++) {
        scores[i] = l->cosine_scale * scores[i] + l->cosine_plus;
        scores[i] = l->cosines_each ? texts_sigmoid(scores[i]) : scores[i];
    }
    if (scores && !l->cosines_each && q->n > 1)
        texts_probabilities(scores, q->n, scores);
    else if (scores && !l->cosines_each)
        scores[0] = 1;
    const uint32_t *order = scores ? texts_ranking(c, scores, q->n) : NULL;
    if (!order)
        return err_nomem(e);
    buf_ch(&c->out, '[');
    for (uint32_t i = 0; i < q->n; i++) {
        buf_str(&c->out, i ? "," : "");
        hf_label(&c->out, q->labels[order[i]], scores[order[i]]);
    }
    buf_ch(&c->out, ']');
    return c->out.oom ? err_nomem(e) : 0;
}

/* Sentences that are too long are cut, as in the pipeline. */
static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    struct labelled *q = state;
    bool given;
    const struct object root = body_root(b), o = body_object(b, root, "parameters", &given);
    const struct shown_part image = {.url = body_str(b, root, "inputs", true)};
    q->labels = hf_labels(b, o, &q->n);
    const char **form =
        b->failed ? NULL : hf_hypotheses(b, o, "This is a photo of {}.", q->labels, q->n);
    if (!b->failed && !(edge_limits(c->edge)->cosine_scale > 0))
        body_fail(b, root, "inputs", "this model does not compare images with labels");
    if (b->failed)
        return 0;
    struct text_input *in = ARENA_NEW(&c->arena, struct text_input, q->n + (size_t)1);
    if (!in) {
        body_nomem(b, root, "inputs");
        return 0;
    }
    memset(in, 0, sizeof(*in));
    for (uint32_t i = 0; i < q->n; i++)
        in[i + 1] = (struct text_input){.text = form[i], .n = strlen(form[i])};
    ask->in = in;
    ask->n = q->n + 1;
    return texts_show(c, b, "inputs", &image, 1, in) ? UINT32_MAX : 0;
}

const struct texts_row row_hf_image = {.tasks = 1u << TASK_EMBED,
                                       .state = sizeof(struct labelled),
                                       .ask = {.plain = true, .truncate = true},
                                       .read = read_options,
                                       .render = render};
