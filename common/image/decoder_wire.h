/* decoder_wire.h - what the two ends of the decoding process say to each other: one packet each.
 *
 * A file and its pixels lie in memory that both have mapped: the file at 0, the pixels at
 * `pixels_at`. The process never learns names or text, and answers with a word only. */
#ifndef COMMON_IMAGE_DECODER_WIRE_H
#define COMMON_IMAGE_DECODER_WIRE_H
#include "common/image/image.h"

/* argv[1] of the process; its further words: the parent's pid, max_pixels, and seconds of
 * processor time: after which it retires, and after which the kernel kills it. */
#define DECODER_WORD "image-decoder-process"
/* Its descriptors. The program's own is closed at once. */
enum { DECODER_CHANNEL = 0, DECODER_MEMORY = 3, DECODER_PROGRAM = 4 };

struct decoder_task {
    uint64_t bytes;     /* of the file */
    uint64_t pixels_at; /* a multiple of the page size */
    uint64_t map_bytes; /* of all */
    struct image_info info;
};

enum decoder_word {
    DECODER_READY = 1,  /* first of all: the process is confined */
    DECODER_UNCONFINED, /* it could not be, and ends */
    DECODER_DONE,
    DECODER_BROKEN,
    DECODER_NO_MEMORY,
};

struct decoder_reply {
    uint32_t word;
    uint32_t retires; /* the process ends after this picture */
    int32_t sys;      /* errno of DECODER_UNCONFINED */
};
#endif
