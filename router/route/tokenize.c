#include "router/route.h"
#include "router/tgi.h"
#include "router/tokens.h"

static int work(struct call *c, struct err *e)
{
    struct tgi *t = tgi_parse(c, false, e);
    return t ? tokens_json(c, t->ask.inputs, t->ask.n_inputs, true, e) : -1;
}

const struct route route_tokenize = {
    .method = "POST",
    .paths = {"/tokenize"},
    .summary = "The tokens of a prompt, special ones included, with byte offsets.",
    .body = "`inputs`",
    .work = work,
};
