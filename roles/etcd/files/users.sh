#!/bin/sh
# Lines "name prefix password" on standard input: make a user of each, who reads and writes what is
# below the prefix, and see that etcd asks who one is.  Writes what it has changed.  The environment
# has etcdctl's settings for user root, and in $NOBODY the certificate of nobody.
set -eu

quietly()
{
	etcdctl "$@" </dev/null >/dev/null
}

if ! quietly user get root 2>/dev/null; then
	quietly user add root --no-password
	quietly user grant-role root root
	echo "user root"
fi
while read -r name prefix password; do
	[ -n "$name" ] || continue
	if ! quietly role get "$name" 2>/dev/null; then
		quietly role add "$name"
		echo "role $name"
	fi
	if ! etcdctl role get "$name" </dev/null | grep -qF "$prefix"; then
		quietly role grant-permission "$name" --prefix=true readwrite "$prefix"
		echo "permission of $name"
	fi
	if ! quietly user get "$name" 2>/dev/null; then
		echo "$password" | etcdctl user add "$name" --interactive=false >/dev/null
		echo "user $name"
	elif ! (export ETCDCTL_USER="$name" ETCDCTL_PASSWORD="$password"
		quietly get "$prefix" 2>/dev/null); then
		echo "$password" | etcdctl user passwd "$name" --interactive=false >/dev/null
		echo "password of $name"
	fi
	if ! etcdctl user get "$name" </dev/null | grep -q "^Roles:.* $name"; then
		quietly user grant-role "$name" "$name"
		echo "role of user $name"
	fi
done
if (export ETCDCTL_CERT="$NOBODY.crt" ETCDCTL_KEY="$NOBODY.key"
	quietly get / 2>/dev/null); then
	quietly auth enable
	echo "authentication"
fi
