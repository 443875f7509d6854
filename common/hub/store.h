/* store.h - writes to the hub's cache, in the layout of huggingface_hub:
 *
 *   <root>/models--org--name/blobs/<etag>                      the bytes; first <etag>.incomplete
 *   <root>/models--org--name/snapshots/<commit>/<file>         -> ../../blobs/<etag>
 *   <root>/models--org--name/refs/<revision>                   the commit
 *   <root>/.locks/models--org--name/<etag>.lock                flock(2) while a blob is written
 *
 * Links, refs and blobs are created by rename: a reader sees a complete file or none. */
#ifndef COMMON_HUB_STORE_H
#define COMMON_HUB_STORE_H
#include "common/err.h"
#include "common/hub/names.h"
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

enum { STORE_PATH_MAX = PATH_MAX + HUB_FOLDER_MAX + 1024 };

struct store {
    char root[PATH_MAX], folder[HUB_FOLDER_MAX], commit[HUB_COMMIT_MAX];
};

/* Creates the folders for one commit of a repository. ERR_SYSTEM: not writable. */
int store_open(struct store *s, const char *root, const char *id, const char *commit,
               struct err *e);
void store_blob(const struct store *s, const char *etag, const char *suffix,
                char out[STORE_PATH_MAX]);
void store_snapshot(const struct store *s, char out[STORE_PATH_MAX]);
bool store_has_blob(const struct store *s, const char *etag);

/* Locks a blob: returns a descriptor to close; -1: failed; -2: locked by another process. On file
 * systems without locks the file is not locked. */
int store_lock(const struct store *s, const char *etag, struct err *e);
/* Links snapshots/<commit>/<name> to the blob; `name` may be in a subfolder. */
int store_link(const struct store *s, const char *name, const char *etag, struct err *e);
/* Writes refs/<revision>; not for a commit. */
int store_ref(const struct store *s, const char *revision, struct err *e);
int64_t store_free_bytes(const struct store *s); /* -1: unknown */
#endif
