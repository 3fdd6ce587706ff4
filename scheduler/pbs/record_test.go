package pbs

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openai4s/hpc/scheduler"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// want is what one recorded job has to be read as.
type want struct {
	phase    scheduler.Phase
	reason   scheduler.Reason
	exit     string // "" for none
	signal   int
	held     bool
	requeued bool
	restarts int
	hosts    string
	failed   string
	words    string // part of the message
}

// Every job of the records, by the record's name.
var recorded = map[string]want{
	"E-exiting":                            {phase: scheduler.Releasing, hosts: "n2"},
	"F-after-server-restart":               {phase: scheduler.Completed, exit: "0", hosts: "n1 n2"},
	"F-badoutput":                          {phase: scheduler.Completed, exit: "0", hosts: "n1", words: "could not be delivered"},
	"F-bigout":                             {phase: scheduler.Completed, exit: "0", hosts: "n2"},
	"F-deleted-held":                       {phase: scheduler.Cancelled, reason: scheduler.UserCancelled},
	"F-deleted-queued":                     {phase: scheduler.Cancelled, reason: scheduler.UserCancelled},
	"F-deleted-running":                    {phase: scheduler.Cancelled, reason: scheduler.UserCancelled, signal: 15, hosts: "n1 n2 n3 n4"},
	"F-depend-failed":                      {phase: scheduler.Failed, reason: scheduler.Unschedulable, words: "without having run"},
	"F-exe-exit3":                          {phase: scheduler.Failed, reason: scheduler.CommandFailed, exit: "3", hosts: "n1"},
	"F-exe-missing":                        {phase: scheduler.Failed, reason: scheduler.CommandFailed, exit: "254", hosts: "n1", words: "could not be run"},
	"F-exe-sigkill":                        {phase: scheduler.Failed, reason: scheduler.CommandFailed, signal: 9, hosts: "n1"},
	"F-exe-sigterm-self":                   {phase: scheduler.Failed, reason: scheduler.CommandFailed, signal: 15, hosts: "n1"},
	"F-exe-walltime":                       {phase: scheduler.Failed, reason: scheduler.TimeLimitExceeded, exit: "-29", hosts: "n1", words: "walltime"},
	"F-exit0":                              {phase: scheduler.Completed, exit: "0", hosts: "n1"},
	"F-exit143":                            {phase: scheduler.Failed, reason: scheduler.CommandFailed, exit: "143", hosts: "n1"},
	"F-exit255":                            {phase: scheduler.Failed, reason: scheduler.CommandFailed, exit: "255", hosts: "n2"},
	"F-exit3":                              {phase: scheduler.Failed, reason: scheduler.CommandFailed, exit: "3", hosts: "n1"},
	"F-mem":                                {phase: scheduler.Failed, reason: scheduler.OutOfMemory, exit: "-27", hosts: "n1", words: "memory"},
	"F-missing-outdir-koed":                {phase: scheduler.Pending, held: true, restarts: 20, words: "21 failed attempts to start it"},
	"F-qdel-trapped":                       {phase: scheduler.Cancelled, reason: scheduler.UserCancelled, signal: 15, hosts: "n1"},
	"F-qsig-term":                          {phase: scheduler.Failed, reason: scheduler.CommandFailed, signal: 15, hosts: "n1"},
	"F-ranks":                              {phase: scheduler.Failed, reason: scheduler.CommandFailed, exit: "5", hosts: "n1 n2 n3 n4"},
	"F-sigkill":                            {phase: scheduler.Failed, reason: scheduler.CommandFailed, exit: "137", hosts: "n1"},
	"F-sigsegv":                            {phase: scheduler.Failed, reason: scheduler.CommandFailed, exit: "139", hosts: "n1"},
	"F-walltime":                           {phase: scheduler.Failed, reason: scheduler.TimeLimitExceeded, exit: "-29", hosts: "n1"},
	"F-walltime-4nodes":                    {phase: scheduler.Failed, reason: scheduler.TimeLimitExceeded, exit: "-29", hosts: "n1 n2 n3 n4"},
	"H-depend":                             {phase: scheduler.Pending, words: "waits for another job"},
	"H-userhold":                           {phase: scheduler.Pending, held: true, words: "held by its user"},
	"Q-all-offline":                        {phase: scheduler.Pending, words: "Not enough free nodes"},
	"Q-all-offline4":                       {phase: scheduler.Pending, words: "Not enough free nodes"},
	"Q-limit":                              {phase: scheduler.Pending},
	"Q-never-arch":                         {phase: scheduler.Pending, reason: scheduler.Unschedulable, words: "it can't run as it is: Can Never Run"},
	"Q-never-excl":                         {phase: scheduler.Pending, reason: scheduler.Unschedulable, words: "it can't run as it is: Can Never Run"},
	"Q-never-gpu":                          {phase: scheduler.Pending, words: "Insufficient amount of resource: ngpus"},
	"Q-never-host":                         {phase: scheduler.Pending, reason: scheduler.Unschedulable, words: "it can't run as it is: Can Never Run"},
	"Q-never-ncpus":                        {phase: scheduler.Pending, reason: scheduler.Unschedulable, words: "it can't run as it is: Can Never Run"},
	"Q-never-pack":                         {phase: scheduler.Pending, words: "Insufficient amount of resource: ncpus"},
	"Q-never-run-mem":                      {phase: scheduler.Pending, reason: scheduler.Unschedulable, words: "it can't run as it is: Can Never Run"},
	"Q-never-run-nodes":                    {phase: scheduler.Pending, reason: scheduler.Unschedulable, words: "it can't run as it is: Can Never Run"},
	"Q-never-total":                        {phase: scheduler.Pending, reason: scheduler.Unschedulable, words: "it can't run as it is: Can Never Run"},
	"Q-queue-stopped":                      {phase: scheduler.Pending, words: "Queue not started"},
	"Q-resources-busy":                     {phase: scheduler.Pending, words: "(R: 16 A: 12 T: 16)"},
	"Q-scheduling-off":                     {phase: scheduler.Pending},
	"R-after-server-restart":               {phase: scheduler.Granted, hosts: "n1 n2"},
	"R-nodedown-3s":                        {phase: scheduler.Granted, hosts: "n4"},
	"R-running":                            {phase: scheduler.Granted, hosts: "n1 n2 n3 n4"},
	"W-exectime":                           {phase: scheduler.Pending},
	"badinterp":                            {phase: scheduler.Failed, reason: scheduler.CommandFailed, exit: "254", hosts: "n2", words: "could not be run"},
	"gpu-ok":                               {phase: scheduler.Granted, hosts: "n1 n2"},
	"hook-execjob_begin-reject":            {phase: scheduler.Pending, held: true, restarts: 20, words: "21 failed attempts"},
	"hook-execjob_begin-reject-after-qdel": {phase: scheduler.Cancelled, reason: scheduler.UserCancelled, restarts: 20},
	"nodedown-after-qdel":                  {phase: scheduler.Cancelled, reason: scheduler.UserCancelled},
	"nodedown-nonrerunnable":               {phase: scheduler.Failed, reason: scheduler.NodeFailed, exit: "-20", hosts: "n4", failed: "n4", words: "lost"},
	"nodedown-rerunnable":                  {phase: scheduler.Pending, requeued: true, restarts: 1},
	"nodedown-sister":                      {phase: scheduler.Granted, hosts: "n3 n4"},
	"nodedown-sister-after-qdel":           {phase: scheduler.Cancelled, reason: scheduler.UserCancelled, signal: 15, hosts: "n3 n4"},
	"qdel-force-ms-down":                   {phase: scheduler.Cancelled, reason: scheduler.UserCancelled, hosts: "n4"},
	"qdel-while-ms-down":                   {phase: scheduler.Granted, hosts: "n4"},
	"qdel-while-ms-down-25s":               {phase: scheduler.Granted, hosts: "n4"},
	"stagein-missing":                      {phase: scheduler.Cancelled, reason: scheduler.UserCancelled},
}

func TestEveryRecordedJob(t *testing.T) {
	files, err := filepath.Glob("testdata/records/*.qstat-x-f.out")
	require.NoError(t, err)
	require.Len(t, files, len(recorded), "every record has its row")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".qstat-x-f.out")
		t.Run(name, func(t *testing.T) {
			w, listed := recorded[name]
			require.True(t, listed, "no row for this record")
			out, err := os.ReadFile(file)
			require.NoError(t, err)
			records := parseRecords(out)
			require.Len(t, records, 1)
			o, ok := records[0].observe()
			require.True(t, ok)
			exit := ""
			if o.ExitCode != nil {
				exit = itoa(*o.ExitCode)
			}
			assert.Equal(t, w.phase, o.Phase)
			assert.Equal(t, w.reason, o.Reason)
			assert.Equal(t, w.exit, exit, "exit code")
			assert.Equal(t, w.signal, o.ExitSignal, "signal")
			assert.Equal(t, w.held, o.Held, "held")
			assert.Equal(t, w.requeued, o.Requeued, "requeued")
			assert.Equal(t, w.restarts, o.Restarts, "restarts")
			assert.Equal(t, w.hosts, strings.Join(o.Hosts, " "), "hosts")
			assert.Equal(t, w.failed, o.FailedNode, "failed node")
			assert.Contains(t, o.Message, w.words)
			assert.Equal(t, "sci2", o.User)
			assert.False(t, o.SubmitTime.IsZero())
			if o.Phase.Terminal() {
				assert.False(t, o.EndTime.IsZero(), "end time")
				assert.False(t, o.EndTime.Before(o.StartTime))
			}
		})
	}
}

// The text form is what we read, the JSON form is the server's second account of the same job: unfolding is right
// if both say the same of every attribute that isn't a variable.
func TestCase34TextSaysWhatJSONSays(t *testing.T) {
	files, err := filepath.Glob("testdata/records/*.qstat-x-f.out")
	require.NoError(t, err)
	for _, file := range files {
		base := strings.TrimSuffix(filepath.Base(file), ".qstat-x-f.out")
		t.Run(base, func(t *testing.T) {
			out, err := os.ReadFile(file)
			require.NoError(t, err)
			blob, err := os.ReadFile(strings.Replace(file, "qstat-x-f", "qstat-x-json", 1))
			require.NoError(t, err)
			var doc struct {
				Jobs map[string]map[string]any
			}
			dec := json.NewDecoder(bytes.NewReader(blob))
			dec.UseNumber()
			require.NoError(t, dec.Decode(&doc))
			records := parseRecords(out)
			require.Len(t, records, 1)
			job := doc.Jobs[records[0].id]
			require.NotNil(t, job, records[0].id)
			flat := map[string]string{}
			flatten(flat, "", job)
			got := map[string]string{}
			for _, a := range records[0].attrs {
				if a.name != "Variable_List" {
					got[a.name] = a.value
				}
			}
			for _, moving := range []string{"mtime", "history_timestamp", "resources_used.walltime", "resources_used.cput"} {
				delete(flat, moving)
				delete(got, moving)
			}
			assert.Equal(t, slices.Sorted(maps.Keys(flat)), slices.Sorted(maps.Keys(got)))
			for k, v := range flat {
				assert.Equal(t, v, got[k], k)
			}
		})
	}
}

func flatten(into map[string]string, prefix string, m map[string]any) {
	for k, v := range m {
		switch v := v.(type) {
		case map[string]any:
			if k != "Variable_List" {
				flatten(into, prefix+k+".", v)
			}
		case json.Number:
			into[prefix+k] = v.String()
		case string:
			into[prefix+k] = v
		}
	}
}

func TestCase34FoldInsideAHostName(t *testing.T) {
	long := strings.Repeat("node0123456789", 8)
	out := "Job Id: 7.srv\n    Job_Name = x\n    job_state = R\n    exec_host = " + long[:60] + "\n\t" + long[60:] + "/0+n2/1*3+n2/2\n\n"
	records := parseRecords([]byte(out))
	require.Len(t, records, 1)
	o, ok := records[0].observe()
	require.True(t, ok)
	assert.Equal(t, []string{long, "n2"}, o.Hosts)
}

func TestCase36VariablesWithLineBreaksChangeNothing(t *testing.T) {
	// An exported shell function, and lines made to look like attributes of this job.
	out := "Job Id: 7.srv\n    Job_Name = x\n    Job_Owner = ann@head\n    job_state = F\n    substate = 93\n" +
		"    exec_host = n1/0\n    Variable_List = BASH_FUNC_f%%=() { \n    job_state = Q\n    Job_Owner = eve@head\n" +
		"    Exit_status = 0\n},PBS_O_HOST=head\n    run_count = 1\n    Exit_status = 3\n\n"
	records := parseRecords([]byte(out))
	require.Len(t, records, 1)
	o, ok := records[0].observe()
	require.True(t, ok)
	assert.Equal(t, scheduler.Failed, o.Phase)
	assert.Equal(t, "ann", o.User)
	require.NotNil(t, o.ExitCode)
	assert.Equal(t, 3, *o.ExitCode)
}

func TestCase38ForeignBytesAreHarmless(t *testing.T) {
	out := "Job Id: 7.srv\n    Job_Name = a\xff\xfeb\n    Job_Owner = ann@head\n    job_state = Q\n    Variable_List = X=\xff,\n    comment = bad \xff \x1b[31m text\n\n" +
		"Job Id: 8.srv\n    Job_Name = ok\n    Job_Owner = ann@head\n    job_state = R\n\n"
	records := parseRecords([]byte(out))
	require.Len(t, records, 2)
	first, ok := records[0].observe()
	require.True(t, ok)
	assert.NotContains(t, first.Message, "\x1b")
	second, ok := records[1].observe()
	require.True(t, ok)
	assert.Equal(t, scheduler.Granted, second.Phase)
}

func TestOtherStates(t *testing.T) {
	for state, check := range map[string]func(*testing.T, scheduler.Observation){
		"S": func(t *testing.T, o scheduler.Observation) {
			assert.Equal(t, scheduler.Granted, o.Phase)
			assert.True(t, o.Suspended)
		},
		"U": func(t *testing.T, o scheduler.Observation) { assert.True(t, o.Suspended) },
		"T": func(t *testing.T, o scheduler.Observation) { assert.Equal(t, scheduler.Pending, o.Phase) },
		"M": func(t *testing.T, o scheduler.Observation) {
			assert.Empty(t, o.Phase)
			assert.Contains(t, o.Message, "moved")
		},
		"B": func(t *testing.T, o scheduler.Observation) { assert.Empty(t, o.Phase) },
		"C": func(t *testing.T, o scheduler.Observation) {
			assert.Empty(t, o.Phase)
			assert.Equal(t, "C/42", o.Verbatim)
		},
		"~": func(t *testing.T, o scheduler.Observation) { assert.Empty(t, o.Phase) },
	} {
		t.Run(state, func(t *testing.T) {
			o, ok := record{id: "1.s", attrs: []attr{{"Job_Name", "x"}, {"job_state", state}, {"substate", "42"}}}.observe()
			require.True(t, ok)
			check(t, o)
		})
	}
}

func TestAdministratorRemovedIt(t *testing.T) {
	o, ok := record{attrs: []attr{{"Job_Name", "x"}, {"Job_Owner", "ann@head"}, {"job_state", "F"}, {"substate", "91"},
		{"comment", "Job run at Mon and terminated by root@head"}, {"Exit_status", "271"}}}.observe()
	require.True(t, ok)
	assert.Equal(t, scheduler.AdminCancelled, o.Reason)
}

// A substate that says "failed" beside exit code 0 is a contrary word of the scheduler: no success.
func TestExitCodeZeroOfAFailedJobIsNoSuccess(t *testing.T) {
	o, ok := record{attrs: []attr{{"Job_Name", "x"}, {"job_state", "F"}, {"substate", "93"}, {"Exit_status", "0"}, {"exec_host", "n1/0"}}}.observe()
	require.True(t, ok)
	assert.Equal(t, scheduler.Failed, o.Phase)
}

func FuzzRecords(f *testing.F) {
	for _, name := range []string{"F-exit3", "F-ranks", "H-depend"} {
		out, err := os.ReadFile("testdata/records/" + name + ".qstat-x-f.out")
		require.NoError(f, err)
		f.Add(out)
	}
	f.Add([]byte("Job Id: \n    = \n\tx\n    a = b"))
	f.Fuzz(func(t *testing.T, out []byte) {
		for _, r := range parseRecords(out) {
			o, ok := r.observe()
			if !ok {
				continue
			}
			if o.Phase == scheduler.Completed && (o.ExitCode == nil || *o.ExitCode != 0) {
				t.Fatalf("completed without exit code 0: %q", out)
			}
			if strings.ContainsAny(o.Message, "\x1b\x00\n") || len(o.Message) > maxText+200 {
				t.Fatalf("message not neutral: %q", o.Message)
			}
		}
	})
}
