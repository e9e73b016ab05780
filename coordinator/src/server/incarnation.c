/*
 * incarnation.c
 *		What tells this run of the server from all others.
 *
 * Names that are made of it and a counter in shared memory never repeat, whatever backup or copy the data
 * directory came from.
 */
#include "postgres.h"

#include "server/incarnation.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#include "server/shared_memory.h"

static uint64 *incarnation = NULL;

uint64
incarnation_get(void)
{
	return *incarnation;
}

static void
request_shared_memory(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(uint64)));
}

static void
create_shared_memory(void)
{
	bool found;

	incarnation = ShmemInitStruct("strata incarnation", sizeof(uint64), &found);
	if (found)
		return;
	if (!pg_strong_random(incarnation, sizeof(uint64)))
		ereport(FATAL, (errcode(ERRCODE_INTERNAL_ERROR),
						errmsg("could not draw a random number for distributed transactions")));
	*incarnation &= PG_INT64_MAX;
}

void
incarnation_initialize(void)
{
	shared_memory_register(request_shared_memory, create_shared_memory);
}
