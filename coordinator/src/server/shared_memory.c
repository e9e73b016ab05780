/*
 * shared_memory.c
 *		One pair of hooks for all modules that have something in shared memory.
 */
#include "postgres.h"

#include "server/shared_memory.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

/* Room for the modules that register. */
#define PARTS_MAX 24

typedef struct Part
{
	void (*request)(void);
	void (*create)(void);
} Part;

static Part parts[PARTS_MAX];
static int part_count = 0;
static shmem_request_hook_type previous_shmem_request_hook = NULL;
static shmem_startup_hook_type previous_shmem_startup_hook = NULL;

static void
request_parts(void)
{
	if (previous_shmem_request_hook)
		previous_shmem_request_hook();
	for (int i = 0; i < part_count; i++)
		parts[i].request();
}

static void
create_parts(void)
{
	if (previous_shmem_startup_hook)
		previous_shmem_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	for (int i = 0; i < part_count; i++)
		parts[i].create();
	LWLockRelease(AddinShmemInitLock);
}

void
shared_memory_register(void (*request)(void), void (*create)(void))
{
	if (!process_shared_preload_libraries_in_progress)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("strata must be loaded when the server starts"),
						errhint("Add strata to shared_preload_libraries and restart the server.")));
	if (part_count == 0)
	{
		previous_shmem_request_hook = shmem_request_hook;
		shmem_request_hook = request_parts;
		previous_shmem_startup_hook = shmem_startup_hook;
		shmem_startup_hook = create_parts;
	}
	if (part_count == PARTS_MAX)
		elog(FATAL, "too many parts of shared memory");
	parts[part_count++] = (Part){request, create};
}
