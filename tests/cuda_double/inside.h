/* inside.h - shared by the files of the double: the running block. */
#ifndef TESTS_CUDA_DOUBLE_INSIDE_H
#define TESTS_CUDA_DOUBLE_INSIDE_H
#include "tests/cuda_double/cuda_runtime.h"

[[noreturn]] void double_die(const char *why);
/* The running thread continues when *gate has changed. */
void double_yield_until(const uint64_t *gate);
/* Shared memory has its own addresses, the block's from 384 on: the hardware only guarantees
 * 128-byte alignment. NULL: not all of [address, address + n) belongs to the block. */
uint32_t double_shared_address(const void *p);
char *double_shared_at(uint32_t address, size_t n);
uint32_t double_own_block(void); /* of the cluster */
char *double_shared_of(uint32_t block, uint32_t address, size_t n);
uint32_t double_random(void); /* order of threads; 0 if not shuffled */

/* An error that stays: what waits, and what is enqueued, fails. */
bool double_lost(void);

extern struct cuda_double machine; /* its properties, and counts of events */

/* block.cc: runs a grid from its first block to its last, `blocks` to a cluster; true if the
 * device can run it. */
size_t double_most_shared(void); /* of a block, in bytes */
bool double_grid_fits(dim3 grid, uint32_t blocks, dim3 threads, size_t smem);
void double_run_grid(dim3 grid, uint32_t blocks, dim3 threads, size_t smem,
                     std::function<void()> &body);

/* memory.cc: allows or forbids access to device memory. */
void double_open_memory(bool open);
bool double_on_device(const void *p);
/* Kernels with programmatic dependent launch are a chain, in which one may start before those
 * before it have done anything. A chain begins after a copy, a graph's start or a kernel that waits
 * for everything. With machine.early, what a thread copies asynchronously before depend_wait() is
 * what was there when the chain began. */
void double_chain_begins(void);
void double_chain_goes_on(void);               /* a kernel runs */
const char *double_earlier(const char *p);     /* device memory: where its earlier contents are */
bool double_is_pinned(char *begin, char *end); /* all of it, in one piece */

/* stream.cc: freeing waits for this. */
void double_run_all_streams(void);

/* hopper.cc: a block begins, ends; no thread can run: executes a pending late event, if any. */
void hopper_begin(void);
void hopper_end(void);
bool hopper_late(void);
#endif
