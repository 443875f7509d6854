/* keys.h - API keys: --api-key and --api-key-file. */
#ifndef ROUTER_HTTP_KEYS_H
#define ROUTER_HTTP_KEYS_H
#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

enum { KEY_NAME_MAX = 64 };
struct key {
    const char *value, *name; /* point into keys.text; name NULL: none was given */
};
struct keys { /* zeroed: no authentication */
    char *text;
    struct key *v;
    uint32_t n;
};

/* Loads keys. `list`: separated by commas. `path`: a file with one key per line; empty lines and
 * lines that begin with # are ignored; text after a blank names the holder. Either may be NULL
 * or empty. A list or a file without keys is an error, because it would disable
 * authentication. */
int keys_load(struct keys *k, const char *list, const char *path, struct err *e);
void keys_free(struct keys *k);
/* True if `given` is one of the keys. Compares all of them in constant time, except for the length
 * of `given`. `name`: the holder's name for logs, or "key-N" for the N-th key. */
bool keys_have(const struct keys *k, const char *given, char name[KEY_NAME_MAX]);
#endif
