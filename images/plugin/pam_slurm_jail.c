/*
 * The shared root of jobs for sessions by ssh: a PAM module that mounts a version of it for each connection.
 *
 * session required FILE root=FOLDER at=FOLDER
 *   root    the volume, as of slurm_jail.c. FOLDER/mounts names what sessions see at the same path, a path in each line
 *   at      the empty folder on which the root is mounted, in a mount namespace of the connection's processes
 *
 * sshd's ChrootDirectory must be the folder `at`, for all users but root. So a session without this module, or with a jail
 * that can't be mounted, has an empty root. This module shows the reason, and fails: sshd then runs nothing and forwards
 * nothing. Sessions of root stay outside, so that a broken jail can be repaired.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>
#include <security/pam_ext.h>
#include <security/pam_modules.h>
#include <security/pam_modutil.h>
#include "jail.h"

#define LONGEST_LIST 65536

/* The value of the first word KEY=…, or NULL. */
static const char *value(int count, const char **words, const char *key)
{
	size_t length = strlen(key);

	for (int index = 0; index < count; index++) {
		if (!strncmp(words[index], key, length) && words[index][length] == '=')
			return words[index] + length + 1;
	}
	return NULL;
}

/* The content of FOLDER/mounts, to be freed, or NULL. */
static char *listed(const char *folder)
{
	char place[256], *text = NULL;
	int volume = open(folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), file;
	ssize_t length;

	snprintf(place, sizeof(place), "%s/mounts", folder);
	file = volume < 0 ? -1 : openat(volume, "mounts", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (file < 0) {
		jail_refuse("%s: %s: see the Job that fills the jail", place, strerror(errno));
		goto out;
	}
	if (!jail_is_safe(file, place, S_IFREG))
		goto out;
	text = malloc(LONGEST_LIST + 1);
	length = text ? pam_modutil_read(file, text, LONGEST_LIST + 1) : -1;
	if (length < 0 || length > LONGEST_LIST) {
		jail_refuse("%s can't be read, or is too long", place);
		free(text);
		text = NULL;
		goto out;
	}
	text[length] = 0;
out:
	if (file >= 0)
		close(file);
	if (volume >= 0)
		close(volume);
	return text;
}

static bool bind_listed(int root, char *list)
{
	for (char *rest = list, *line = NULL; (line = strsep(&rest, "\n"));) {
		if (*line && *line != '/')
			return jail_refuse("the mounts of the jail aren't absolute paths: see the Job that fills it");
		if (*line && !jail_bind(root, line))
			return false;
	}
	return true;
}

static bool mount_at(const char *folder, const char *at)
{
	char *list = NULL;
	int root = jail_prepare(folder, NULL);
	bool done = false;

	if (root < 0)
		return false;
	list = listed(folder);
	if (!list || !bind_listed(root, list))
		goto out;
	done = !mount(jail_path_of(root), at, NULL, MS_MOVE, NULL);
	if (!done)
		jail_refuse("the jail can't be mounted at %s: %s", at, strerror(errno));
out:
	free(list);
	close(root);
	return done;
}

int pam_sm_open_session(pam_handle_t *pam, int flags, int argc, const char **argv)
{
	const char *folder = value(argc, argv, "root"), *at = value(argc, argv, "at"), *name = NULL;
	struct passwd *user;

	(void)flags;
	if (pam_get_user(pam, &name, NULL) == PAM_SUCCESS && name && (user = pam_modutil_getpwnam(pam, name)) && user->pw_uid == 0)
		return PAM_SUCCESS;
	if (!folder || folder[0] != '/' || !at || at[0] != '/')
		jail_refuse("the PAM rule must name root=FOLDER and at=FOLDER");
	else if (mount_at(folder, at))
		return PAM_SUCCESS;
	pam_syslog(pam, LOG_ERR, "%s", jail_reason);
	pam_error(pam, "slurm-jail: error: %s", jail_reason);
	return PAM_SESSION_ERR;
}

int pam_sm_close_session(pam_handle_t *pam, int flags, int argc, const char **argv)
{
	(void)pam;
	(void)flags;
	(void)argc;
	(void)argv;
	return PAM_SUCCESS; /* the mounts end with the processes of the connection */
}
