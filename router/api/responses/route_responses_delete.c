#include "router/api/responses/stored.h"
#include "router/http/route.h"
#include <string.h>

/* A running one would be stored at its end. */
static bool end_it(struct call *c)
{
    struct call *running = stored_running(c);
    if (running) {
        stored_end(running);
        call_cancel(running);
    }
    return true;
}

static int work(struct call *c, struct err *e)
{
    const struct store_job *j;
    const int rc = stored_find(c, "", STORE_DELETE, &j, e);
    if (rc != 0)
        return rc;
    buf_str(&c->out, "{\"id\":");
    buf_json_str(&c->out, j->what.id, strlen(j->what.id));
    buf_str(&c->out, ",\"object\":\"response\",\"deleted\":true}");
    c->on_loop = end_it;
    return 0;
}

const struct route route_responses_delete = {
    .method = "DELETE",
    .paths = {"/v1/responses/*"},
    .errors = ERRORS_OPENAI,
    .summary = "Delete a stored response; one that is made in the background is ended.",
    .carries_on = true, /* else a running one would be stored although it was deleted */
    .work = work,
};
