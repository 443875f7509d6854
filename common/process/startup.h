/* startup.h - start-up progress, shared between processes.
 *
 * A board is a page of shared memory that the launcher creates and its children inherit as a
 * descriptor. Each rank writes its slot; the router and the launcher read all slots. Nothing is
 * sent, so no process waits, and a reader may join at any time. Without a board every write is a
 * no-op. A slot has one writer; any thread of any process may read. */
#ifndef COMMON_STARTUP_H
#define COMMON_STARTUP_H
#include "common/buf.h"
#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

enum startup_phase {
    STARTUP_NONE,       /* not begun */
    STARTUP_CONFIG,     /* locating files, opening adapters and the device */
    STARTUP_TOKENIZER,  /* tokenizer and chat template */
    STARTUP_RENDEZVOUS, /* the ranks connect to each other */
    STARTUP_WEIGHTS,    /* reading and packing weights, matrix by matrix */
    STARTUP_SHARDS,     /* the router waits for the shards */
    STARTUP_WARM_UP,    /* workspaces and a trial step */
    STARTUP_KV,         /* allocating the KV cache and touching its first blocks */
    STARTUP_READY,      /* done; as a duration: the total */
    STARTUP_PHASES
};
const char *startup_name(enum startup_phase p); /* "weights" */

enum { STARTUP_RANKS = 64, STARTUP_ROUTER = STARTUP_RANKS, STARTUP_SLOTS };

struct startup_board;
/* By the launcher: *fd is for inheritance. NULL: error in `e`. */
struct startup_board *startup_board_new(int *fd, struct err *e);
/* By a child: maps the board of an inherited descriptor, and closes it. NULL: error in `e`. */
struct startup_board *startup_board_map(int fd, struct err *e);
void startup_board_free(struct startup_board *b); /* NULL is allowed */

/* Writers; `b` may be NULL. Each start begins with STARTUP_CONFIG, which clears the slot. A phase
 * ends when the next one begins. */
void startup_begin(struct startup_board *b, uint32_t slot, enum startup_phase p);
/* Progress of the current phase: `done` of `total` parts. */
void startup_progress(struct startup_board *b, uint32_t slot, uint64_t done, uint64_t total);
/* Adds a duration that was measured elsewhere and is not part of another phase. */
void startup_add(struct startup_board *b, uint32_t slot, enum startup_phase p, int64_t ns);

/* The state of ranks [first, first + n), for a reader. */
struct startup_view {
    enum startup_phase phase; /* of the slowest rank */
    double percent;           /* of its phase; below 0: unknown */
    double seconds;           /* since that rank started */
    double left;              /* estimated seconds for the phase; below 0: unknown */
};
struct startup_view startup_look(const struct startup_board *b, uint32_t first, uint32_t n);
/* Seconds of a phase; 0: not reached. A running phase counts until now. */
double startup_seconds(const struct startup_board *b, uint32_t slot, enum startup_phase p);
/* "weights 43 %, about 12 s left" */
void startup_words(const struct startup_view *v, char *out, size_t max);
#endif
