/* file.h - a file of packed weights: the memory of matrices as a device multiplies with it.
 *
 *   payload   the pieces of the matrices, in the order of the load, each from a multiple of
 *             WEIGHT_ALIGN on
 *   entries   a struct packed_entry for each matrix
 *   sums      of each PACKED_CHUNK bytes of the payload, Fletcher's (1982) in lanes of 64 bits
 *   trailer   the last WEIGHT_ALIGN bytes: magic, version, key, where all that is, and two sums of
 *             entries, sums and trailer
 *
 * Numbers are as the machine has them. A file that is shorter, longer or different from what was
 * written is damaged; one with another key, version or magic is foreign. Neither is used. */
#ifndef MODEL_SERVER_PACKED_FILE_H
#define MODEL_SERVER_PACKED_FILE_H
#include "common/err.h"
#include "model-server/backend/backend.h"
#include <stdatomic.h>

enum { PACKED_KEY = 32, PACKED_CHUNK = 8 << 20, PACKED_NOTES = 4, PACKED_WORD = 23 };

/* What became of a part that the checkpoint has packed. */
struct packed_note {
    char format[PACKED_WORD]; /* "": it was plain */
    uint8_t kept;             /* else widened to the type that `format` names */
};

struct packed_entry {
    uint8_t head[WEIGHT_HEAD];
    uint64_t offset[WEIGHT_PIECES], bytes[WEIGHT_PIECES];
    uint64_t what; /* the parts that it was packed of, as a hash */
    struct packed_note notes[PACKED_NOTES];
};

/* ---------------------------------------------------------------- reading */

struct packed_file {
    const char *map;
    size_t size; /* of the mapping */
    uint64_t payload;
    const struct packed_entry *entries;
    uint32_t n, n_sums;
    const uint64_t *sums;
};
enum packed_verdict { PACKED_FINE, PACKED_MISSING, PACKED_DAMAGED, PACKED_FOREIGN };

/* Maps it read-only, on a boundary of huge pages, and checks all but the payload. Only FINE needs a
 * close. */
enum packed_verdict packed_file_open(struct packed_file *f, const char *path,
                                     const uint8_t key[PACKED_KEY]);
/* Whether chunk `i` of n_sums is what was written; reads all of it. Any thread. */
bool packed_file_check(const struct packed_file *f, uint32_t i);
struct weight_image packed_file_image(const struct packed_file *f, uint32_t i);
void packed_file_close(struct packed_file *f);

/* ---------------------------------------------------------------- writing */

/* A matrix to be written. Offsets and bytes of the entry are set by packed_file_write(). */
struct packed_item {
    struct packed_entry entry;
    struct weight_piece piece[WEIGHT_PIECES];
};

uint64_t packed_file_bytes(const struct packed_item *items, uint32_t n);
/* To an empty file, all on the disk when it returns 0. 1: *stop was set, which is looked at now and
 * then. -1: ERR_SYSTEM. The items are read until then. */
int packed_file_write(int fd, struct packed_item *items, uint32_t n, const uint8_t key[PACKED_KEY],
                      const atomic_bool *stop, struct err *e);
#endif
