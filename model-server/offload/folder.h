/* folder.h - records in a folder, one file each: DIR/FOLDER/KK/KEY.kv, named in hex
 * (FOLDER: kv_layout.folder).
 *
 * A file is written beside its place and renamed, so that a reader sees all of it or nothing, and a
 * writer that is killed leaves a name that is never read. Several processes may share a folder:
 * there is no index but the file system's. The whole folder, records of other processes included,
 * is kept below a limit: the files that were used longest ago go first (a hit sets a file's time).
 * Each process reckons with what it has written itself, and looks at all files again after a
 * sixteenth of the limit.
 *
 * Reads come from one thread and writes from one other. */
#ifndef MODEL_SERVER_OFFLOAD_FOLDER_H
#define MODEL_SERVER_OFFLOAD_FOLDER_H
#include "common/err.h"
#include "model-server/offload/record.h"

struct kv_folder;
/* The folder is made if it is not there. One that cannot be written to is still read. */
struct kv_folder *kv_folder_open(const char *dir, uint64_t limit, const struct kv_layout *l,
                                 struct err *e);
void kv_folder_close(struct kv_folder *f); /* NULL is fine */

/* A record, checked, to be freed; its length in *n. NULL: there is none, or none that can be used.
 */
void *kv_folder_read(struct kv_folder *f, const uint8_t key[KV_KEY], size_t *n);
/* A sealed record of n bytes. Where it cannot be written that is counted, and for ten seconds no
 * write is tried: false. */
bool kv_folder_write(struct kv_folder *f, const void *record, size_t n, const uint8_t key[KV_KEY]);
/* Look at all files, remove what is too much. The writing thread's. */
void kv_folder_trim(struct kv_folder *f);

struct kv_folder_stats { /* counted from the start */
    uint64_t bytes;      /* in the folder, as far as this process knows */
    uint64_t evictions, damaged, foreign, failed_writes, written;
};
struct kv_folder_stats kv_folder_stats(const struct kv_folder *f); /* any thread */
#endif
