/* call.h - one request, from its body to its answer.
 *
 *   loop      a request arrives -> call
 *   worker    finds the model named in the body; if it must be loaded, the call is run again later
 *   worker    route->work(): parse, validate, tokenize; call_generate() makes the generations
 *   loop      submits them; each event is passed to the format, which writes bytes for the client
 *   loop      all generations ended -> format->finish()
 *
 * A call belongs to the loop thread except while a worker runs it. If the client disconnects, its
 * generations are cancelled at once. The call continues without an exchange until the worker and
 * the scheduler have released it. */
#ifndef ROUTER_CALL_CALL_H
#define ROUTER_CALL_CALL_H
#include "common/arena.h"
#include "router/body/body.h"
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
    bool live;   /* submitted, and the last event has not arrived */
    bool enough; /* set by a format: the answer is complete, later tokens are not needed */
    struct answer answer;
    struct note last; /* preallocated, so that an end can be reported when out of memory */
    struct err last_err;
    bool lost; /* an event could not be copied; scheduler thread only */
};

/* How a protocol answers. All functions run on the loop thread and append to c->out: whole SSE
 * events if c->stream, otherwise the body, which finish() completes. Each may be NULL: nothing is
 * appended; instead of error(), error_event() of the route's shape. */
struct format {
    void (*prefill)(struct call *c, struct generation *g, const struct gen_event *ev);
    void (*token)(struct call *c, struct generation *g, const struct gen_event *ev);
    void (*finish)(struct call *c);
    void (*error)(struct call *c, const struct err *e); /* c->stream only */
    /* c->detached: the call failed */
    void (*gone)(struct call *c, const struct err *e);
    /* PROGRESS events, for requests with wants_progress */
    void (*progress)(struct call *c, struct generation *g, const struct gen_event *ev);
    const char *stream_type; /* content type of a stream; NULL: text/event-stream */
};

struct call {
    struct job job;
    struct mail mail;
    _Atomic(struct edge *) edge; /* of the model it names, once known */
    struct models_wait wait;     /* for loading that model */
    const struct route *route;
    struct exchange *x;              /* NULL: the client has disconnected; loop thread only */
    atomic_bool cancelled;           /* the same, readable by the worker */
    bool settled;                    /* the model is known; worker only */
    struct arena arena;              /* holds everything that is parsed, templated and tokenized */
    struct buf body;                 /* of the request; call_work() decompresses it */
    const struct encoding *encoding; /* NULL: it is not compressed */
    const char *path, *id;           /* in the arena */
    char method[16], key[KEY_NAME_MAX];
    struct trace_context trace; /* of this request's own span; zero: not traced */
    uint8_t trace_parent[8];    /* zero: root span of its trace */
    const char *trace_state;    /* from the client, in the arena; NULL: none */
    const char *user;           /* the end user named by the client, in the arena; NULL: none */
    const char *warnings;       /* parts of the body without effect, in the arena; NULL: none */
    const char *error;          /* the error message, in the arena */
    const char *lane;           /* name of the message on its socket, in the arena; NULL: none */
    bool ours;                  /* the error is an internal one */
    bool dropped;               /* the client disconnected before the end */
    bool detached;              /* it continues without its client: set by on_loop() */
    bool looked_again;          /* on_loop() already made work() run again after a change */
    bool local;                 /* from a loopback address without a proxy */
    /* Set by work(): a step on the loop thread before the answer. False: another component owns the
     * call now, and work() or on_loop() will run again: call_again(), call_resume(). */
    bool (*on_loop)(struct call *c);
    const char *owner;                      /* whose stored responses it can access; NULL: none */
    const char *arguments[ROUTE_ARGUMENTS]; /* values of route->arguments; NULL if absent */
    struct http_counts counts;              /* at its arrival */
    int64_t over_ns;                        /* when the exchange ended, in ns; 0: not yet */
    enum error_shape errors;
    bool tenant_named;              /* the tenant was named by a gateway */
    struct exchange_shared *shared; /* by the requests of its WebSocket; NULL: plain HTTP */
    uint64_t tenant;                /* hash of the key it is accounted to; 0: none */
    uint64_t key_id;                /* of the API key, for admission permits; 0: none */
    int64_t received_ns;            /* monotonic ns */
    int64_t created_unix;           /* seconds since the epoch */
    struct tok_scratch **scratch;   /* during work() */
    bool busy;                      /* a worker runs it */
    bool failed, finished, streaming;
    unsigned pins;
    struct err err;

    /* filled by work() */
    const struct format *format;
    void *state;              /* owned by the protocol, in the arena */
    uint64_t prompt_chars;    /* Unicode characters in all prompts */
    struct call_texts *texts; /* instead of generations; NULL: none */
    struct generation *gen;
    uint32_t n_gen, n_live, permits; /* permits: most generations live at a time */
    uint32_t n_started;              /* the first n_started were submitted */

    int status;       /* 200 unless set by work() or reply() */
    bool stream;      /* answer with events, including errors */
    const char *type; /* content type of out; NULL: application/json */
    struct buf out;
};

/* A route's work() returns this if another component owns the call now and will submit c->job to
 * the workers again. Then work() runs once more. */
enum { CALL_LATER = 1 };

enum { CALL_MAX_GENERATIONS = 8192 };
/* Worker: takes permits and validates. Creates n_asks * each generations, at most
 * CALL_MAX_GENERATIONS, in that order. The generations of one ask share its prompt and differ in
 * their seeds. */
int call_generate(struct call *c, const struct ask *asks, uint32_t n_asks, uint32_t each,
                  struct err *e);
/* Loop thread: cancels the generations of a detached call; they end without an answer. */
void call_cancel(struct call *c);
/* Loop thread, from on_loop(): runs work() again. */
void call_again(struct call *c);
/* Any thread, after on_loop() has set c->busy and returned false: runs it again. */
void call_resume(struct call *c);
/* Sends c->out. For routes' reply(). */
void call_reply(struct call *c);
/* Adds the header Retry-After, for a reply with 503 or 429. Returns its seconds. */
uint32_t call_retry_after(struct call *c);
/* Sends an error in the format of the call's route. For routes' reply(). */
void call_reply_error(struct call *c, const struct err *e);
/* The callbacks for HTTP requests (http_events without `socket`); `arg` is the struct edge. */
extern const struct http_events call_events;

/* The whole body was read: what had no effect is in the answer's header, and in the log. */
static inline void call_unread(struct call *c, struct body *b)
{
    body_unread(b, body_root(b));
    c->warnings = b->warnings;
}
#endif
