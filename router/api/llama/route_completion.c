#include "router/api/llama/llama.h"
#include "router/http/route.h"

static int work(struct call *c, struct err *e) { return llama_completion(c, false, e); }

const struct route route_completion = {
    .method = "POST",
    .paths = {"/completion"},
    .errors = ERRORS_OPENAI,
    .any_type = true,
    .summary = "llama-server's completion, with its names, defaults and members of the answer.",
    .body = "`prompt` (a text, ids, both in one list, or a list of such), `n_predict`, `stream`, "
            "`n_probs`, `grammar`, `json_schema`, `return_tokens`, `return_progress`, "
            "`timings_per_token`, `response_fields`, `t_max_predict_ms`, samplers",
    .takes = "LlamaCompletion",
    .example = "{\"prompt\": \"Once upon a time\", \"n_predict\": 20}",
    .gives = "LlamaAnswer",
    .work = work,
};
