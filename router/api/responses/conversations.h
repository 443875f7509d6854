/* conversations.h - OpenAI's conversations: objects with a list of items, in the response store.
 *
 * They are changed on the store's thread alone (STORE_EDIT), so that two requests that change one
 * at the same time both take effect. */
#ifndef ROUTER_API_RESPONSES_CONVERSATIONS_H
#define ROUTER_API_RESPONSES_CONVERSATIONS_H
#include "router/api/responses/stored.h"

enum { CONVERSATION_BYTES = 32 << 20 }; /* of its items */

/* Splits c->path: the id of the conversation, and what follows it, from "/" on. In the arena. -1:
 * out of memory. */
int conversation_path(struct call *c, const char **id, const char **rest, struct err *e);
/* A new id with this prefix: `prefix` and 24 digits. */
void conversation_new_id(const char *prefix, char out[STORE_ID]);
/* For route.work(): asks the store about the conversation, or changes it with edit(..., with).
 * `with` is copied; NULL: none. CALL_LATER or -1. */
int conversation_ask(struct call *c, enum store_kind kind, const char *id,
                     int (*edit)(struct stored *v, const char *with, struct err *e),
                     const char *with, struct err *e);
/* Reads `items` of a body, which can be the input of a request, in the listed format. "[]": none.
 * NULL: the body was failed. `id`: of the items without one. */
const char *conversation_items(struct call *c, struct body *b, struct object root, const char *id);
/* Reads `metadata` as JSON; NULL: none, or the body was failed. */
const char *conversation_metadata(struct body *b, struct object root);

/* Appends the concatenation of two lists of JSON to `out`. -1: out of memory. */
int conversation_join(const char *a, const char *b, struct buf *out);

/* For STORE_EDIT. `with`: a list of items; the id of an item; metadata. */
int conversation_append(struct stored *v, const char *with, struct err *e);
int conversation_remove(struct stored *v, const char *with, struct err *e);
int conversation_describe(struct stored *v, const char *with, struct err *e);
#endif
