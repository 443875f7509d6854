/* accept.h - accept4() as gRPC's listeners need it.
 *
 * gRPC 1.51 never accepts on a socket again once accept4() has failed with an error other than
 * EAGAIN: a shard that had no free descriptor for a moment could not be reached until its restart.
 * So this file defines accept4(), which libgrpc then calls in place of the C library's. When no
 * descriptor is free, one in reserve accepts the waiting connections and closes them, and their
 * clients try again. The reserve is global, because accept4() has no argument for it. */
#ifndef COMMON_RPC_ACCEPT_H
#define COMMON_RPC_ACCEPT_H

/* Opens the reserve. Before, accept4() is the system's call and nothing else. Any thread, any
 * number of times. */
void rpc_accept_reserve(void);
#endif
