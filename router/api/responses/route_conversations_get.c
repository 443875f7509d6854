#include "common/json/exact.h"
#include "common/json/json.h"
#include "router/api/responses/conversations.h"
#include "router/api/responses/items.h"
#include "router/http/route.h"
#include <string.h>

static int write_item(struct call *c, const struct item_list *l, const char *id, struct err *e)
{
    for (const cJSON *k = json_first(l->all); k; k = k->next)
        if (!strcmp(json_str(k, "id", ""), id)) {
            json_print_exact(&c->out, k);
            return 0;
        }
    return err_set(e, ERR_NOT_FOUND, "Item with id '%.70s' not found.", id);
}

/* `rest`: "/items", or "/items/" and the id of one. */
static int write_items(struct call *c, const char *rest, const struct stored *v, struct err *e)
{
    const char *one = rest[strlen("/items")] ? rest + strlen("/items/") : NULL;
    struct item_list l = {cJSON_CreateArray(), 0};
    int rc = items_append(&l, v->input, NULL, e);
    if (rc == 0)
        rc = one ? write_item(c, &l, one, e) : items_page(c, &l, e);
    cJSON_Delete(l.all);
    return rc;
}

static int work(struct call *c, struct err *e)
{
    const struct store_job *j;
    const char *id, *rest;
    int rc;
    if (conversation_path(c, &id, &rest, e) != 0)
        return -1;
    const bool items = !strcmp(rest, "/items") || !strncmp(rest, "/items/", strlen("/items/"));
    if (*rest && !items)
        return err_set(e, ERR_NOT_FOUND, "there is no such path");
    if (!stored_answer(c, &j, &rc, e)) /* reading counts as use */
        return conversation_ask(c, STORE_CHAIN, id, NULL, NULL, e);
    if (rc == 0 && items)
        return write_items(c, rest, &j->found[0], e);
    if (rc == 0)
        buf_str(&c->out, j->found[0].response);
    return rc;
}

const struct route route_conversations_get = {
    .method = "GET",
    .paths = {"/v1/conversations/*"},
    .errors = ERRORS_OPENAI,
    .arguments = ITEM_ARGUMENTS,
    .summary = "A conversation; with `/items` behind it its items, as a list (`order`, `limit`, "
               "`after`); with `/items/ID` one of them.",
    .work = work,
};
