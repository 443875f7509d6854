#include "launcher/progress.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { EVERY_MS = 200, WIDTH = 79, BAR = 30 };

int progress_init(struct progress *p, uint32_t first, uint32_t n, struct err *e)
{
    *p = (struct progress){.fd = -1, .first = first, .n = n, .shown = isatty(STDERR_FILENO)};
    return (p->board = startup_board_new(&p->fd, e)) ? 0 : -1;
}

void progress_bar(const struct startup_view *v, unsigned width, char *out, size_t max)
{
    char bar[BAR + 1], words[96];
    const int full = v->percent < 0 ? 0 : (int)(v->percent * BAR / 100);
    memset(bar, ' ', BAR);
    memset(bar, '#', (size_t)(full < BAR ? full : BAR));
    bar[BAR] = 0;
    startup_words(v, words, sizeof(words));
    snprintf(out, max < width + 1 ? max : width + 1, "loading [%s] %s", bar, words);
}

static void put(const char *s, size_t n)
{
    if (write(STDERR_FILENO, s, n) < 0) {
        /* the terminal is gone: ignore the error */
    }
}

void progress_show(struct progress *p, int64_t now)
{
    char bar[WIDTH + 1], line[WIDTH + 16];
    if (!p->shown || now < p->next)
        return;
    p->next = now + EVERY_MS;
    const struct startup_view v = startup_look(p->board, p->first, p->n);
    progress_bar(&v, WIDTH, bar, sizeof(bar));
    int n = snprintf(line, sizeof(line), "\x1b[K%s\r", bar);
    put(line, (size_t)n);
    p->on_line = true;
}

void progress_end(struct progress *p)
{
    static const char clear[] = "\x1b[K";
    if (p->on_line)
        put(clear, sizeof(clear) - 1);
    p->on_line = false;
}

void progress_free(struct progress *p)
{
    progress_end(p);
    if (p->board && p->fd >= 0)
        close(p->fd);
    startup_board_free(p->board);
}
