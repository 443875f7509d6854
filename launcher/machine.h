/* machine.h - what this machine offers: cores, devices, free ports. */
#ifndef LAUNCHER_MACHINE_H
#define LAUNCHER_MACHINE_H
#include "common/err.h"
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct share; /* launcher/share.h */

/* Cores this process may use: its affinity, lowered by the CPU quota of its control group. */
uint32_t machine_cores(void);

/* Devices by environment, as TGI counts: the items of CUDA_VISIBLE_DEVICES, else of
 * NVIDIA_VISIBLE_DEVICES (`all`, `void`: the devices of the NVIDIA driver), else of
 * ZE_AFFINITY_MASK; -1: none of them is set. */
int machine_devices(void);

/* The k-th of n shares: `each` devices, where there are as many, with all cores, since which cores
 * are near a device is unknown; else cores alone. each 0: no devices are wanted. All of the machine
 * where n is 1, or where there are fewer cores than shares. */
void machine_share(uint32_t n, uint32_t k, uint32_t each, struct share *out);

/* Fail early where a server would fail late. */
int machine_port_free(const char *address, uint32_t port, struct err *e);
/* A socket without a server is removed; one that is still served after 3 seconds is an error. */
int machine_socket_free(const char *path, struct err *e);

/* Removes the socket and its lock that a shard has left there, unless a process serves it. */
void machine_socket_remove(const char *path);

/* A directory: a local model, nothing to download. */
bool machine_is_dir(const char *path);

void machine_report(FILE *out); /* --env */
#endif
