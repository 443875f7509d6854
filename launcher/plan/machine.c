#include "launcher/plan/machine.h"
#include "common/net/listen_address.h"
#include "common/process/cgroup.h"
#include "launcher/plan/share.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static const char nvidia_dir[] = "/proc/driver/nvidia/gpus";

uint32_t machine_cores(void)
{
    cpu_set_t set;
    uint32_t n = 1;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        n = (uint32_t)CPU_COUNT(&set);
    const double quota = cgroup_cores(&cgroup_self);
    if (quota < n)
        n = (uint32_t)quota;
    return n ? n : 1;
}

static int entries(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;
    if (!d)
        return 0;
    for (struct dirent *x; (x = readdir(d));)
        n += x->d_name[0] != '.';
    closedir(d);
    return n;
}

/* As CUDA counts them: an empty or negative item ends the list. */
static int items(const char *list)
{
    int n = 0;
    for (; *list && *list != ',' && *list != '-'; n++) {
        list += strcspn(list, ",");
        list += *list == ',';
    }
    return n;
}

int machine_devices(void)
{
    const char *v = getenv("CUDA_VISIBLE_DEVICES");
    if (v)
        return items(v);
    if ((v = getenv("NVIDIA_VISIBLE_DEVICES")))
        return !strcmp(v, "all") || !strcmp(v, "void") ? entries(nvidia_dir) : items(v);
    if ((v = getenv("ZE_AFFINITY_MASK")))
        return items(v);
    return -1;
}

enum { NODES_MOST = 64 };

/* The online cores of each NUMA node. */
static uint32_t numa_nodes(cpu_set_t *nodes)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < NODES_MOST; i++) {
        char path[64], line[4096] = "";
        snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/cpulist", i);
        FILE *f = fopen(path, "re");
        if (f && fgets(line, sizeof(line), f) && share_parse_cores(line, &nodes[n]))
            n++;
        if (f)
            fclose(f);
    }
    return n;
}

/* The devices of machine_devices(), or of the driver, as a list: "0,1,2". False: none, or not
 * enough space. */
static bool device_list(char *out, size_t size)
{
    const char *v = getenv("CUDA_VISIBLE_DEVICES");
    size_t at = 0;
    if (v && *v) {
        const int n = snprintf(out, size, "%s", v);
        return n > 0 && (size_t)n < size;
    }
    for (int i = 0, n = entries(nvidia_dir); i < n && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%d", i ? "," : "", i);
    return at > 0 && at < size;
}

void machine_share(uint32_t n, uint32_t k, uint32_t each, struct share *out)
{
    char devices[1024];
    cpu_set_t all, nodes[NODES_MOST];
    CPU_ZERO(&out->cores);
    *out->devices = 0;
    if (n == 1 || (each && device_list(devices, sizeof(devices)) &&
                   share_devices(devices, each, k, out->devices, sizeof(out->devices))))
        return;
    if (sched_getaffinity(0, sizeof(all), &all) == 0)
        (void)share_cores(&all, nodes, numa_nodes(nodes), n, k, &out->cores);
}

bool machine_wait_a_moment(int *times)
{
    static const struct timespec moment = {0, 50000000};
    if (*times == 60)
        return false;
    (*times)++;
    nanosleep(&moment, NULL);
    return true;
}

int machine_port_free(const char *address, uint32_t port, struct err *e)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    bool six = inet_pton(AF_INET6, address, &v6.sin6_addr) == 1;
    int on = 1, rc = 0, fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return six && listen_address_absent(errno) ? 0 : err_sys(e, "socket");
    if (!six)
        inet_pton(AF_INET, address, &v4.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on,
               sizeof(on)); /* connections of a previous run must not block the port */
    struct sockaddr *at = six ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;
    const socklen_t size = six ? sizeof(v6) : sizeof(v4);
    int waited = 0;
    while ((rc = bind(fd, at, size)) != 0 && errno == EADDRINUSE &&
           machine_wait_a_moment(&waited)) {
    }
    if (rc && six && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) && listen_address_absent(errno))
        rc = 0; /* the router reports it, unless the address is one of localhost's */
    else if (rc)
        rc = err_sys(e, "cannot listen on %s port %u", address, port);
    close(fd);
    return rc;
}

/* 0, or why the socket refuses connections. */
static int refusal(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int why = fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) ? errno : 0;
    if (fd >= 0)
        close(fd);
    return why;
}

int machine_socket_free(const char *path, struct err *e)
{
    struct stat st;
    if (lstat(path, &st))
        return 0;
    if (!S_ISSOCK(st.st_mode))
        return err_set(e, ERR_VALIDATION, "%s exists and is not a socket", path);
    int why = refusal(path), waited = 0;
    while (!why && machine_wait_a_moment(&waited))
        why = refusal(path);
    if (!why)
        return err_set(e, ERR_SYSTEM,
                       "%s is in use: another launcher runs with the same port or --shard-uds-path",
                       path);
    errno = why;
    if (why == ENOENT)
        return 0;
    if (why != ECONNREFUSED || (unlink(path) && errno != ENOENT))
        return err_sys(e, "stale socket %s", path);
    return 0;
}

void machine_socket_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[sizeof(((struct sockaddr_un *)0)->sun_path)];
    const size_t n = slash ? (size_t)(slash - path) : 0;
    if (n == 0 || n >= sizeof(folder))
        return;
    memcpy(folder, path, n);
    folder[n] = 0;
    (void)mkdir(folder, S_IRWXU); /* it is there already, or the shard says why not */
}

/* The serving process holds the lock (common/rpc/bind.c) until it has removed its socket. */
void machine_socket_remove(const char *path)
{
    char lock[4096];
    struct stat held, named;
    snprintf(lock, sizeof(lock), "%s.lock", path);
    int fd = open(lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &held) == 0 && stat(lock, &named) == 0 &&
        held.st_ino == named.st_ino) {
        if (lstat(path, &named) == 0 && S_ISSOCK(named.st_mode))
            unlink(path);
        unlink(lock);
    }
    close(fd);
}

bool machine_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* PRETTY_NAME of os-release(5), without its quotes. */
static void print_distribution(FILE *out)
{
    static const char key[] = "PRETTY_NAME=";
    char line[256], *value = NULL;
    FILE *f = fopen("/etc/os-release", "re");
    if (!f)
        f = fopen("/usr/lib/os-release", "re");
    while (f && !value && fgets(line, sizeof(line), f))
        if (!strncmp(line, key, strlen(key)))
            value = line + strlen(key);
    if (value) {
        value += strspn(value, "\"'");
        value[strcspn(value, "\"'\n")] = 0;
    }
    fprintf(out, "%-14s%s\n", "Distribution", value ? value : "unknown");
    if (f)
        fclose(f);
}

/* Prints the value from the first line of `path` that begins with `key`. */
static void print_line(FILE *out, const char *label, const char *path, const char *key)
{
    char *line = NULL;
    size_t cap = 0;
    FILE *f = fopen(path, "re");
    while (f && getline(&line, &cap, f) > 0) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        char *value = strchr(line, ':');
        fprintf(out, "%-14s%s", label, value ? value + 1 + strspn(value + 1, " \t") : line);
        break;
    }
    free(line);
    if (f)
        fclose(f);
}

static void print_gpus(FILE *out)
{
    DIR *d = opendir(nvidia_dir);
    char path[512];
    if (!d) {
        fprintf(out, "%-14snone\n", "NVIDIA GPUs");
        return;
    }
    for (struct dirent *x; (x = readdir(d));) {
        snprintf(path, sizeof(path), "%s/%s/information", nvidia_dir, x->d_name);
        if (x->d_name[0] != '.')
            print_line(out, "GPU", path, "Model");
    }
    closedir(d);
    print_line(out, "Driver", "/proc/driver/nvidia/version", "NVRM");
}

void machine_report(FILE *out)
{
    struct utsname u;
    fprintf(out, "%-14s%s\n", "Version", VERSION);
    if (uname(&u) == 0)
        fprintf(out, "%-14s%s %s %s\n", "System", u.sysname, u.release, u.machine);
    print_distribution(out);
    print_line(out, "CPU", "/proc/cpuinfo", "model name");
    print_line(out, "Instructions", "/proc/cpuinfo", "flags");
    fprintf(out, "%-14s%u\n", "Usable cores", machine_cores());
    print_line(out, "Memory", "/proc/meminfo", "MemTotal");
    print_line(out, "Available", "/proc/meminfo", "MemAvailable");
    print_gpus(out);
}
