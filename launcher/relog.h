/* relog.h - bytes of a pipe to whole log lines, and what a child said last.
 *
 * Reads cut lines anywhere; a line is passed on once complete. One longer than RELOG_LINE_MAX is
 * passed on cut, and the rest of it dropped, so that a child that never ends its line costs no
 * memory. Pure: lines go to a callback. */
#ifndef LAUNCHER_RELOG_H
#define LAUNCHER_RELOG_H
#include <stdbool.h>
#include <stddef.h>

enum { RELOG_LINE_MAX = 16384, RELOG_LAST_MAX = 240 };

struct relog {
    char line[RELOG_LINE_MAX];
    size_t n;
    bool skipping; /* inside the dropped rest of a long line */
};

/* What to show as the cause when a child dies: its last line at level ERROR, else the last line
 * that was no log line of ours (a message of the C library, of the kernel, of a sanitizer). */
struct relog_last {
    char error[RELOG_LAST_MAX], other[RELOG_LAST_MAX];
};

typedef void relog_fn(void *arg, const char *line, size_t n);

void relog_feed(struct relog *r, const char *bytes, size_t n, relog_fn *fn, void *arg);
void relog_end(struct relog *r, relog_fn *fn,
               void *arg); /* the pipe is closed: pass on what is left */

void relog_note(struct relog_last *l, const char *line, size_t n);
const char *relog_words(const struct relog_last *l); /* "" if it said nothing of note */
#endif
