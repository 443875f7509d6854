/* The path that huggingface_hub's InferenceClient posts to; the body selects streaming. */
#include "router/api/tei/tei.h"
#include "router/api/tgi/tgi.h"
#include "router/http/route.h"

static int work(struct call *c, struct err *e)
{
    switch (edge_limits(c->edge)->task) { /* as in TEI */
    case TASK_EMBED:
        return tei_embed(c, e);
    case TASK_RERANK:
        return tei_rerank(c, e);
    case TASK_CLASSIFY:
        return tei_predict(c, e);
    default:
        break;
    }
    struct tgi *t = tgi_parse(c, true, e);
    if (t && !t->full_text_given)
        t->return_full_text = true; /* TGI's default here if the model's task is unknown */
    return t ? tgi_generate(c, t, t->stream, true, e) : -1;
}

const struct route route_compat = {
    .method = "POST",
    .paths = {"/"},
    .summary = "As `/generate_stream` when `stream` is true, else a list with `/generate`'s "
               "answer; of other "
               "models as `/embed`, `/rerank` or `/predict`.",
    .body = "`inputs`, `parameters`, `stream`",
    .takes = "GenerateEither",
    .example = "{\"inputs\": \"Once upon a time\", \"parameters\": {\"max_new_tokens\": 20}}",
    .gives = "GenerateList",
    .work = work,
};
