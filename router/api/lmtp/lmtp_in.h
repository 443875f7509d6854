/* lmtp_in.h - private to this folder: the thread's connections and streams. */
#ifndef ROUTER_API_LMTP_LMTP_IN_H
#define ROUTER_API_LMTP_LMTP_IN_H
#include "common/arena.h"
#include "common/thread/mailbox.h"
#include "router/api/lmtp/buffers.h"
#include "router/api/lmtp/items.h"
#include "router/api/lmtp/lines.h"
#include "router/api/lmtp/lmtp.h"
#include "router/api/lmtp/message.h"
#include "router/generate/workers.h"
#include "router/models/models.h"
#include "router/request/note.h"
#include <pthread.h>

/* Sizes in bytes. FRAME: lmql's client closes the connection at 4 MiB. QUEUE: limit of unread data
 * per client, without scores and repeated items. KEPT: items kept per resumable stream; KEPT_ALL:
 * of all that have ended. REPEATED: limit of unread data at which items are not repeated any more.
 */
enum {
    LMTP_FRAME = 1 << 20,
    LMTP_QUEUE = 4 << 20,
    LMTP_TOP_MAX = 1024,
    LMTP_STATUS_MS = 100,
    LMTP_KEPT = 1 << 20,
    LMTP_KEPT_ALL = 64 << 20,
    LMTP_REPEATED = 16 << 20,
    LMTP_LOADING = 64 /* messages of a client that wait for models */
};

/* One GENERATE or SCORE. The LMTP thread owns it; its request is lent to the scheduler until the
 * last event. Without a peer its result is not needed any more, unless it has a record. */
struct stream {
    struct gen_request r;
    struct lmtp *lmtp;
    struct edge *edge; /* of its model, held */
    uint64_t key_id;   /* the key whose permit it holds */
    struct peer *peer;
    struct stream *next, *prev; /* list of its peer's streams */
    struct lmtp_id id;
    bool score, cancelled;
    uint32_t n_prompt; /* SCORE: the tokens after these are scored */
    uint32_t n_tokens; /* tokens sent */
    bool return_text;
    bool status;                /* send its queue position */
    uint32_t place;             /* as last sent */
    int64_t deadline_ms;        /* INT64_MAX: none */
    const char *save;           /* buffer for prompt and answer; NULL: none */
    uint32_t reserved;          /* tokens reserved in it */
    uint32_t *out;              /* the answer, for the buffer */
    struct record *record;      /* NULL: it ends with its connection */
    struct trace_context trace; /* of its own span; zero: not traced */
    uint8_t trace_parent[8];
    const char *trace_state; /* NULL: none */
    struct note last;        /* preallocated, so that an end can be reported when out of memory */
    struct err last_err;
    bool lost; /* an event could not be copied; scheduler thread only */
};

/* The items of a stream with a `session`, which another connection can resume. Kept for
 * --lmtp-grace after its stream ended or lost its connection. */
struct record {
    struct record *next, *prev;
    struct lmtp *lmtp;
    struct stream *stream; /* NULL: ended */
    struct lmtp_id id;
    char session[LMTP_NAME_MAX + 1];
    uint64_t tenant;
    struct buf items;       /* items "{...}", concatenated */
    size_t *at;             /* offsets of the items first..n */
    uint32_t first, n, cap; /* first: earlier items were dropped */
    int64_t expires_ms;     /* INT64_MAX: its stream runs and has a listener */
};

/* A message that waits for its model to load, or for its text to be tokenized. */
struct preparation {
    struct job job; /* must be first */
    struct models_wait wait;
    struct mail mail;
    struct lmtp *lmtp;
    struct edge *edge;        /* held; NULL: still waiting, or failed */
    struct err why;           /* the reason of the failure */
    struct peer *peer;        /* NULL: disconnected; LMTP thread */
    struct preparation *next; /* the peer's list of messages that wait for a model */
    bool loading;             /* waits for a model */
    int64_t since_ms, reported_ms;
    struct arena arena;
    struct lmtp_message m;
};

/* LINGERS: the close frame is sent, and the client's is awaited. DEAD: in lmtp.dead, freed after
 * the turn of the loop. */
enum peer_state { PEER_OPEN, PEER_LINGERS, PEER_DEAD };
/* A connection of a client. It belongs to the LMTP thread. */
struct peer {
    struct lmtp *lmtp;
    struct peer *next, *prev;
    struct peer *next_dirty;
    enum peer_state state;
    bool dirty;
    int fd;
    struct http_socket *socket; /* NULL: the descriptor is ours */
    struct wire *wire;
    uint64_t tenant;
    uint64_t key_id; /* of the API key; 0: none */
    struct stream *streams;
    struct buffers buffers;
    struct preparation *loading; /* later messages overtake these */
    uint32_t n_loading;
    struct preparation *preparing; /* later messages wait behind it, to keep the order */
    struct deferred *waiting, **waiting_end;
    struct buf frame; /* "TOKEN [...": the items of this turn */
    size_t allowance; /* bytes of scores and repeated items in the queue, above QUEUE */
    uint32_t interest;
    int64_t deadline_ms, sent_ms;
    size_t unsent; /* when the last deadline passed */
};

/* The LMTP thread: one epoll loop for all connections and streams. What the scheduler's and the
 * workers' threads have for it arrives through `staged` and the mailboxes. */
struct lmtp {
    struct edge *edge;
    size_t max_message;
    int epoll_fd, bell_fd, listen_fd;
    char *unix_path; /* to unlink at the end */
    pthread_t thread;
    bool running, closing; /* closing: the thread sends its last items */
    atomic_bool stop;
    struct peer *peers, *dead, *dirty;
    _Atomic uint32_t n_peers;
    int64_t warned_full_ms; /* when the lack of descriptors was last logged; 0: never */
    int64_t warned_user_ms; /* when the refusal of another user was last logged */
    bool not_accepting;     /* the listening socket is not polled for now */
    struct record *records;
    struct buf scratch;          /* scratch for an item that only goes to a record */
    size_t kept;                 /* bytes of the records of ended streams */
    uint32_t n_ended;            /* streams freed in this turn */
    int64_t ticked_ms, watch_ms; /* watch_ms: next call of streams_watch() */
    struct mailbox adopted;      /* http_sockets */
    struct mailbox prepared;     /* preparations */
    pthread_mutex_t lock;        /* guards the two lists */
    struct notes {
        struct mail *first, **end;
        /* notes of the current step; of complete steps */
    } staged, ready;
};

/* spans.c: OpenTelemetry spans. `last`: the stream's last event. */
void stream_spans_begin(struct stream *s, const struct lmtp_message *m);
void stream_spans_end(const struct stream *s, const struct gen_event *last);
void stream_spans_refused(const struct edge *g, const struct lmtp_message *m, const struct err *e);

/* peer.c */
/* Takes ownership of the descriptor, or of the socket that has it. NULL: out of memory; it is
 * still the caller's. */
struct peer *peer_new(struct lmtp *l, int fd, struct http_socket *s);
void peer_event(struct peer *p, uint32_t epoll_events);
/* Buffer for the next TOKEN item; then call peer_changed(). */
struct buf *peer_items(struct peer *p);
void peer_changed(struct peer *p);
/* Sends an MSG item {"stream_id": id, key: text}. */
void peer_message(struct peer *p, const char *id, const char *key, const char *text);
/* Sends a ready-made MSG item. Copies it. */
void peer_raw_message(struct peer *p, const struct buf *item);
void peer_flush(struct peer *p); /* sends the items of this turn */
void peer_goodbye(struct peer *p, enum wire_close code, const char *why);
void peer_tick(struct peer *p, int64_t now);
void peer_cut(struct peer *p);            /* closes without a close frame */
size_t peer_unsent(const struct peer *p); /* unsent bytes in our queue and the kernel's */
void peer_free(struct peer *p);           /* of l->dead, or any at shutdown */

/* serve.c: reads and executes a message of n bytes, or sends its error to the client */
void lmtp_serve(struct peer *p, const char *text, size_t n);
/* Continues a message whose model is loaded. Takes ownership of the arena and the hold on `g`. */
void lmtp_settled(struct peer *p, struct edge *g, struct lmtp_message *m, struct arena *a);
/* Executes a message whose tokens are known. Takes ownership of both. */
void lmtp_dispatch(struct peer *p, struct edge *g, struct lmtp_message *m, struct arena *a);

/* prepare.c */
/* takes ownership of the arena */
void prepare_model(struct peer *p, struct lmtp_message *m, struct arena *a);
/* Tokenizes the message's text on a worker; takes ownership of the arena and the hold. */
void prepare_text(struct peer *p, struct edge *g, struct lmtp_message *m, struct arena *a);
/* queues a message after one in preparation */
void prepare_defer(struct peer *p, const char *text, size_t n);
void prepare_done(struct lmtp *l); /* takes finished preparations from the workers */
/* Drops the messages in preparation. `why`: error to their senders; NULL: none. */
void prepare_abandon(struct peer *p, const char *why);
/* Finds a message that waits for its model, and fails it. */
struct preparation *prepare_find(const struct peer *p, const struct lmtp_id *id);
void prepare_fail(struct preparation *q, const char *why);

/* stream.c */
struct stream *stream_find(const struct peer *p, const struct lmtp_id *id);
/* Starts a stream; takes ownership of the arena of `m`. Errors are sent to the client. */
void stream_start(struct peer *p, struct edge *g, const struct lmtp_message *m, struct arena *a);
void stream_refuse(struct peer *p, const struct lmtp_message *m, const struct err *e);
void stream_listen(struct peer *p, struct stream *s); /* `p` becomes the listener */
/* sends its last item, then stream_cancel() */
void stream_fail(struct stream *s, const char *why);
/* Sends nothing more to its client; its blocks are freed within one step. */
void stream_cancel(struct stream *s);
/* Ends all streams of `p` with an error. NULL: without an item, and resumable streams continue. */
void stream_end_all(struct peer *p, const char *why);
void stream_publish(struct lmtp *l); /* moves staged notes to ready */
void stream_note(struct note *n);

/* watch.c */
/* Handles timeouts and queue positions; returns at once before l->watch_ms. */
void streams_watch(struct lmtp *l, int64_t now);
/* schedules a call of streams_watch() */
static inline void watch_from(struct lmtp *l, int64_t due_ms)
{
    l->watch_ms = due_ms < l->watch_ms ? due_ms : l->watch_ms;
}

/* stream_ask.c */
/* Fills s->r from the message. `b`: the connection's buffers. */
int stream_ask(struct stream *s, const struct lmtp_message *m, struct buffers *b, struct err *e);
/* The tokens of a message, after those of its buffer, in `a`. NULL: error in `e`. */
const uint32_t *stream_ids(const struct lmtp_message *m, const struct buffers *b, struct arena *a,
                           uint32_t *n, struct err *e);

/* record.c: starts to keep the items of `s`. A record of the same client, session and id ends, if
 * it has no listener. ERR_VALIDATION: it has one, or --lmtp-grace is 0. ERR_SYSTEM: out of memory.
 */
int record_new(struct stream *s, const char *session, struct err *e);
/* Keeps a copy of an item, of which LMTP_KEPT bytes remain: the oldest ones are dropped. */
void record_item(struct record *r, const char *item, size_t n);
void record_drop(struct record *r);
void record_ended(struct stream *s);    /* the stream ended and has no record any more */
void record_detached(struct stream *s); /* the stream has no listener any more */
/* Executes a RESUME: `p` becomes the listener, and gets the items from m->from on. If they are not
 * kept any more, it gets an error. */
void record_resume(struct peer *p, const struct lmtp_message *m);
void record_tick(struct lmtp *l, int64_t now); /* ends those that have expired; ms */
void record_end_all(struct lmtp *l);

/* Wakes the loop. Any thread. */
void lmtp_wake(struct lmtp *l);
#endif
