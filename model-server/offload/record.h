/* record.h - one block of a prefix outside of the caches: a head, then its parts one behind the
 * other. The same bytes lie in memory, in a file and on a wire.
 *
 * A record says whose it is: the identity (model, format of the cache, rank of how many) and the
 * key (a hash chain over the position keys of the prefix, the router's). A reader takes it only if
 * both agree and the checksum of every byte does. Integers are little endian. Pure. */
#ifndef MODEL_SERVER_OFFLOAD_RECORD_H
#define MODEL_SERVER_OFFLOAD_RECORD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KV_KEY = 32, KV_IDENTITY = 32, KV_RECORD_HEAD = 128 };
enum kv_part { KV_PART_BLOCK, KV_PART_WINDOW, KV_PART_STATE, KV_N_PARTS };

struct kv_layout { /* of one rank's caches */
    uint8_t identity[KV_IDENTITY];
    uint8_t folder[KV_IDENTITY]; /* names the records in a folder: a change of weights in place that
                                    the identity does not see gets another one */
    uint64_t bytes[KV_N_PARTS];  /* of a block, a block of windows, a cell; 0: no such cache */
};

/* Bytes of a record with these parts (bit i: enum kv_part i), head included. */
size_t kv_record_bytes(const struct kv_layout *l, unsigned parts);
/* Where a part lies that the record has. */
void *kv_record_part(const struct kv_layout *l, void *record, enum kv_part part);
unsigned kv_record_parts(const void *record);
/* A head without checksums; the parts are the caller's to fill. */
void kv_record_begin(const struct kv_layout *l, void *record, const uint8_t key[KV_KEY],
                     unsigned parts);
void kv_record_seal(const struct kv_layout *l, void *record); /* its parts are there */

enum kv_verdict { KV_FINE, KV_FOREIGN, KV_DAMAGED };
/* The first KV_RECORD_HEAD bytes of a record of n bytes in all: could it be the one that is looked
 * for? */
enum kv_verdict kv_record_check_head(const struct kv_layout *l, const void *head, size_t n,
                                     const uint8_t key[KV_KEY]);
/* All of it, behind that. */
enum kv_verdict kv_record_check(const struct kv_layout *l, const void *record);
/* Four chains of multiplications over 64-bit words: every change of one word changes it. */
uint64_t kv_record_sum(const void *p, size_t n);
#endif
