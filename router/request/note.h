/* note.h - a copy of a generation event, which crosses from the scheduler thread to the loop. One
 * allocation per note; all data of the event follows it in memory. */
#ifndef ROUTER_REQUEST_NOTE_H
#define ROUTER_REQUEST_NOTE_H
#include "common/thread/mailbox.h"
#include "router/request/request.h"

struct note {
    struct mail mail;
    struct gen_request *request;
    struct gen_event event;
};

/* NULL: out of memory. Freed with free(). */
struct note *note_copy(struct gen_request *r, const struct gen_event *ev);
#endif
