/* startup.h - how far a start has come, for those who wait for it.
 *
 * A board is a page of memory that the launcher makes and its children inherit as a descriptor:
 * each rank writes its slot, the router and the launcher read all of them. Nothing is sent, so
 * no process waits, and a reader may come late or look again after a restart. Without a board every
 * writer does nothing. A slot has one writer; any thread of any process may read. */
#ifndef COMMON_STARTUP_H
#define COMMON_STARTUP_H
#include "common/buf.h"
#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

enum startup_phase {
    STARTUP_NONE,       /* not begun */
    STARTUP_CONFIG,     /* files are looked for, adapters and the device are opened */
    STARTUP_TOKENIZER,  /* tokenizer and chat template */
    STARTUP_RENDEZVOUS, /* ranks wait for each other */
    STARTUP_WEIGHTS,    /* weights are read and packed, one matrix after the other */
    STARTUP_SHARDS,     /* the router waits for the shards */
    STARTUP_WARM_UP,    /* workspaces, a trial step */
    STARTUP_KV,         /* the KV cache is made and its first blocks are taken */
    STARTUP_READY,      /* over; as a duration: all of it */
    STARTUP_PHASES
};
const char *startup_name(enum startup_phase p); /* "weights" */

enum { STARTUP_RANKS = 64, STARTUP_ROUTER = STARTUP_RANKS, STARTUP_SLOTS };

struct startup_board;
/* By the launcher: *fd is to be inherited. NULL: `e`. */
struct startup_board *startup_board_new(int *fd, struct err *e);
/* By a child: the board behind a descriptor that it inherited, which is closed. NULL: `e`. */
struct startup_board *startup_board_map(int fd, struct err *e);
void startup_board_free(struct startup_board *b); /* NULL is fine */

/* Writers; `b` may be NULL. A life begins with STARTUP_CONFIG, which clears the slot. A phase ends
 * where the next one begins. */
void startup_begin(struct startup_board *b, uint32_t slot, enum startup_phase p);
/* Of the phase at hand: so many parts of so many are done. */
void startup_progress(struct startup_board *b, uint32_t slot, uint64_t done, uint64_t total);
/* A duration that was measured elsewhere, and is part of none of the other phases. */
void startup_add(struct startup_board *b, uint32_t slot, enum startup_phase p, int64_t ns);

/* What a reader sees of the ranks [first, first + n). */
struct startup_view {
    enum startup_phase phase; /* of the rank that is furthest behind */
    double percent;           /* of its phase; below 0: not known */
    double seconds;           /* since that rank began */
    double left;              /* an estimate for the phase; below 0: not known */
};
struct startup_view startup_look(const struct startup_board *b, uint32_t first, uint32_t n);
/* Of a rank; 0: it has not been there. A phase that goes on counts until now. */
double startup_seconds(const struct startup_board *b, uint32_t slot, enum startup_phase p);
/* "weights 43 %, about 12 s left" */
void startup_words(const struct startup_view *v, char *out, size_t max);
#endif
