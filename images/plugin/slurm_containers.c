/*
 * The options --container-… of Pyxis for srun, sbatch and salloc, without Pyxis: a SPANK plugin that starts each task by
 * slurm-oci-run, as oci.conf does for --container. It registers options and adds words to a task's command line. It opens
 * nothing, and what it adds runs as the user of the job.
 *
 * plugstack.conf: optional FILE SLURM-OCI-RUN [OPTION...]. The words after FILE are the beginning of the command line.
 * It is optional, so that client commands work in images without FILE. Slurm ignores the failure of an optional plugin, so
 * this one ends the process itself where a job must not go on.
 *
 * An option that this project can't do is refused when the job is submitted, so that no job runs otherwise than it asks for.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(slurm_containers, 1)

enum {
	IMAGE,
	MOUNTS,
	WORKDIR,
	ENVIRONMENT,
	MOUNT_HOME,
	NO_MOUNT_HOME,
	WRITABLE,
	READONLY,
	ENTRYPOINT,
	NO_ENTRYPOINT,
	REMAP_ROOT,
	NO_REMAP_ROOT,
	NAME,
	SAVE,
	COUNT
};

#define MOST_WORDS 256
#define MOST_NAME 63
#define NAME_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
#define FAILED 125 /* as of slurm-oci-run */

static int given(int which, const char *value, int remote);

#define FLAG(which, name, usage) [which] = { name, NULL, usage, 0, which, given }
#define VALUE(which, name, what, usage) [which] = { name, what, usage, 1, which, given }

static struct spank_option options[COUNT] = {
	VALUE(IMAGE, "container-image", "IMAGE", "the image in which the tasks run, for example ubuntu:24.04"),
	VALUE(MOUNTS, "container-mounts", "SOURCE[:TARGET[:ro]],…", "folders and files of the worker that the container sees"),
	VALUE(WORKDIR, "container-workdir", "FOLDER", "the folder in which the program starts"),
	VALUE(ENVIRONMENT, "container-env", "NAME,…", "variables that keep the job's value, whatever the image sets"),
	FLAG(MOUNT_HOME, "container-mount-home", "mount the home folder"),
	FLAG(NO_MOUNT_HOME, "no-container-mount-home", "don't mount the home folder"),
	FLAG(WRITABLE, "container-writable", "the image can be changed: until the task ends, or for others by its name "
	     "(default)"),
	FLAG(READONLY, "container-readonly", "the image can't be changed"),
	FLAG(ENTRYPOINT, "container-entrypoint", "run the entrypoint of the image, with the command as its arguments"),
	FLAG(NO_ENTRYPOINT, "no-container-entrypoint", "run the command itself (default)"),
	FLAG(REMAP_ROOT, "container-remap-root", "not available: users are never root in a container"),
	FLAG(NO_REMAP_ROOT, "no-container-remap-root", "have the user's own ID in the container (default)"),
	VALUE(NAME, "container-name", "NAME", "a copy of the image that keeps the changes of its tasks"),
	VALUE(SAVE, "container-save", "PATH", "not available"),
};

static char *values[COUNT];

static int is_squashfs(const char *image)
{
	static const char *const suffixes[] = { ".sqsh", ".sqfs", ".squashfs" };

	for (size_t index = 0; index < sizeof(suffixes) / sizeof(suffixes[0]); index++) {
		size_t whole = strlen(image), end = strlen(suffixes[index]);

		if (whole >= end && !strcmp(image + whole - end, suffixes[index]))
			return 1;
	}
	return 0;
}

/* A line that the user reads: of srun and sbatch, or in the output of the step. */
#define refuse(...) slurm_spank_log("slurm-containers: error: " __VA_ARGS__)

static int given(int which, const char *value, int remote)
{
	if (!remote) {
		if (which == REMAP_ROOT) {
			refuse("--container-remap-root isn't available: no user becomes root in a container. Remove it");
			return -1;
		}
		if (which == SAVE) {
			refuse("--container-save isn't available: build an image with what jobs need, or keep changes with "
			       "--container-name");
			return -1;
		}
		if (options[which].has_arg && (!value || !*value)) {
			refuse("--%s needs a value: %s", options[which].name, options[which].arginfo);
			return -1;
		}
		if (which == IMAGE && is_squashfs(value)) {
			refuse("--container-image=%s is a squashfs file, which only Pyxis and enroot mount: unpack it once "
			       "with `unsquashfs -d /shared/FOLDER FILE`, and name that folder", value);
			return -1;
		}
		if (which == NAME && (strspn(value, NAME_CHARACTERS) != strlen(value) || strlen(value) > MOST_NAME)) {
			refuse("--container-name=%s: use up to %d letters, digits, - and _", value, MOST_NAME);
			return -1;
		}
	}
	free(values[which]);
	values[which] = strdup(value ? value : "");
	return values[which] ? 0 : -1;
}

int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
	spank_context_t context = spank_context();

	(void)argv;
	if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE)
		return 0;
	if (argc < 1) {
		slurm_error("slurm-containers: plugstack.conf must name slurm-oci-run after this plugin");
		return -1;
	}
	for (int which = 0; which < COUNT; which++) {
		if (spank_option_register(spank, &options[which]) != ESPANK_SUCCESS) {
			slurm_error("slurm-containers: can't register --%s: is Pyxis in plugstack.conf too?",
				    options[which].name);
			return -1;
		}
	}
	return 0;
}

static void exclude_each_other(int one, int other)
{
	if (!values[one] || !values[other])
		return;
	refuse("--%s and --%s exclude each other: remove one", options[one].name, options[other].name);
	exit(1);
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char *argv[])
{
	(void)spank;
	(void)argc;
	(void)argv;
	if (spank_context() != S_CTX_LOCAL && spank_context() != S_CTX_ALLOCATOR)
		return 0;
	exclude_each_other(MOUNT_HOME, NO_MOUNT_HOME);
	exclude_each_other(WRITABLE, READONLY);
	exclude_each_other(ENTRYPOINT, NO_ENTRYPOINT);
	for (int which = 0; which < COUNT && !values[IMAGE] && !values[NAME]; which++) {
		if (values[which]) {
			refuse("--%s needs --container-image: add it", options[which].name);
			exit(1);
		}
	}
	return 0;
}

static void add(const char **words, int *count, const char *option, const char *value)
{
	char *word = NULL;

	if (*count >= MOST_WORDS || asprintf(&word, "%s%s", option, value) < 0) {
		refuse("more than %d words in plugstack.conf, or no memory", MOST_WORDS);
		_exit(FAILED);
	}
	/* The process becomes the program, or ends: nothing is freed. */
	words[(*count)++] = word;
}

/*
 * The user's process, before it becomes the task's program. Any error ends the task: it never runs outside of the image
 * that it asked for.
 */
int slurm_spank_task_init(spank_t spank, int argc, char *argv[])
{
	static const struct { int which; const char *word; } passed[] = {
		{ IMAGE, "--image=" },
		{ NAME, "--name=" },
		{ MOUNTS, "--container-mounts=" },
		{ WORKDIR, "--container-workdir=" },
		{ ENVIRONMENT, "--container-env=" },
		{ MOUNT_HOME, "--mount-home" },
		{ NO_MOUNT_HOME, "--no-mount-home" },
		{ READONLY, "--read-only" },
		{ ENTRYPOINT, "--entrypoint" },
	};
	const char *words[MOST_WORDS];
	char number[16];
	uint32_t step = 0;
	int count = 0;

	if (!values[IMAGE] && !values[NAME])
		return 0;
	if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS) {
		refuse("Slurm doesn't tell the number of the step");
		_exit(FAILED);
	}
	/* Not the steps of ssh sessions, nor the shell of salloc: programs that these start choose for themselves. */
	if (step > SLURM_MAX_NORMAL_STEP_ID && step != SLURM_BATCH_SCRIPT)
		return 0;
	for (int index = 0; index < argc; index++)
		add(words, &count, argv[index], "");
	snprintf(number, sizeof(number), "%" PRIu32, step);
	add(words, &count, "--step=", number);
	add(words, &count, "--environment=", "self");
	for (size_t index = 0; index < sizeof(passed) / sizeof(passed[0]); index++) {
		if (values[passed[index].which])
			add(words, &count, passed[index].word, values[passed[index].which]);
	}
	add(words, &count, "--", "");
	if (spank_prepend_task_argv(spank, count, words) != ESPANK_SUCCESS) {
		refuse("Slurm doesn't let a plugin change the command of the task");
		_exit(FAILED);
	}
	return 0;
}
