#include "router/api/responses/stored.h"
#include "router/http/route.h"

static int work(struct call *c, struct err *e)
{
    struct chat_request r;
    struct responses *p = ARENA_NEW(&c->arena, struct responses, 1);
    if (!p)
        return err_nomem(e);
    const int rc = stored_recall(c, p, e);
    if (rc != 0)
        return rc;
    p->compact = true;
    return responses_parse(c, &r, p, e) != 0 ? -1 : responses_generate(c, &r, p, e);
}

const struct route route_responses_compact = {
    .method = "POST",
    .paths = {"/v1/responses/compact"},
    .errors = ERRORS_OPENAI,
    .summary = "A conversation made short, as `output`: the messages of the user, and an item of "
               "type `compaction` that holds a summary by the model. The list is the input of "
               "later requests.",
    .body = "`input` and `instructions` (as `/v1/responses`), `previous_response_id` or "
            "`conversation` with `--response-store`",
    .takes = "ResponsesInput",
    .example = "{\"input\": \"Hello!\"}",
    .gives = "Compaction",
    .work = work,
};
