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
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include "jail.h"

SPANK_PLUGIN(slurm_jail, 1)

#define FAILED 125 /* as of slurm-oci-run */

static enum { OUTSIDE, REFUSED, INSIDE } state = OUTSIDE;
static char *chosen; /* value of --jail */
static dev_t root_device;
static ino_t root_inode;

static int given(int which, const char *value, int remote);

static int words_count;
static char **words;

static struct spank_option option = {
	"jail", "NAME|none", "the version of the shared root that the job sees, or none: the root of the worker", 1, 0, given
};

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
		if (!strcmp(words[index] + 6, name) || (!strcmp(words[index] + 6, "*") && strcmp(name, JAIL_NONE)))
			return true;
	}
	return false;
}

/* Whether --jail may have this value. Otherwise the reason is kept. */
static bool may_choose(const char *value)
{
	if (!value || (!jail_is_name(value) && strcmp(value, JAIL_NONE)))
		return jail_refuse("--jail=%.64s: not the name of a version: letters a-z, digits, `.` and `-`, or none",
				   value ? value : "");
	if (!allowed(value))
		return jail_refuse(
			"--jail=%s isn't allowed here: remove it, or ask the administrator to add %s to the value jail.allow", value,
			value);
	return true;
}

static int given(int which, const char *value, int remote)
{
	(void)which;
	if (!remote && !may_choose(value)) {
		slurm_spank_log("slurm-jail: error: %s", jail_reason);
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
	for (const char *const *path = jail_always; root >= 0 && *path; path++) {
		if (!jail_bind(root, *path))
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
	struct stat found;
	int root = jail_prepare(word("root"), chosen);

	if (root < 0)
		return false;
	for (int index = 0; index < words_count; index++) {
		if (!strncmp(words[index], "mount=", 6) && !jail_bind(root, words[index] + 6))
			goto failed;
	}
	/* The old root is mounted over the new one, and then removed from it. */
	if (fstat(root, &found) || fchdir(root) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/")) {
		jail_refuse("the root can't be changed: %s", strerror(errno));
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
	char kept[JAIL_REASON];

	if (spank_context() != S_CTX_REMOTE || !is_of_user(spank))
		return 0;
	words_count = argc;
	words = argv;
	/* srun has checked it, but a user can have another srun. */
	if (chosen && !may_choose(chosen))
		state = REFUSED;
	else if (chosen && !strcmp(chosen, JAIL_NONE))
		state = OUTSIDE;
	else
		state = enter_jail() ? INSIDE : REFUSED;
	if (state != REFUSED)
		return 0;
	slurm_error("slurm-jail: %s", jail_reason);
	/* A batch script has no --task-epilog, and its output, which is to have the reason, is opened later. */
	if (is_batch(spank))
		return 0;
	memcpy(kept, jail_reason, sizeof(kept));
	if (!enter_cell())
		return -1;
	memcpy(jail_reason, kept, sizeof(kept));
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
	if (state == OUTSIDE && chosen && !strcmp(chosen, JAIL_NONE))
		return 0;
	if (state == INSIDE && !stat("/", &found) && found.st_dev == root_device && found.st_ino == root_inode)
		return 0;
	slurm_spank_log("slurm-jail: error: %s", state == REFUSED ? jail_reason : "the task isn't in its jail");
	_exit(FAILED);
}
