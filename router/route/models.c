#include "router/call.h"
#include <string.h>

static void model(struct buf *out, const char *id)
{
    buf_str(out, "{\"id\":");
    buf_json_str(out, id, strlen(id));
    buf_str(out, ",\"object\":\"model\",\"created\":0,\"owned_by\":");
    buf_json_str(out, id, strlen(id));
    buf_ch(out, '}');
}

static void reply(struct call *c)
{
    const char *id = c->edge->model_id, *prefix = "/v1/models/";
    struct err e;
    if (strncmp(c->path, prefix, strlen(prefix)) != 0) {
        buf_str(&c->out, "{\"object\":\"list\",\"data\":[");
        model(&c->out, id);
        buf_str(&c->out, "]}");
    } else if (!strcmp(c->path + strlen(prefix), id)) {
        model(&c->out, id);
    } else {
        err_set(&e, ERR_NOT_FOUND, "The model `%.200s` does not exist", c->path + strlen(prefix));
        call_reply_error(c, &e);
        return;
    }
    call_reply(c);
}

const struct route route_models = {
    .method = "GET",
    .paths = {"/v1/models", "/v1/models/*"},
    .summary = "The served model, as a list or by its id.",
    .open = true,
    .reply = reply,
};
