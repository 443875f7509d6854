#include "common/json/json.h"
#include "router/api/responses/conversations.h"
#include "router/api/responses/items.h"
#include "router/http/route.h"
#include <string.h>

static int change(struct call *c, const char *id, bool items, struct err *e)
{
    struct body b;
    char base[STORE_ID];
    if (body_open_prompt(&b, c->body.p, c->body.len, &c->arena, e) != 0)
        return -1;
    b.plain = true;
    struct object root = body_root(&b);
    conversation_new_id("item_", base);
    if (!body_get(&b, root, items ? "items" : "metadata", true))
        return -1;
    const char *with =
        items ? conversation_items(c, &b, root, base) : conversation_metadata(&b, root);
    if (b.failed)
        return -1;
    return conversation_ask(c, STORE_EDIT, id, items ? conversation_append : conversation_describe,
                            with, e);
}

/* The list of the items that were added. */
static int write_added(struct call *c, const char *items, struct err *e)
{
    struct item_list l = {cJSON_CreateArray(), 0};
    const int rc = items_append(&l, items, NULL, e);
    if (rc == 0)
        items_whole(c, &l);
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
    const bool items = !strcmp(rest, "/items");
    if (*rest && !items)
        return err_set(e, ERR_NOT_FOUND, "there is no such path");
    if (!stored_answer(c, &j, &rc, e))
        return change(c, id, items, e);
    if (rc == 0 && items)
        return write_added(c, j->what.input, e);
    if (rc == 0)
        buf_str(&c->out, j->found[0].response);
    return rc;
}

const struct route route_conversations_change = {
    .method = "POST",
    .paths = {"/v1/conversations/*"},
    .errors = ERRORS_OPENAI,
    .summary =
        "Change the metadata of a conversation; with `/items` behind it, append items to it.",
    .body = "`metadata`; or `items` (as `input` of `/v1/responses`)",
    .carries_on = true,
    .work = work,
};
