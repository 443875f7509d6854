/* shard_group.h - the rendezvous file of a group's ranks on one host, in /dev/shm, named after the
 * group. The ranks remove it once all have joined. If they are killed before, their launcher
 * removes it. */
#ifndef COMMON_SHARD_GROUP_H
#define COMMON_SHARD_GROUP_H
#include <stddef.h>

#define SHARD_GROUP_DIR    "/dev/shm"
#define SHARD_GROUP_PREFIX "model-server-"
enum { SHARD_GROUP_PATH = 128 };

/* Writes a path that is readable, safe as a file name, and different for different groups. */
void shard_group_path(char path[SHARD_GROUP_PATH], const char *group);
#endif
