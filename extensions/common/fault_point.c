/*
 * fault_point.c
 *		Places where tests stop, fail or kill the server.
 *
 * A test arms places by a file in the data directory, a line for each with its name and an action.
 * Whoever comes to one first removes the line, so that a server that was killed does not
 * meet it again, and acts:
 *
 *		kill		SIGKILL to itself: the server restarts its processes
 *		crash		SIGKILL to the postmaster and to itself: the server is gone
 *		error		an ERROR
 *		wait		until the test removes another file, which says that the place was reached
 *
 * wait looks at no interrupts: it stands where the code is, between two of its steps.
 */
#include "postgres.h"

#include "fault_point.h"

#ifdef STRATA_FAULT_POINTS

#include <signal.h>
#include <unistd.h>

#include "miscadmin.h"

#define ARMED_FILE "strata_fault_point"
#define REACHED_FILE "strata_fault_point.reached"

/*
 * Is this place armed?  The file may be gone at any time; who removes it puts back what is armed
 * beside this place.
 */
static bool
read_action(const char *name, char *action)
{
	FILE *file = fopen(ARMED_FILE, "r");
	char rest[1024] = "";
	char line[128];
	bool found = false;

	if (file == NULL)
		return false;
	while (fgets(line, sizeof(line), file) != NULL)
	{
		char armed[64];

		if (!found && sscanf(line, "%63s %15s", armed, action) == 2 && strcmp(armed, name) == 0)
			found = true;
		else
			strlcat(rest, line, sizeof(rest));
	}
	fclose(file);
	if (!found || unlink(ARMED_FILE) != 0)
		return false;
	if (rest[0] != '\0')
	{
		file = fopen(ARMED_FILE, "w");
		if (file != NULL)
		{
			fputs(rest, file);
			fclose(file);
		}
	}
	return true;
}

static void
wait_for_test(void)
{
	FILE *file = fopen(REACHED_FILE, "w");

	if (file != NULL)
		fclose(file);
	while (access(REACHED_FILE, F_OK) == 0)
	{
		/* the server was killed: we were, too */
		if (getppid() != PostmasterPid)
			kill(MyProcPid, SIGKILL);
		usleep(5000);
	}
}

void
fault_point_reach(const char *name, int index)
{
	char full_name[64];
	char action[16];

	if (index < 0)
		strlcpy(full_name, name, sizeof(full_name));
	else
		snprintf(full_name, sizeof(full_name), "%s_%d", name, index);
	if (!read_action(full_name, action))
		return;

	if (strcmp(action, "crash") == 0)
		kill(PostmasterPid, SIGKILL);
	if (strcmp(action, "crash") == 0 || strcmp(action, "kill") == 0)
		kill(MyProcPid, SIGKILL);
	else if (strcmp(action, "error") == 0)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("fault point \"%s\"", full_name)));
	else
		wait_for_test();
}

#endif
