/* A shared root: which version of it, whether it is safe, and how it is mounted. The plugin and the PAM module use it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "jail.h"

/* What each program needs. The worker always has the folders; a missing file is omitted. */
const char *const jail_always[] = {
	"/proc", "/sys", "/dev", "/run", "/tmp", "/var/spool/slurmd", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", NULL,
};

char jail_reason[JAIL_REASON];

bool jail_refuse(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(jail_reason, sizeof(jail_reason), format, arguments);
	va_end(arguments);
	return false;
}

bool jail_is_name(const char *text)
{
	size_t length = strlen(text);

	if (length < 1 || length > JAIL_LONGEST_NAME || strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789.-") != length)
		return false;
	return text[0] != '.' && text[0] != '-' && strcmp(text, JAIL_NONE) != 0;
}

/* Nobody but root may change what a step has as its root, or which one it is. */
bool jail_is_safe(int file, const char *place, mode_t type)
{
	struct stat found;

	if (fstat(file, &found))
		return jail_refuse("%s: %s", place, strerror(errno));
	if ((found.st_mode & S_IFMT) != type)
		return jail_refuse("%s isn't a %s", place, type == S_IFDIR ? "folder" : "file");
	if (found.st_uid != 0 || found.st_mode & (S_IWGRP | S_IWOTH))
		return jail_refuse("%s has mode %04o and belongs to UID %u: it must belong to root, and no one else may write to it",
				   place, (unsigned)(found.st_mode & 07777), (unsigned)found.st_uid);
	return true;
}

/* Opens a folder in another one, never through a symbolic link. Returns -1 with the reason kept. */
static int enter(int folder, const char *name, const char *place)
{
	int found = openat(folder, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (found < 0) {
		jail_refuse("%s: %s", place, errno == ENOTDIR || errno == ELOOP ? "isn't a folder" : strerror(errno));
		return -1;
	}
	if (!jail_is_safe(found, place, S_IFDIR)) {
		close(found);
		return -1;
	}
	return found;
}

/* The version that FOLDER/current names. */
static bool current_version(int volume, const char *folder, char name[JAIL_LONGEST_NAME + 1])
{
	char target[256];
	ssize_t length = readlinkat(volume, "current", target, sizeof(target) - 1);

	if (length < 0)
		return jail_refuse("%s/current: %s: the jail isn't filled: see the Job that fills it", folder,
			      errno == EINVAL ? "not a symbolic link" : strerror(errno));
	target[length] = 0;
	if (strncmp(target, "versions/", 9) || !jail_is_name(target + 9))
		return jail_refuse("%s/current doesn't name a version: it must be a symbolic link to versions/NAME", folder);
	memcpy(name, target + 9, strlen(target + 9) + 1);
	return true;
}

/* Opens the folder of a complete version. Returns -1 with the reason kept. */
static int open_version(const char *folder, const char *chosen)
{
	char name[JAIL_LONGEST_NAME + 1], place[256];
	int volume, versions = -1, version = -1, marker;

	volume = open(folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (volume < 0) {
		jail_refuse("%s: %s: this worker has no jail", folder, strerror(errno));
		return -1;
	}
	if (!jail_is_safe(volume, folder, S_IFDIR))
		goto out;
	if (chosen)
		memcpy(name, chosen, strlen(chosen) + 1); /* the caller has checked its length */
	else if (!current_version(volume, folder, name))
		goto out;
	snprintf(place, sizeof(place), "%s/versions", folder);
	versions = enter(volume, "versions", place);
	if (versions < 0)
		goto out;
	snprintf(place, sizeof(place), "%s/versions/%s", folder, name);
	version = enter(versions, name, place);
	if (version < 0)
		goto out;
	snprintf(place, sizeof(place), "%s/versions/%s/complete", folder, name);
	marker = openat(version, "complete", O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (marker < 0) {
		jail_refuse("%s: %s: this version isn't complete: see the Job that fills it", place, strerror(errno));
		goto failed;
	}
	if (jail_is_safe(marker, place, S_IFREG)) {
		close(marker);
		goto out;
	}
	close(marker);
failed:
	close(version);
	version = -1;
out:
	if (versions >= 0)
		close(versions);
	close(volume);
	return version;
}

/* The path by which a mount reaches an open file itself, whatever its name means meanwhile. */
const char *jail_path_of(int file)
{
	static char path[2][32];
	static int turn;

	turn = !turn;
	snprintf(path[turn], sizeof(path[turn]), "/proc/self/fd/%d", file);
	return path[turn];
}

/* Opens a path in the jail, which it creates if it doesn't exist. Follows no symbolic link. Returns -1 with the reason kept. */
static int open_target(int root, const char *path, bool is_folder)
{
	char *copy = strdup(path), *rest = copy, *part = NULL;
	int here = copy ? dup(root) : -1;

	while (copy && here >= 0 && (part = strsep(&rest, "/"))) {
		bool last = !rest;
		int next, result = 0;

		if (!*part)
			continue;
		if (!last || is_folder) {
			result = mkdirat(here, part, 0755);
		} else {
			int file = openat(here, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

			result = file;
			if (file >= 0)
				close(file);
		}
		if (result < 0 && errno == EEXIST)
			result = 0;
		next = openat(here, part, O_PATH | O_NOFOLLOW | O_CLOEXEC | (last && !is_folder ? 0 : O_DIRECTORY));
		if (next < 0) {
			jail_refuse("%s: %s in the jail: %s", path, part,
			       errno == ENOTDIR ? "isn't a folder: mounts go through no symbolic link" :
			       errno == ENOENT  ? "doesn't exist, and can't be created: run the Job that fills the jail again" :
						  strerror(errno));
		}
		close(here);
		here = next;
	}
	free(copy);
	if (here >= 0) {
		struct stat found;

		if (fstat(here, &found) || S_ISDIR(found.st_mode) != is_folder || S_ISLNK(found.st_mode)) {
			jail_refuse("%s is a %s of the worker, and isn't one in the jail", path, is_folder ? "folder" : "file");
			close(here);
			here = -1;
		}
	}
	return here;
}

bool jail_bind(int root, const char *path)
{
	struct stat found;
	int source, target;
	bool done;

	source = open(path, O_PATH | O_CLOEXEC);
	if (source < 0 && errno == ENOENT)
		return true;
	if (source < 0 || fstat(source, &found))
		return jail_refuse("%s: %s", path, strerror(errno));
	target = open_target(root, path, S_ISDIR(found.st_mode));
	done = target >= 0 && !mount(jail_path_of(source), jail_path_of(target), NULL, MS_BIND | MS_REC, NULL);
	if (target >= 0 && !done)
		jail_refuse("%s can't be mounted in the jail: %s", path, strerror(errno));
	if (target >= 0)
		close(target);
	close(source);
	return done;
}

/* Mounts the root over itself, without set-user-ID programs and devices. Returns the mounted folder, or -1. */
static int mount_root(int version, const char *folder)
{
	unsigned long flags = MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV;
	struct statvfs found;
	char place[256];
	int below, root;

	snprintf(place, sizeof(place), "root of the version in %s", folder);
	below = enter(version, "root", place);
	if (below < 0)
		return -1;
	if (mount(jail_path_of(below), jail_path_of(below), NULL, MS_BIND, NULL)) {
		jail_refuse("%s can't be mounted: %s", place, strerror(errno));
		close(below);
		return -1;
	}
	close(below);
	root = enter(version, "root", place);
	if (root < 0)
		return -1;
	if (fstatvfs(root, &found))
		goto failed;
	if (found.f_flag & ST_RDONLY)
		flags |= MS_RDONLY;
	if (found.f_flag & ST_NOEXEC)
		flags |= MS_NOEXEC;
	if (found.f_flag & ST_NOATIME)
		flags |= MS_NOATIME;
	if (found.f_flag & ST_NODIRATIME)
		flags |= MS_NODIRATIME;
	if (found.f_flag & ST_RELATIME)
		flags |= MS_RELATIME;
	if (!mount(NULL, jail_path_of(root), NULL, flags, NULL))
		return root;
failed:
	jail_refuse("%s can't be mounted without set-user-ID programs: %s", place, strerror(errno));
	close(root);
	return -1;
}

/* Of this thread and what it starts. First, because only files of this namespace can be mounted in it. */
bool jail_own_namespace(void)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL))
		return jail_refuse("no mount namespace: %s: the container must run privileged", strerror(errno));
	return true;
}

int jail_prepare(const char *folder, const char *chosen)
{
	int version, root;

	if (!jail_own_namespace())
		return -1;
	version = open_version(folder, chosen);
	if (version < 0)
		return -1;
	root = mount_root(version, folder);
	close(version);
	for (const char *const *path = jail_always; root >= 0 && *path; path++) {
		if (!jail_bind(root, *path)) {
			close(root);
			root = -1;
		}
	}
	return root;
}
