#include "router/api/responses/conversations.h"
#include "router/http/route.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Stores a new conversation. */
static int create(struct call *c, struct err *e)
{
    struct body b;
    char id[STORE_ID];
    const char *text = c->body.len ? c->body.p : "{}";
    conversation_new_id(STORE_CONVERSATION, id);
    if (stored_can(c, id, e) != 0 ||
        body_open_prompt(&b, text, c->body.len ? c->body.len : 2, &c->arena, e) != 0)
        return -1;
    b.plain = true;
    struct object root = body_root(&b);
    const char *items = conversation_items(c, &b, root, id);
    const char *metadata = conversation_metadata(&b, root);
    if (b.failed)
        return -1;
    struct buf object = BUF_INIT;
    buf_fmt(&object,
            "{\"id\":\"%s\",\"object\":\"conversation\",\"created_at\":%lld,\"metadata\":", id,
            (long long)c->created_unix);
    buf_str(&object, metadata ? metadata : "{}");
    buf_ch(&object, '}');
    struct store_job j = {.kind = STORE_PUT};
    snprintf(j.what.id, sizeof(j.what.id), "%s", id);
    j.what.input = strdup(items);
    j.what.response = object.oom ? NULL : buf_take(&object);
    buf_free(&object);
    if (j.what.input && j.what.response)
        return stored_ask(c, &j, e);
    store_job_clear(&j);
    return err_nomem(e);
}

static int work(struct call *c, struct err *e)
{
    const struct store_job *j;
    int rc;
    if (!stored_answer(c, &j, &rc, e))
        return create(c, e);
    if (rc == 0)
        buf_str(&c->out, j->what.response);
    return rc;
}

const struct route route_conversations = {
    .method = "POST",
    .paths = {"/v1/conversations"},
    .errors = ERRORS_OPENAI,
    .summary =
        "A new conversation (with `--response-store`), for the same key alone: "
        "`conversation` of `/v1/responses` puts its items in front of the input, and appends "
        "the input and the answer to it.",
    .body = "`items` (as `input` of `/v1/responses`), `metadata`",
    .refuses = true,
    .no_body = true,
    .carries_on = true,
    .work = work,
};
