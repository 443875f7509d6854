/* keys.h - who may ask: the keys of --api-key and --api-key-file. */
#ifndef ROUTER_HTTP_KEYS_H
#define ROUTER_HTTP_KEYS_H
#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

enum { KEY_NAME_MAX = 64 };
struct key {
    const char *value, *name; /* into keys.text; name NULL: none was given */
};
struct keys { /* zero: open to all */
    char *text;
    struct key *v;
    uint32_t n;
};

/* `list`: keys with commas between them; `path`: a file with a key a line, where empty lines and
 * those that begin with # do not count; what follows a key after a blank names its holder. Either
 * may be NULL. A file without any key is an error: it would open a server that was to be closed. */
int keys_load(struct keys *k, const char *list, const char *path, struct err *e);
void keys_free(struct keys *k);
/* Is `given` one of them? All are compared, byte by byte, so that the time tells nothing but the
 * length of `given`. `name`: what logs may call its holder; "key-N" for the N-th where the file
 * does not say. */
bool keys_have(const struct keys *k, const char *given, char name[KEY_NAME_MAX]);
#endif
