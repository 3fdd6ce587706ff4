package slurm

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
)

// testdata holds what three versions of Slurm really said.
var versions = []string{"22.05", "24.11", "26.05"}

const recordedDelimiter = "|xx|" // of the recordings squeue.txt

// want is what a recorded job has to be told as.
type want struct {
	phase    scheduler.Phase
	reason   scheduler.Reason
	code     int // -1: none
	signal   int
	held     bool
	requeued bool
	hosts    int
	message  string // part of it
	restarts int
}

func (w want) check(t *testing.T, o scheduler.Observation) {
	t.Helper()
	assert.Equal(t, w.phase, o.Phase, "%+v", o)
	assert.Equal(t, w.reason, o.Reason, "%+v", o)
	if w.code < 0 {
		assert.Nil(t, o.ExitCode, "%+v", o)
	} else if assert.NotNil(t, o.ExitCode, "%+v", o) {
		assert.Equal(t, w.code, *o.ExitCode)
	}
	assert.Equal(t, w.signal, o.ExitSignal, "%+v", o)
	assert.Equal(t, w.held, o.Held, "%+v", o)
	assert.Equal(t, w.requeued, o.Requeued, "%+v", o)
	assert.Equal(t, w.restarts, o.Restarts, "%+v", o)
	assert.Len(t, o.Hosts, w.hosts, "%+v", o)
	assert.Contains(t, o.Message, w.message)
	assert.NotEmpty(t, o.Verbatim)
}

// TestRecordedQueue reads the very form that queue asks for, as each version printed it.
func TestRecordedQueue(t *testing.T) {
	wants := map[string]want{
		"ok":           {phase: scheduler.Completed, code: 0, hosts: 1},
		"three":        {phase: scheduler.Failed, reason: scheduler.CommandFailed, code: 3, hosts: 1},
		"segv":         {phase: scheduler.Failed, reason: scheduler.CommandFailed, code: -1, signal: 11, hosts: 1},
		"noout":        {phase: scheduler.Failed, reason: scheduler.BootstrapFailed, code: -1, hosts: 1, message: "could not be started"},
		"victim":       {phase: scheduler.Cancelled, reason: scheduler.UserCancelled, code: -1, signal: 15, hosts: 1},
		"running":      {phase: scheduler.Granted, code: -1, hosts: 2},
		"two lines|xx": {phase: scheduler.Granted, code: -1, hosts: 1},
		"held":         {phase: scheduler.Pending, code: -1, held: true, message: "held by its owner"},
		"later":        {phase: scheduler.Pending, code: -1},
		"wide":         {phase: scheduler.Pending, code: -1},
		"prio":         {phase: scheduler.Pending, code: -1},
		"reque":        {phase: scheduler.Pending, code: -1, requeued: true, restarts: 1},
	}
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			out := read(t, v, "squeue.txt")
			// The recording's delimiter is no secret, so a name can hold it; the queries' own can't be known.
			out = strings.ReplaceAll(out, "two\nlines|xx|xx|", "two\nlines\\xx|xx|")
			seen := map[string]bool{}
			for _, r := range records([]byte(out), recordedDelimiter, queueFields, true) {
				o := r.observation()
				o.Name = strings.ReplaceAll(o.Name, `\xx`, "|xx")
				if w, ok := wants[o.Name]; ok {
					seen[o.Name] = true
					t.Run(o.Name, func(t *testing.T) { w.check(t, o) })
				}
				assert.Equal(t, "alice", o.User)
				assert.False(t, o.SubmitTime.IsZero())
			}
			assert.Len(t, seen, len(wants))
		})
	}
}

// The older recordings are of other columns; their states and reasons are the rest of what a job can be.
var (
	squeueColumns = "JobArrayID|State|Reason|NumNodes|NodeList|StartTime|EndTime|TimeLimit|TimeUsed|Comment|Name|UserName|Account|QOS|Partition|SubmitTime"
	sacctColumns  = "JobID|JobIDRaw|JobName|User|Account|State|ExitCode|DerivedExitCode|Reason|Submit|Start|End|Elapsed|Timelimit|NNodes|NTasks|NodeList|MaxRSS|Comment|SubmitLine"
)

func columns(line, names string, queued bool) record {
	r := record{queued: queued}
	values := strings.Split(line, "|")
	for i, n := range strings.Split(names, "|") {
		if i < len(values) { // a submit line of several lines
			r.set(n, values[i])
		}
	}
	if queued {
		r.id, _, _ = strings.Cut(r.arrayID, "_")
	}
	return r
}

// queueWants: what the last line of a recording says. An exit code wasn't among its columns.
var queueWants = map[string]want{
	"array":                  {phase: scheduler.Granted, hosts: 1},
	"array-cancelled":        {phase: scheduler.Cancelled, reason: scheduler.UserCancelled, hosts: 1},
	"bad-output":             {phase: scheduler.Failed, reason: scheduler.CommandFailed, hosts: 1},
	"bad-workdir":            {phase: scheduler.Failed, reason: scheduler.CommandFailed, hosts: 1},
	"cancelled-pending":      {phase: scheduler.Cancelled, reason: scheduler.UserCancelled},
	"cancelled-running":      {phase: scheduler.Cancelled, reason: scheduler.UserCancelled, hosts: 2},
	"completed":              {phase: scheduler.Completed, hosts: 1},
	"completing":             {phase: scheduler.Releasing, hosts: 2},
	"failed-exit3":           {phase: scheduler.Failed, reason: scheduler.CommandFailed, hosts: 1},
	"failed-signal11":        {phase: scheduler.Failed, reason: scheduler.CommandFailed, hosts: 1},
	"het-cancelled":          {phase: scheduler.Cancelled, reason: scheduler.UserCancelled, hosts: 2},
	"het-running":            {phase: scheduler.Granted, hosts: 2},
	"mem-no-enforcement":     {phase: scheduler.Granted, hosts: 1},
	"nodefail-nokill":        {phase: scheduler.Granted, hosts: 3},
	"nodefail-norequeue":     {phase: scheduler.Failed, reason: scheduler.NodeFailed, hosts: 4},
	"nodefail-requeue":       {phase: scheduler.Pending},
	"oom":                    {phase: scheduler.Failed, reason: scheduler.OutOfMemory, hosts: 1},
	"oom-step":               {phase: scheduler.Failed, reason: scheduler.CommandFailed, hosts: 1},
	"overmemorykill":         {phase: scheduler.Completed, hosts: 1},
	"pending-hold":           {phase: scheduler.Pending, held: true, message: "scontrol release"},
	"pending-reasons":        {phase: scheduler.Pending, held: true},
	"pending-resources":      {phase: scheduler.Pending},
	"requeued-pending":       {phase: scheduler.Pending},
	"requeued-running":       {phase: scheduler.Granted, hosts: 2},
	"running":                {phase: scheduler.Granted, hosts: 2},
	"time-over-max-default":  {phase: scheduler.Pending, reason: scheduler.Unschedulable, message: "more time than its partition allows"},
	"timeout":                {phase: scheduler.Failed, reason: scheduler.TimeLimitExceeded, hosts: 1},
	"too-many-nodes-default": {phase: scheduler.Pending, reason: scheduler.Unschedulable, message: "nodes"},
}

func TestRecordedStates(t *testing.T) {
	for _, v := range versions {
		for _, file := range glob(t, v, "squeue-format-*.txt") {
			name := strings.TrimSuffix(strings.TrimPrefix(file, "squeue-format-"), ".txt")
			text := strings.TrimSpace(read(t, v, file))
			if text == "" {
				continue // the job was gone when it was asked for
			}
			t.Run(v+"/"+name, func(t *testing.T) {
				w, ok := queueWants[name]
				require.True(t, ok, "no expectation for this recording")
				if v == "22.05" && name == "het-running" {
					w = want{phase: scheduler.Pending} // it was asked too early
				}
				if v == "22.05" && name == "het-cancelled" {
					w.hosts = 0
				}
				w.code = -1
				lines := strings.Split(text, "\n")
				o := columns(lines[len(lines)-1], squeueColumns, true).observation()
				if o.Phase == scheduler.Completed {
					o.ExitCode = nil
				}
				w.check(t, o)
			})
		}
	}
}

// accountWants: what the last allocation's row of a recording says.
var accountWants = map[string]want{
	"array":                  {phase: scheduler.Pending, code: -1},
	"array-cancelled":        {phase: scheduler.Cancelled, reason: scheduler.UserCancelled, code: -1},
	"bad-output":             {phase: scheduler.Failed, reason: scheduler.BootstrapFailed, code: -1, hosts: 1, message: "could not be started"},
	"bad-workdir":            {phase: scheduler.Failed, reason: scheduler.BootstrapFailed, code: -1, hosts: 1},
	"cancelled-pending":      {phase: scheduler.Cancelled, reason: scheduler.UserCancelled, code: -1},
	"cancelled-running":      {phase: scheduler.Cancelled, reason: scheduler.UserCancelled, code: -1, hosts: 2},
	"completed":              {phase: scheduler.Completed, code: 0, hosts: 1},
	"failed-exit3":           {phase: scheduler.Failed, reason: scheduler.CommandFailed, code: 3, hosts: 1},
	"failed-signal11":        {phase: scheduler.Failed, reason: scheduler.CommandFailed, code: -1, signal: 11, hosts: 1},
	"het-cancelled":          {phase: scheduler.Cancelled, reason: scheduler.UserCancelled, code: -1, hosts: 2},
	"het-running":            {phase: scheduler.Granted, code: -1, hosts: 2},
	"mem-no-enforcement":     {phase: scheduler.Granted, code: -1, hosts: 1},
	"nodefail-nokill":        {phase: scheduler.Granted, code: -1, hosts: 3},
	"nodefail-norequeue":     {phase: scheduler.Failed, reason: scheduler.NodeFailed, code: -1, hosts: 4},
	"nodefail-requeue":       {phase: scheduler.Failed, reason: scheduler.NodeFailed, code: -1, hosts: 4},
	"oom":                    {phase: scheduler.Failed, reason: scheduler.OutOfMemory, code: -1, signal: 125, hosts: 1},
	"oom-step":               {phase: scheduler.Failed, reason: scheduler.CommandFailed, code: 1, hosts: 1},
	"overmemorykill":         {phase: scheduler.Completed, code: 0, hosts: 1},
	"pending-hold":           {phase: scheduler.Pending, code: -1, held: true},
	"pending-resources":      {phase: scheduler.Pending, code: -1},
	"requeued-pending":       {phase: scheduler.Pending, code: -1, requeued: true},
	"requeued-running":       {phase: scheduler.Granted, code: -1, hosts: 2},
	"running":                {phase: scheduler.Granted, code: -1, hosts: 2},
	"time-over-max-default":  {phase: scheduler.Pending, reason: scheduler.Unschedulable, code: -1},
	"timeout":                {phase: scheduler.Failed, reason: scheduler.TimeLimitExceeded, code: -1, hosts: 1},
	"too-many-nodes-default": {phase: scheduler.Pending, reason: scheduler.Unschedulable, code: -1},
}

func TestRecordedAccounting(t *testing.T) {
	for _, v := range versions[:2] { // the cluster of 26.05 kept none
		for _, file := range glob(t, v, "sacct-parsable2-*.txt") {
			name := strings.TrimSuffix(strings.TrimPrefix(file, "sacct-parsable2-"), ".txt")
			t.Run(v+"/"+name, func(t *testing.T) {
				w, ok := accountWants[name]
				require.True(t, ok, "no expectation for this recording")
				if v == "22.05" && (name == "het-running" || name == "het-cancelled") {
					w.hosts = 0
					if name == "het-running" {
						w.phase = scheduler.Pending
					}
				}
				if v == "24.11" && name == "pending-hold" {
					w.held = false // its reason came later
				}
				var last record
				for line := range strings.Lines(read(t, v, file)) {
					if r := columns(strings.TrimRight(line, "\n"), sacctColumns, false); isNumber(r.id) {
						last = r
					}
				}
				last.uid = "2001"
				w.check(t, last.observation())
			})
		}
	}
}

// said is a recorded run of a command.
func said(t *testing.T, path string) result {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	m := regexp.MustCompile(`(?s)--- stdout\n(.*)--- stderr\n(.*)--- exit code (\d+)`).FindStringSubmatch(string(text))
	require.NotNil(t, m, path)
	code, err := strconv.Atoi(m[3])
	require.NoError(t, err)
	return result{code: code, stdout: []byte(m[1]), stderr: []byte(m[2])}
}

func TestRecordedSubmissions(t *testing.T) {
	type verdict struct {
		outcome scheduler.Outcome
		reason  scheduler.Reason
		hint    string
		later   bool
	}
	invalid := verdict{outcome: scheduler.Rejected, reason: scheduler.InvalidSpec}
	policy := verdict{outcome: scheduler.Rejected, reason: scheduler.PolicyRejected}
	backend := func(hint string) verdict {
		return verdict{outcome: scheduler.Rejected, reason: scheduler.BackendRejected, hint: hint}
	}
	created := verdict{outcome: scheduler.Created}
	wants := map[string]verdict{
		"ctld-down-sbatch":                     {outcome: scheduler.Rejected, reason: scheduler.BackendUnavailable, hint: "scontrol ping", later: true},
		"munge-down-sbatch":                    {outcome: scheduler.Rejected, reason: scheduler.BackendUnavailable, hint: "munge", later: true},
		"dbd-down-sbatch":                      created,
		"enforce-time-over-partition-max":      backend("walltime"),
		"enforce-time-short-partition":         backend("walltime"),
		"enforce-too-many-nodes":               backend("fewer nodes"),
		"err-bad-constraint":                   backend("feature"),
		"err-bad-gres-type":                    backend("GPUs"),
		"err-bad-option":                       invalid,
		"err-bad-output":                       created,
		"err-bad-time-format":                  invalid,
		"err-bad-workdir":                      created,
		"err-dependency":                       created,
		"err-dos-script":                       invalid,
		"err-invalid-account":                  {outcome: scheduler.Rejected, reason: scheduler.AuthorizationDenied, hint: "sacctmgr show assoc"},
		"err-invalid-partition":                backend("partition"),
		"err-invalid-qos":                      backend("QoS"),
		"err-no-shebang":                       invalid,
		"err-no-such-script":                   {outcome: scheduler.Unknown, reason: scheduler.BackendSubmissionUnknown}, // ours come on standard input
		"err-root-job-as-sci":                  invalid,
		"err-time-short-partition":             created,
		"err-too-many-gpus":                    backend("fewer nodes, GPUs"),
		"err-too-many-nodes":                   created,
		"err-too-much-mem":                     backend("memory"),
		"lua-cli-filter-accepted":              created,
		"lua-cli-filter-refused":               policy,
		"lua-job-submit-accepted-with-message": created,
		"lua-job-submit-refused":               policy,
		"lua-job-submit-refused-code":          {outcome: scheduler.Rejected, reason: scheduler.AuthorizationDenied},
	}
	for _, v := range versions {
		for _, file := range glob(t, v, "sbatch/*.txt") {
			name := strings.TrimSuffix(file, ".txt")
			t.Run(v+"/"+name, func(t *testing.T) {
				w, ok := wants[name]
				require.True(t, ok, "no expectation for this recording")
				if v == "24.11" && name == "err-too-many-nodes" {
					w = backend("fewer nodes") // only this one refuses what no node can give
				}
				r, _ := judge(said(t, filepath.Join("testdata", v, "sbatch", file)))
				assert.Equal(t, w.outcome, r.Outcome, "%+v", r)
				assert.Equal(t, w.reason, r.Reason, "%+v", r)
				assert.Equal(t, w.later, r.Later, "%+v", r)
				assert.Contains(t, r.Hint, w.hint)
				assert.Equal(t, w.outcome == scheduler.Created, !r.Job.IsZero())
				if w.outcome == scheduler.Rejected {
					assert.Contains(t, r.Text, "sbatch")
				}
			})
		}
	}
}

func TestRecordedConfiguration(t *testing.T) {
	for v, want := range map[string]scheduler.Facts{
		"22.05": {Version: "22.05.8", Cluster: "lab", KillDelay: 5 * time.Second, MinJobAge: 300 * time.Second, Accounting: true},
		"24.11": {Version: "24.11.5", Cluster: "lab", KillDelay: 5 * time.Second, MinJobAge: 300 * time.Second, Accounting: true},
		"26.05": {Version: "26.05.5", Cluster: "lab", KillDelay: 5 * time.Second, MinJobAge: 300 * time.Second},
	} {
		t.Run(v, func(t *testing.T) {
			assert.Equal(t, want, factsOf(parseConfig([]byte(read(t, v, "scontrol-show-config.txt")))))
		})
	}
}

func TestRecordedPartitions(t *testing.T) {
	types := map[string][]string{"24.11": {"a100"}, "26.05": {"a100"}}
	count := map[string]int{"22.05": 4, "24.11": 2, "26.05": 2}
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			got := partitions([]byte(read(t, v, "scontrol-o-show-partition.txt")), []byte(read(t, v, "scontrol-o-show-node.txt")))
			node := scheduler.PartitionFacts{Up: true, CPUsPerNode: 4, MemoryPerNode: 4 << 30, GPUsPerNode: count[v], GPUTypes: types[v]}
			main, short := node, node
			main.Name, main.Default, main.Nodes, main.MaxTime, main.DefaultTime = "main", true, 4, time.Hour, 10*time.Minute
			short.Name, short.Nodes, short.MaxTime, short.DefaultTime = "short", 1, 2*time.Minute, time.Minute
			assert.Equal(t, []scheduler.PartitionFacts{main, short}, got)
		})
	}
}

func read(t *testing.T, version, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", version, file))
	require.NoError(t, err)
	return string(text)
}

func glob(t *testing.T, version, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", version, pattern))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for i, p := range paths {
		paths[i] = filepath.Base(p)
	}
	return paths
}
