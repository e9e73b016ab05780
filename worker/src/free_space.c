/*
 * free_space.c
 *		Where new tables and WAL are written, and how many bytes are free there: before a shard comes.
 *
 * Two of these places may be on one file system, whose number says so: what goes to both is added up then.
 */
#include "postgres.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include "access/xlog_internal.h"
#include "catalog/pg_class.h"
#include "catalog/pg_tablespace_d.h"
#include "commands/tablespace.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(strata_worker_free_space);

/* What the server may use of a directory's file system: some keep a reserve for root. */
static void
put_place(ReturnSetInfo *result, const char *place, bool is_wal, const char *directory)
{
	Datum values[4];
	bool nulls[lengthof(values)] = {false};
	struct stat status;
	struct statvfs space;

	if (stat(directory, &status) != 0 || statvfs(directory, &space) != 0)
		ereport(ERROR, (errcode_for_file_access(),
						errmsg("could not look for free space in \"%s\": %m", directory)));
	values[0] = CStringGetTextDatum(place);
	values[1] = BoolGetDatum(is_wal);
	values[2] = Int64GetDatum((int64) status.st_dev);
	values[3] = Int64GetDatum((int64) space.f_bavail * (int64) space.f_frsize);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* free_space(): place, is_wal, device, free_bytes */
Datum
strata_worker_free_space(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Oid tablespace = GetDefaultTablespace(RELPERSISTENCE_PERMANENT, false);

	InitMaterializedSRF(fcinfo, 0);
	if (!OidIsValid(tablespace))
		tablespace = MyDatabaseTableSpace;
	put_place(result, psprintf("tablespace \"%s\"", get_tablespace_name(tablespace)), false,
			  tablespace == DEFAULTTABLESPACE_OID ? "base" : psprintf("pg_tblspc/%u", tablespace));
	put_place(result, XLOGDIR, true, XLOGDIR);
	return (Datum) 0;
}
