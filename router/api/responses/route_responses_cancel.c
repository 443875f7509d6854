#include "common/json/json.h"
#include "router/api/responses/stored.h"
#include "router/http/route.h"
#include <string.h>

static bool cancel(struct call *c)
{
    struct call *running = stored_running(c);
    c->on_loop = NULL;
    if (!running) { /* it has just ended: return it as it is */
        buf_reset(&c->out);
        call_again(c);
        return false;
    }
    buf_reset(&c->out);
    responses_object(&c->out, running, "cancelled", NULL);
    stored_keep(running, "cancelled", NULL);
    stored_end(running);
    call_cancel(running);
    return true;
}

static bool in_background(const struct stored *v)
{
    struct err ignored;
    cJSON *r = json_parse(v->response, strlen(v->response), &ignored);
    const bool is = cJSON_IsTrue(json_get(r, "background"));
    cJSON_Delete(r);
    return is;
}

static int work(struct call *c, struct err *e)
{
    const struct store_job *j;
    const int rc = stored_find(c, "/cancel", STORE_GET, &j, e);
    if (rc != 0)
        return rc;
    if (!in_background(&j->found[0]))
        return err_set(e, ERR_VALIDATION, "Cannot cancel a synchronous response.");
    stored_write(&j->found[0], &c->out);
    if (j->found[0].state == STORED_RUNNING && !c->looked_again) {
        c->looked_again = true;
        c->on_loop = cancel;
    }
    return 0;
}

const struct route route_responses_cancel = {
    .method = "POST",
    .paths = {"/v1/responses/*/cancel"},
    .errors = ERRORS_OPENAI,
    .summary = "End a response that is made in the background; one that has ended stays as it is.",
    .body = "none",
    .no_body = true,
    .carries_on = true,
    .work = work,
};
