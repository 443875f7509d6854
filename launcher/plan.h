/* plan.h - from the configuration to the command lines of the children. Pure: no process, no file,
 * no clock; what depends on the machine comes in through `struct plan`.
 *
 * A child gets the launcher's own environment, minus what would contradict its command line, plus
 * what is listed here. Secrets travel in the environment, never in argv. */
#ifndef LAUNCHER_PLAN_H
#define LAUNCHER_PLAN_H
#include "common/arena.h"
#include "launcher/flags.h"

struct words { /* NULL-terminated; array and strings live in the plan's arena */
    char **v;
    size_t n, cap;
};

struct command {
    const char *program; /* "model-server": found by spawn.c */
    struct words argv;   /* argv[0] is the program's name */
    struct words env;    /* "NAME=value" */
};

struct plan {
    const struct config *cfg; /* after flags_check() */
    char *const *environ;
    struct arena *arena;  /* owns everything below and the commands */
    const char *uds_path; /* prefix of the shards' sockets */
    const char *group;    /* SHARD_GROUP: names what the ranks of this launch share */
    const char *log_level;
    uint32_t threads; /* per shard */
};

/* Fills uds_path and threads from `cfg`, or from port and `cores` where the user said nothing. */
int plan_init(struct plan *p, const struct config *cfg, char *const *env, struct arena *a,
              uint32_t cores, struct err *e);

/* Address of a rank: "unix:///tmp/text-generation-server-3000-0"; plain path: without the scheme.
 */
const char *plan_socket(const struct plan *p, uint32_t rank);

int plan_download(const struct plan *p, struct command *out, struct err *e);
int plan_shard(const struct plan *p, uint32_t rank, struct command *out, struct err *e);
/* Ourselves again, as `launcher health`: see health.h. */
int plan_probe(const struct plan *p, uint32_t rank, struct command *out, struct err *e);
int plan_router(const struct plan *p, struct command *out, struct err *e);
#endif
