/* transfer.h - disaggregated prefill and decode: `kv_transfer_params` of a request. */
#ifndef ROUTER_REQUEST_TRANSFER_H
#define ROUTER_REQUEST_TRANSFER_H
#include <stdbool.h>
#include <stdint.h>

enum { TRANSFER_BLOCKS_MOST = 1 << 20 };

struct kv_transfer {
    bool exports;      /* do_remote_decode: keep the prompt's blocks for another service */
    const char *host;  /* do_remote_prefill: the host that has the prompt's blocks; NULL: none */
    uint32_t port;     /* port of rank 0 there; rank r uses port + r */
    uint32_t n_blocks; /* number of leading prompt blocks available there */
};
#endif
