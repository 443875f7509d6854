/* record.h - serialised form of one KV block: a header, then its parts.
 *
 * Host memory, files and TCP use the same bytes. The header has the identity (model, format of the
 * cache, rank and world size) and the key (the router's hash chain over the position keys of the
 * prefix). A reader accepts a record only if both match and all checksums hold. Integers are little
 * endian. Pure functions. */
#ifndef MODEL_SERVER_OFFLOAD_RECORD_H
#define MODEL_SERVER_OFFLOAD_RECORD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KV_KEY = 32, KV_IDENTITY = 32, KV_RECORD_HEAD = 128 };
enum kv_part { KV_PART_BLOCK, KV_PART_WINDOW, KV_PART_STATE, KV_N_PARTS };

struct kv_layout { /* of one rank's caches */
    uint8_t identity[KV_IDENTITY];
    uint8_t folder[KV_IDENTITY]; /* subfolder of the disk tier: differs if weights were replaced in
                                    place, which the identity does not cover */
    uint64_t bytes[KV_N_PARTS];  /* of a block, a window block, a state cell; 0: no such cache */
};

/* Bytes of a record with these parts (bit i: enum kv_part i), including the header. */
size_t kv_record_bytes(const struct kv_layout *l, unsigned parts);
/* Address of a part that the record has. */
void *kv_record_part(const struct kv_layout *l, void *record, enum kv_part part);
unsigned kv_record_parts(const void *record);
/* Writes a header without checksums. The caller then fills the parts. */
void kv_record_begin(const struct kv_layout *l, void *record, const uint8_t key[KV_KEY],
                     unsigned parts);
/* Computes the checksums of a record whose parts are filled. */
void kv_record_seal(const struct kv_layout *l, void *record);

enum kv_verdict { KV_FINE, KV_FOREIGN, KV_DAMAGED };
/* Checks the first KV_RECORD_HEAD bytes of a record of n bytes: identity, key, size and the
 * header's checksum. */
enum kv_verdict kv_record_check_head(const struct kv_layout *l, const void *head, size_t n,
                                     const uint8_t key[KV_KEY]);
/* Checks the parts' checksums of a record whose header was checked. */
enum kv_verdict kv_record_check(const struct kv_layout *l, const void *record);
#endif
