/* relog.h - splits a child's output into log lines, and keeps its last error message.
 *
 * Reads may end anywhere; a line is forwarded once complete. A line longer than RELOG_LINE_MAX is
 * truncated, so that a child that never ends its line costs no memory. Pure: lines go to a
 * callback. */
#ifndef LAUNCHER_RELOG_H
#define LAUNCHER_RELOG_H
#include <stdbool.h>
#include <stddef.h>

enum { RELOG_LINE_MAX = 16384, RELOG_LAST_MAX = 400 };

struct relog {
    char line[RELOG_LINE_MAX];
    size_t n;
    bool skipping; /* inside the dropped rest of a long line */
};

/* The message to report when a child crashes: its last line at level ERROR, otherwise the last line
 * that was not a log line of ours (from the C library, the kernel, a sanitizer). */
struct relog_last {
    char error[RELOG_LAST_MAX], other[RELOG_LAST_MAX];
};

typedef void relog_fn(void *arg, const char *line, size_t n);

/* Adds n bytes of output. Calls fn(arg, line, n) for each completed line, without its newline. */
void relog_feed(struct relog *r, const char *bytes, size_t n, relog_fn *fn, void *arg);
/* Forwards the incomplete last line, after the end of the output. */
void relog_end(struct relog *r, relog_fn *fn, void *arg);

/* Records a line if it is one to report. */
void relog_note(struct relog_last *l, const char *line, size_t n);
/* The message to report; "" if there is none. Valid until the next relog_note(). */
const char *relog_words(const struct relog_last *l);
#endif
