/* comm_shm_rendezvous.c - how ranks of one host find their segment.
 *
 * Rank 0 creates the complete segment without a name, and then links it under the group's name.
 * So a partial segment is never visible, and nothing is left if rank 0 ends before. The others
 * look for the name. A segment whose rank 0 is dead belongs to a group that failed: rank 0
 * replaces it, the others wait for the replacement. */
#include "common/clock.h"
#include "common/process/shard_group.h"
#include "model-server/comm/comm_shm.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SHM_DIR   SHARD_GROUP_DIR
#define SHM_MAGIC UINT64_C(0x324d48534d4d4f43) /* "COMMSHM2" */

enum { SWEEP_AGE_S = 600 };

size_t shm_segment_bytes(int world)
{
    const size_t n = (size_t)world;
    return sizeof(struct segment) + n * n * sizeof(struct shm_pair) +
           n * 2 * (CHUNK + PIECE) * sizeof(float);
}

/* ---------------------------------------------------------------- liveness */

/* Start time of a process in clock ticks since boot; 0: there is none, or it is a zombie. */
static uint64_t process_start(int pid)
{
    char path[32], line[1024], state = 'X';
    uint64_t start = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    size_t n = fread(line, 1, sizeof(line) - 1, f);
    fclose(f);
    line[n] = '\0';
    char *after = strrchr(line, ')'); /* the name before it may contain anything */
    if (!after || sscanf(after,
                         ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d"
                         " %*d %*d %" SCNu64,
                         &state, &start) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : start;
}

/* Not known to be dead. */
bool shm_rank_lives(const struct shm_rank *r)
{
    int pid = atomic_load(&r->pid);
    uint64_t start = atomic_load(&r->start);
    return !pid || !start || process_start(pid) == start;
}

/* ---------------------------------------------------------------- meeting */

static void unname(struct shm *s)
{
    if (s->named >= 0)
        close(s->named);
    s->named = -1;
}

static struct segment *map_segment(int fd, int world)
{
    void *p = mmap(NULL, shm_segment_bytes(world), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Claims this rank's place. The pid is first: it decides between two that claim to be the same
 * rank. */
static int take_place(struct segment *seg, int rank, struct err *e)
{
    int none = 0;
    struct shm_rank *r = &seg->ranks[rank];
    if (!atomic_compare_exchange_strong(&r->pid, &none, getpid()))
        return err_set(e, ERR_VALIDATION, "rank %d is taken by pid %d", rank, none);
    atomic_store(&r->start, process_start(getpid()));
    return 0;
}

/* Opens a segment under the group's name: 0 mapped, 1 not available (yet), -1 error. */
static int open_segment(const char *path, int world, struct segment **out, struct err *e)
{
    struct stat st;
    int rc = 1, fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? 1 : err_sys(e, "open %s", path);
    struct segment *head = NULL;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
        st.st_size < (off_t)shm_segment_bytes(1)) {
        rc = err_set(e, ERR_SYSTEM, "%s is not ours", path);
    } else if (!(head = map_segment(fd, 1))) {
        rc = err_sys(e, "map %s", path);
    } else if (head->magic != SHM_MAGIC) {
        rc = err_set(e, ERR_SYSTEM, "%s is of another version", path);
    } else if (shm_rank_lives(&head->ranks[0])) {
        if (head->world != (uint32_t)world || st.st_size != (off_t)shm_segment_bytes(world))
            rc = err_set(e, ERR_VALIDATION, "rank 0 says there are %u ranks, this one says %d",
                         head->world, world);
        else if (!(*out = map_segment(fd, world)))
            rc = err_sys(e, "map %s", path);
        else
            rc = 0;
    }
    if (head)
        munmap(head, shm_segment_bytes(1));
    close(fd);
    return rc;
}

static int join_segment(const char *path, int world, int64_t deadline_ms, struct shm *s,
                        struct err *e)
{
    for (int rc; (rc = open_segment(path, world, &s->seg, e)) != 0; usleep(2000)) {
        if (rc < 0)
            return -1;
        if (clock_ms() >= deadline_ms)
            return err_set(e, ERR_SYSTEM, "rank 0 did not arrive within %g s",
                           s->timeout_ms / 1000.0);
    }
    return take_place(s->seg, s->comm.rank, e);
}

/* Links the complete segment under its name, replacing one whose group is dead. */
static int publish(int fd, const char *path, int world, struct err *e)
{
    char self[40];
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    for (int tries = 0; tries < 10; tries++) {
        struct segment *old = NULL;
        struct err ignored = ERR_INIT;
        if (!linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW))
            return 0;
        if (errno != EEXIST)
            return err_sys(e, "create %s", path);
        int rc = open_segment(path, world, &old, &ignored);
        if (old)
            munmap(old, shm_segment_bytes(world));
        if (rc == 0 || ignored.kind == ERR_VALIDATION) /* its rank 0 lives */
            return err_set(e, ERR_VALIDATION, "another rank 0 of this group is running");
        if (unlink(path) && errno != ENOENT)
            return err_sys(e, "remove %s", path);
    }
    return err_set(e, ERR_SYSTEM, "%s comes back each time it is removed", path);
}

/* Removes files of groups that were killed during their rendezvous: rank 0 of a group in
 * rendezvous holds a lock on its file. Only old files, because shards of older versions hold no
 * lock. */
static void sweep(void)
{
    DIR *d = opendir(SHM_DIR);
    const size_t n = strlen(SHARD_GROUP_PREFIX);
    for (const struct dirent *x;
         d && (x = readdir(d));) { // NOLINT(concurrency-mt-unsafe): own stream
        struct stat held, named;
        const char *name = x->d_name;
        if (strncmp(name, SHARD_GROUP_PREFIX, n) != 0)
            continue;
        int fd = openat(dirfd(d), name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0 && fstat(fd, &held) == 0 && S_ISREG(held.st_mode) && held.st_uid == geteuid() &&
            held.st_mtime < time(NULL) - SWEEP_AGE_S && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
            fstatat(dirfd(d), name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            named.st_ino == held.st_ino)
            unlinkat(dirfd(d), name, 0);
        if (fd >= 0)
            close(fd);
    }
    if (d)
        closedir(d);
}

static int create_segment(const char *path, int world, struct shm *s, struct err *e)
{
    int fd = open(SHM_DIR, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, "create a segment in " SHM_DIR);
    /* otherwise a write may raise SIGBUS */
    int rc = posix_fallocate(fd, 0, (off_t)shm_segment_bytes(world));
    if (rc) {
        errno = rc;
        rc = err_sys(e, "%zu KiB in " SHM_DIR " (docker run --shm-size)",
                     shm_segment_bytes(world) / 1024);
    } else if (!(s->seg = map_segment(fd, world)) || flock(fd, LOCK_EX)) {
        rc = err_sys(e, "map a segment in " SHM_DIR);
    } else {
        sweep();
        s->seg->magic = SHM_MAGIC;
        s->seg->world = (uint32_t)world;
        rc = take_place(s->seg, 0, e) || publish(fd, path, world, e) ? -1 : 0;
    }
    s->named = fd;
    return rc;
}

/* Returns when all ranks have arrived and know it; none may continue, and perhaps fail,
 * earlier. */
int shm_meet(struct shm *s, const char *path, struct err *e)
{
    int rc = s->comm.rank ? join_segment(path, s->comm.world, clock_ms() + s->timeout_ms, s, e)
                          : create_segment(path, s->comm.world, s, e);
    if (!rc) {
        rc = shm_arrive(s, e);
        if (!s->comm.rank)
            unlink(path);
    }
    unname(s);
    return rc ? rc : shm_arrive(s, e);
}
