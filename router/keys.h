/* keys.h - who may ask: the keys of --api-key and --api-key-file. */
#ifndef ROUTER_KEYS_H
#define ROUTER_KEYS_H
#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

struct keys { /* zero: open to all */
    char *text;
    char **v; /* into text */
    uint32_t n;
};

/* `list`: keys with commas between them; `path`: a file with a key a line, where empty lines and
 * those that begin with # do not count. Either may be NULL. A file without any key is an error: it
 * would open the door that was to be closed. */
int keys_load(struct keys *k, const char *list, const char *path, struct err *e);
void keys_free(struct keys *k);
/* Is `given` one of them? All are compared, byte by byte, so that the time tells nothing but the
 * length of `given`. */
bool keys_have(const struct keys *k, const char *given);
#endif
