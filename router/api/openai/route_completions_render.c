#include "router/api/openai/completions.h"
#include "router/call/render.h"

static int work(struct call *c, struct err *e)
{
    struct openai *o = completions_parse(c, e);
    if (!o)
        return -1;
    buf_ch(&c->out, '[');
    for (uint32_t i = 0; i < o->n_asks; i++) {
        buf_str(&c->out, i ? "," : "");
        if (render_ask(c, &o->asks[i], e) != 0)
            return -1;
    }
    buf_ch(&c->out, ']');
    return 0;
}

const struct route route_completions_render = {
    .method = "POST",
    .paths = {"/v1/completions/render"},
    .errors = ERRORS_OPENAI,
    .summary = "A list with `token_ids` and `prompt` of each prompt, as a generation would be "
               "given them; nothing is generated.",
    .body = "as `/v1/completions`",
    .takes = "Completion",
    .example = "{\"prompt\": \"Once upon a time\"}",
    .gives = "RenderedList",
    .work = work,
};
