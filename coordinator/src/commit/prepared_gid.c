/*
 * prepared_gid.c
 *		Names of prepared transactions: made, read, and asked from workers.
 *
 * Only names that are exactly as we make them are ours.  Others that a worker has, of users, of other
 * programs or of other clusters, are never touched.
 */
#include "postgres.h"

#include "cluster/cluster_identity.h"
#include "commit/prepared_gid.h"

#include "lib/stringinfo.h"

#define GID_FORMAT "strata_%s_" UINT64_FORMAT "_" UINT64_FORMAT "_%d"

void
prepared_gid_format(char *buffer, const char *cluster, const PreparedGid *gid)
{
	snprintf(buffer, CONNECTION_GID_SIZE, GID_FORMAT, cluster, gid->incarnation, gid->counter,
			 gid->worker_id);
}

/* False for a name that prepared_gid_format() does not make for this cluster. */
static bool
parse_gid(const char *text, const char *cluster, PreparedGid *gid)
{
	char again[CONNECTION_GID_SIZE];
	char prefix[CONNECTION_GID_SIZE];

	snprintf(prefix, sizeof(prefix), "strata_%s_", cluster);
	if (strncmp(text, prefix, strlen(prefix)) != 0 ||
		sscanf(text + strlen(prefix), UINT64_FORMAT "_" UINT64_FORMAT "_%d", &gid->incarnation,
			   &gid->counter, &gid->worker_id) != 3)
		return false;
	prepared_gid_format(again, cluster, gid);
	return strcmp(text, again) == 0;
}

static List *
append_gids(List *gids, const WorkerConnection *conn, const PGresult *result, const char *cluster)
{
	for (int i = 0; i < PQntuples(result); i++)
	{
		PreparedGid *gid = palloc(sizeof(PreparedGid));

		if (parse_gid(PQgetvalue(result, i, 0), cluster, gid))
			gids = lappend(gids, gid);
		else
			ereport(LOG, (errmsg("worker \"%s\" has a prepared transaction with a strange name",
								 conn->worker_name),
						  errdetail("\"%s\" is left alone.", PQgetvalue(result, i, 0))));
	}
	return gids;
}

List *
prepared_gid_list(WorkerConnection *conn, int64 deadline)
{
	ClusterIdentity identity;
	List *gids = NIL;
	StringInfoData message;
	PGresult *result;

	cluster_identity_read(&identity);
	initStringInfo(&message);
	appendStringInfo(&message,
					 "SELECT strata_worker.check_session('%s'); "
					 "SELECT gid FROM pg_catalog.pg_prepared_xacts "
					 "WHERE database OPERATOR(pg_catalog.=) pg_catalog.current_database() "
					 "AND pg_catalog.starts_with(gid, 'strata_%s_')",
					 identity.id, identity.id);
	connection_send(conn, message.data, 1, "SELECT gid FROM pg_prepared_xacts");
	while ((result = connection_get_result_until(conn, deadline)) != NULL)
	{
		if (PQresultStatus(result) != PGRES_TUPLES_OK)
			connection_report(ERROR, conn, result, NULL);
		gids = append_gids(gids, conn, result, identity.id);
		PQclear(result);
	}
	pfree(message.data);
	return gids;
}
