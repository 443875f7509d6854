/* progress.h - a progress bar of the shards' loading, on a terminal.
 *
 * The bar is drawn on standard error if that is a terminal. The cursor stays at its beginning, so
 * that a log line overwrites it. */
#ifndef LAUNCHER_PROGRESS_H
#define LAUNCHER_PROGRESS_H
#include "common/err.h"
#include "common/process/startup.h"

struct progress {
    struct startup_board *board;
    int fd;              /* inherited by the children */
    uint32_t first, n;   /* ranks */
    bool shown, on_line; /* there is a terminal; a bar is drawn */
    int64_t next;        /* ms: time of the next update */
};

/* Creates the board of ranks [first, first + n). 0, or -1 with an error. */
int progress_init(struct progress *p, uint32_t first, uint32_t n, struct err *e);
/* Draws the bar if an update is due. `now`: ms, monotonic. */
void progress_show(struct progress *p, int64_t now);
void progress_end(struct progress *p);  /* erases the bar */
void progress_free(struct progress *p); /* a zeroed one is allowed */

/* Writes the bar of a view, at most `width` columns. Pure. */
void progress_bar(const struct startup_view *v, unsigned width, char *out, size_t max);
#endif
