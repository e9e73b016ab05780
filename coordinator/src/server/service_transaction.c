/*
 * service_transaction.c
 *		Transactions of the tasks that run in the background; see service_transaction.h.
 */
#include "postgres.h"

#include "server/service_transaction.h"

#include "access/xact.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

void
service_transaction_begin(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
}

void
service_transaction_next(void)
{
	PopActiveSnapshot();
	CommitTransactionCommand();
	service_transaction_begin();
}

void
service_transaction_limit_waits(int timeout)
{
	(void) set_config_option("lock_timeout", psprintf("%dms", timeout), PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_LOCAL, true, 0, false);
}
