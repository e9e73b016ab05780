/*
 * utility_class.c
 *		What each utility statement and each kind of object means for the workers.
 *
 * Two tables that are complete: every node that ProcessUtility() gets has a row in the first, every
 * ObjectType one in the second.  What is in neither is refused rather than silently run on
 * the coordinator alone, because nodes that differ are found too late.  strata.utility_classes and
 * strata.object_classes show them; a test compares these with README.md.
 *
 * The rule behind the rows: the workers have what SQL sent to them can name (tables of ours,
 * types, functions and their like, roles, privileges), and nothing that acts before rows
 * travel (defaults, triggers, rules, policies, views) or that belongs to a server.
 */
#include "postgres.h"

#include "ddl/utility_class.h"

#include "compat.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(strata_statement_classes);
PG_FUNCTION_INFO_V1(strata_object_classes);

#define SESSION_NOTE "Acts on this session."
#define QUERY_NOTE "Runs queries, which the planner distributes."
#define FOREIGN_NOTE "Foreign data is reached from the coordinator."
#define SERVER_NOTE "Belongs to one server."
#define SETTING_NOTE "A session sends the workers the settings that matter to them."

/* clang-format off */
static const UtilityClass utility_classes[] = {
	/* rows */
	{T_CopyStmt, UTILITY_ADAPTED, ddl_copy, "COPY", "Rows go to and come from the workers."},
	{T_TruncateStmt, UTILITY_ADAPTED, ddl_truncate, "TRUNCATE", "One command with those of the tables that the workers have."},
	{T_LockStmt, UTILITY_LOCAL, NULL, "LOCK TABLE", "Statements lock the coordinator's table first, so its lock orders them."},

	/* tables and what hangs on them */
	{T_CreateStmt, UTILITY_ADAPTED, ddl_create_table, "CREATE TABLE", "USING distributed creates the shards, too; partitions and children of reference tables become such tables."},
	{T_CreateTableAsStmt, UTILITY_ADAPTED, NULL, "CREATE TABLE AS, SELECT INTO, CREATE MATERIALIZED VIEW", "USING distributed creates the shards, too; a materialized view is the coordinator's."},
	{T_AlterTableStmt, UTILITY_ADAPTED, ddl_alter_table, "ALTER TABLE, ALTER INDEX, ALTER VIEW, ALTER TYPE (attributes)", "Part by part, see below."},
	{T_AlterTableMoveAllStmt, UTILITY_CHECKED, ddl_move_tables, "ALTER TABLE ALL IN TABLESPACE", "Refused where it would move a distributed table."},
	{T_IndexStmt, UTILITY_ADAPTED, ddl_create_index, "CREATE INDEX", "By the name that it got here; CONCURRENTLY partition by partition."},
	{T_CreateStatsStmt, UTILITY_ADAPTED, ddl_create_statistics, "CREATE STATISTICS", "By the name that it got here."},
	{T_AlterStatsStmt, UTILITY_EVERYWHERE, ddl_alter_object, "ALTER STATISTICS", NULL},
	{T_RenameStmt, UTILITY_ADAPTED, ddl_rename, "ALTER ... RENAME", "Partitions get the new name, too."},
	{T_AlterObjectSchemaStmt, UTILITY_ADAPTED, ddl_set_schema, "ALTER ... SET SCHEMA", "Partitions go along."},
	{T_AlterObjectDependsStmt, UTILITY_EVERYWHERE, ddl_alter_object, "ALTER ... DEPENDS ON EXTENSION", NULL},
	{T_AlterOwnerStmt, UTILITY_EVERYWHERE, ddl_alter_object, "ALTER ... OWNER TO", NULL},
	{T_DropStmt, UTILITY_ADAPTED, ddl_drop_objects, "DROP", "Tables go whichever way they are dropped."},
	{T_CommentStmt, UTILITY_EVERYWHERE, ddl_alter_object, "COMMENT", NULL},
	{T_SecLabelStmt, UTILITY_ADAPTED, ddl_security_label, "SECURITY LABEL", "As ALTER of the object; of provider strata: distributes the table as a dump says."},
	{T_CreateTrigStmt, UTILITY_CHECKED, ddl_create_trigger, "CREATE TRIGGER", "Triggers are fired here; those that a foreign key's action would leave out are refused."},
	{T_RuleStmt, UTILITY_CHECKED, ddl_create_rule, "CREATE RULE", "Statements are rewritten before they are planned."},
	{T_CreatePolicyStmt, UTILITY_LOCAL, NULL, "CREATE POLICY", "Policies are part of the queries that are sent."},
	{T_AlterPolicyStmt, UTILITY_LOCAL, NULL, "ALTER POLICY", "As CREATE POLICY."},
	{T_ViewStmt, UTILITY_LOCAL, NULL, "CREATE VIEW", "Views are expanded before anything is sent."},
	{T_RefreshMatViewStmt, UTILITY_LOCAL, NULL, "REFRESH MATERIALIZED VIEW", "Its rows are the coordinator's."},
	{T_CreateSeqStmt, UTILITY_LOCAL, NULL, "CREATE SEQUENCE", "The coordinator draws all values: unique over the cluster."},
	{T_AlterSeqStmt, UTILITY_LOCAL, NULL, "ALTER SEQUENCE", "As CREATE SEQUENCE."},

	/* types, functions and their like: the same on all nodes */
	{T_CreateSchemaStmt, UTILITY_ADAPTED, ddl_create_schema, "CREATE SCHEMA", "By the right to it that counts here; its elements are statements of their own."},
	{T_CompositeTypeStmt, UTILITY_EVERYWHERE, ddl_create_object, "CREATE TYPE AS", NULL},
	{T_CreateEnumStmt, UTILITY_EVERYWHERE, ddl_create_object, "CREATE TYPE AS ENUM", NULL},
	{T_CreateRangeStmt, UTILITY_EVERYWHERE, ddl_create_object, "CREATE TYPE AS RANGE", NULL},
	{T_CreateDomainStmt, UTILITY_EVERYWHERE, ddl_create_object, "CREATE DOMAIN", NULL},
	{T_DefineStmt, UTILITY_EVERYWHERE, ddl_create_object, "CREATE AGGREGATE, COLLATION, OPERATOR, TEXT SEARCH ..., TYPE", NULL},
	{T_CreateFunctionStmt, UTILITY_EVERYWHERE, ddl_create_object, "CREATE FUNCTION, CREATE PROCEDURE", "Not trigger functions, nor those that take rows of a local table."},
	{T_CreateCastStmt, UTILITY_EVERYWHERE, ddl_create_object, "CREATE CAST", NULL},
	{T_CreateConversionStmt, UTILITY_EVERYWHERE, ddl_create_object, "CREATE CONVERSION", NULL},
	{T_CreateTransformStmt, UTILITY_EVERYWHERE, ddl_create_object, "CREATE TRANSFORM", NULL},
	{T_CreatePLangStmt, UTILITY_EVERYWHERE, ddl_create_object, "CREATE LANGUAGE", NULL},
	{T_CreateAmStmt, UTILITY_EVERYWHERE, ddl_create_object, "CREATE ACCESS METHOD", NULL},
	{T_CreateOpClassStmt, UTILITY_EVERYWHERE, ddl_create_object, "CREATE OPERATOR CLASS", NULL},
	{T_CreateOpFamilyStmt, UTILITY_EVERYWHERE, ddl_create_object, "CREATE OPERATOR FAMILY", NULL},
	{T_AlterEnumStmt, UTILITY_EVERYWHERE, ddl_alter_object, "ALTER TYPE ... ADD VALUE, RENAME VALUE", NULL},
	{T_AlterDomainStmt, UTILITY_EVERYWHERE, ddl_alter_object, "ALTER DOMAIN", "The workers check the rows."},
	{T_AlterTypeStmt, UTILITY_EVERYWHERE, ddl_alter_object, "ALTER TYPE ... SET", NULL},
	{T_AlterFunctionStmt, UTILITY_EVERYWHERE, ddl_alter_object, "ALTER FUNCTION, ALTER PROCEDURE, ALTER ROUTINE", NULL},
	{T_AlterOperatorStmt, UTILITY_EVERYWHERE, ddl_alter_object, "ALTER OPERATOR", NULL},
	{T_AlterOpFamilyStmt, UTILITY_EVERYWHERE, ddl_alter_object, "ALTER OPERATOR FAMILY", NULL},
	{T_AlterCollationStmt, UTILITY_EVERYWHERE, ddl_alter_object, "ALTER COLLATION", NULL},
	{T_AlterTSDictionaryStmt, UTILITY_EVERYWHERE, ddl_alter_object, "ALTER TEXT SEARCH DICTIONARY", NULL},
	{T_AlterTSConfigurationStmt, UTILITY_EVERYWHERE, ddl_alter_object, "ALTER TEXT SEARCH CONFIGURATION", NULL},
	{T_CreateExtensionStmt, UTILITY_ADAPTED, ddl_create_extension, "CREATE EXTENSION", "Its files must be on every server; those of strata.local_extensions stay here."},
	{T_AlterExtensionStmt, UTILITY_EVERYWHERE, ddl_alter_extension, "ALTER EXTENSION ... UPDATE", NULL},
	{T_AlterExtensionContentsStmt, UTILITY_EVERYWHERE, ddl_alter_object, "ALTER EXTENSION ... ADD, DROP", NULL},

	/* roles and privileges */
	{T_GrantStmt, UTILITY_ADAPTED, ddl_grant, "GRANT, REVOKE", "The access list that it leads to; on tables and sequences: here only."},
	{T_AlterDefaultPrivilegesStmt, UTILITY_LOCAL, NULL, "ALTER DEFAULT PRIVILEGES", "What a new object gets by it is granted on the workers, too."},
	{T_CreateRoleStmt, UTILITY_ADAPTED, ddl_create_role, "CREATE ROLE, USER, GROUP", "How clients log in (password, connection limit ...) stays here."},
	{T_AlterRoleStmt, UTILITY_ADAPTED, ddl_alter_role, "ALTER ROLE", "How clients log in (password, connection limit ...) stays here."},
	{T_AlterRoleSetStmt, UTILITY_ADAPTED, ddl_alter_role_set, "ALTER ROLE ... SET", "But for settings that name what a node has of its own."},
	{T_DropRoleStmt, UTILITY_ADAPTED, ddl_drop_role, "DROP ROLE", NULL},
	{T_GrantRoleStmt, UTILITY_EVERYWHERE, ddl_send_role_command, "GRANT, REVOKE of roles", NULL},
	{T_DropOwnedStmt, UTILITY_EVERYWHERE, ddl_send_role_command, "DROP OWNED", NULL},
	{T_ReassignOwnedStmt, UTILITY_EVERYWHERE, ddl_send_role_command, "REASSIGN OWNED", NULL},

	/* maintenance: outside of transactions */
	{T_VacuumStmt, UTILITY_ADAPTED, maintenance_vacuum, "VACUUM, ANALYZE", "Reaches all copies and shards; ANALYZE takes a sample of the workers' rows."},
	{T_ReindexStmt, UTILITY_ADAPTED, maintenance_reindex, "REINDEX", "Of a schema or the database: table by table."},
	{T_CompatClusterStmt, UTILITY_ADAPTED, maintenance_cluster, "CLUSTER", "In each copy and shard, in the transaction; the index is marked here alone."},

	/* replication, foreign data, event triggers */
	{T_CreatePublicationStmt, UTILITY_CHECKED, ddl_change_publication, "CREATE PUBLICATION", "Refused for distributed tables: their changes are not in the coordinator's WAL."},
	{T_AlterPublicationStmt, UTILITY_CHECKED, ddl_change_publication, "ALTER PUBLICATION", "As CREATE PUBLICATION."},
	{T_CreateSubscriptionStmt, UTILITY_LOCAL, NULL, "CREATE SUBSCRIPTION", SERVER_NOTE},
	{T_AlterSubscriptionStmt, UTILITY_LOCAL, NULL, "ALTER SUBSCRIPTION", SERVER_NOTE},
	{T_DropSubscriptionStmt, UTILITY_LOCAL, NULL, "DROP SUBSCRIPTION", SERVER_NOTE},
	{T_CreateFdwStmt, UTILITY_LOCAL, NULL, "CREATE FOREIGN DATA WRAPPER", FOREIGN_NOTE},
	{T_AlterFdwStmt, UTILITY_LOCAL, NULL, "ALTER FOREIGN DATA WRAPPER", FOREIGN_NOTE},
	{T_CreateForeignServerStmt, UTILITY_LOCAL, NULL, "CREATE SERVER", FOREIGN_NOTE},
	{T_AlterForeignServerStmt, UTILITY_LOCAL, NULL, "ALTER SERVER", FOREIGN_NOTE},
	{T_CreateForeignTableStmt, UTILITY_CHECKED, ddl_create_table, "CREATE FOREIGN TABLE", "Must not inherit from a table that is on several nodes."},
	{T_ImportForeignSchemaStmt, UTILITY_LOCAL, NULL, "IMPORT FOREIGN SCHEMA", FOREIGN_NOTE},
	{T_CreateUserMappingStmt, UTILITY_LOCAL, NULL, "CREATE USER MAPPING", FOREIGN_NOTE},
	{T_AlterUserMappingStmt, UTILITY_LOCAL, NULL, "ALTER USER MAPPING", FOREIGN_NOTE},
	{T_DropUserMappingStmt, UTILITY_LOCAL, NULL, "DROP USER MAPPING", FOREIGN_NOTE},
	{T_CreateEventTrigStmt, UTILITY_LOCAL, NULL, "CREATE EVENT TRIGGER", "Fires where the user's statement runs."},
	{T_AlterEventTrigStmt, UTILITY_LOCAL, NULL, "ALTER EVENT TRIGGER", "As CREATE EVENT TRIGGER."},

	/* the server */
	{T_CreatedbStmt, UTILITY_LOCAL, NULL, "CREATE DATABASE", SERVER_NOTE},
	{T_AlterDatabaseStmt, UTILITY_LOCAL, NULL, "ALTER DATABASE", SERVER_NOTE},
	{T_AlterDatabaseRefreshCollStmt, UTILITY_LOCAL, NULL, "ALTER DATABASE ... REFRESH COLLATION VERSION", SERVER_NOTE},
	{T_AlterDatabaseSetStmt, UTILITY_LOCAL, NULL, "ALTER DATABASE ... SET", SETTING_NOTE},
	{T_DropdbStmt, UTILITY_LOCAL, NULL, "DROP DATABASE", SERVER_NOTE},
	{T_CreateTableSpaceStmt, UTILITY_LOCAL, NULL, "CREATE TABLESPACE", SERVER_NOTE},
	{T_AlterTableSpaceOptionsStmt, UTILITY_LOCAL, NULL, "ALTER TABLESPACE", SERVER_NOTE},
	{T_DropTableSpaceStmt, UTILITY_LOCAL, NULL, "DROP TABLESPACE", SERVER_NOTE},
	{T_AlterSystemStmt, UTILITY_LOCAL, NULL, "ALTER SYSTEM", SERVER_NOTE},
	{T_CheckPointStmt, UTILITY_LOCAL, NULL, "CHECKPOINT", SERVER_NOTE},
	{T_LoadStmt, UTILITY_LOCAL, NULL, "LOAD", SESSION_NOTE},

	/* queries, transactions, the session */
	{T_ExplainStmt, UTILITY_LOCAL, NULL, "EXPLAIN", QUERY_NOTE},
	{T_PrepareStmt, UTILITY_LOCAL, NULL, "PREPARE", QUERY_NOTE},
	{T_ExecuteStmt, UTILITY_LOCAL, NULL, "EXECUTE", QUERY_NOTE},
	{T_DeallocateStmt, UTILITY_LOCAL, NULL, "DEALLOCATE", SESSION_NOTE},
	{T_DeclareCursorStmt, UTILITY_LOCAL, NULL, "DECLARE", QUERY_NOTE},
	{T_FetchStmt, UTILITY_LOCAL, NULL, "FETCH, MOVE", QUERY_NOTE},
	{T_ClosePortalStmt, UTILITY_LOCAL, NULL, "CLOSE", SESSION_NOTE},
	{T_DoStmt, UTILITY_LOCAL, NULL, "DO", "Runs here; its statements are handled one by one."},
	{T_CallStmt, UTILITY_LOCAL, NULL, "CALL", "As DO."},
	{T_TransactionStmt, UTILITY_LOCAL, NULL, "BEGIN, COMMIT, ROLLBACK, SAVEPOINT, PREPARE TRANSACTION ...", "The workers' transactions follow; the user's own PREPARE TRANSACTION is refused where they have written."},
	{T_ConstraintsSetStmt, UTILITY_ADAPTED, ddl_set_constraints, "SET CONSTRAINTS", "Workers that join the transaction later get it, too."},
	{T_VariableSetStmt, UTILITY_CHECKED, ddl_set, "SET, RESET", SETTING_NOTE},
	{T_VariableShowStmt, UTILITY_LOCAL, NULL, "SHOW", SESSION_NOTE},
	{T_DiscardStmt, UTILITY_LOCAL, NULL, "DISCARD", SESSION_NOTE},
	{T_NotifyStmt, UTILITY_LOCAL, NULL, "NOTIFY", "Clients listen on the coordinator."},
	{T_ListenStmt, UTILITY_LOCAL, NULL, "LISTEN", "Clients listen on the coordinator."},
	{T_UnlistenStmt, UTILITY_LOCAL, NULL, "UNLISTEN", "Clients listen on the coordinator."},
};

/* Kinds of objects, for statements that take any: ALTER, DROP, COMMENT, GRANT. */
static const struct
{
	ObjectType type;
	ObjectPlace place;
	const char *name;
} object_classes[] = {
	{OBJECT_ACCESS_METHOD, OBJECT_ON_ALL_NODES, "access method"},
	{OBJECT_AGGREGATE, OBJECT_ON_ALL_NODES, "aggregate"},
	{OBJECT_AMOP, OBJECT_ON_ALL_NODES, "operator of a family"},
	{OBJECT_AMPROC, OBJECT_ON_ALL_NODES, "function of a family"},
	{OBJECT_ATTRIBUTE, OBJECT_ON_ALL_NODES, "attribute of a type"},
	{OBJECT_CAST, OBJECT_ON_ALL_NODES, "cast"},
	{OBJECT_COLLATION, OBJECT_ON_ALL_NODES, "collation"},
	{OBJECT_CONVERSION, OBJECT_ON_ALL_NODES, "conversion"},
	{OBJECT_DOMAIN, OBJECT_ON_ALL_NODES, "domain"},
	{OBJECT_DOMCONSTRAINT, OBJECT_ON_ALL_NODES, "constraint of a domain"},
	{OBJECT_EXTENSION, OBJECT_ON_ALL_NODES, "extension"},
	{OBJECT_FUNCTION, OBJECT_ON_ALL_NODES, "function"},
	{OBJECT_LANGUAGE, OBJECT_ON_ALL_NODES, "language"},
	{OBJECT_OPCLASS, OBJECT_ON_ALL_NODES, "operator class"},
	{OBJECT_OPERATOR, OBJECT_ON_ALL_NODES, "operator"},
	{OBJECT_OPFAMILY, OBJECT_ON_ALL_NODES, "operator family"},
	{OBJECT_PARAMETER_ACL, OBJECT_ON_ALL_NODES, "privilege on a setting"},
	{OBJECT_PROCEDURE, OBJECT_ON_ALL_NODES, "procedure"},
	{OBJECT_ROLE, OBJECT_ON_ALL_NODES, "role"},
	{OBJECT_ROUTINE, OBJECT_ON_ALL_NODES, "routine"},
	{OBJECT_SCHEMA, OBJECT_ON_ALL_NODES, "schema"},
	{OBJECT_TRANSFORM, OBJECT_ON_ALL_NODES, "transform"},
	{OBJECT_TSCONFIGURATION, OBJECT_ON_ALL_NODES, "text search configuration"},
	{OBJECT_TSDICTIONARY, OBJECT_ON_ALL_NODES, "text search dictionary"},
	{OBJECT_TSPARSER, OBJECT_ON_ALL_NODES, "text search parser"},
	{OBJECT_TSTEMPLATE, OBJECT_ON_ALL_NODES, "text search template"},
	{OBJECT_TYPE, OBJECT_ON_ALL_NODES, "type"},

	{OBJECT_COLUMN, OBJECT_WITH_TABLE, "column"},
	{OBJECT_INDEX, OBJECT_WITH_TABLE, "index"},
	{OBJECT_STATISTIC_EXT, OBJECT_WITH_TABLE, "statistics object"},
	{OBJECT_TABCONSTRAINT, OBJECT_WITH_TABLE, "constraint of a table"},
	{OBJECT_TABLE, OBJECT_WITH_TABLE, "table"},

	{OBJECT_DATABASE, OBJECT_HERE, "database"},
	{OBJECT_DEFACL, OBJECT_HERE, "default privilege"},
	{OBJECT_DEFAULT, OBJECT_HERE, "default of a column"},
	{OBJECT_EVENT_TRIGGER, OBJECT_HERE, "event trigger"},
	{OBJECT_FDW, OBJECT_HERE, "foreign data wrapper"},
	{OBJECT_FOREIGN_SERVER, OBJECT_HERE, "foreign server"},
	{OBJECT_FOREIGN_TABLE, OBJECT_HERE, "foreign table"},
	{OBJECT_LARGEOBJECT, OBJECT_HERE, "large object"},
	{OBJECT_MATVIEW, OBJECT_HERE, "materialized view"},
	{OBJECT_POLICY, OBJECT_HERE, "policy"},
	{OBJECT_PUBLICATION, OBJECT_HERE, "publication"},
	{OBJECT_PUBLICATION_NAMESPACE, OBJECT_HERE, "schema of a publication"},
	{OBJECT_PUBLICATION_REL, OBJECT_HERE, "table of a publication"},
	{OBJECT_RULE, OBJECT_HERE, "rule"},
	{OBJECT_SEQUENCE, OBJECT_HERE, "sequence"},
	{OBJECT_SUBSCRIPTION, OBJECT_HERE, "subscription"},
	{OBJECT_TABLESPACE, OBJECT_HERE, "tablespace"},
	{OBJECT_TRIGGER, OBJECT_HERE, "trigger"},
	{OBJECT_USER_MAPPING, OBJECT_HERE, "user mapping"},
	{OBJECT_VIEW, OBJECT_HERE, "view"},
};
/* clang-format on */

static const char *const kind_names[] = {
	[UTILITY_EVERYWHERE] = "everywhere",
	[UTILITY_ADAPTED] = "adapted",
	[UTILITY_CHECKED] = "checked",
	[UTILITY_LOCAL] = "coordinator",
};

static const char *const place_names[] = {
	[OBJECT_ON_ALL_NODES] = "everywhere",
	[OBJECT_WITH_TABLE] = "with its table",
	[OBJECT_HERE] = "coordinator",
};

const UtilityClass *
utility_class_find(NodeTag tag)
{
	for (int i = 0; i < lengthof(utility_classes); i++)
	{
		if (utility_classes[i].tag == tag)
			return &utility_classes[i];
	}
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("statements of this kind are not supported on a coordinator"),
			 errdetail("Strata does not know what node %d means for the workers.", (int) tag)));
}

ObjectPlace
utility_class_object_place(ObjectType type)
{
	for (int i = 0; i < lengthof(object_classes); i++)
	{
		if (object_classes[i].type == type)
			return object_classes[i].place;
	}
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("objects of this kind are not supported on a coordinator"),
					errdetail("Strata does not know what object type %d means for the workers.",
							  (int) type)));
}

/* ---------------------------------------------------------------- the tables as rows */

static void
put_row(ReturnSetInfo *result, const char *const *texts, int count)
{
	Datum values[3];
	bool nulls[3];

	for (int i = 0; i < count; i++)
	{
		nulls[i] = texts[i] == NULL;
		values[i] = nulls[i] ? (Datum) 0 : CStringGetTextDatum(texts[i]);
	}
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* utility_classes(): (statements, class, note) */
Datum
strata_statement_classes(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < lengthof(utility_classes); i++)
	{
		const UtilityClass *class = &utility_classes[i];
		const char *const texts[] = {class->statements, kind_names[class->kind], class->note};

		put_row((ReturnSetInfo *) fcinfo->resultinfo, texts, lengthof(texts));
	}
	return (Datum) 0;
}

/* object_classes(): (object, class) */
Datum
strata_object_classes(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < lengthof(object_classes); i++)
	{
		const char *const texts[] = {object_classes[i].name, place_names[object_classes[i].place]};

		put_row((ReturnSetInfo *) fcinfo->resultinfo, texts, lengthof(texts));
	}
	return (Datum) 0;
}
