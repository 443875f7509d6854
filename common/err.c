#include "common/err.h"
#include "common/utf8.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int status;
    const char *wire;
} kinds[] = {
#define X(kind, status, wire) [kind] = {status, wire},
    ERR_KINDS(X)
#undef X
};

int err_status(enum err_kind k) { return kinds[k].status; }
const char *err_wire(enum err_kind k) { return kinds[k].wire; }

/* Messages quote foreign text and truncate it anywhere: keeps a message one line of valid UTF-8. */
static void one_line(struct err *e)
{
    size_t len;
    for (char *p = e->msg, *end = p + strlen(p); p < end; p += len) {
        len = utf8_valid_len(p, (size_t)(end - p));
        if (!len)
            *p = '?', len = 1;
        else if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = ' ';
    }
}

int(err_set)(struct err *e, enum err_kind k, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    va_end(ap);
    one_line(e);
    e->kind = k;
    e->sys = 0;
    e->param[0] = 0;
    return -1;
}

int(err_sys)(struct err *e, const char *fmt, ...)
{
    int saved = errno;
    char why[64];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof(e->msg))
        snprintf(e->msg + n, sizeof(e->msg) - (size_t)n, ": %s",
                 strerror_r(saved, why, sizeof(why)));
    one_line(e);
    e->kind = ERR_SYSTEM;
    e->sys = saved;
    e->param[0] = 0;
    return -1;
}

int(err_wrap)(struct err *e, const char *fmt, ...)
{
    char inner[sizeof(e->msg)];
    memcpy(inner, e->msg, sizeof(inner));
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n + 3 < sizeof(e->msg))
        snprintf(e->msg + n, sizeof(e->msg) - (size_t)n, ": %.*s",
                 (int)(sizeof(e->msg) - (size_t)n) - 3, inner);
    one_line(e);
    return -1;
}

void err_param(struct err *e, const char *path)
{
    snprintf(e->param, sizeof(e->param), "%s", path);
}

int(err_nomem)(struct err *e)
{
    err_set(e, ERR_SYSTEM, "out of memory");
    e->sys = ENOMEM;
    return -1;
}
