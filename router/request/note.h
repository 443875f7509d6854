/* note.h - an event of a generation, copied so that it can cross from the scheduler's thread to the
 * loop. One allocation a note; everything the event points to lies behind it. */
#ifndef ROUTER_REQUEST_NOTE_H
#define ROUTER_REQUEST_NOTE_H
#include "common/mailbox.h"
#include "router/request/request.h"

struct note {
    struct mail mail;
    struct gen_request *request;
    struct gen_event event;
};

/* NULL when memory ran out. Freed with free(). */
struct note *note_copy(struct gen_request *r, const struct gen_event *ev);
#endif
