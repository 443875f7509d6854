/* The rpc of models that compute vectors or scores. */
#include "model-server/engine/embed.h"
#include "common/clock.h"
#include "model-server/service/impl.h"
#include "model-server/service/media.h"
#include <stdlib.h>
#include <string.h>

/* Views of the message. */
static int read_texts(const Generate__V3__EmbedRequest *q, struct model_text *out,
                      struct text_beside *beside, struct rpc_mem *m, struct err *e)
{
    for (size_t i = 0; i < q->n_texts; i++) {
        const Generate__V3__EmbedText *t = q->texts[i];
        if (t->types.len && t->types.len != t->n_ids)
            return err_set(e, ERR_VALIDATION, "text %zu has %zu tokens and types of %zu", i,
                           t->n_ids, t->types.len);
        if (t->n_media > SERVICE_MOST_MEDIA)
            return err_set(e, ERR_VALIDATION, "too many pictures");
        beside[i] = (struct text_beside){.adapter = t->adapter,
                                         .media = media_specs(t->media, t->n_media, m),
                                         .n_media = (uint32_t)t->n_media};
        if (!beside[i].media)
            return err_nomem(e);
        out[i] = (struct model_text){.ids = t->ids,
                                     .types = t->types.len ? t->types.data : NULL,
                                     .n = (uint32_t)t->n_ids,
                                     .skip = t->skip,
                                     .attended = t->attended,
                                     .rows = t->n_rows ? t->rows : NULL,
                                     .n_rows = (uint32_t)t->n_rows};
    }
    return 0;
}

const ProtobufCMessage *rpc_embed(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                  struct err *e)
{
    const Generate__V3__EmbedRequest *q = (const void *)in;
    struct service *s = ctx;
    const int64_t t0 = clock_ns();
    float *values = NULL;
    size_t n = 0;
    Generate__V3__EmbedResponse *r = RPC_NEW(call->mem, Generate__V3__EmbedResponse, 1);
    struct model_text *texts = RPC_NEW(call->mem, struct model_text, q->n_texts + 1);
    struct text_beside *beside = RPC_NEW(call->mem, struct text_beside, q->n_texts + 1);
    service_begin(s, "Embed");
    if (!r || !texts || !beside)
        return err_nomem(e), NULL;
    if (read_texts(q, texts, beside, call->mem, e))
        return NULL;
    if (engine_embed(s->o.engine, texts, beside, (uint32_t)q->n_texts, q->all, &values, &n, e))
        return service_failed(s, "Embed", e);
    if (service_check_weights(s, call, e)) {
        free(values);
        return NULL;
    }
    generate__v3__embed_response__init(r);
    r->values = n ? RPC_NEW(call->mem, float, n) : NULL;
    if (n && !r->values) {
        free(values);
        return err_nomem(e), NULL;
    }
    if (n)
        memcpy(r->values, values, n * sizeof(*values));
    free(values);
    r->n_values = n;
    r->width = q->all ? s->o.model->row_width : s->o.model->width;
    r->forward_ns = (uint64_t)(clock_ns() - t0);
    return &r->base;
}
