/* progress.h - how far the shards of this machine are in loading, as a bar on a terminal.
 *
 * The bar is drawn on standard error where that is a terminal, and leaves nothing behind: the
 * cursor stays at its beginning, so that a line of the log takes its place. */
#ifndef LAUNCHER_PROGRESS_H
#define LAUNCHER_PROGRESS_H
#include "common/err.h"
#include "common/startup.h"

struct progress {
    struct startup_board *board;
    int fd;              /* that the children inherit */
    uint32_t first, n;   /* ranks */
    bool shown, on_line; /* there is a terminal; a bar stands on it */
    int64_t next;        /* ms: when it is due again */
};

int progress_init(struct progress *p, uint32_t first, uint32_t n, struct err *e);
void progress_show(struct progress *p, int64_t now); /* if it is due */
void progress_end(struct progress *p);               /* takes the bar away */
void progress_free(struct progress *p);              /* of one that was zero, too */

/* The bar of a view, in at most `width` columns. Pure. */
void progress_bar(const struct startup_view *v, unsigned width, char *out, size_t max);
#endif
