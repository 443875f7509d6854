/* log.h - one log line per event, as text or as JSON.
 *
 * The sink is the only process-wide state outside main: set by log_init() before threads start,
 * read-only afterwards. Lines are formatted in memory and written by one writer thread
 * (sink.h), so that a full pipe blocks no other thread. Lines that do not fit into the ring are
 * dropped, counted and reported. Each line is written by one write(2), so lines of processes that
 * share a pipe do not mix (up to PIPE_BUF).
 *
 * In text format, values with blanks, quotes, `=` or control characters are quoted as JSON strings.
 *
 *   text:  2026-11-21T19:00:00.123456Z  INFO model_server: shard ready rank=0 path=/tmp/s-0
 *   json:  {"timestamp":"…","level":"INFO","fields":{"message":"shard ready","rank":0,…},
 *           "target":"model_server"} */
#ifndef COMMON_LOG_LOG_H
#define COMMON_LOG_LOG_H
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

/* `target`: the program's name ("router"). Lines above level `max` are dropped. Output goes to
 * `fd`. exit() flushes the last lines. */
void log_init(const char *target, enum log_level max, bool json, int fd);
bool log_on(enum log_level level);
/* "error", "warn"/"warning", "info", "debug", "trace", "off", in any case. False: unknown word. */
bool log_level_parse(const char *word, enum log_level *out);

/* Writes a line, whatever the level in force: LOG() asks log_on() first. */
void log_fields(enum log_level level, const char *msg, size_t n, const struct log_field *fields);
void log_msg(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Forwards a child's output: a line formatted as JSON by this module, or any other text. `source`
 * becomes the target. */
void log_relay(const char *source, const char *line, size_t n);

/* Waits for the writer, as long as it makes progress every LOG_READER_MS, at most LOG_FLUSH_MS.
 * exit() does this; call it before _exit(). False: lines are left. Any thread. */
bool log_flush(void);
uint64_t log_dropped(void); /* number of dropped lines; any thread */
/* Formats a line of at most `max` bytes (256 or more) into `out` without heap, for signal handlers
 * and when other threads may hold locks. Quotes and control characters become `?`. Returns its
 * length. */
size_t log_line(char *out, size_t max, enum log_level level, const char *text);
/* Prints a message to the user on standard error, unless it blocks for a second; not a log line. */
void log_stderr(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* LOG(LOG_INFO, "shard ready", LOGI("rank", 0), LOGS("path", p)); */
#define LOG(level, msg, ...)                                                                       \
    do {                                                                                           \
        const struct log_field fields_[] = {__VA_ARGS__};                                          \
        if (log_on(level))                                                                         \
            log_fields((level), (msg), sizeof(fields_) / sizeof(fields_[0]), fields_);             \
    } while (0)
#endif
