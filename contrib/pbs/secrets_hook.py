"""Refuses a PBS job that would publish a credential.

PBS shows the variables that a job is submitted with (qsub -v and -V) to every user: qstat -f prints them. Install as a
manager:

    qmgr -c "create hook openai4s_secrets"
    qmgr -c "import hook openai4s_secrets application/x-python default secrets_hook.py"
    qmgr -c "set hook openai4s_secrets event = queuejob"

Jobs that openai4s submits pass: they carry no variable, and secrets of a job file's [secrets] travel over the
authenticated connection to each rank.
"""
import re

import pbs

# What the name of a variable looks like that holds a credential.
SHAPE = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIAL", re.IGNORECASE)
# And its value, whatever the name.
VALUE = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bhf_[A-Za-z0-9]{20,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY-----")


def published(variables):
    """The names in a job's Variable_List whose name or value is a credential's, sorted."""
    found = []
    for name, value in (variables or {}).items():
        if str(name).startswith("PBS_"):
            continue  # PBS's own, which say where qsub was run
        if value and (SHAPE.search(str(name)) or VALUE.search(str(value))):
            found.append(str(name))
    return sorted(found)


def main():
    event = pbs.event()
    names = published(event.job.Variable_List)
    if names:
        event.reject(
            "%s would be shown to every user by qstat -f. Submit without -V and -v for it; openai4s hands secrets to a "
            "job's ranks by [secrets] in the job file" % ", ".join(names))
    event.accept()


main()
