/* items.h - writes the server's items: the objects inside `TOKEN [...]` and `MSG [...]`. Pure. */
#ifndef ROUTER_API_LMTP_ITEMS_H
#define ROUTER_API_LMTP_ITEMS_H
#include "common/buf.h"
#include "router/api/lmtp/message.h"
#include "router/request/request.h"

struct lmtp_token {
    const char *id; /* the stream's id, as JSON */
    uint32_t token;
    float logprob;
    const char *finish; /* NULL: not the last token */
    bool alternatives;  /* write `top_logprobs`, with `token` first */
    const struct gen_token *top;
    uint32_t n_top;
    const char *text; /* NULL: no text */
    size_t n_text;
};

/* Always valid JSON: a log-probability that is not finite is written as -1e30. */
void item_token(struct buf *out, const struct lmtp_token *t);
void item_error(struct buf *out, const char *id, const char *text);
/* Writes {"stream_id": id, "<key>": "text"}; id NULL: null. */
void item_message(struct buf *out, const char *id, const char *key, const char *text);
#endif
