/* Vertex AI's predict: instances are prompts or conversations, predictions are texts. */
#include "common/json/json.h"
#include "common/template/template.h"
#include "router/api/openai/chat_completion.h"
#include "router/api/tgi/tgi.h"
#include "router/call/texts.h"

static int chat_instance(struct call *c, struct body *b, struct object o, struct ask *q,
                         struct err *e)
{
    struct chat_request r = {.openai = ARENA_NEW(&c->arena, struct openai, 1)};
    if (!r.openai)
        return err_nomem(e);
    openai_sampling(b, o, q);
    r.openai->asks = q;
    return chat_prepare(c, b, o, &r, e);
}

static void write(struct call *c, const struct texts *t)
{
    buf_str(&c->out, "{\"predictions\":[");
    for (uint32_t i = 0; i < t->n; i++) {
        const struct buf *text = &c->gen[i].answer.text;
        buf_str(&c->out, i ? "," : "");
        buf_json_str(&c->out, text->p ? text->p : "", text->len);
    }
    buf_str(&c->out, "]}");
}

static int read_instances(struct call *c, struct body *b, const cJSON *list, struct texts *t,
                          struct err *e)
{
    struct ask *q = t->asks;
    const cJSON *k;
    cJSON_ArrayForEach(k, list)
    {
        struct object o = {k, "instances"};
        struct tgi in = {0};
        if (json_get(k, "messages") ? chat_instance(c, b, o, q, e) : tgi_read(b, o, &in))
            return -1;
        if (!json_get(k, "messages"))
            *q = in.ask;
        q++;
    }
    return b->failed ? -1 : 0;
}

static int work(struct call *c, struct err *e)
{
    struct body b;
    struct texts *t = ARENA_NEW(&c->arena, struct texts, 1);
    if (!t)
        return err_nomem(e);
    if (body_open(&b, c->body.p, c->body.len, &c->arena, e) != 0)
        return -1;
    template_keep_numbers(b.root, b.text, b.n);
    struct object root = body_root(&b);
    const cJSON *list = body_get(&b, root, "instances", true);
    if (list && !cJSON_IsArray(list))
        body_mistyped(&b, root, "instances", list, "a sequence");
    if (b.failed || texts_begin(c, &b, "instances", cJSON_GetArraySize(list), t) != 0 ||
        read_instances(c, &b, list, t, e) != 0)
        return -1;
    t->write = write;
    return texts_generate(c, t, e);
}

const struct route route_vertex = {
    .method = "POST",
    .paths = {"/vertex"},
    .summary = "What Vertex AI calls: the texts of several prompts, as `predictions`.",
    .body = "`instances`: each with `inputs` and `parameters`, or as `/v1/chat/completions`",
    .takes = "Instances",
    .example = "{\"instances\": [{\"inputs\": \"Once upon a time\", \"parameters\": "
               "{\"max_new_tokens\": 20}}]}",
    .gives = "Predictions",
    .work = work,
};
