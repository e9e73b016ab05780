/*
 * owner_guard.c
 *		What a superuser has workers compute of somebody's table runs with that role's rights at most.
 *
 * When a superuser distributes the table of another role, makes lost shards of it anew or has it analysed, the workers compute what that
 * role has written: CHECK constraints and generated columns of the rows that they are sent, and the
 * constant parts of indexes of a table that is read.  Core runs such code as the owner where it is its own
 * doing, as in ANALYZE; and so do the workers while the guard is up (worker/src/function_guard.c).  The
 * commands themselves stay the superuser's, because the owner need not have all rights that they take (CREATE
 * on the schema) and does not see what the superuser has written in this transaction.
 *
 * Ordinary roles run commands on tables of their own, or of roles that they belong to, and get no guard: it is
 * the administrator's.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/rel.h"

#include "stream/remote_command.h"
#include "table/owner_guard.h"

bool
owner_guard_begin(const Bitmapset *workers, Relation relation)
{
	if (!superuser() || superuser_arg(relation->rd_rel->relowner))
		return false;
	remote_command_run(workers, REMOTE_READ, "SELECT strata_worker.guard_functions(true)");
	return true;
}

void
owner_guard_end(const Bitmapset *workers)
{
	remote_command_run(workers, REMOTE_READ, "SELECT strata_worker.guard_functions(false)");
}
