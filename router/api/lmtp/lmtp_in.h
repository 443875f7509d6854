/* lmtp_in.h - private to this folder: the thread's connections and their streams. */
#ifndef ROUTER_API_LMTP_LMTP_IN_H
#define ROUTER_API_LMTP_LMTP_IN_H
#include "common/arena.h"
#include "common/mailbox.h"
#include "router/api/lmtp/buffers.h"
#include "router/api/lmtp/items.h"
#include "router/api/lmtp/lmtp.h"
#include "router/api/lmtp/message.h"
#include "router/api/lmtp/wire.h"
#include "router/generate/workers.h"
#include "router/models/models.h"
#include "router/request/note.h"
#include <pthread.h>

/* FRAME: lmql's client closes at 4 MiB. QUEUE: what a client may leave unread, besides scores.
 * KEPT: of the items of one stream that can be resumed, and of all that have ended. */
enum {
    LMTP_FRAME = 1 << 20,
    LMTP_QUEUE = 4 << 20,
    LMTP_TOP_MAX = 1024,
    LMTP_STATUS_MS = 100,
    LMTP_KEPT = 1 << 20,
    LMTP_KEPT_ALL = 64 << 20
};

/* One GENERATE or SCORE. It belongs to the LMTP thread; its request is lent to the scheduler until
 * the last event. Without a peer it is not awaited any more, unless it has a record. */
struct stream {
    struct gen_request r;
    struct lmtp *lmtp;
    struct edge *edge; /* its model's, held */
    uint64_t key_id;   /* whose permit it holds */
    struct peer *peer;
    struct stream *next, *prev; /* among its peer's */
    struct lmtp_id id;
    bool score, cancelled;
    uint32_t n_prompt; /* SCORE: what follows is scored */
    uint32_t n_tokens; /* answered */
    bool return_text;
    bool status;                /* its place in the queue is told */
    uint32_t place;             /* as it was told last */
    int64_t deadline_ms;        /* INT64_MAX: none */
    const char *save;           /* the buffer that prompt and answer go to; NULL: none */
    uint32_t reserved;          /* tokens, there */
    uint32_t *out;              /* the answer, for that */
    struct record *record;      /* NULL: it ends with its connection */
    struct trace_context trace; /* of its own span; zero: none */
    uint8_t trace_parent[8];
    const char *trace_state; /* NULL: none */
    struct note last;        /* so that an end can be told even when memory has run out */
    struct err last_err;
    bool lost; /* an event could not be copied; scheduler thread only */
};

/* What a stream with a `session` has said, so that another connection can get it again. It stays
 * for --lmtp-grace after its stream ended, or lost its connection. */
struct record {
    struct record *next, *prev;
    struct lmtp *lmtp;
    struct stream *stream; /* NULL: ended */
    struct lmtp_id id;
    char session[LMTP_NAME_MAX + 1];
    uint64_t tenant;
    struct buf items;       /* "{...}" each, one behind the other */
    size_t *at;             /* where the items first..n begin */
    uint32_t first, n, cap; /* first: those before it are forgotten */
    int64_t expires_ms;     /* INT64_MAX: its stream runs, and has a listener */
};

/* A message that cannot be served yet: its model is being loaded, or its text becomes tokens. */
struct preparation {
    struct job job; /* first */
    struct models_wait wait;
    struct mail mail;
    struct lmtp *lmtp;
    struct edge *edge;        /* held; NULL: it is waited for, or cannot be had */
    struct err why;           /* it cannot be had */
    struct peer *peer;        /* NULL: it has left; LMTP thread */
    struct preparation *next; /* among those of the peer that wait for a model */
    bool loading;             /* it waits for a model */
    int64_t since_ms, reported_ms;
    struct arena arena;
    struct lmtp_message m;
};

enum peer_state { PEER_OPEN, PEER_LINGERS, PEER_DEAD };
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
    struct preparation *loading;   /* messages overtake these */
    struct preparation *preparing; /* messages behind it wait, so that they stay in order */
    struct deferred *waiting, **waiting_end;
    struct buf frame; /* "TOKEN [...", what this turn says */
    size_t allowance; /* bytes of scores in the queue */
    uint32_t interest;
    int64_t deadline_ms, spoke_ms;
    size_t unsent; /* when the deadline passed last */
};

struct lmtp {
    struct edge *edge;
    size_t max_message;
    int epoll_fd, bell_fd, listen_fd;
    char *unix_path; /* to remove at the end */
    pthread_t thread;
    bool running, closing; /* closing: the thread says goodbye */
    atomic_bool stop;
    struct peer *peers, *dead, *dirty;
    _Atomic uint32_t n_peers;
    int64_t warned_full_ms; /* when the lack of descriptors was logged; 0: never */
    int64_t warned_user_ms; /* when the refusal of another user was */
    bool deaf;              /* the listening socket is not watched meanwhile */
    struct record *records;
    struct buf unheard;          /* an item that only a record takes */
    size_t kept;                 /* bytes of records whose streams have ended */
    uint32_t n_ended;            /* streams freed in this turn */
    int64_t ticked_ms, watch_ms; /* watch_ms: when streams_watch() is due */
    struct mailbox adopted;      /* http_sockets */
    struct mailbox prepared;     /* preparations */
    pthread_mutex_t lock;        /* of the two lists */
    struct notes {
        struct mail *first, **end;
    } staged, ready; /* of the step that is being told; of steps that are complete */
};

/* spans.c: what OpenTelemetry is told. `last`: its last event. */
void stream_spans_begin(struct stream *s, const struct lmtp_message *m);
void stream_spans_end(const struct stream *s, const struct gen_event *last);
void stream_spans_refused(const struct edge *g, const struct lmtp_message *m, const struct err *e);

/* peer.c */
struct peer *peer_new(struct lmtp *l, int fd, struct http_socket *s);
void peer_event(struct peer *p, uint32_t epoll_events);
struct buf *peer_items(struct peer *p); /* where the next TOKEN item goes; then peer_said() */
void peer_said(struct peer *p);
void peer_message(struct peer *p, const char *id, const char *key, const char *text);
/* A MSG item that is made by hand. Takes nothing. */
void peer_raw_message(struct peer *p, const struct buf *item);
void peer_flush(struct peer *p); /* what was said leaves */
void peer_goodbye(struct peer *p, enum wire_close code, const char *why);
void peer_tick(struct peer *p, int64_t now);
void peer_cut(struct peer *p);            /* without a word */
size_t peer_unsent(const struct peer *p); /* bytes, ours and the kernel's */
void peer_free(struct peer *p);           /* of l->dead, or any at the end */

/* serve.c */
void lmtp_serve(struct peer *p, const char *text, size_t n);
/* A message whose model is there. Takes the arena, and the hold on `g`. */
void lmtp_settled(struct peer *p, struct edge *g, struct lmtp_message *m, struct arena *a);
/* And whose tokens are there. */
void lmtp_dispatch(struct peer *p, struct edge *g, struct lmtp_message *m, struct arena *a);

/* prepare.c */
void prepare_model(struct peer *p, struct lmtp_message *m, struct arena *a); /* takes the arena */
/* Text to tokens; takes the arena, and the hold. */
void prepare_text(struct peer *p, struct edge *g, struct lmtp_message *m, struct arena *a);
void prepare_defer(struct peer *p, const char *text, size_t n); /* a message behind one */
void prepare_done(struct lmtp *l); /* take back what the workers have made */
/* Its messages will not be served. `why`: what their senders are told, NULL: nothing. */
void prepare_abandon(struct peer *p, const char *why);
/* One that waits for its model: find it; it will not be served. */
struct preparation *prepare_find(const struct peer *p, const struct lmtp_id *id);
void prepare_fail(struct preparation *q, const char *why);

/* stream.c */
struct stream *stream_find(const struct peer *p, const struct lmtp_id *id);
/* Takes the arena that `m` was parsed into. Errors are told to the client. */
void stream_start(struct peer *p, struct edge *g, const struct lmtp_message *m, struct arena *a);
void stream_refuse(struct peer *p, const struct lmtp_message *m, const struct err *e);
void stream_listen(struct peer *p, struct stream *s); /* `p` gets it from now on */
void stream_fail(struct stream *s, const char *why);  /* its last item, and stream_cancel() */
/* Its client is not told anything further, and its blocks are free within one step. */
void stream_cancel(struct stream *s);
/* NULL: without a word; then those that can be resumed go on. */
void stream_end_all(struct peer *p, const char *why);
void stream_publish(struct lmtp *l); /* what is staged is ready */
void stream_note(struct note *n);

/* watch.c */
/* Time-outs, and what is told about places in the queue; nothing before l->watch_ms. */
void streams_watch(struct lmtp *l, int64_t now);
static inline void watch_from(struct lmtp *l, int64_t due_ms) /* something is due then */
{
    l->watch_ms = due_ms < l->watch_ms ? due_ms : l->watch_ms;
}

/* stream_ask.c */
/* From the message to s->r. `b`: the connection's buffers. */
int stream_ask(struct stream *s, const struct lmtp_message *m, struct buffers *b, struct err *e);
/* The tokens that the message is about, behind those of its buffer, in `a`. NULL: `e`. */
const uint32_t *stream_ids(const struct lmtp_message *m, const struct buffers *b, struct arena *a,
                           uint32_t *n, struct err *e);

/* record.c */
int record_new(struct stream *s, const char *session, struct err *e);
void record_item(struct record *r, const char *item, size_t n);
void record_forget(struct record *r);
void record_ended(struct stream *s);  /* s has no record any more */
void record_parted(struct stream *s); /* without a listener */
void record_resume(struct peer *p, const struct lmtp_message *m);
void record_tick(struct lmtp *l, int64_t now);
void record_end_all(struct lmtp *l);

void lmtp_wake(struct lmtp *l);
#endif
