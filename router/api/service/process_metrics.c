#include "router/api/service/process_metrics.h"
#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static void print_one(struct buf *out, const char *name, const char *type, const char *help,
                      double v)
{
    buf_fmt(out, "# HELP %s %s\n# TYPE %s %s\n%s %.17g\n", name, help, name, type, name, v);
}

static double seconds(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec * 1e-6; }

static void print_memory(struct buf *out)
{
    unsigned long long size, resident; /* in pages */
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%llu %llu", &size, &resident) == 2) {
        const double page = (double)sysconf(_SC_PAGESIZE);
        print_one(out, "process_virtual_memory_bytes", "gauge", "Virtual memory, in bytes.",
                  (double)size * page);
        print_one(out, "process_resident_memory_bytes", "gauge", "Resident memory, in bytes.",
                  (double)resident * page);
    }
    if (f)
        fclose(f);
}

static void print_descriptors(struct buf *out)
{
    struct rlimit most;
    DIR *d = opendir("/proc/self/fd");
    if (d) {
        int n = -3;        /* ".", ".." and this one */
        while (readdir(d)) // NOLINT(concurrency-mt-unsafe): own stream
            n++;
        closedir(d);
        print_one(out, "process_open_fds", "gauge", "Open descriptors.", n);
    }
    if (getrlimit(RLIMIT_NOFILE, &most) == 0)
        print_one(out, "process_max_fds", "gauge", "Most descriptors that may be open.",
                  (double)most.rlim_cur);
}

void print_process(int64_t started_unix, struct buf *out)
{
    struct rusage used;
    if (getrusage(RUSAGE_SELF, &used) == 0)
        print_one(out, "process_cpu_seconds_total", "counter",
                  "Processor time of the router, in seconds.",
                  seconds(used.ru_utime) + seconds(used.ru_stime));
    print_memory(out);
    print_descriptors(out);
    print_one(out, "process_start_time_seconds", "gauge",
              "When the router began, in seconds since 1970.", (double)started_unix);
}
