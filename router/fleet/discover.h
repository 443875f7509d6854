/* discover.h - finds replicas that are not named by flags.
 *
 *   dns:NAME:PORT   every address of NAME, such as a headless service
 *   file:PATH       a file with one address per line: tcp://HOST:PORT, HOST:PORT, unix:PATH, /PATH;
 *                   empty lines and text after # are ignored */
#ifndef ROUTER_FLEET_DISCOVER_H
#define ROUTER_FLEET_DISCOVER_H
#include "common/net/cluster.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TARGETS_MOST = 64, TARGET_BYTES = 256, TARGETS_FILE_BYTES = 65536 };

struct targets {
    uint32_t n;
    char v[TARGETS_MOST][TARGET_BYTES]; /* "tcp://10.0.0.1:8000", "unix:/run/shard-0" */
};

/* What the last two look-ups found. One alone neither adds nor removes an address: a file may be
 * read while it is written, and an answer of DNS may be partial. Zero-initialise. */
struct sightings {
    bool any; /* false: no look-up yet */
    struct targets last, before;
};
void sightings_add(struct sightings *s, const struct targets *found);
/* Was it in both look-ups? After the first one: in that. */
bool sightings_confirm(const struct sightings *s, const char *target);
/* Was it in neither? */
bool sightings_deny(const struct sightings *s, const char *target);

/* Is `where` one of the forms above? ERR_VALIDATION if not. */
int discover_check(const char *where, struct err *e);
bool discover_is_file(const char *where); /* reading it does not block */
/* Lists the current addresses, without duplicates. Omits addresses that connections of `kind` must
 * not use, and invalid lines; then returns 1 and `e` names the last such. -1: it could not be read,
 * and the list is unknown. Blocks during a DNS look-up. */
int discover(const char *where, enum cluster_kind kind, struct targets *out, struct err *e);
/* Adds one address, in any form of a line or as an absolute path. 1: omitted, and `e` says why. */
int targets_add(struct targets *t, const char *address, enum cluster_kind kind, struct err *e);
/* As discover(), for the text of a file. */
int discover_lines(const char *text, size_t n, enum cluster_kind kind, struct targets *out,
                   struct err *e);
#endif
