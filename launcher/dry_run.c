#include "launcher/dry_run.h"
#include "common/buf.h"
#include "common/json/json.h"
#include "common/process/exit_code.h"
#include "launcher/draft.h"
#include "launcher/plan/machine.h"
#include "launcher/process/child.h"
#include "launcher/process/spawn.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_MOST = 1 << 20 };

/* ---------------------------------------------------------------- queries */

/* Reads both pipes of a child to their ends. */
static int read_both(const struct spawned *s, struct buf text[2], struct err *e)
{
    struct pollfd fds[2] = {{s->out, POLLIN, 0}, {s->err, POLLIN, 0}};
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return err_sys(e, "poll");
        for (int i = 0; i < 2; i++) {
            char bytes[4096];
            ssize_t n = fds[i].revents ? read(fds[i].fd, bytes, sizeof(bytes)) : -2;
            if (n == 0 || (n == -1 && errno != EAGAIN && errno != EINTR))
                fds[i].fd = -1;
            if (n > 0 && text[i].len < ANSWER_MOST)
                buf_add(&text[i], bytes, (size_t)n);
        }
    }
    return text[0].oom || text[1].oom ? err_nomem(e) : 0;
}

/* The error message of a failed child. */
static void note(void *arg, const char *line, size_t n) { relog_note(arg, line, n); }

static int failed(const struct buf *words, const char *name, int status, struct err *e)
{
    struct child c = {.status = status};
    struct relog lines = {0};
    char cause[480];
    relog_feed(&lines, words->p, words->len, note, &c.last);
    relog_end(&lines, note, &c.last);
    child_cause(&c, cause, sizeof(cause));
    return err_set(e, ERR_SYSTEM, "%s %s", name, cause);
}

/* The JSON object printed by the command; the caller deletes it. */
static cJSON *ask(const struct command *cmd, const char *name, struct err *e)
{
    char path[4096];
    struct spawned s;
    struct buf text[2] = {BUF_INIT, BUF_INIT};
    cJSON *j = NULL;
    int status = 0;
    spawn_find(cmd->program, path, sizeof(path));
    if (spawn(path, cmd->argv.v, cmd->env.v, cmd->keep_fds, cmd->cores, &s, e))
        return NULL;
    int rc = read_both(&s, text, e);
    close(s.out);
    close(s.err);
    while (waitpid(s.pid, &status, 0) < 0 && errno == EINTR) {
    }
    const bool printed = WIFEXITED(status) && text[0].len > 0 &&
                         (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == EX_CONFIG);
    if (rc == 0 && !printed)
        failed(&text[1], name, status, e);
    else if (rc == 0 && !(j = json_parse(text[0].p ? text[0].p : "", text[0].len, e)))
        err_wrap(e, "the dry run of %s", name);
    buf_free(&text[0]);
    buf_free(&text[1]);
    return j;
}

/* ---------------------------------------------------------------- printing */

static double gib(const cJSON *j, const char *key)
{
    return json_num(j, key, 0) / (double)(1 << 30);
}

static void print_rank(const cJSON *j, const char *name, FILE *out)
{
    fprintf(out, "%s: %s, %s stored as %s, quantize %s, on %s\n", name,
            json_str(j, "model_type", "?"), json_str(j, "dtype", "?"), json_str(j, "stored", "?"),
            json_str(j, "quantize", "?"), json_str(j, "device", "?"));
    if (json_num(j, "layers", 0) < json_num(j, "layers_of_all", 0))
        fprintf(out, "  stage of %.0f layers from layer %.0f on, of %.0f\n",
                json_num(j, "layers", 0), json_num(j, "first_layer", 0),
                json_num(j, "layers_of_all", 0));
    static const char *const what[][2] = {
        {"weights", "weight_bytes"},       {"KV cache", "kv_bytes"},
        {"workspaces", "workspace_bytes"}, {"vision tower", "tower_bytes"},
        {"adapters", "adapter_bytes"},     {"swap space", "swap_bytes"},
        {"free now", "free_bytes"},        {"of", "total_bytes"}};
    for (size_t i = 0; i < sizeof(what) / sizeof(what[0]); i++)
        fprintf(out, "  %-12s %15.0f bytes  %9.3f GiB\n", what[i][0], json_num(j, what[i][1], 0),
                gib(j, what[i][1]));
    fprintf(out, "  KV cache: %.0f blocks of %.0f bytes, %s, decided by %s\n",
            json_num(j, "kv_blocks", 0), json_num(j, "kv_block_bytes", 0),
            json_str(j, "kv_cache_dtype", "?"), json_str(j, "kv_decided_by", "?"));
    if (json_num(j, "window_blocks", 0) > 0)
        fprintf(out, "  of windows: %.0f blocks of %.0f bytes\n", json_num(j, "window_blocks", 0),
                json_num(j, "window_block_bytes", 0));
    if (json_num(j, "state_cells", 0) > 0)
        fprintf(out, "  recurrent state: %.0f cells of %.0f bytes, %.0f bytes\n",
                json_num(j, "state_cells", 0), json_num(j, "state_cell_bytes", 0),
                json_num(j, "state_bytes", 0));
    fprintf(out,
            "  limits: --max-input-tokens %.0f --max-total-tokens %.0f --max-batch-prefill-tokens "
            "%.0f --max-batch-total-tokens %.0f\n",
            json_num(j, "max_input_tokens", 0), json_num(j, "max_total_tokens", 0),
            json_num(j, "max_batch_prefill_tokens", 0), json_num(j, "max_batch_total_tokens", 0));
    if (!json_bool(j, "fits", false))
        fprintf(out, "  does not fit: %s\n", json_str(j, "why", ""));
}

/* With shell quoting. */
static void print_command(const cJSON *command, FILE *out)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@,+%";
    const cJSON *word;
    fputs(" ", out);
    cJSON_ArrayForEach(word, command)
    {
        const char *w = word->valuestring;
        if (*w && !w[strspn(w, plain)]) {
            fprintf(out, " %s", w);
            continue;
        }
        fputs(" '", out);
        for (; *w; w++)
            *w == '\'' ? fputs("'\\''", out) : fputc(*w, out);
        fputc('\'', out);
    }
    fputc('\n', out);
}

static cJSON *words_of(const struct command *c)
{
    return cJSON_CreateStringArray((const char *const *)c->argv.v, (int)c->argv.n);
}

/* ---------------------------------------------------------------- all ranks */

struct report {
    cJSON *ranks, *commands;
    bool fits, text;
    FILE *out;
};

static int add_rank(struct report *r, const struct plan *p, uint32_t rank, const char *what,
                    struct err *e)
{
    struct command cmd;
    char name[32];
    cJSON *j = NULL;
    snprintf(name, sizeof(name), "%s %u", what, rank);
    if (plan_dry_run(p, rank, &cmd, e) || !(j = ask(&cmd, name, e)))
        return -1;
    r->fits = r->fits && json_bool(j, "fits", false);
    cJSON_AddStringToObject(j, "name", name);
    cJSON_AddItemToArray(r->ranks, j);
    if (r->text)
        print_rank(j, name, r->out);
    if (plan_shard(p, rank, &cmd, e))
        return -1;
    cJSON_AddItemToArray(r->commands, words_of(&cmd));
    return 0;
}

static int add_ranks(struct report *r, const struct plan *p, const char *what, struct err *e)
{
    int rc = 0;
    for (uint32_t i = 0; i < p->n && rc == 0; i++)
        rc = add_rank(r, p, p->first + i, what, e);
    return rc;
}

/* Each rank reports its share of free memory, but weights come out of the total. */
static void add_up(struct report *r)
{
    double wanted = 0, free_bytes = 0;
    const cJSON *j;
    cJSON_ArrayForEach(j, r->ranks)
    {
        static const char *const parts[] = {"weight_bytes",  "kv_bytes",   "workspace_bytes",
                                            "adapter_bytes", "swap_bytes", "state_bytes"};
        for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
            wanted += json_num(j, parts[i], 0);
        free_bytes = json_num(j, "free_bytes", 0);
    }
    if (wanted <= free_bytes)
        return;
    r->fits = false;
    if (r->text)
        fprintf(r->out,
                "does not fit: all replicas together take %.0f bytes, and %.0f are free: fewer "
                "--replicas, or a smaller --kv-cache-memory\n",
                wanted, free_bytes);
}

/* Adds the groups of shards on this machine, with shares computed as at a start. */
static int add_replicas(struct report *r, const struct plan *p, struct err *e)
{
    const uint32_t n = p->cfg->replicas, each = p->cfg->device == DEVICE_CPU ? 0 : p->n;
    int rc = 0;
    bool shared = true; /* host memory is shared, device memory is not */
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        char name[32];
        struct share part;
        struct plan one;
        struct config cfg;
        machine_share(n, k, each, &part);
        shared = shared && !*part.devices;
        plan_replica(p, k, &part, &cfg, p->arena, &one);
        snprintf(name, sizeof(name), "replica %u rank", k);
        rc = add_ranks(r, &one, name, e);
    }
    if (rc == 0 && shared && n > 1)
        add_up(r);
    return rc;
}

static int add_all(struct report *r, const struct plan *p, struct err *e)
{
    struct child none = {0};
    struct draft d;
    struct command cmd;
    int rc = p->cfg->replicas == 1 ? add_ranks(r, p, "rank", e) : add_replicas(r, p, e);
    draft_init(&d, p, &none);
    if (rc == 0 && d.on)
        rc = add_rank(r, &d.plan, 0, "draft rank", e);
    draft_free(&d);
    if (rc || p->first)
        return rc;
    if (plan_router(p, &cmd, e))
        return -1;
    cJSON_AddItemToArray(r->commands, words_of(&cmd));
    return 0;
}

static void print_commands(const cJSON *commands, FILE *out)
{
    const cJSON *c;
    fputs("would run (RANK, WORLD_SIZE and secrets are in the environment):\n", out);
    cJSON_ArrayForEach(c, commands) print_command(c, out);
}

int dry_run(const struct plan *p, FILE *out, struct err *e)
{
    struct report r = {.ranks = cJSON_CreateArray(),
                       .commands = cJSON_CreateArray(),
                       .fits = true,
                       .text = !p->cfg->json_output,
                       .out = out};
    cJSON *all = cJSON_CreateObject();
    int rc = all && r.ranks && r.commands ? add_all(&r, p, e) : err_nomem(e);
    if (rc == 0 && r.text) {
        print_commands(r.commands, out);
        fputs(r.fits ? "it fits\n" : "it does not fit\n", out);
    }
    cJSON_AddItemToObject(all, "ranks", r.ranks);
    cJSON_AddItemToObject(all, "commands", r.commands);
    cJSON_AddBoolToObject(all, "fits", r.fits);
    char *text = rc == 0 && !r.text ? cJSON_PrintUnformatted(all) : NULL;
    if (text)
        fprintf(out, "%s\n", text);
    cJSON_free(text);
    cJSON_Delete(all);
    return rc ? -1 : !r.fits;
}
