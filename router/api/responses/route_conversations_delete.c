#include "router/api/responses/conversations.h"
#include "router/http/route.h"
#include <string.h>

static int work(struct call *c, struct err *e)
{
    static const char items[] = "/items/";
    const struct store_job *j;
    const char *id, *rest;
    int rc;
    if (conversation_path(c, &id, &rest, e) != 0)
        return -1;
    const char *item = strncmp(rest, items, strlen(items)) == 0 ? rest + strlen(items) : NULL;
    if (*rest && !item)
        return err_set(e, ERR_NOT_FOUND, "there is no such path");
    if (!stored_answer(c, &j, &rc, e))
        return item ? conversation_ask(c, STORE_EDIT, id, conversation_remove, item, e)
                    : conversation_ask(c, STORE_DELETE, id, NULL, NULL, e);
    if (rc == 0 && item)
        buf_str(&c->out, j->found[0].response);
    else if (rc == 0)
        buf_fmt(&c->out, "{\"id\":\"%s\",\"object\":\"conversation.deleted\",\"deleted\":true}",
                id);
    return rc;
}

const struct route route_conversations_delete = {
    .method = "DELETE",
    .paths = {"/v1/conversations/*"},
    .errors = ERRORS_OPENAI,
    .summary = "Delete a conversation; with `/items/ID` behind it, one of its items.",
    .carries_on = true,
    .work = work,
};
