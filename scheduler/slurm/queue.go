package slurm

import (
	"context"
	"errors"
	"strings"
)

// Fields asked of squeue and sacct, in the order in which their rows hold them. The name stands last in both, but
// that is for the reader only: see rows.
var (
	queueFields = []string{
		"JobID", "JobArrayID", "State", "Reason", "RestartCnt", "exit_code", "NodeList",
		"SubmitTime", "StartTime", "EndTime", "UserName", "UserID", "Name",
	}
	recordFields = []string{
		"JobIDRaw", "JobID", "State", "Reason", "ExitCode", "NodeList",
		"Submit", "Start", "End", "User", "UID", "JobName",
	}
	// laterFields of sacct exist since 23.11 or so; they are asked for where this sacct lists them.
	laterFields = []string{"Restarts", "FailedNode"}
)

// record is one job as the queue or accounting tells it, in Slurm's words.
type record struct {
	id, arrayID        string
	state, reason      string
	restarts           string
	exit               string // "3:0", or a wait status
	nodes              string
	submit, start, end string
	user, uid          string
	name               string
	failedNode         string
	queued             bool // told by squeue, not by sacct
}

// set puts one field's value where it belongs. Names of fields are those of squeue and of sacct.
func (r *record) set(field, value string) {
	if value == "(null)" {
		value = ""
	}
	switch field {
	case "JobID":
		if r.queued {
			r.id = value
		} else {
			r.arrayID = value
		}
	case "JobIDRaw":
		r.id = value
	case "JobArrayID":
		r.arrayID = value
	case "State":
		r.state = value
	case "Reason":
		r.reason = value
	case "RestartCnt", "Restarts":
		r.restarts = value
	case "exit_code", "ExitCode":
		r.exit = value
	case "NodeList":
		if value != "None assigned" {
			r.nodes = value
		}
	case "SubmitTime", "Submit":
		r.submit = value
	case "StartTime", "Start":
		r.start = value
	case "EndTime", "End":
		r.end = value
	case "UserName", "User":
		r.user = value
	case "UserID", "UID":
		r.uid = value
	case "Name", "JobName":
		r.name = value
	case "FailedNode":
		r.failedNode = value
	}
}

// records reads rows of the given fields. A row without a job number is none.
func records(out []byte, delimiter string, fields []string, queued bool) []record {
	var all []record
	for _, row := range rows(out, delimiter, len(fields)) {
		r := record{queued: queued}
		for i, f := range fields {
			r.set(f, row[i])
		}
		if isNumber(r.id) {
			all = append(all, r)
		}
	}
	return all
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// queue asks squeue; selection says for which jobs. Jobs that ended less than MinJobAge ago are among the answers.
func (s *System) queue(ctx context.Context, cluster string, selection ...string) ([]record, error) {
	d := newDelimiter()
	args := []string{"--noheader", "--states=all", "--Format=" + strings.Join(queueFields, ":"+d+",") + ":" + d}
	args = append(onCluster(args, cluster), selection...)
	out, err := s.run.ask(ctx, s.limit.query, "squeue", args...)
	if err != nil {
		return nil, err
	}
	return records(out, d, queueFields, true), nil
}

// queueByID asks squeue for jobs by their ids.
func (s *System) queueByID(ctx context.Context, cluster string, ids []string) ([]record, error) {
	all, err := s.queue(ctx, cluster, "--jobs="+strings.Join(ids, ","))
	var exit *exitError
	if len(ids) == 1 && errors.As(err, &exit) {
		// One id is looked up by the controller, which fails for a job that it doesn't have, with the same code as
		// for everything else. A list is answered by leaving out what isn't there, and fails only for want of an answer.
		return s.queue(ctx, cluster, "--jobs="+ids[0]+","+ids[0])
	}
	return all, err
}

// onCluster adds the option that names another cluster than the default one. squeue, sacct and scancel share it.
func onCluster(args []string, cluster string) []string {
	if cluster == "" {
		return args
	}
	return append(args, "--clusters="+cluster)
}
