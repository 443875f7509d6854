/* KServe's Open Inference Protocol, version 2: tensors of texts in, tensors of texts out. */
#include "common/json/json.h"
#include "common/utf8.h"
#include "router/api/tgi/tgi.h"
#include "router/call/texts.h"
#include <string.h>

struct infer_call { /* repeated in the answer */
    const char *id, *model;
    const char **names; /* of the outputs; NULL: only their order */
    bool bytes;         /* data are lists of bytes, as in TGI; otherwise strings */
};

/* One text: a list with one string, or a list of its bytes. */
static const char *text_of(struct body *b, const cJSON *data, bool *bytes)
{
    struct object root = body_root(b);
    if (cJSON_IsArray(data) && cJSON_IsString(data->child) && !data->child->next)
        return data->child->valuestring;
    struct buf text = BUF_INIT;
    *bytes = true;
    if (!cJSON_IsArray(data))
        body_fail(b, root, "inputs", "`data` must be a list with one string, or of bytes");
    for (const cJSON *k = cJSON_IsArray(data) ? data->child : NULL; k; k = k->next)
        if (cJSON_IsNumber(k) && k->valuedouble >= 1 && k->valuedouble <= 255 &&
            k->valuedouble == k->valueint)
            buf_ch(&text, (char)k->valueint);
        else
            body_fail(b, root, "inputs", "`data` must be a list with one string, or of bytes");
    if (!b->failed && !utf8_valid(text.p ? text.p : "", text.len))
        body_fail(b, root, "inputs", "`data` is not UTF-8");
    const char *copy = arena_strdup(b->arena, text.p ? text.p : "", text.len);
    buf_free(&text);
    return copy;
}

static void read_input(struct body *b, const cJSON *in, const cJSON *parameters,
                       struct infer_call *p, struct ask *q)
{
    const char *type = json_str(in, "datatype", "BYTES");
    struct tgi t = {0};
    cJSON *one = cJSON_CreateObject(); /* the same body as /generate */
    if (strcmp(type, "BYTES") != 0)
        body_fail(b, body_root(b), "inputs", "`datatype` of `%.20s` is not supported", type);
    const char *text = text_of(b, json_get(in, "data"), &p->bytes);
    cJSON_AddStringToObject(one, "inputs", text ? text : "");
    if (parameters)
        cJSON_AddItemReferenceToObject(one, "parameters", (cJSON *)parameters);
    if (!text)
        body_nomem(b, body_root(b), "inputs");
    tgi_read(b, (struct object){one, ""}, &t);
    *q = t.ask;
    q->inputs = text;
    cJSON_Delete(one);
}

static void write_data(struct buf *out, const struct buf *text, bool bytes)
{
    if (!bytes)
        buf_json_str(out, text->p ? text->p : "", text->len);
    for (size_t i = 0; bytes && i < text->len; i++)
        buf_fmt(out, i ? ",%u" : "%u", (unsigned)(unsigned char)text->p[i]);
}

static void write(struct call *c, const struct texts *t)
{
    const struct infer_call *p = t->state;
    struct buf *out = &c->out;
    buf_str(out, "{\"id\":");
    buf_json_str(out, p->id, strlen(p->id));
    buf_str(out, ",\"model_name\":");
    buf_json_str(out, c->edge->model_id, strlen(c->edge->model_id));
    buf_str(out, ",\"outputs\":[");
    for (uint32_t i = 0; i < t->n; i++) {
        const struct buf *text = &c->gen[i].answer.text;
        buf_str(out, i ? ",{\"name\":" : "{\"name\":");
        buf_json_str(out, p->names[i], strlen(p->names[i]));
        buf_fmt(out, ",\"shape\":[1,%zu],\"datatype\":\"BYTES\",\"data\":[",
                p->bytes ? text->len : 1);
        write_data(out, text, p->bytes);
        buf_str(out, "]}");
    }
    buf_str(out, "]}");
}

/* One output per input, in order, with the client's names if given. */
static void read_names(struct body *b, int n, struct infer_call *p)
{
    const cJSON *outputs = body_get(b, body_root(b), "outputs", false);
    if (!(p->names = ARENA_NEW(b->arena, const char *, (size_t)n + 1))) {
        body_nomem(b, body_root(b), "outputs");
        return;
    }
    if (outputs && (!cJSON_IsArray(outputs) || cJSON_GetArraySize(outputs) != n))
        body_fail(b, body_root(b), "outputs", "Inputs and outputs length mismatch");
    for (int i = 0; i < n && !b->failed; i++)
        p->names[i] = json_str(outputs ? cJSON_GetArrayItem(outputs, i) : NULL, "name", "text");
}

static int work(struct call *c, struct err *e)
{
    struct body b;
    struct texts *t = ARENA_NEW(&c->arena, struct texts, 1);
    struct infer_call *p = ARENA_NEW(&c->arena, struct infer_call, 1);
    size_t len = strlen(c->path), suffix = strlen("/infer");
    if (!t || !p)
        return err_nomem(e);
    if (len < suffix || strcmp(c->path + len - suffix, "/infer") != 0)
        return err_set(e, ERR_NOT_FOUND, "There is no such path.");
    if (body_open(&b, c->body.p, c->body.len, &c->arena, e) != 0)
        return -1;
    struct object root = body_root(&b);
    const char *id = body_str(&b, root, "id", false);
    const cJSON *list = body_get(&b, root, "inputs", true), *k;
    const cJSON *parameters = body_get(&b, root, "parameters", false);
    if (list && !cJSON_IsArray(list))
        body_mistyped(&b, root, "inputs", list, "a sequence");
    if (b.failed || texts_begin(c, &b, "inputs", cJSON_GetArraySize(list), t) != 0)
        return -1;
    p->id = id ? id : c->id;
    read_names(&b, (int)t->n, p);
    struct ask *q = t->asks;
    cJSON_ArrayForEach(k, list) read_input(&b, k, parameters, p, q++);
    t->write = write;
    t->state = p;
    return b.failed ? -1 : texts_generate(c, t, e);
}

const struct route route_kserve_infer = {
    .method = "POST",
    .paths = {"/v2/models/*"},
    .summary = "KServe's `/v2/models/NAME/infer` and `/v2/models/NAME/versions/V/infer`: a text "
               "for each input tensor.",
    .body = "`inputs`: tensors of the datatype BYTES, whose `data` is a string or bytes; "
            "`parameters` of `/generate`",
    .work = work,
};
