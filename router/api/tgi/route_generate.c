#include "router/api/tgi/tgi.h"
#include "router/http/route.h"

static int work(struct call *c, struct err *e)
{
    struct tgi *t = tgi_parse(c, false, e);
    return t ? tgi_generate(c, t, false, false, e) : -1;
}

const struct route route_generate = {
    .method = "POST",
    .paths = {"/generate"},
    .summary = "Generate and answer when all is done.",
    .body = "`inputs`, `parameters`",
    .takes = "Generate",
    .example = "{\"inputs\": \"Once upon a time\", \"parameters\": {\"max_new_tokens\": 20, "
               "\"details\": true}}",
    .gives = "GenerateAnswer",
    .work = work,
};
