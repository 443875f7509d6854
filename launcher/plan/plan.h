/* plan.h - derives the children's command lines from the configuration. Pure: no process, no file,
 * no clock; the properties of the machine are in `struct plan`.
 *
 * A child inherits the launcher's environment, except variables that would contradict its command
 * line, plus those listed here. Secrets are passed in the environment, never in argv. */
#ifndef LAUNCHER_PLAN_H
#define LAUNCHER_PLAN_H
#include "common/arena.h"
#include "launcher/options/flags.h"
#include "launcher/plan/share.h"
#include <sched.h>

struct words { /* NULL-terminated; array and strings are owned by the plan's arena */
    char **v;
    size_t n, cap;
};

struct command {
    const char *program;    /* "model-server": located by spawn.c */
    struct words argv;      /* argv[0] is the program's name */
    struct words env;       /* "NAME=value" */
    const cpu_set_t *cores; /* allowed cores; NULL: the launcher's */
    int keep_fds[3];        /* inherited descriptors; 0: none; [2]: for heartbeats */
};

struct source { /* needed on this machine: a folder, or a repository of the hub */
    const char *id, *revision;
    const char *flag; /* which names it; NULL: the model itself */
};

struct plan {
    const struct config *cfg; /* after flags_check() */
    char *const *environ;
    struct arena *arena;  /* owns everything below, and the commands */
    const char *uds_path; /* path prefix of the shards' sockets */
    const char *group;    /* SHARD_GROUP: names shared resources of this launch's ranks */
    const char *log_level;
    struct source *sources; /* [0] the model, then draft model and adapters */
    uint32_t n_sources;
    uint32_t threads;           /* per shard */
    uint32_t draft_threads;     /* of the draft model */
    const char *draft_uds_path; /* as uds_path and group, for the draft model */
    const char *draft_group;
    uint32_t first, n;      /* ranks on this machine: [first, first + n) */
    const cpu_set_t *cores; /* cores of the shards; NULL: the launcher's */
    /* devices of the shards, for CUDA_VISIBLE_DEVICES; NULL: the launcher's */
    const char *devices;
    int startup_fd; /* common/process/startup.h; 0: none */
    /* the router's end of the channel to the launcher (groups.h); 0: none */
    int router_fd;
};

/* Sets uds_path, sources, threads and ranks from `cfg`, or from the port and `cores` (number of
 * cores) where the user set nothing. `group`: unique to this launch on this machine; it must live
 * as long as the plan, and the draft model's is made from it. */
int plan_init(struct plan *p, const struct config *cfg, const char *group, char *const *env,
              struct arena *a, uint32_t cores, struct err *e);

/* *out is a plan for another model. `cfg` becomes a copy of base's without model-specific options
 * (revision, rope, adapters, weights cache), and the caller may change it. `cfg`, `a` (which owns
 * the commands) and the strings must live as long as *out. */
void plan_other(const struct plan *base, const char *model_id, const char *uds_path,
                const char *group, struct config *cfg, struct arena *a, struct plan *out);

/* *out is a plan for the k-th replica of the same model, with its share `part` of this machine.
 * `part` must live as long as *out. Otherwise as plan_other(). */
void plan_replica(const struct plan *base, uint32_t k, const struct share *part, struct config *cfg,
                  struct arena *a, struct plan *out);

/* Path of a rank's socket: "/tmp/text-generation-server-3000-0". Of the plan's arena; NULL: no
 * memory. */
const char *plan_socket(const struct plan *p, uint32_t rank);

/* Address of the first shard on this machine of a launcher with these options, as a gRPC target:
 * "unix:/tmp/text-generation-server-3000-0". flags_check() is not needed before. Of the arena;
 * NULL: no memory. */
const char *plan_first_address(const struct config *cfg, struct arena *a);

/* May crashed shards be restarted while the router waits? */
bool plan_restarts(const struct plan *p);

/* Downloads sources[i]; see model-server download-weights. */
int plan_download(const struct plan *p, uint32_t i, struct command *out, struct err *e);
int plan_shard(const struct plan *p, uint32_t rank, struct command *out, struct err *e);
/* Of a service that has served: it goes on without adapters whose files are gone. */
int plan_shard_again(const struct plan *p, uint32_t rank, struct command *out, struct err *e);
/* Asks what the rank would need: one JSON object on stdout. */
int plan_dry_run(const struct plan *p, uint32_t rank, struct command *out, struct err *e);
/* The launcher itself as `launcher health`: see health.h. */
int plan_probe(const struct plan *p, uint32_t rank, struct command *out, struct err *e);
int plan_router(const struct plan *p, struct command *out, struct err *e);
#endif
