#include "launcher/process/relog.h"
#include "common/json/json.h"
#include <stdio.h>
#include <string.h>

static const char cut[] = " [cut]";

static void flush(struct relog *r, relog_fn *fn, void *arg)
{
    size_t n = r->n;
    if (n && r->line[n - 1] == '\r')
        n--;
    if (n)
        fn(arg, r->line, n);
    r->n = 0;
}

void relog_feed(struct relog *r, const char *bytes, size_t n, relog_fn *fn, void *arg)
{
    while (n) {
        const char *end = memchr(bytes, '\n', n);
        size_t piece = end ? (size_t)(end - bytes) : n;
        size_t room = sizeof(r->line) - sizeof(cut) - r->n;
        size_t kept = r->skipping ? 0 : piece < room ? piece : room;

        memcpy(r->line + r->n, bytes, kept);
        r->n += kept;
        if (kept < piece && !r->skipping) {
            memcpy(r->line + r->n, cut, sizeof(cut) - 1);
            r->n += sizeof(cut) - 1;
            flush(r, fn, arg);
            r->skipping = true;
        }
        if (end) {
            flush(r, fn, arg);
            r->skipping = false;
            piece++;
        }
        bytes += piece;
        n -= piece;
    }
}

void relog_end(struct relog *r, relog_fn *fn, void *arg)
{
    flush(r, fn, arg);
    r->skipping = false;
}

static void keep(char *at, const char *s, size_t n)
{
    snprintf(at, RELOG_LAST_MAX, "%.*s", (int)(n < RELOG_LAST_MAX ? n : RELOG_LAST_MAX - 1), s);
}

void relog_note(struct relog_last *l, const char *line, size_t n)
{
    struct err ignored;
    cJSON *j = line[0] == '{' ? json_parse(line, n, &ignored) : NULL;
    const char *msg = json_str(json_get(j, "fields"), "message", NULL);
    if (!msg)
        keep(l->other, line, n);
    else if (!strcmp(json_str(j, "level", ""), "ERROR"))
        keep(l->error, msg, strlen(msg));
    cJSON_Delete(j);
}

const char *relog_words(const struct relog_last *l) { return l->error[0] ? l->error : l->other; }
