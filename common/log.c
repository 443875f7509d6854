#include "common/log.h"
#include "common/buf.h"
#include "common/json.h"
#include <math.h>
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
    int fd;
} sink = {"", LOG_INFO, false, STDERR_FILENO};

static const char *const names[] = {"ERROR", "WARN", "INFO", "DEBUG", "TRACE", "OFF"};

void log_init(const char *target, enum log_level max, bool json, int fd)
{
    sink.target = target;
    sink.max = max;
    sink.json = json;
    sink.fd = fd;
}

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

/* What a client sent must not look like another field, let alone another line. */
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

static void tail(struct buf *b, const char *target)
{
    if (sink.json)
        buf_fmt(b, "},\"target\":\"%s\"}", target);
    buf_ch(b, '\n');
    if (!b->oom && write(sink.fd, b->p, b->len) < 0) {
        /* nowhere left to complain */
    }
    buf_free(b);
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
        head(&b, level, source, line, n); /* not ours: pass it on as it came */
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
