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

static void one_more(void *arg, const char *id)
{
    buf_ch(arg, ',');
    model(arg, id);
}

static void reply(struct call *c)
{
    const struct served_adapters *adapters = edge_closed(c->edge) ? NULL : c->edge->limits.adapters;
    const char *id = c->edge->model_id, *prefix = "/v1/models/";
    const char *one = c->path + strlen(prefix);
    struct err e;
    if (strncmp(c->path, prefix, strlen(prefix)) != 0) {
        buf_str(&c->out, "{\"object\":\"list\",\"data\":[");
        model(&c->out, id);
        for (uint32_t i = 0; adapters && i < adapters->n; i++)
            one_more(&c->out, adapters->v[i].name);
        models_each(c->edge->models, one_more, &c->out);
        buf_str(&c->out, "]}");
    } else if (!strcmp(one, id) || edge_adapter(c->edge, one) ||
               models_known(c->edge->models, one)) {
        model(&c->out, one);
    } else {
        err_set(&e, ERR_NOT_FOUND, "The model `%.200s` does not exist", one);
        call_reply_error(c, &e);
        return;
    }
    call_reply(c);
}

const struct route route_models = {
    .method = "GET",
    .paths = {"/v1/models", "/v1/models/*"},
    .summary =
        "The served model, its adapters and models that are loaded on demand, as a list or by id.",
    .open = true,
    .reply = reply,
};
