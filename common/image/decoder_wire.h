/* decoder_wire.h - protocol between the router and the decoding process: one packet in each
 * direction.
 *
 * The file and its pixels are in shared memory: the file at offset 0, the pixels at `pixels_at`.
 * The process receives no names or text, and answers with a status only. */
#ifndef COMMON_IMAGE_DECODER_WIRE_H
#define COMMON_IMAGE_DECODER_WIRE_H
#include "common/image/image.h"

/* argv[1] of the process. Further arguments: the parent's pid, max_pixels, and CPU seconds after
 * which it retires, and after which the kernel kills it. */
#define DECODER_WORD "image-decoder-process"
/* Its descriptors. That of the program is closed at once. */
enum { DECODER_CHANNEL = 0, DECODER_MEMORY = 3, DECODER_PROGRAM = 4 };

struct decoder_task {
    uint64_t bytes;     /* size of the file */
    uint64_t pixels_at; /* a multiple of the page size */
    uint64_t map_bytes; /* size of the mapping */
    struct image_info info;
};

enum decoder_word {
    DECODER_READY = 1,  /* first packet: the process is sandboxed */
    DECODER_UNCONFINED, /* sandboxing failed, and the process exits */
    DECODER_DONE,
    DECODER_BROKEN,
    DECODER_NO_MEMORY,
};

struct decoder_reply {
    uint32_t word;
    uint32_t retires; /* the process exits after this image */
    int32_t sys;      /* errno of DECODER_UNCONFINED */
};
#endif
