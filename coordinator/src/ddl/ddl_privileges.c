/*
 * ddl_privileges.c
 *		Privileges that an object is born with.
 *
 * ALTER DEFAULT PRIVILEGES stays on the coordinator: on the workers it would also act on
 * tables that were created here before it and distributed after it, and on those of add_worker().
 * Instead, what a new object got by it here is granted on the workers by name.  Tables get
 * their privileges in the same way, in table_ddl.c.
 */
#include "postgres.h"

#include "ddl/ddl.h"
#include "stream/remote_ddl.h"

#include "catalog/pg_language.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

static const char *
get_object_keyword(Oid class_id)
{
	switch (class_id)
	{
		case ProcedureRelationId:
			return "ROUTINE";
		case TypeRelationId:
			return "TYPE";
		case NamespaceRelationId:
			return "SCHEMA";
		case LanguageRelationId:
			return "LANGUAGE";
		default:
			return NULL;
	}
}

/* The object's access control list, NULL when it has PostgreSQL's default; *owner is set. */
static Acl *
get_acl(const ObjectAddress *object, Oid *owner)
{
	int cache = get_object_catcache_oid(object->classId);
	HeapTuple tuple = SearchSysCache1(cache, ObjectIdGetDatum(object->objectId));
	Datum value;
	bool null;
	Acl *acl;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	*owner = DatumGetObjectId(
		SysCacheGetAttr(cache, tuple, get_object_attnum_owner(object->classId), &null));
	value = SysCacheGetAttr(cache, tuple, get_object_attnum_acl(object->classId), &null);
	acl = null ? NULL : DatumGetAclPCopy(value);
	ReleaseSysCache(tuple);
	return acl;
}

static void
append_grant(StringInfo sql, const AclItem *item, const char *target)
{
	static const struct
	{
		AclMode mode;
		const char *name;
	} privileges[] = {{ACL_EXECUTE, "EXECUTE"}, {ACL_USAGE, "USAGE"}, {ACL_CREATE, "CREATE"}};
	const char *grantee = item->ai_grantee == ACL_ID_PUBLIC
							  ? "PUBLIC"
							  : quote_identifier(GetUserNameFromId(item->ai_grantee, false));

	for (int i = 0; i < lengthof(privileges); i++)
	{
		if ((ACLITEM_GET_PRIVS(*item) & privileges[i].mode) != 0)
			appendStringInfo(sql, "; GRANT %s ON %s TO %s%s", privileges[i].name, target, grantee,
							 (ACLITEM_GET_GOPTIONS(*item) & privileges[i].mode) != 0
								 ? " WITH GRANT OPTION"
								 : "");
	}
}

void
ddl_send_privileges(const ObjectAddress *object)
{
	const char *keyword = get_object_keyword(object->classId);
	StringInfoData sql;
	Oid owner;
	Acl *acl;
	char *target;

	if (keyword == NULL || (acl = get_acl(object, &owner)) == NULL)
		return;
	target = psprintf("%s %s", keyword, getObjectIdentity(object, false));
	initStringInfo(&sql);
	appendStringInfo(&sql, "REVOKE ALL ON %s FROM PUBLIC", target);
	for (int i = 0; i < ACL_NUM(acl); i++)
	{
		if (ACL_DAT(acl)[i].ai_grantee != owner)
			append_grant(&sql, &ACL_DAT(acl)[i], target);
	}
	remote_ddl_send(sql.data);
}
