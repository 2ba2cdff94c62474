/*
 * The shared root of jobs: a SPANK plugin that has each step of a job see a folder of a volume as its root.
 *
 * plugstack.conf: required FILE root=FOLDER [mount=PATH...] [allow=NAME...]
 *   root    the volume. FOLDER/versions/NAME/root is a root, and FOLDER/versions/NAME/complete is written when it is
 *           complete. FOLDER/current is a symbolic link to versions/NAME.
 *   mount   a file or folder of the worker that jobs see at the same path. One that the worker doesn't have is omitted
 *   allow   a name that --jail may have: of a version, * for any version, or none for the root of the worker
 *
 * The line is `required`: a slurmd without FILE doesn't start, so that no job runs without its jail.
 *
 * slurmstepd of a step enters the jail before it opens a file for the user, in a mount namespace of its own. When it can't,
 * it keeps the reason, and each task ends with it instead of running. Each task also checks that its root is the jail.
 * Prolog, Epilog and the extern step, which ssh sessions join, run outside.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(slurm_jail, 1)

#define FAILED 125 /* as of slurm-oci-run */
#define NONE "none"
#define LONGEST_NAME 63

/* What each program needs. The worker always has the folders; a missing file is omitted. */
static const char *const always[] = {
	"/proc", "/sys", "/dev", "/run", "/tmp", "/var/spool/slurmd", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf",
};

static enum { OUTSIDE, REFUSED, INSIDE } state = OUTSIDE;
static char reason[1024];
static char *chosen; /* value of --jail */
static dev_t root_device;
static ino_t root_inode;

static int given(int which, const char *value, int remote);

static int words_count;
static char **words;

static struct spank_option option = {
	"jail", "NAME|none", "the version of the shared root that the job sees, or none: the root of the worker", 1, 0, given
};

/* Keeps the reason for which no task may run. */
__attribute__((format(printf, 1, 2))) static bool refuse(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	return false;
}

static bool is_name(const char *text)
{
	size_t length = strlen(text);

	if (length < 1 || length > LONGEST_NAME || strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789.-") != length)
		return false;
	return text[0] != '.' && text[0] != '-' && strcmp(text, NONE) != 0;
}

/* The value of the first word KEY=…, or NULL. */
static const char *word(const char *key)
{
	size_t length = strlen(key);

	for (int index = 0; index < words_count; index++) {
		if (!strncmp(words[index], key, length) && words[index][length] == '=')
			return words[index] + length + 1;
	}
	return NULL;
}

static bool allowed(const char *name)
{
	for (int index = 0; index < words_count; index++) {
		if (strncmp(words[index], "allow=", 6))
			continue;
		if (!strcmp(words[index] + 6, name) || (!strcmp(words[index] + 6, "*") && strcmp(name, NONE)))
			return true;
	}
	return false;
}

/* Whether --jail may have this value. Otherwise the reason is kept. */
static bool may_choose(const char *value)
{
	if (!value || (!is_name(value) && strcmp(value, NONE)))
		return refuse("--jail=%.64s: not the name of a version: letters a-z, digits, `.` and `-`, or none", value ? value : "");
	if (!allowed(value))
		return refuse("--jail=%s isn't allowed here: remove it, or ask the administrator to add %s to the value jail.allow",
			      value, value);
	return true;
}

static int given(int which, const char *value, int remote)
{
	(void)which;
	if (!remote && !may_choose(value)) {
		slurm_spank_log("slurm-jail: error: %s", reason);
		return -1;
	}
	free(chosen);
	chosen = strdup(value ? value : "");
	return chosen ? 0 : -1;
}

int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
	spank_context_t context = spank_context();

	words_count = argc;
	words = argv;
	if (!word("root") || word("root")[0] != '/') {
		slurm_error("slurm-jail: plugstack.conf must name root=FOLDER after this plugin");
		return -1;
	}
	if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE)
		return 0;
	if (spank_option_register(spank, &option) != ESPANK_SUCCESS) {
		slurm_error("slurm-jail: can't register --jail: does another plugin of plugstack.conf have it?");
		return -1;
	}
	return 0;
}

/* Nobody but root may change what a step has as its root, or which one it is. */
static bool is_safe(int file, const char *place, mode_t type)
{
	struct stat found;

	if (fstat(file, &found))
		return refuse("%s: %s", place, strerror(errno));
	if ((found.st_mode & S_IFMT) != type)
		return refuse("%s isn't a %s", place, type == S_IFDIR ? "folder" : "file");
	if (found.st_uid != 0 || found.st_mode & (S_IWGRP | S_IWOTH))
		return refuse("%s has mode %04o and belongs to UID %u: it must belong to root, and no one else may write to it", place,
			      (unsigned)(found.st_mode & 07777), (unsigned)found.st_uid);
	return true;
}

/* Opens a folder in another one, never through a symbolic link. Returns -1 with the reason kept. */
static int enter(int folder, const char *name, const char *place)
{
	int found = openat(folder, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (found < 0) {
		refuse("%s: %s", place, errno == ENOTDIR || errno == ELOOP ? "isn't a folder" : strerror(errno));
		return -1;
	}
	if (!is_safe(found, place, S_IFDIR)) {
		close(found);
		return -1;
	}
	return found;
}

/* The version that FOLDER/current names. */
static bool current_version(int volume, const char *folder, char name[LONGEST_NAME + 1])
{
	char target[256];
	ssize_t length = readlinkat(volume, "current", target, sizeof(target) - 1);

	if (length < 0)
		return refuse("%s/current: %s: the jail isn't filled: see the Job that fills it", folder,
			      errno == EINVAL ? "not a symbolic link" : strerror(errno));
	target[length] = 0;
	if (strncmp(target, "versions/", 9) || !is_name(target + 9))
		return refuse("%s/current doesn't name a version: it must be a symbolic link to versions/NAME", folder);
	memcpy(name, target + 9, strlen(target + 9) + 1);
	return true;
}

/* Opens the folder of a complete version. Returns -1 with the reason kept. */
static int open_version(const char *folder)
{
	char name[LONGEST_NAME + 1], place[256];
	int volume, versions = -1, version = -1, marker;

	volume = open(folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (volume < 0) {
		refuse("%s: %s: this worker has no jail", folder, strerror(errno));
		return -1;
	}
	if (!is_safe(volume, folder, S_IFDIR))
		goto out;
	if (chosen)
		memcpy(name, chosen, strlen(chosen) + 1); /* may_choose has checked its length */
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
		refuse("%s: %s: this version isn't complete: see the Job that fills it", place, strerror(errno));
		goto failed;
	}
	if (is_safe(marker, place, S_IFREG)) {
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
static const char *path_of(int file)
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
			refuse("%s: %s in the jail: %s", path, part,
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
			refuse("%s is a %s of the worker, and isn't one in the jail", path, is_folder ? "folder" : "file");
			close(here);
			here = -1;
		}
	}
	return here;
}

static bool bind_path(int root, const char *path)
{
	struct stat found;
	int source, target;
	bool done;

	source = open(path, O_PATH | O_CLOEXEC);
	if (source < 0 && errno == ENOENT)
		return true;
	if (source < 0 || fstat(source, &found))
		return refuse("%s: %s", path, strerror(errno));
	target = open_target(root, path, S_ISDIR(found.st_mode));
	done = target >= 0 && !mount(path_of(source), path_of(target), NULL, MS_BIND | MS_REC, NULL);
	if (target >= 0 && !done)
		refuse("%s can't be mounted in the jail: %s", path, strerror(errno));
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
	if (mount(path_of(below), path_of(below), NULL, MS_BIND, NULL)) {
		refuse("%s can't be mounted: %s", place, strerror(errno));
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
	if (!mount(NULL, path_of(root), NULL, flags, NULL))
		return root;
failed:
	refuse("%s can't be mounted without set-user-ID programs: %s", place, strerror(errno));
	close(root);
	return -1;
}

/* Of this thread and what it starts. First, because only files of this namespace can be mounted in it. */
static bool own_namespace(void)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL))
		return refuse("no mount namespace: %s: slurmd must run privileged", strerror(errno));
	return true;
}

/*
 * A root without programs. slurmstepd would run srun's --task-epilog after a task that was refused, on the root of the
 * worker. Returns whether it can't.
 */
static bool enter_cell(void)
{
	int root = -1;
	bool done = false;

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) ||
	    mount("tmpfs", "/mnt", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755"))
		return false;
	root = open("/mnt", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	for (size_t index = 0; root >= 0 && index < sizeof(always) / sizeof(always[0]); index++) {
		if (!bind_path(root, always[index]))
			goto out;
	}
	done = root >= 0 && !fchdir(root) && !syscall(SYS_pivot_root, ".", ".") && !umount2(".", MNT_DETACH) && !chdir("/");
out:
	if (root >= 0)
		close(root);
	return done;
}

static bool enter_jail(void)
{
	const char *folder = word("root");
	struct stat found;
	int version, root;

	if (!own_namespace())
		return false;
	version = open_version(folder);
	if (version < 0)
		return false;
	root = mount_root(version, folder);
	close(version);
	if (root < 0)
		return false;
	for (size_t index = 0; index < sizeof(always) / sizeof(always[0]); index++) {
		if (!bind_path(root, always[index]))
			goto failed;
	}
	for (int index = 0; index < words_count; index++) {
		if (!strncmp(words[index], "mount=", 6) && !bind_path(root, words[index] + 6))
			goto failed;
	}
	/* The old root is mounted over the new one, and then removed from it. */
	if (fstat(root, &found) || fchdir(root) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/")) {
		refuse("the root can't be changed: %s", strerror(errno));
		goto failed;
	}
	close(root);
	root_device = found.st_dev;
	root_inode = found.st_ino;
	return true;
failed:
	close(root);
	return false;
}

/* Whether the programs of this step are the user's. */
static bool is_of_user(spank_t spank)
{
	uint32_t step = 0;

	/* An unknown step is one of the user. */
	if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS)
		return true;
	return step != SLURM_EXTERN_CONT;
}

/*
 * Whether this is a batch script. The number of the step doesn't prove it: a user's own srun can choose any. But only slurmd
 * creates folders in its spool folder, which is /var/spool/slurmd in the chart's slurm.conf.
 */
static bool is_batch(spank_t spank)
{
	uint32_t job = 0, step = 0;
	int count = 0;
	char **arguments = NULL;
	char script[64];
	struct stat found;

	if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step != SLURM_BATCH_SCRIPT ||
	    spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_ARGV, &count, &arguments) != ESPANK_SUCCESS || count < 1 || !arguments[0])
		return false;
	snprintf(script, sizeof(script), "/var/spool/slurmd/job%05u/slurm_script", (unsigned)job);
	return !strcmp(arguments[0], script) && !lstat(script, &found) && S_ISREG(found.st_mode);
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char *argv[])
{
	char kept[sizeof(reason)];

	if (spank_context() != S_CTX_REMOTE || !is_of_user(spank))
		return 0;
	words_count = argc;
	words = argv;
	/* srun has checked it, but a user can have another srun. */
	if (chosen && !may_choose(chosen))
		state = REFUSED;
	else if (chosen && !strcmp(chosen, NONE))
		state = OUTSIDE;
	else
		state = enter_jail() ? INSIDE : REFUSED;
	if (state != REFUSED)
		return 0;
	slurm_error("slurm-jail: %s", reason);
	/* A batch script has no --task-epilog, and its output, which is to have the reason, is opened later. */
	if (is_batch(spank))
		return 0;
	memcpy(kept, reason, sizeof(kept));
	if (!enter_cell())
		return -1;
	memcpy(reason, kept, sizeof(kept));
	return 0;
}

/* A task, before it becomes the user's. slurmstepd has no place for an error before that. */
int slurm_spank_task_init_privileged(spank_t spank, int argc, char *argv[])
{
	struct stat found;

	(void)argc;
	(void)argv;
	if (!is_of_user(spank))
		return 0;
	if (state == OUTSIDE && chosen && !strcmp(chosen, NONE))
		return 0;
	if (state == INSIDE && !stat("/", &found) && found.st_dev == root_device && found.st_ino == root_inode)
		return 0;
	slurm_spank_log("slurm-jail: error: %s", state == REFUSED ? reason : "the task isn't in its jail");
	_exit(FAILED);
}
