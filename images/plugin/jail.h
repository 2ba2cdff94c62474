/* Functions that return false or -1 keep the reason in jail_reason. */
#ifndef JAIL_H
#define JAIL_H
#include <stdbool.h>
#include <sys/types.h>

#define JAIL_NONE "none"
#define JAIL_LONGEST_NAME 63
#define JAIL_REASON 1024

/* Paths of the worker that each jail has. The last one is NULL. */
extern const char *const jail_always[];
extern char jail_reason[JAIL_REASON];

/* Keeps the reason, and returns false. */
__attribute__((format(printf, 1, 2))) bool jail_refuse(const char *format, ...);

/* Whether it may be the name of a version. */
bool jail_is_name(const char *text);

/* Whether nobody but root may change an open file or folder, whose type is S_IFREG or S_IFDIR. */
bool jail_is_safe(int file, const char *place, mode_t type);

/* A path by which mounts reach an open file. It is valid until the call after the next one. */
const char *jail_path_of(int file);

/* Moves this process into a mount namespace of its own. Its mounts reach no other one. */
bool jail_own_namespace(void);

/*
 * Mounts, in a mount namespace of its own, a version of the volume in `folder`, and jail_always in it: the version of this
 * name, or with NULL the current one. Returns the mounted root.
 */
int jail_prepare(const char *folder, const char *chosen);

/* Mounts a path of the worker at the same path in the root. A path that the worker doesn't have is omitted. */
bool jail_bind(int root, const char *path);
#endif
