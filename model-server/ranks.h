/* ranks.h - this rank and the others: how they connect, at which addresses the router reaches
 * them, and the detection of lost ranks while nothing is computed. */
#ifndef MODEL_SERVER_RANKS_H
#define MODEL_SERVER_RANKS_H
#include "model-server/comm/comm.h"
#include <stdbool.h>
#include <stdint.h>

struct ranks_options {
    const char *uds_path, *group; /* group NULL or "": named after uds_path */
    uint32_t rank, world, nodes;
    const char *master_addr; /* with several machines */
    uint32_t master_port, timeout_s;
    const struct cluster *cluster; /* how ranks of several machines authenticate each other */
};

/* One machine: shared memory; several: TCP. A world of one needs neither. */
struct comm *ranks_join(const struct ranks_options *o, struct err *e);

/* The ranks of a pipeline of `stages`: rank r is in stage r / (world / stages). *stage: the ranks
 * of this one's stage, which split its layers; *across: those with its place in each stage, in
 * order. With one stage these are `all` and NULL. Collective; call ranks_part() before `all` is
 * closed. */
int ranks_split(struct comm *all, uint32_t stages, struct comm **stage, struct comm **across,
                struct err *e);
void ranks_part(struct comm *all, struct comm *stage, struct comm *across);

/* The numbers of a rank without other ranks, to measure a model: with several stages `stage` and
 * `across` are as in ranks_split(). No collective may be called. */
struct ranks_alone {
    struct comm all, stage, across;
};
void ranks_stand_alone(struct ranks_alone *a, uint32_t rank, uint32_t world, uint32_t nodes,
                       uint32_t stages);

enum { RANKS_ADDRESS = 300 };
/* "unix://PREFIX-RANK"; for "tcp://host:port" rank r has that port plus r. */
void ranks_local_address(const char *uds_path, uint32_t rank, char out[RANKS_ADDRESS]);
/* Where the router, on the machine of rank 0, reaches `rank`: on other machines TCP port
 * master_port + 1 + rank. */
void ranks_address(const struct ranks_options *o, const struct comm *c, uint32_t rank,
                   char out[RANKS_ADDRESS]);
/* True if this rank is on another machine than rank 0. */
bool ranks_away(const struct ranks_options *o);

/* A thread that checks every half second whether all ranks of all machines live; the launcher of
 * this machine sees only its own. It calls fn(arg, over, why) once when one is gone: `over` if it
 * is a rank of machine 0, which has the router, and closed in order. NULL, without an error, on one
 * machine. */
struct ranks_watch;
struct ranks_watch *ranks_watch(const struct ranks_options *o, struct comm *c,
                                void (*fn)(void *arg, bool over, const char *why), void *arg,
                                struct err *e);
void ranks_watch_end(struct ranks_watch *w); /* NULL: nothing to do */
#endif
