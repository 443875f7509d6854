#include "router/api/responses/items.h"
#include "router/api/responses/stored.h"
#include "router/http/route.h"
#include <string.h>

/* All input items: the earlier conversation, and the request's own. */
static int write_items(struct call *c, const struct store_job *j, struct err *e)
{
    struct item_list all = {cJSON_CreateArray(), 0};
    int rc = 0;
    for (uint32_t i = 0; i < j->n_found && rc == 0; i++) {
        rc = items_append(&all, j->found[i].input, NULL, e);
        if (rc == 0 && i + 1 < j->n_found)
            rc = items_append(&all, j->found[i].response, "output", e);
    }
    rc = rc ? rc : items_page(c, &all, e);
    cJSON_Delete(all.all);
    return rc;
}

static int work(struct call *c, struct err *e)
{
    const bool items = strchr(c->path + strlen("/v1/responses/"), '/') != NULL;
    const struct store_job *j;
    const int rc =
        stored_find(c, items ? "/input_items" : "", items ? STORE_CHAIN : STORE_GET, &j, e);
    if (rc != 0)
        return rc;
    if (items)
        return write_items(c, j, e);
    stored_write(&j->found[0], &c->out);
    return 0;
}

const struct route route_responses_get = {
    .method = "GET",
    .paths = {"/v1/responses/*"},
    .errors = ERRORS_OPENAI,
    .arguments = ITEM_ARGUMENTS,
    .summary = "A stored response (with `--response-store`), also while it is made in the "
               "background; with `/input_items` behind it, what the model was given, as a list "
               "(`order`, `limit`, `after`).",
    .work = work,
};
