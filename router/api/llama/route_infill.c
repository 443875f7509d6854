#include "router/api/llama/llama.h"
#include "router/http/route.h"

static int work(struct call *c, struct err *e) { return llama_completion(c, true, e); }

const struct route route_infill = {
    .method = "POST",
    .paths = {"/infill"},
    .errors = ERRORS_OPENAI,
    .any_type = true,
    .summary = "llama-server's fill-in-the-middle, for models whose vocabulary has tokens for it.",
    .body = "`input_prefix`, `input_suffix`, `input_extra` (a list of {`filename`, `text`}), "
            "`prompt` (behind the prefix), and what /completion takes",
    .takes = "LlamaInfill",
    .example = "{\"input_prefix\": \"def one():\\n    return \", \"input_suffix\": \"\\n\"}",
    .gives = "LlamaAnswer",
    .refuses = true,
    .work = work,
};
