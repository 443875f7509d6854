/* stored.h - responses that are kept: --response-store. */
#ifndef ROUTER_API_RESPONSES_STORED_H
#define ROUTER_API_RESPONSES_STORED_H
#include "router/api/responses/responses.h"
#include "router/store/store.h"

/* For route.work(): what the store says of the id in `/v1/responses/{id}` with `rest` behind it.
 * CALL_LATER: it is being asked, and work() is run again; 0: *out is its answer, which lives as
 * long as the call; -1: ERR_NOT_FOUND, also of another form of the path. */
int stored_find(struct call *c, const char *rest, enum store_kind kind,
                const struct store_job **out, struct err *e);
/* The response as it is to be told. */
void stored_tell(const struct stored *v, struct buf *out);
/* Worker: the request's `store`, `background` and `previous_response_id`, and its own items. */
void response_stored_read(struct call *c, struct body *b, struct object root, struct responses *p);
/* Worker: the conversation that the body continues. CALL_LATER, -1, or 0: the lists of items that
 * come before its own are in p->history. */
int stored_recall(struct call *c, struct responses *p, struct err *e);

/* The rest: loop thread. Write the response as it is; `why`: for `failed`. */
void stored_keep(struct call *c, const char *status, const struct err *why);
bool stored_begin(struct call *c); /* on_loop() of one that runs in the background */
void stored_end(struct call *c);   /* it does not any more */
struct call *stored_running(const struct call *c); /* what c's path names, if it runs; or NULL */

/* answer.c: the object. `status`: queued, in_progress, cancelled, failed (`why`), or of its end. */
void responses_object(struct buf *out, const struct call *c, const char *status,
                      const struct err *why);
#endif
