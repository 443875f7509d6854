/* lmtp_in.h - private to router/lmtp: the thread's connections and their streams. */
#ifndef ROUTER_LMTP_LMTP_IN_H
#define ROUTER_LMTP_LMTP_IN_H
#include "common/arena.h"
#include "common/mailbox.h"
#include "router/lmtp/items.h"
#include "router/lmtp/lmtp.h"
#include "router/lmtp/message.h"
#include "router/lmtp/wire.h"
#include "router/note.h"
#include <pthread.h>

/* FRAME: lmql's client closes at 4 MiB. QUEUE: what a client may leave unread, besides scores. */
enum { LMTP_FRAME = 1 << 20, LMTP_QUEUE = 4 << 20, LMTP_TOP_MAX = 1024 };

/* One GENERATE or SCORE. It belongs to the LMTP thread; its request is lent to the scheduler until
 * the last event. Without a peer nobody waits for it any more. */
struct stream {
    struct gen_request r;
    struct lmtp *lmtp;
    struct peer *peer;
    struct stream *next, *prev; /* among its peer's */
    struct lmtp_id id;
    bool score, cancelled;
    uint32_t n_prompt; /* SCORE: what follows is scored */
    uint32_t n_tokens; /* answered */
    struct note last;  /* so that an end can be told even when memory has run out */
    struct err last_err;
    bool lost; /* an event could not be copied; scheduler thread only */
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
    struct stream *streams;
    struct buf frame; /* "TOKEN [...", what this turn says */
    size_t allowance; /* bytes of scores in the queue */
    uint32_t interest;
    int64_t deadline_ms, spoke_ms;
};

struct lmtp {
    struct edge *edge;
    size_t max_message;
    uint64_t vocab_hash;
    int epoll_fd, bell_fd, listen_fd;
    char *unix_path; /* to remove at the end */
    pthread_t thread;
    bool running, closing; /* closing: the thread says goodbye */
    atomic_bool stop;
    struct peer *peers, *dead, *dirty;
    uint32_t n_ended; /* streams freed in this turn */
    int64_t ticked_ms;
    struct mailbox adopted; /* http_sockets */
    pthread_mutex_t lock;   /* of the two lists */
    struct notes {
        struct mail *first, **end;
    } staged, ready; /* of the step that is being told; of steps that are complete */
};

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
void peer_cut(struct peer *p);  /* without a word */
void peer_free(struct peer *p); /* of l->dead, or any at the end */

/* serve.c */
void lmtp_serve(struct peer *p, const char *text, size_t n);

/* stream.c */
struct stream *stream_find(const struct peer *p, const struct lmtp_id *id);
/* Takes the arena that `m` was parsed into. Errors are told to the client. */
void stream_start(struct peer *p, const struct lmtp_message *m, struct arena *a);
/* Its client is not told anything further, and its blocks are free within one step. */
void stream_cancel(struct stream *s);
void stream_end_all(struct peer *p, const char *why); /* NULL: without a word */
void stream_publish(struct lmtp *l);                  /* what is staged is ready */
void stream_note(struct note *n);

void lmtp_wake(struct lmtp *l);
#endif
