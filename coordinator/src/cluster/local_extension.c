/*
 * local_extension.c
 *		Extensions that only the coordinator has: setting strata.local_extensions.
 *
 * CREATE EXTENSION goes to all nodes, because SQL that travels may name what it brings.  What serves one
 * server, as pg_cron does, has nothing to do on workers, and often cannot be created there.  It is listed in
 * postgresql.conf, so that all sessions and background processes agree, also later: members of
 * such an extension are never named in what workers are sent.
 */
#include "postgres.h"

#include "cluster/local_extension.h"

#include "catalog/dependency.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "server/argument.h"

PG_FUNCTION_INFO_V1(strata_is_local_extension);

const char *const local_extension_parts[] = {"strata_worker", "strata_columnar", "strata_tiering",
											 NULL};

static char *local_extensions = "";

static bool
check_names(char **value, void **extra, GucSource source)
{
	char *copy = pstrdup(*value);
	List *names;
	bool valid = SplitIdentifierString(copy, ',', &names);

	if (!valid)
		GUC_check_errdetail("List syntax is invalid.");
	pfree(copy);
	list_free(names);
	return valid;
}

void
local_extension_initialize(void)
{
	DefineCustomStringVariable("strata.local_extensions",
							   "Extensions that are created on the coordinator only.",
							   "A list of names, as search_path is.", &local_extensions, "",
							   PGC_SIGHUP, GUC_LIST_INPUT, check_names, NULL, NULL);
}

static bool
is_local(const char *name)
{
	char *copy;
	List *names;
	ListCell *cell;
	bool found = false;

	if (local_extensions[0] == '\0' || name == NULL)
		return false;
	copy = pstrdup(local_extensions);
	if (SplitIdentifierString(copy, ',', &names))
	{
		foreach(cell, names)
			found = found || strcmp(lfirst(cell), name) == 0;
	}
	list_free(names);
	pfree(copy);
	return found;
}

bool
local_extension_has(Oid classid, Oid objectid)
{
	Oid extension;

	if (local_extensions[0] == '\0')
		return false;
	extension = getExtensionOfObject(classid, objectid);
	return OidIsValid(extension) && is_local(get_extension_name(extension));
}

/* is_local_extension(name) */
Datum
strata_is_local_extension(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(is_local(argument_get_text(fcinfo, 0, "name")));
}

bool
local_extension_stays(const char *name)
{
	return strcmp(name, "strata") == 0 || strcmp(name, "strata_worker") == 0 || is_local(name);
}

char *
local_extension_own_version(void)
{
	MemoryContext context = CurrentMemoryContext;
	char *version;

	SPI_connect();
	if (SPI_execute("SELECT extversion FROM pg_catalog.pg_extension WHERE extname "
					"OPERATOR(pg_catalog.=) 'strata'",
					false, 1) != SPI_OK_SELECT ||
		SPI_processed != 1)
		elog(ERROR, "could not read the version of extension \"strata\"");
	version = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	version = MemoryContextStrdup(context, version);
	SPI_finish();
	return version;
}
