/* sink.h - the output of finished log lines. Private to log.c, stacks.c and their tests.
 *
 * Lines are queued in a ring of LOG_RING bytes, and one thread writes them. No other thread ever
 * blocks on the output. If the ring is full, the oldest lines are dropped and counted; the writer
 * reports the count at their place in the log. Any thread may call these functions. */
#ifndef COMMON_LOG_SINK_H
#define COMMON_LOG_SINK_H
#include "common/buf.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOG_RING = 1 << 20, LOG_LINE_MAX = LOG_RING / 8 };

/* Sends lines to `fd` from now on; lines queued for the previous descriptor are flushed first. The
 * first call starts the writer. `notice` formats the line that reports dropped lines. */
void log_sink_start(int fd, void (*notice)(struct buf *out, uint64_t dropped));
/* Queues a whole line with its line end. Longer than LOG_LINE_MAX: dropped. Before
 * log_sink_start(), and in a forked child: written at once. */
void log_sink_put(const char *line, size_t n);
/* Waits until all lines are written, at most `quiet_ms` without progress and `most_ms` in total.
 * False: lines are left. Async-signal-safe. */
bool log_sink_settle(int64_t quiet_ms, int64_t most_ms);
#endif
