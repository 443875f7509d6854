/* call.h - one request, from its body to its answer.
 *
 *   loop      request arrives -> call
 *   worker    the model that the body names; if it has to be loaded, the call comes back later
 *   worker    route->work(): parse, validate, tokenize; call_generate() makes the generations
 *   loop      submit; every event goes to the format, whose bytes go to the client
 *   loop      all generations ended -> format->finish()
 *
 * A call belongs to the loop thread except while a worker runs it. A client that leaves cancels its
 * generations at once; the call lives on, without an exchange, until the worker and the scheduler
 * have let go of it. */
#ifndef ROUTER_CALL_CALL_H
#define ROUTER_CALL_CALL_H
#include "common/arena.h"
#include "router/generate/workers.h"
#include "router/http/errors.h"
#include "router/http/keys.h"
#include "router/http/route.h"
#include "router/models/edge.h"
#include "router/models/models.h"
#include "router/request/answer.h"
#include "router/request/ask.h"
#include "router/request/note.h"

struct call_texts; /* embed.h */

struct generation {
    struct gen_request r;
    struct call *call;
    uint32_t index;
    bool live;   /* submitted, last event not seen yet */
    bool enough; /* set by a format: the answer is complete here, and the rest not wanted */
    struct answer answer;
    struct note last; /* so that an end can be told even when memory has run out */
    struct err last_err;
    bool lost; /* an event could not be copied; scheduler thread only */
};

/* How a protocol answers. All are called on the loop thread and append to c->out: whole SSE events
 * when c->stream, else the body, which only finish() completes. */
struct format {
    void (*prefill)(struct call *c, struct generation *g,
                    const struct gen_event *ev); /* may be NULL */
    void (*token)(struct call *c, struct generation *g, const struct gen_event *ev);
    void (*finish)(struct call *c);
    void (*error)(struct call *c, const struct err *e); /* c->stream only */
    void (*gone)(struct call *c, const struct err *e);  /* c->detached: it failed; or NULL */
};

struct call {
    struct job job;
    struct mail mail;
    _Atomic(struct edge *) edge; /* of the model that it names, once that is known */
    struct models_wait wait;     /* for that model */
    bool settled;                /* it is known; the worker's */
    const struct route *route;
    struct exchange *x;    /* NULL: the client has left; loop thread only */
    atomic_bool cancelled; /* the same, for the worker */
    struct arena arena;    /* all that is parsed, templated and tokenized */
    struct buf body;       /* the request's */
    const char *path, *id; /* in the arena */
    char method[16], key[KEY_NAME_MAX];
    struct trace_context trace; /* of this request's own span; zero: none */
    uint8_t trace_parent[8];    /* zero: it is the first of its trace */
    const char *trace_state;    /* the client's, in the arena; NULL: none */
    const char *user;           /* the end user that the client names, in the arena; NULL: none */
    const char *warnings;       /* what of the body has no effect, in the arena; NULL: nothing */
    const char *error;          /* why it failed, in the arena */
    bool ours;                  /* the fault */
    bool dropped;               /* the client left before the end */
    bool detached;              /* it goes on without its client: set by work() or on_loop() */
    /* Set by work(): what is left to do on the loop, before the answer. False: the call is not the
     * loop's any more, and work() is run again. */
    bool (*on_loop)(struct call *c);
    bool looked_again; /* on_loop() found that work() saw what has changed since */
    const char *owner; /* whose stored responses it sees; NULL: there are none */
    const char *arguments[ROUTE_ARGUMENTS]; /* route->arguments, NULL where they are not there */
    bool local;                             /* it is on this machine, and no proxy spoke for it */
    struct http_counts counts;              /* when it asked */
    int64_t over_ns;                        /* the exchange ended; 0: not yet */
    enum error_shape errors;
    uint64_t tenant;              /* the key that its requests are counted for; 0: none */
    uint64_t key_id;              /* of the API key, which permits are shared by; 0: none */
    bool tenant_named;            /* by a gateway in front of us */
    int64_t received_ns;          /* monotonic */
    int64_t created_unix;         /* seconds */
    struct tok_scratch **scratch; /* during work() */
    bool busy;                    /* a worker has it */
    bool failed, finished, streaming;
    unsigned pins;
    struct err err;

    /* filled by work() */
    const struct format *format;
    void *state;              /* the protocol's own, in the arena */
    bool stream;              /* answer with events, errors included */
    uint64_t prompt_chars;    /* Unicode characters of all prompts */
    struct call_texts *texts; /* in place of generations; NULL: none */
    struct generation *gen;
    uint32_t n_gen, n_live, permits; /* permits: so many may be live at a time */
    uint32_t n_started;              /* the first ones, which were submitted */

    int status;       /* 200 unless work() or reply() sets it */
    const char *type; /* content type of out; NULL: application/json */
    struct buf out;
};

/* What a route's work() returns when another component has the call now, and will submit c->job to
 * the workers again: work() is then run once more. */
enum { CALL_LATER = 1 };

enum { CALL_MAX_GENERATIONS = 8192 };
/* On the worker: take permits and validate. Makes n_asks * each generations (at most
 * CALL_MAX_GENERATIONS), in that order; the
 * generations of one ask share its prompt and differ in their seeds. */
int call_generate(struct call *c, const struct ask *asks, uint32_t n_asks, uint32_t each,
                  struct err *e);
/* Loop thread: its generations end without an answer. For calls that are detached. */
void call_cancel(struct call *c);
/* Loop thread, on_loop(): work() is run again. */
void call_again(struct call *c);
/* Send c->out. For routes' reply(). */
void call_reply(struct call *c);
/* The header Retry-After, for a reply with 503 or 429. */
void call_retry_after(struct call *c);
/* Send an error, in the shape of the call's route. For routes' reply(). */
void call_reply_error(struct call *c, const struct err *e);
/* What the loop calls for requests (http_events without `socket`); `arg` is the struct edge. */
extern const struct http_events call_events;
#endif
