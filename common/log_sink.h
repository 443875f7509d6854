/* log_sink.h - where finished log lines go: private to log.c, crash.c and their tests.
 *
 * Lines wait in a ring of LOG_RING bytes, and one thread writes them. No other thread ever waits
 * for the reader. When the ring is full, the oldest lines are dropped and counted; the writer says
 * how many at the place in the log where they are missing. Any thread may call these. */
#ifndef COMMON_LOG_SINK_H
#define COMMON_LOG_SINK_H
#include "common/buf.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOG_RING = 1 << 20, LOG_LINE_MAX = LOG_RING / 8 };

/* From now on lines go to `fd`; what waits for the descriptor before is flushed first. Starts the
 * writer at the first call. `notice` makes the line that says how many lines are missing. */
void log_sink_start(int fd, void (*notice)(struct buf *out, uint64_t dropped));
/* A whole line, with its end of line. Longer than LOG_LINE_MAX: dropped. Before
 * log_sink_start(), and in a process forked from one that logs: written at once. */
void log_sink_put(const char *line, size_t n);
/* Waits until the writer has written all, but no longer than `quiet_ms` without progress and
 * `most_ms` in all. False: lines are left. Signal handlers may call it. */
bool log_sink_settle(int64_t quiet_ms, int64_t most_ms);
int log_sink_fd(void);
#endif
