/* machine.h - resources of this machine: cores, devices, ports. */
#ifndef LAUNCHER_MACHINE_H
#define LAUNCHER_MACHINE_H
#include "common/err.h"
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct share; /* launcher/plan/share.h */

/* Cores this process may use: its affinity, limited by the CPU quota of its cgroup. */
uint32_t machine_cores(void);

/* Number of devices by environment, of the same variables as TGI: the items of
 * CUDA_VISIBLE_DEVICES, else of NVIDIA_VISIBLE_DEVICES (`all`, `void`: the devices of the NVIDIA
 * driver), else of ZE_AFFINITY_MASK. 0: it hides all devices ("", "-1"). -1: none of them is
 * set. */
int machine_devices(void);

/* The k-th of n shares of this machine. With `each` devices per share, if there are enough, it gets
 * all cores, since their distance to devices is unknown. Otherwise it gets a share of the cores.
 * each 0: no devices. All of the machine if n is 1 or there are fewer cores than shares. */
void machine_share(uint32_t n, uint32_t k, uint32_t each, struct share *out);

/* Processes of a killed launcher are about to exit: waits 50 ms. False once it was called 60 times,
 * counted in *times. */
bool machine_wait_a_moment(int *times);
/* Fails if the port is in use, before a server would fail later. */
int machine_port_free(const char *address, uint32_t port, struct err *e);
/* Removes a stale socket. Error if a server still accepts connections after 3 seconds. */
int machine_socket_free(const char *path, struct err *e);

/* Makes the folder of a socket again, mode 0700, if it was removed while shards served (a cleaner
 * of temporary files). A shard that has no folder then reports why. */
void machine_socket_folder(const char *path);

/* Removes a shard's stale socket and lock file, unless a process serves it. */
void machine_socket_remove(const char *path);

/* A directory is a local model: nothing is downloaded. */
bool machine_is_dir(const char *path);

/* Prints what --env shows: version, system, CPU, cores, memory, GPUs. */
void machine_report(FILE *out);
#endif
