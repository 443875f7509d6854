/* plan.h - from the configuration to the command lines of the children. Pure: no process, no file,
 * no clock; what depends on the machine comes in through `struct plan`.
 *
 * A child gets the launcher's own environment, minus what would contradict its command line, plus
 * what is listed here. Secrets travel in the environment, never in argv. */
#ifndef LAUNCHER_PLAN_H
#define LAUNCHER_PLAN_H
#include "common/arena.h"
#include "launcher/flags.h"
#include "launcher/share.h"
#include <sched.h>

struct words { /* NULL-terminated; array and strings live in the plan's arena */
    char **v;
    size_t n, cap;
};

struct command {
    const char *program;    /* "model-server": found by spawn.c */
    struct words argv;      /* argv[0] is the program's name */
    struct words env;       /* "NAME=value" */
    const cpu_set_t *cores; /* that it may use; NULL: ours */
    int keep_fds[3]; /* descriptors that the child inherits; 0: none; [2]: of its heartbeats */
};

struct source { /* what must be on this machine: a folder, or a repository of the hub */
    const char *id, *revision;
};

struct plan {
    const struct config *cfg; /* after flags_check() */
    char *const *environ;
    struct arena *arena;  /* owns everything below and the commands */
    const char *uds_path; /* prefix of the shards' sockets */
    const char *group;    /* SHARD_GROUP: names what the ranks of this launch share */
    const char *log_level;
    struct source *sources; /* [0] the model, then the draft model and the adapters */
    uint32_t n_sources;
    uint32_t threads;           /* per shard */
    uint32_t draft_threads;     /* of the draft model */
    const char *draft_uds_path; /* as uds_path and group, for it */
    const char *draft_group;
    uint32_t first, n;      /* the ranks of this machine: [first, first + n) */
    const cpu_set_t *cores; /* of the shards; NULL: ours */
    const char *devices;    /* of the shards, for CUDA_VISIBLE_DEVICES; NULL: ours */
    int startup_fd;         /* common/startup.h; 0: none */
    int router_fd;          /* the router's end of the channel to us (groups.h); 0: none */
};

/* Fills uds_path, sources, threads and the ranks from `cfg`, or from port and `cores` where the
 * user said nothing. */
int plan_init(struct plan *p, const struct config *cfg, char *const *env, struct arena *a,
              uint32_t cores, struct err *e);

/* *out is the same launch for another model: `cfg` becomes base's without what belongs to that
 * model alone (its revision, rope, adapters and weights cache), and is the caller's to change. cfg,
 * `a`, which holds the commands, and the strings live as long as *out does. */
void plan_other(const struct plan *base, const char *model_id, const char *uds_path,
                const char *group, struct config *cfg, struct arena *a, struct plan *out);

/* *out is the same launch for the k-th replica of the same model, with its part of this machine,
 * which lives as long as *out does. As plan_other() otherwise. */
void plan_replica(const struct plan *base, uint32_t k, const struct share *part, struct config *cfg,
                  struct arena *a, struct plan *out);

/* Address of a rank: "unix:///tmp/text-generation-server-3000-0"; plain path: without the scheme.
 */
const char *plan_socket(const struct plan *p, uint32_t rank);

/* Whether shards that die may be started again while the router waits. */
bool plan_restarts(const struct plan *p);

/* For sources[i]; see model-server download-weights. */
int plan_download(const struct plan *p, uint32_t i, struct command *out, struct err *e);
int plan_shard(const struct plan *p, uint32_t rank, struct command *out, struct err *e);
/* The same as a question: what the rank would take. One JSON object on stdout. */
int plan_dry_run(const struct plan *p, uint32_t rank, struct command *out, struct err *e);
/* Ourselves again, as `launcher health`: see health.h. */
int plan_probe(const struct plan *p, uint32_t rank, struct command *out, struct err *e);
int plan_router(const struct plan *p, struct command *out, struct err *e);
#endif
