/* stored.h - stored responses: --response-store. */
#ifndef ROUTER_API_RESPONSES_STORED_H
#define ROUTER_API_RESPONSES_STORED_H
#include "router/api/responses/responses.h"
#include "router/store/store.h"

/* For route.work(): looks up the id of `/v1/responses/{id}` followed by `rest`. CALL_LATER: the
 * look-up runs, and work() will run again. 0: *out is the store's answer, valid as long as the
 * call. -1: ERR_NOT_FOUND, also for another form of the path. */
int stored_find(struct call *c, const char *rest, enum store_kind kind,
                const struct store_job **out, struct err *e);
/* For route.work() of other look-ups and changes. stored_answer(): false: nothing was asked yet.
 * True: *out is the store's answer, as above, and *rc 0 or -1. Then stored_can(): -1: there is no
 * store, or nothing can have this id. Then stored_ask(): submits a copy of `what`, whose strings it
 * takes over; CALL_LATER or -1. */
bool stored_answer(struct call *c, const struct store_job **out, int *rc, struct err *e);
int stored_can(const struct call *c, const char *id, struct err *e);
int stored_ask(struct call *c, const struct store_job *what, struct err *e);
/* The id in a `conversation` of a body; NULL: none. */
const char *stored_conversation(const cJSON *v);
/* A list of items, or a text of the user, as JSON in the listed format: with ids made of `id`. In
 * the arena; NULL: out of memory. */
const char *stored_items(struct call *c, const cJSON *input, const char *id);
/* Appends the response object. */
void stored_write(const struct stored *v, struct buf *out);
/* Worker: reads the request's `store`, `background`, `previous_response_id` and its own items. */
void response_stored_read(struct call *c, struct body *b, struct object root, struct responses *p);
/* Worker: loads the conversation the body continues. CALL_LATER, -1, or 0: earlier lists of items
 * are in p->history. */
int stored_recall(struct call *c, struct responses *p, struct err *e);

/* The rest runs on the loop thread. Stores the response in its current state; `why`: for
 * `failed`. */
void stored_keep(struct call *c, const char *status, const struct err *why);
/* Appends the request's own items and those of the answer to its conversation. */
void stored_extend(struct call *c);
/* on_loop() of a background call: stores it, and lets the call go on when that was done. */
bool stored_begin(struct call *c);
void stored_end(struct call *c);                   /* a background call has ended */
struct call *stored_running(const struct call *c); /* the running call of c's path, or NULL */

/* answer.c: appends the list of the answer's items. */
void responses_output(struct buf *out, const struct call *c);
/* answer.c: appends the response object. `status`: queued, in_progress, cancelled, failed (`why`),
 * completed or incomplete. */
void responses_object(struct buf *out, const struct call *c, const char *status,
                      const struct err *why);
#endif
