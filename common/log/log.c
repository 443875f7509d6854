#include "common/log/log.h"
#include "common/buf.h"
#include "common/json/json.h"
#include "common/log/sink.h"
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static struct {
    const char *target;
    enum log_level max;
    bool json;
} sink = {"", LOG_INFO, false};

static const char *const names[] = {"ERROR", "WARN", "INFO", "DEBUG", "TRACE", "OFF"};

bool log_on(enum log_level level) { return sink.max != LOG_OFF && level <= sink.max; }

bool log_level_parse(const char *word, enum log_level *out)
{
    if (!strcasecmp(word, "warning"))
        word = "warn";
    for (int i = LOG_ERROR; i <= LOG_OFF; i++)
        if (!strcasecmp(word, names[i]))
            return *out = (enum log_level)i, true;
    return false;
}

static void stamp(struct buf *b)
{
    struct timespec t;
    struct tm tm;
    char day[24];
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
    buf_fmt(b, "%s.%06ldZ", day, t.tv_nsec / 1000);
}

/* Client data must not look like another field or line. */
static void text_value(struct buf *b, const char *s)
{
    bool plain = *s;
    for (const char *p = s; *p && plain; p++)
        plain = (unsigned char)*p > ' ' && *p != '"' && *p != '=' && *p != 0x7f;
    if (plain)
        buf_str(b, s);
    else
        buf_json_str(b, s, strlen(s));
}

static void one_field(struct buf *b, const struct log_field *f)
{
    if (sink.json)
        buf_ch(b, ','), buf_json_str(b, f->key, strlen(f->key)), buf_ch(b, ':');
    else
        buf_fmt(b, " %s=", f->key);
    switch (f->type) {
    case LOG_F_STR:
        if (sink.json)
            buf_json_str(b, f->str ? f->str : "", f->str ? strlen(f->str) : 0);
        else
            text_value(b, f->str ? f->str : "-");
        break;
    case LOG_F_INT:
        buf_fmt(b, "%lld", (long long)f->i);
        break;
    case LOG_F_NUM:
        buf_json_f32(b, (float)f->num);
    }
}

static void head(struct buf *b, enum log_level level, const char *target, const char *msg, size_t n)
{
    if (sink.json) {
        buf_str(b, "{\"timestamp\":\"");
        stamp(b);
        buf_fmt(b, "\",\"level\":\"%s\",\"fields\":{\"message\":", names[level]);
        buf_json_str(b, msg, n);
    } else {
        stamp(b);
        buf_fmt(b, " %5s %s: ", names[level], target);
        buf_add(b, msg, n);
    }
}

static void end(struct buf *b, const char *target)
{
    if (sink.json)
        buf_fmt(b, "},\"target\":\"%s\"}", target);
    buf_ch(b, '\n');
}

static void tail(struct buf *b, const char *target)
{
    end(b, target);
    if (!b->oom)
        log_sink_put(b->p, b->len);
    buf_free(b);
}

static void notice(struct buf *out, uint64_t dropped)
{
    static const char why[] = "Log lines were dropped: they could not be written in time";
    head(out, LOG_WARN, sink.target, why, sizeof(why) - 1);
    one_field(out, &LOGI("lines", dropped));
    end(out, sink.target);
}

void log_init(const char *target, enum log_level max, bool json, int fd)
{
    log_flush(); /* lines logged before */
    sink.target = target;
    sink.max = max;
    sink.json = json;
    log_sink_start(fd, notice);
}

size_t log_line(char *out, size_t max, enum log_level level, const char *text)
{
    struct timespec t;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    int at = snprintf(out, max, "%s%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ",
                      sink.json ? "{\"timestamp\":\"" : "", tm.tm_year + 1900, tm.tm_mon + 1,
                      tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, t.tv_nsec / 1000);
    at += snprintf(out + at, max - (size_t)at,
                   sink.json ? "\",\"level\":\"%s\",\"fields\":{\"message\":\"" : " %5s ",
                   names[level]);
    if (!sink.json)
        at += snprintf(out + at, max - (size_t)at, "%s: ", sink.target);
    size_t n = (size_t)at, room = max - strlen(sink.target) - sizeof("\"},\"target\":\"\"}\n");
    for (; *text && n < room; text++)
        out[n++] = (unsigned char)*text < ' ' || *text == '"' || *text == '\\' ? '?' : *text;
    n += (size_t)snprintf(out + n, max - n, sink.json ? "\"},\"target\":\"%s\"}\n" : "\n%.0s",
                          sink.target);
    return n;
}

void log_stderr(const char *fmt, ...)
{
    char line[2048];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    n = n < (int)sizeof(line) ? n : (int)sizeof(line) - 1;
    if (n > 0 && poll(&(struct pollfd){STDERR_FILENO, POLLOUT, 0}, 1, LOG_READER_MS) == 1 &&
        write(STDERR_FILENO, line, (size_t)n) < 0) {
        /* no other output for the error */
    }
}

void log_fields(enum log_level level, const char *msg, size_t n, const struct log_field *fields)
{
    struct buf b = BUF_INIT;
    head(&b, level, sink.target, msg, strlen(msg));
    for (size_t i = 0; i < n; i++)
        one_field(&b, &fields[i]);
    tail(&b, sink.target);
}

void log_msg(enum log_level level, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    if (!log_on(level))
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    log_fields(level, line, 0, NULL);
}

void log_relay(const char *source, const char *line, size_t n)
{
    struct buf b = BUF_INIT;
    struct err ignored;
    enum log_level level = LOG_INFO;
    cJSON *j = n && line[0] == '{' ? json_parse(line, n, &ignored) : NULL;
    const cJSON *fields = json_get(j, "fields");
    const char *msg = json_str(fields, "message", NULL);

    if (!msg || !log_level_parse(json_str(j, "level", "info"), &level)) {
        head(&b, level, source, line, n); /* not our format: forward it unchanged */
    } else if (log_on(level)) {
        head(&b, level, source, msg, strlen(msg));
        for (const cJSON *f = fields->child; f; f = f->next) {
            if (!strcmp(f->string, "message"))
                continue;
            if (cJSON_IsString(f))
                one_field(&b, &LOGS(f->string, f->valuestring));
            else if (fabs(f->valuedouble) < 0x1p53 && f->valuedouble == floor(f->valuedouble))
                one_field(&b, &LOGI(f->string, f->valuedouble));
            else
                one_field(&b, &LOGD(f->string, f->valuedouble));
        }
    }
    if (b.len)
        tail(&b, source);
    buf_free(&b);
    cJSON_Delete(j);
}
