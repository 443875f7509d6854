#include "launcher/process/liveness.h"
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

int liveness_open(struct liveness *l)
{
    *l = (struct liveness){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    return l->fd < 0 ? -1 : 0;
}

void liveness_close(struct liveness *l)
{
    if (l->fd > 0)
        close(l->fd);
    l->fd = -1;
}

/* State and clock ticks of a process or thread; 'X': it does not exist. */
static char read_stat(const char *path, uint64_t *ticks)
{
    char line[1024], state = 'X';
    uint64_t user = 0, system = 0;
    FILE *f = fopen(path, "re");
    *ticks = 0;
    if (!f)
        return 'X';
    size_t n = fread(line, 1, sizeof(line) - 1, f);
    fclose(f);
    line[n] = 0;
    const char *after = strrchr(line, ')'); /* the process name may contain anything */
    if (!after ||
        sscanf(after,
               ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64, // NOLINT
               &state, &user, &system) != 3)
        return 'X';
    *ticks = user + system;
    return state;
}

/* Is a thread in one of these states? */
static bool any_thread(pid_t pid, const char *states)
{
    char path[64];
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *d = opendir(path);
    for (const struct dirent *x;
         !found && d && (x = readdir(d));) { // NOLINT(concurrency-mt-unsafe): own stream
        uint64_t ticks;
        if (x->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%.20s/stat", (int)pid, x->d_name);
        found = strchr(states, read_stat(path, &ticks)) != NULL;
    }
    if (d)
        closedir(d);
    return found;
}

/* State of a process according to the kernel. */
enum liveness_sign { SIGN_ALIVE, SIGN_DEVICE, SIGN_STILL, SIGN_STOPPED };

/* *cpu: in: its previous clock ticks; out: the current ones. */
static enum liveness_sign liveness_look(pid_t pid, uint64_t *cpu)
{
    char path[64];
    uint64_t before = *cpu;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    char state = read_stat(path, cpu);
    if (*cpu != before || state == 'Z' || state == 'X' || any_thread(pid, "Rt"))
        return SIGN_ALIVE;
    if (any_thread(pid, "D"))
        return SIGN_DEVICE;
    return state == 'T' ? SIGN_STOPPED : SIGN_STILL;
}

void liveness_stopped(struct liveness *l, bool stopped)
{
    l->stopped = stopped;
    l->looked = false;
}

bool liveness_turn(struct liveness *l, pid_t pid, uint32_t turn_ms, uint32_t timeout_ms)
{
    uint64_t beats;
    if (l->fd < 0 || l->frozen || timeout_ms == 0)
        return false;
    bool beat = read(l->fd, &beats, sizeof(beats)) == (ssize_t)sizeof(beats);
    l->beats |= beat;
    enum liveness_sign sign = beat ? SIGN_ALIVE : liveness_look(pid, &l->cpu);
    if (sign == SIGN_ALIVE || (sign != SIGN_STOPPED && !l->beats)) {
        l->quiet_ms = 0;
        return false;
    }
    const bool soon = l->stopped && sign == SIGN_STOPPED && timeout_ms > STOPPED_MS;
    const uint32_t late = soon ? LIVENESS_TURN_MS : 2 * LIVENESS_TURN_MS;
    turn_ms = turn_ms < late ? turn_ms : late;
    if (soon && !l->looked)
        turn_ms = l->quiet_ms = 0;
    l->looked = true;
    l->quiet_ms += sign == SIGN_DEVICE ? turn_ms / DEVICE_PATIENCE : turn_ms;
    if (soon)
        timeout_ms = STOPPED_MS;
    l->frozen = l->quiet_ms >= timeout_ms;
    return l->frozen;
}

void liveness_again(struct liveness *l)
{
    l->frozen = l->looked = false;
    l->quiet_ms = 0;
}

bool liveness_doubtful(const struct liveness *l)
{
    return l->fd >= 0 && !l->frozen && (l->stopped || l->quiet_ms > 0);
}
