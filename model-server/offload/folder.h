/* folder.h - the disk tier: KV records in a folder, one file per record.
 *
 * A file is DIR/FOLDER/KK/KEY.kv, in hexadecimal digits (FOLDER: kv_layout.folder). It is written
 * under a temporary name and renamed, so that readers see a complete record or none. Several
 * processes may share a folder: the file system is the only index. The size of the whole folder is
 * bounded: the least recently used files are removed first (a hit updates a file's time). Each
 * process counts its own writes and scans all files again after a sixteenth of the limit.
 *
 * One thread reads, another one writes. */
#ifndef MODEL_SERVER_OFFLOAD_FOLDER_H
#define MODEL_SERVER_OFFLOAD_FOLDER_H
#include "common/err.h"
#include "model-server/offload/record.h"

struct kv_folder;
/* Opens `dir` and creates it if it is missing. `limit`: bytes of all records. `l` is copied. A
 * read-only folder is opened for reading. NULL: ERR_SYSTEM. */
struct kv_folder *kv_folder_open(const char *dir, uint64_t limit, const struct kv_layout *l,
                                 struct err *e);
void kv_folder_close(struct kv_folder *f); /* NULL is fine */

/* Reads the record of `key` and verifies its checksums. Returns memory to be freed and its length
 * in *n. NULL: the record is missing, damaged or foreign, and is then removed; or it cannot be
 * read, and stays. */
void *kv_folder_read(struct kv_folder *f, const uint8_t key[KV_KEY], size_t *n);
/* Writes a sealed record of n bytes. False: the write failed; it is counted, and further writes are
 * skipped for ten seconds. */
bool kv_folder_write(struct kv_folder *f, const void *record, size_t n, const uint8_t key[KV_KEY]);
/* Scans all files and removes the least recently used beyond the limit. Writing thread. */
void kv_folder_trim(struct kv_folder *f);

struct kv_folder_stats { /* since kv_folder_open() */
    uint64_t bytes;      /* of the folder, as of the last scan plus own writes */
    uint64_t evictions, damaged, foreign, failed_writes, written;
};
struct kv_folder_stats kv_folder_stats(const struct kv_folder *f); /* any thread */
#endif
