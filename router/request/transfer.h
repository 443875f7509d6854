/* transfer.h - prefill and decode apart: what `kv_transfer_params` of a request ask for. */
#ifndef ROUTER_REQUEST_TRANSFER_H
#define ROUTER_REQUEST_TRANSFER_H
#include <stdbool.h>
#include <stdint.h>

enum { TRANSFER_BLOCKS_MOST = 1 << 20 };

struct kv_transfer {
    bool exports;      /* do_remote_decode: the prompt's blocks are kept for another service */
    const char *host;  /* do_remote_prefill: where the prompt's blocks are; NULL: nowhere */
    uint32_t port;     /* of rank 0 there; rank r's is port + r */
    uint32_t n_blocks; /* of the prompt, the first ones, that are there */
};
#endif
