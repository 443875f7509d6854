/* file.h - format of a file of packed weights: the device's memory image of each matrix.
 *
 *   payload   pieces of the matrices in load order, each aligned to WEIGHT_ALIGN
 *   entries   one struct packed_entry per matrix
 *   sums      a checksum per PACKED_CHUNK bytes of payload (Fletcher 1982, 64-bit lanes)
 *   trailer   the last WEIGHT_ALIGN bytes: magic, version, key, offsets, and two checksums over
 *             entries, sums and trailer
 *
 * Integers are in the machine's byte order. A file with another size or checksum is damaged; one
 * with another key, version or magic is foreign. Neither is used. */
#ifndef MODEL_SERVER_PACKED_FILE_H
#define MODEL_SERVER_PACKED_FILE_H
#include "common/err.h"
#include "common/file/file_stamp.h"
#include "common/thread/pacer.h"
#include "model-server/backend/backend.h"

enum { PACKED_KEY = 32, PACKED_CHUNK = 8 << 20, PACKED_NOTES = 4, PACKED_WORD = 23 };

/* How a quantised part of the checkpoint is stored. */
struct packed_note {
    char format[PACKED_WORD]; /* "": the part was not quantised */
    uint8_t kept;             /* 1: in its own format; 0: dequantised to the type `format` */
};

struct packed_entry {
    uint8_t head[WEIGHT_HEAD];
    uint64_t offset[WEIGHT_PIECES], bytes[WEIGHT_PIECES];
    uint64_t what; /* hash of the parts that it was packed from */
    struct packed_note notes[PACKED_NOTES];
};

/* ---------------------------------------------------------------- reading */

struct packed_file {
    const char *map;
    size_t size; /* bytes of the mapping */
    int fd;      /* while it is mapped */
    struct file_stamp stamp;
    uint64_t payload;
    const struct packed_entry *entries;
    uint32_t n, n_sums;
    const uint64_t *sums;
};
enum packed_verdict { PACKED_FINE, PACKED_MISSING, PACKED_DAMAGED, PACKED_FOREIGN };

/* Maps a file read-only at a huge-page boundary and checks everything but the payload. After
 * PACKED_FINE the caller calls packed_file_close(). */
enum packed_verdict packed_file_open(struct packed_file *f, const char *path,
                                     const uint8_t key[PACKED_KEY]);
/* Verifies the checksum of payload chunk `i` of n_sums, which reads the chunk. Any thread. */
bool packed_file_check(const struct packed_file *f, uint32_t i);
/* False: the file was written or shortened while it is mapped. Any thread. */
bool packed_file_intact(const struct packed_file *f);
struct weight_image packed_file_image(const struct packed_file *f, uint32_t i);
void packed_file_close(struct packed_file *f);

/* ---------------------------------------------------------------- writing */

/* A matrix to write. packed_file_write() sets the entry's offsets and bytes. */
struct packed_item {
    struct packed_entry entry;
    struct weight_piece piece[WEIGHT_PIECES];
};

uint64_t packed_file_bytes(const struct packed_item *items, uint32_t n); /* size of the file */
/* Writes n items to an empty file and syncs it. 0: complete. 1: pacer_stop() was called. -1:
 * ERR_SYSTEM.
 */
int packed_file_write(int fd, struct packed_item *items, uint32_t n, const uint8_t key[PACKED_KEY],
                      struct pacer *pacer, struct err *e);
#endif
