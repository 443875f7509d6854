/* The path that huggingface_hub's InferenceClient posts to; the body selects streaming, or the form
 * of its other tasks. */
#include "router/api/hf/hf.h"
#include "router/api/tgi/tgi.h"
#include "router/http/route.h"

static int work(struct call *c, struct err *e)
{
    static const unsigned of_texts = 1u << TASK_EMBED | 1u << TASK_RERANK | 1u << TASK_CLASSIFY |
                                     1u << TASK_TOKEN_CLASSIFY | 1u << TASK_FILL_MASK |
                                     1u << TASK_ANSWER;
    const unsigned task = 1u << edge_limits(c->edge)->task;
    if (task & of_texts)
        return texts_work_form(c, task, hf_form, e);
    struct tgi *t = tgi_parse(c, true, e);
    if (t && !t->full_text_given)
        t->return_full_text = true; /* TGI's default here if the model's task is unknown */
    return t ? tgi_generate(c, t, t->stream, true, e) : -1;
}

const struct route route_compat = {
    .method = "POST",
    .paths = {"/"},
    .summary = "As `/generate_stream` when `stream` is true, else a list with `/generate`'s "
               "answer; of other models as `/embed`, `/rerank` or `/predict`. As Hugging Face's "
               "inference API: labels of tokens and their groups, answers to questions, labels by "
               "zero-shot, also of images, similarities, words in place of masks.",
    .body = "`inputs`, `parameters`, `stream`; the tasks' own are in [Serve "
            "embeddings](how-to/embeddings.md#tasks-of-hugging-faces-inference-api)",
    .takes = "GenerateEither",
    .example = "{\"inputs\": \"Once upon a time\", \"parameters\": {\"max_new_tokens\": 20}}",
    .gives = "GenerateList",
    .work = work,
};
