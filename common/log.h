/* log.h - one line per event, as text for people or as JSON for collectors.
 *
 * The sink is the only process-wide state outside main: set once by log_init() before threads
 * start, read-only afterwards. A line is formatted in memory and handed to one writer thread
 * (log_sink.h), so that an unread log blocks no other thread; what does not fit into
 * the ring meanwhile is dropped, counted and reported. Lines leave whole in one write(2), so that
 * those of processes that share a pipe never mix (up to PIPE_BUF).
 *
 * In text, values with blanks, quotes, `=` or control characters are quoted as JSON strings.
 *
 *   text:  2026-11-21T19:00:00.123456Z  INFO model_server: shard ready rank=0 path=/tmp/s-0
 *   json:  {"timestamp":"…","level":"INFO","fields":{"message":"shard
 * ready","rank":0,…},"target":"model_server"} */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE, LOG_OFF };

struct log_field {
    const char *key;
    enum { LOG_F_STR, LOG_F_INT, LOG_F_NUM } type;
    union {
        const char *str;
        int64_t i;
        double num;
    };
};
#define LOGS(k, v) ((struct log_field){(k), LOG_F_STR, {.str = (v)}})
#define LOGI(k, v) ((struct log_field){(k), LOG_F_INT, {.i = (int64_t)(v)}})
#define LOGD(k, v) ((struct log_field){(k), LOG_F_NUM, {.num = (double)(v)}})

enum { LOG_READER_MS = 1000, LOG_FLUSH_MS = 5000 };

/* `target` names the program ("router"); lines above `max` are dropped; output goes to `fd`. At
 * exit() the last lines are flushed. */
void log_init(const char *target, enum log_level max, bool json, int fd);
bool log_on(enum log_level level);
/* "error", "warn"/"warning", "info", "debug", "trace", "off", any case; false: unknown word. */
bool log_level_parse(const char *word, enum log_level *out);

void log_fields(enum log_level level, const char *msg, size_t n, const struct log_field *fields);
void log_msg(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A line that another process already formatted as JSON by this module, or anything else it
 * printed: the launcher merges its children's lines with it. `source` is shown as the target. */
void log_relay(const char *source, const char *line, size_t n);

/* Waits for the writer: as long as the reader takes something every LOG_READER_MS, and at most
 * LOG_FLUSH_MS. exit() does this; _exit() needs it before. False: lines are left. Any thread. */
bool log_flush(void);
uint64_t log_dropped(void); /* lines that were dropped; any thread */
/* A line of at most `max` bytes (256 or more) in `out`, without heap: for signal handlers and for
 * times when other threads may be stuck with a lock. Quotes and control characters become `?`. Its
 * length. */
size_t log_line(char *out, size_t max, enum log_level level, const char *text);
/* A line to standard error, if it takes one within a second: a message to a user, no log line. */
void log_stderr(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* LOG(LOG_INFO, "shard ready", LOGI("rank", 0), LOGS("path", p)); */
#define LOG(level, msg, ...)                                                                       \
    do {                                                                                           \
        const struct log_field fields_[] = {__VA_ARGS__};                                          \
        if (log_on(level))                                                                         \
            log_fields((level), (msg), sizeof(fields_) / sizeof(fields_[0]), fields_);             \
    } while (0)
#endif
