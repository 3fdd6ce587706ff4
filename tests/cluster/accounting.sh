# The accounting part of up.sh, sourced by it: mariadbd (a socket and a loopback port of its own), slurmdbd, the
# cluster's account "lab", and every ordinary user of this machine as somebody who may charge it.

for d in slurmdbd mariadbd; do
	command -v "$d" >/dev/null || [[ -x /usr/sbin/$d ]] || die "$d is not installed: run install.sh --accounting first"
done

db=$state/mysql
sql() { mariadb --no-defaults --socket="$db/socket" -e "$1"; }
if ! alive "$db/mysqld.pid" mariadbd; then
	install -d -m 755 -o mysql -g mysql "$db"
	[[ -d $db/data/mysql ]] || mariadb-install-db --no-defaults --user=mysql --datadir="$db/data" \
		--auth-root-authentication-method=socket --skip-test-db >"$state/log/mariadb-install.log" 2>&1
	setsid /usr/sbin/mariadbd --no-defaults --user=mysql --datadir="$db/data" --socket="$db/socket" \
		--pid-file="$db/mysqld.pid" --bind-address=127.0.0.1 --port=$((port + 2)) \
		--innodb-buffer-pool-size=64M --innodb-lock-wait-timeout=900 >"$state/log/mariadb.log" 2>&1 </dev/null &
	disown
fi
await 60 mariadbd sql 'select 1'
# The password guards nothing: the database listens on loopback and holds what test jobs did.
sql "create database if not exists slurm_acct_db;
	create user if not exists slurm@127.0.0.1 identified by 'slurm';
	create user if not exists slurm@localhost identified by 'slurm';
	grant all on slurm_acct_db.* to slurm@127.0.0.1; grant all on slurm_acct_db.* to slurm@localhost;"

if ! alive "$state/run/ctld/slurmdbd.pid" slurmdbd; then
	cat >"$state/etc/slurmdbd.conf" <<-CONF
		AuthType=auth/munge
		AuthInfo=socket=$munge/socket
		CommunicationParameters=NoInAddrAny
		DbdHost=$hostname
		DbdAddr=127.0.0.1
		DbdPort=$((port + 1))
		SlurmUser=slurm
		PidFile=$state/run/ctld/slurmdbd.pid
		LogFile=$state/log/ctld/slurmdbd.log
		StorageType=accounting_storage/mysql
		StorageHost=127.0.0.1
		StoragePort=$((port + 2))
		StorageUser=slurm
		StoragePass=slurm
		StorageLoc=slurm_acct_db
	CONF
	chown slurm:slurm "$state/etc/slurmdbd.conf"
	chmod 600 "$state/etc/slurmdbd.conf"
	rm -f "$state/run/ctld/slurmdbd.pid"
	SLURM_CONF=$state/etc/slurmdbd.conf slurmdbd || die "slurmdbd did not start: $state/log/ctld/slurmdbd.log"
fi
await 60 slurmdbd sacctmgr --noheader show cluster
if [[ -z $(sacctmgr --noheader --parsable2 show cluster "$cluster") ]]; then
	sacctmgr --immediate --quiet add cluster "$cluster" >&2
	sacctmgr --immediate --quiet add account lab Description=lab Organization=lab >&2
fi
while IFS=: read -r user _ uid _; do
	((uid >= 1000 && uid < 60000)) || [[ $user == root ]] || continue
	[[ $(sacctmgr --noheader --parsable2 show assoc user="$user" account=lab) ]] ||
		sacctmgr --immediate --quiet add user "$user" Account=lab DefaultAccount=lab >&2
done < <(getent passwd)
