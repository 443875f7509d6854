/* SageMaker uses one path for everything; the body selects the interface. */
#include "common/json/json.h"
#include "router/body/body.h"
#include "router/call/call.h"
#include "router/http/route.h"

extern const struct route route_compat, route_chat_completions, route_completions;

static int work(struct call *c, struct err *e)
{
    cJSON *j = json_parse(c->body.p ? c->body.p : "", c->body.len, e);
    const struct route *r = json_get(j, "inputs")     ? &route_compat
                            : json_get(j, "messages") ? &route_chat_completions
                            : json_get(j, "prompt")   ? &route_completions
                                                      : &route_compat;
    cJSON_Delete(j);
    return r->work(c, e);
}

const struct route route_invocations = {
    .method = "POST",
    .paths = {"/invocations"},
    .summary =
        "The route that SageMaker calls: as `/`, `/v1/chat/completions` or `/v1/completions`.",
    .body = "as of one of these routes, recognised by `inputs`, `messages` or `prompt`",
    .takes = "Invocation",
    .example = "{\"inputs\": \"Once upon a time\", \"parameters\": {\"max_new_tokens\": 20}}",
    .gives = "InvocationAnswer",
    .work = work,
};
