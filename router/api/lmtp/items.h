/* items.h - what the server says: the objects inside `TOKEN [...]` and `MSG [...]`. Pure. */
#ifndef ROUTER_API_LMTP_ITEMS_H
#define ROUTER_API_LMTP_ITEMS_H
#include "common/buf.h"
#include "router/api/lmtp/message.h"
#include "router/request/request.h"

struct lmtp_token {
    const char *id; /* of the stream, JSON */
    uint32_t token;
    float logprob;
    const char *finish; /* NULL: more will come */
    bool alternatives;  /* `top_logprobs` is given, with `token` in front */
    const struct gen_token *top;
    uint32_t n_top;
    const char *text; /* NULL: not wanted */
    size_t n_text;
};

/* Numbers are always JSON: what is no finite logarithm of a probability becomes -1e30. */
void item_token(struct buf *out, const struct lmtp_token *t);
void item_error(struct buf *out, const char *id, const char *text);
/* {"stream_id": id, "<key>": "text"}; id NULL: null. */
void item_message(struct buf *out, const char *id, const char *key, const char *text);
#endif
