#include "router/api/service/audit.h"
#include <ctype.h>
#include <dirent.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { KINDS = 16, NAME = 32 };

struct audit_kind {
    char name[NAME];
    uint32_t n;
};

/* "socket:[123]" is a socket, "anon_inode:[eventpoll]" an eventpoll, "/dev/null" a file. */
static void kind_of(const char *target, char name[NAME])
{
    const char *from = strncmp(target, "anon_inode:", 11) ? target : target + 11;
    size_t n = 0;
    from += *from == '[';
    if (*from == '/')
        from = "file";
    while (n < NAME - 1 && (isalnum((unsigned char)from[n]) || from[n] == '_'))
        n++;
    snprintf(name, NAME, "%.*s", (int)n, from);
}

static void count(struct audit_kind *kinds, const char *name)
{
    for (int i = 0; i < KINDS; i++) {
        if (!kinds[i].n)
            snprintf(kinds[i].name, NAME, "%s", i < KINDS - 1 ? name : "other");
        if (!strcmp(kinds[i].name, name) || i == KINDS - 1) {
            kinds[i].n++;
            return;
        }
    }
}

void audit_memory(struct buf *out)
{
    const struct mallinfo2 m = mallinfo2();
    buf_fmt(out, "{\"allocated\":%zu,\"free\":%zu}", m.uordblks + m.hblkhd, m.fordblks);
}

void audit_descriptors(struct buf *out)
{
    struct audit_kind kinds[KINDS] = {0};
    struct rlimit limit = {0};
    uint32_t open = 0;
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *d;
    while (dir && (d = readdir(dir))) { // NOLINT(concurrency-mt-unsafe): own stream
        char target[256], name[NAME];
        ssize_t n =
            *d->d_name == '.' ? -1 : readlinkat(dirfd(dir), d->d_name, target, sizeof(target) - 1);
        if (n < 0 || atoi(d->d_name) == dirfd(dir))
            continue;
        target[n] = 0;
        kind_of(target, name);
        count(kinds, name);
        open++;
    }
    if (dir)
        closedir(dir);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    buf_fmt(out, "{\"open\":%u,\"limit\":%llu,\"kinds\":{", open,
            (unsigned long long)limit.rlim_cur);
    for (int i = 0; i < KINDS && kinds[i].n; i++)
        buf_fmt(out, "%s\"%s\":%u", i ? "," : "", kinds[i].name, kinds[i].n);
    buf_str(out, "}}");
}
