#!/bin/sh
# A folder of the job's own on each of its nodes, /run/openai4s/<job>, which only its user can enter; epilog.sh removes
# it. In memory, where /run is.
#
# Install on all nodes: Prolog=/etc/slurm/openai4s-prolog.sh, Epilog=/etc/slurm/openai4s-epilog.sh in slurm.conf.
#
# It never fails: a prolog that does drains the node, and no job is worth that.
base=/run/openai4s
case $SLURM_JOB_ID$SLURM_JOB_UID in *[!0-9]* | '') exit 0 ;; esac
umask 077
mkdir -p -m 0711 "$base" && # root's, so that nobody else puts a name there
	mkdir -m 0700 "$base/$SLURM_JOB_ID" &&
	chown "$SLURM_JOB_UID" "$base/$SLURM_JOB_ID" ||
	logger -t openai4s-prolog "job $SLURM_JOB_ID has no folder in $base" 2>/dev/null
exit 0
