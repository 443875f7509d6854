/* discover.h - where replicas are found that no flag names.
 *
 *   dns:NAME:PORT   every address that NAME has: a headless service
 *   file:PATH       a file with one address a line: tcp://HOST:PORT, HOST:PORT, unix:PATH, /PATH;
 *                   empty lines and what follows a # do not count */
#ifndef ROUTER_FLEET_DISCOVER_H
#define ROUTER_FLEET_DISCOVER_H
#include "common/cluster.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TARGETS_MOST = 64, TARGET_BYTES = 256, TARGETS_FILE_BYTES = 65536 };

struct targets {
    uint32_t n;
    char v[TARGETS_MOST][TARGET_BYTES]; /* "tcp://10.0.0.1:8000", "unix:/run/shard-0" */
};

/* Is it one of the forms above? ERR_VALIDATION. */
int discover_check(const char *where, struct err *e);
bool discover_is_file(const char *where); /* reading it costs nothing */
/* What is there now, each once. Addresses that connections of `kind` may not use are left out, as
 * are lines that are none: `e` names the last such, and the answer is 1. -1: it could not be
 * read, and nothing is known. Blocks while a name is looked up. */
int discover(const char *where, enum cluster_kind kind, struct targets *out, struct err *e);
/* One more, in any of a line's forms, or an absolute path. 1: left out, and `e` says why. */
int targets_add(struct targets *t, const char *address, enum cluster_kind kind, struct err *e);
/* The same for the text of a file. */
int discover_lines(const char *text, size_t n, enum cluster_kind kind, struct targets *out,
                   struct err *e);
#endif
